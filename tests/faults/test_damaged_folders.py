"""Folders that a Kafka wrote, damaged at random: the tools tell, name what is wrong, and mend;
nothing else."""

from random import Random

import pytest

from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.tools.dump import decoders
from raylog.storage.tools.dump.logs import LogOptions
from raylog.storage.tools.dump.tool import DumpOptions, dump_files
from raylog.storage.tools.repair import repair_folder
from raylog.storage.tools.verify import verify_folder
from tests.harness.paths import GOLDEN

FOLDERS = [
    "kafka-3.9-kraft-clean/g-txn-0",
    "kafka-3.9-kraft-clean/g-idem-0",
    "kafka-3.9-kraft-clean/g-zstd-0",
    "kafka-3.9-kraft-clean/g-compact-0",
    "kafka-3.9-kraft-clean/__consumer_offsets-2",
    "kafka-3.9-kraft-clean/__transaction_state-0",
    "kafka-3.9-kraft-clean/__cluster_metadata-0",
    "kafka-3.9-zk-v0-ibp0.9/v0-lz4-0",
    "kafka-3.9-zk-v1-ibp0.10.2/v1-snappy-0",
]
KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
PARSERS = [
    decoders.plain(decoders.DECODERS["string"], decoders.DECODERS["bytes"]),
    decoders.offsets,
    decoders.transactions,
    decoders.cluster_metadata,
]


def damaged(content: bytes, random: Random) -> bytes:
    """Some bytes changed, cut off, added, or taken out."""
    at, some = random.randrange(len(content)), random.randrange(1, 100)
    match random.randrange(4):
        case 0:
            changed = bytearray(content)
            for _ in range(random.choice((1, 2, 8))):
                changed[random.randrange(len(changed))] = random.randrange(256)
            return bytes(changed)
        case 1:
            return content[:at]
        case 2:
            return content + (bytes(some) if some % 2 else random.randbytes(some))
        case _:
            return content[:at] + content[at + some :]


@pytest.mark.parametrize("name", FOLDERS)
def test_whatever_is_damaged_is_told_by_name_and_mended(name: str) -> None:
    random, source = Random(name), GOLDEN / name
    folder = f"/logs/{source.name}"
    for _ in range(15):
        fs = MemoryFileSystem()
        fs.make_dir(folder)
        for path in source.iterdir():
            fs.write_file(f"{folder}/{path.name}", path.read_bytes())
        files = [path for path in fs.list_dir(folder) if path.endswith(KINDS)]
        victim = random.choice([path for path in files if fs.read_file(f"{folder}/{path}")])
        fs.write_file(f"{folder}/{victim}", damaged(fs.read_file(f"{folder}/{victim}"), random))
        options = DumpOptions(LogOptions(is_deep=True, parser=random.choice(PARSERS)))
        err: list[str] = []
        dump_files(fs, [f"{folder}/{path}" for path in files], options, str, err.append)
        assert all(str(line).strip() for line in err)
        problems = [problem for report in verify_folder(fs, folder) for problem in report.problems]
        done = repair_folder(fs, ManualClock(), folder, drop_segments=True)
        assert (done is not None) == bool(problems), victim
        assert [report.problems for report in verify_folder(fs, folder) if report.problems] == [], (
            victim
        )
