"""What docs/OPERATIONS.md tells an operator to do, done as it stands there."""

import re
import subprocess
import threading
import uuid
from pathlib import Path

import pytest

import raylog
from raylog.cluster.broker import Broker
from raylog.storage.files import RealFileSystem
from raylog.storage.testing.waiting import wait_for
from raylog.storage.tools.verify import verify_folder
from tests.harness.paths import DOCS

MANUAL = (DOCS / "OPERATIONS.md").read_text()


@pytest.mark.timeout(240)
def test_a_copy_that_the_backup_script_makes_while_records_come_is_a_prefix_and_serves(
    broker: Broker, tmp_path: Path
) -> None:
    (script,) = re.findall(r"```bash\n(.*?)```", MANUAL, re.DOTALL)
    (tmp_path / "backup.sh").write_text(script)
    broker.create_topic("b", partitions=3, config={"segment.bytes": 1 << 20, "retention.ms": -1})
    sent, stop = [0], threading.Event()

    def produce() -> None:
        with broker.producer() as producer:
            while not stop.is_set():
                for number in range(sent[0], sent[0] + 300):
                    producer.send("b", b"%08d" % number + b"x" * 1000, partition=number % 3)
                producer.flush()
                sent[0] += 300

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        wait_for(lambda: sent[0] >= 6000, deadline_s=60)
        before = sent[0]
        log_dirs = sorted({str(Path(one.folder).parent) for one in broker.status()})
        copies = [str(tmp_path / f"copy-{number}") for number in range(len(log_dirs))]
        for log_dir, copy in zip(log_dirs, copies, strict=True):
            subprocess.run(
                ["bash", str(tmp_path / "backup.sh"), log_dir, copy], check=True, timeout=60
            )
            assert not (Path(log_dir) / ".backup").exists()
    finally:
        stop.set()
        thread.join()
    for folder in tmp_path.glob("copy-*/b-*"):
        *sealed, _active = verify_folder(RealFileSystem(), str(folder))
        assert len(sealed) > 0
        assert [problem for report in sealed for problem in report.problems] == []
    restored = raylog.start(copies, namespace=f"restored-{uuid.uuid4().hex[:8]}")
    try:
        assert restored.cluster_id() == broker.cluster_id()
        found: dict[int, list[int]] = {0: [], 1: [], 2: []}
        for record in restored.consumer("b", from_="earliest", to="latest"):
            found[record.partition].append(int((record.value or b"")[:8]))
        for partition, numbers in found.items():
            assert numbers == list(range(partition, partition + 3 * len(numbers), 3))
            assert before // 3 <= len(numbers) <= sent[0] // 3
        assert restored.health() == []
    finally:
        restored.stop()
        broker.delete_topic("b")
