"""Kafka's own DumpLogSegments over partition folders that raylog wrote: what it says is what was
appended.

The tool checks what it prints: every index entry against its batch, every time against its record,
every CRC. A line of complaint anywhere fails the test.
"""

import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kafka.distribution import Kafka
from tests.kafka.dumping import Dump, dump_by_raylog, dump_folder
from tests.kafka.written import CODECS, SCENARIOS, SMALL_SEGMENT_BYTES, Seen, Written

pytestmark = pytest.mark.timeout(300)  # the first may fetch Kafka


@pytest.fixture(scope="module")
def dumps(kafka: Kafka, written: dict[str, Written]) -> dict[str, Dump]:
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda log: dump_folder(kafka, log.folder), written.values())
    return dict(zip(written, found, strict=True))


def named(record: Seen) -> Seen:
    """As the dump shows it: of the headers only the names."""
    return record._replace(headers=tuple((name, None) for name, _ in record.headers))


@pytest.mark.parametrize("name", SCENARIOS)
def test_kafka_finds_nothing_to_complain_of(dumps: dict[str, Dump], name: str) -> None:
    assert dumps[name].complaints == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_records_are_missing_only_where_compaction_took_them(
    dumps: dict[str, Dump], written: dict[str, Written], name: str
) -> None:
    gaps = dumps[name].gaps
    assert bool(gaps) == written[name].is_compacted
    kept = {record.offset for record in written[name].records}
    assert not any(offset in kept for before, after in gaps for offset in range(before + 1, after))


@pytest.mark.parametrize("name", SCENARIOS)
def test_raylogs_dump_is_kafkas_to_the_character(
    dumps: dict[str, Dump], written: dict[str, Written], name: str
) -> None:
    assert dump_by_raylog(written[name].folder) == dumps[name].lines


@pytest.mark.parametrize("name", SCENARIOS)
def test_kafka_finds_every_record_that_was_appended(
    dumps: dict[str, Dump], written: dict[str, Written], name: str
) -> None:
    log = written[name]
    found = [record for record in dumps[name].records if record.offset >= log.log_start_offset]
    assert found == [named(record) for record in log.records]


@pytest.mark.parametrize("name", SCENARIOS)
def test_batches_lie_behind_each_other(
    dumps: dict[str, Dump], written: dict[str, Written], name: str
) -> None:
    """Offsets and positions, segment by segment, with nothing between them."""
    batches, log = dumps[name].batches, written[name]
    for before, batch in pairwise(batches):
        gap = int(batch["base"]) - int(before["last"]) - 1
        assert gap >= 0 if log.is_compacted else gap == 0
        behind = int(before["position"]) + int(before["size"])
        assert int(batch["position"]) in (behind, 0)
    starts = [int(batch["base"]) for batch in batches if batch["position"] == "0"]
    bases = [int(file.stem) for file in sorted(log.folder.glob("*.log")) if file.stat().st_size]
    assert len(starts) == len(bases)
    if not log.is_compacted:
        assert starts == bases
    assert len(batches) == 0 or int(batches[-1]["last"]) + 1 == log.log_end_offset


@pytest.mark.parametrize("codec", CODECS)
def test_a_codec_stays_the_producers(dumps: dict[str, Dump], codec: str) -> None:
    assert {batch["codec"] for batch in dumps[f"codec-{codec}"].batches} == {codec}


def test_the_topics_codec_takes_the_place_of_the_producers(dumps: dict[str, Dump]) -> None:
    assert {batch["codec"] for batch in dumps["recompressed"].batches} == {"zstd"}


def test_indexes_are_not_empty(dumps: dict[str, Dump]) -> None:
    """That they agree with the log the tool has checked; here, that there was something to
    check."""
    assert dumps["dense-index"].offset_entries > 250
    assert dumps["dense-index"].time_entries > 250
    for codec in CODECS:
        assert dumps[f"codec-{codec}"].offset_entries > 5


def test_aborted_transactions_are_in_the_index(
    dumps: dict[str, Dump], written: dict[str, Written]
) -> None:
    aborted = [
        (offset, kind) for offset, kind, epoch in dumps["transactions"].markers if epoch == 3
    ]
    assert Counter(kind for _, kind in aborted) == {"COMMIT": 9, "ABORT": 6}
    markers = [offset for offset, kind in aborted if kind == "ABORT"]
    entries = dumps["transactions"].aborted
    assert sorted(last for _, _, last, _ in entries) == markers
    for _, first, last, _ in entries:
        assert first in written["transactions"].aborted
        assert first < last


def test_an_open_transaction_is_in_the_snapshot(
    dumps: dict[str, Dump], written: dict[str, Written]
) -> None:
    ((producer,),) = dumps["open-transaction"].snapshots.values()
    assert producer["producer"] == "6000"
    assert producer["open"] == str(written["open-transaction"].last_stable_offset)


def test_the_last_snapshot_knows_every_producer(
    dumps: dict[str, Dump], written: dict[str, Written]
) -> None:
    snapshots = dumps["idempotent"].snapshots
    last = snapshots[f"{written['idempotent'].log_end_offset:020d}.snapshot"]
    found = {producer["producer"]: (producer["epoch"], producer["sequence"]) for producer in last}
    assert found == {"4000": ("1", "9"), "4001": ("0", "29"), "4002": ("0", "14")}


def test_every_epoch_is_in_its_batches(dumps: dict[str, Dump], written: dict[str, Written]) -> None:
    assert [batch["epoch"] for batch in dumps["epochs"].batches] == ["0", "1", "2"]
    checkpoint = (written["epochs"].folder / "leader-epoch-checkpoint").read_text()
    assert checkpoint.split("\n") == ["0", "3", "0 0", "1 50", "2 100", ""]


def test_a_damaged_log_is_complained_of(
    kafka: Kafka, written: dict[str, Written], tmp_path: Path
) -> None:
    """The oracle can say no: an index that lies, a torn tail, a flipped bit."""
    folder = shutil.copytree(written["codec-none"].folder, tmp_path / "damaged-0")
    first, *_, last = sorted(folder.glob("*.log"))
    content = bytearray(first.read_bytes())
    content[SMALL_SEGMENT_BYTES // 2] ^= 1
    first.write_bytes(content)
    with last.open("ab") as file:
        file.write(b"torn")
    index = first.with_suffix(".index")
    # an offset that no batch there ends with
    index.write_bytes(b"\x00\x00\x00\x01" + index.read_bytes()[4:])
    complaints = "\n".join(dump_folder(kafka, folder).complaints)
    for word in ("isvalid: false", "Mismatches in", "invalid bytes at the end"):
        assert word in complaints
