"""A log dir that Apache Kafka wrote, opened as it is and held against what Kafka's own tool says of
it.

``tests/golden/PROVENANCE.md`` tells what it holds. Every partition is opened (a copy), every batch,
record, index entry and producer is compared with the dumps of DumpLogSegments.
"""

import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.indexes.offset_index import OffsetIndex
from raylog.storage.indexes.time_index import TimeIndex
from raylog.storage.loader import open_log
from raylog.storage.log import Log
from raylog.storage.log_dir import LogDir
from raylog.storage.names import TopicPartition, parse_folder
from raylog.storage.readable import MAX_TIMESTAMP
from raylog.storage.records.batch import BatchHeader, check_crc, iter_batches
from raylog.storage.records.compression import CODECS
from raylog.storage.records.decode import decode_records
from raylog.storage.recovery import check_indexes
from raylog.storage.state.checkpoints import read_epochs, read_offsets
from raylog.storage.state.producers import ProducerStates
from raylog.storage.state.properties import MetaProperties, read_meta, read_topic_id
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import encoded_again
from tests.harness.paths import GOLDEN

LOG_DIR = GOLDEN / "kafka-3.9-kraft-clean"
CLUSTER = "uHx_mWK3Sji2MLBMLyjjfg"
FOLDERS = sorted(path.name for path in LOG_DIR.iterdir() if path.is_dir())
# Their payloads are dumped decoded. Here only the sizes of keys and values are compared.
DECODED = [name for name in FOLDERS if name.startswith("__")]

RECORD = re.compile(
    r"\| offset: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) "
    r"sequence: (-?\d+) headerKeys: \[(.*?)\] ?(.*)"
)
Dump = dict[str, list[str]]


@pytest.fixture(scope="module")
def dumps() -> Dump:
    """The dumped lines by file: '<folder>/<file>'."""
    lines: Dump = defaultdict(list)
    for path in sorted((GOLDEN / "dumps").iterdir()):
        name = ""
        for line in path.read_text().split("\n"):
            if line.startswith("Dumping ./"):
                name = line.removeprefix("Dumping ./")
            elif name:
                lines[name].append(line)
    return lines


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log dir, to be opened clean; nothing in these tests writes to it but the opening
    itself."""
    return shutil.copytree(LOG_DIR, tmp_path_factory.mktemp("golden") / "logs")


def opened(log_dir: Path, name: str, *, is_clean: bool = True) -> Log:
    fs, partition = RealFileSystem(), parse_folder(name)
    assert partition is not None
    checkpoints = [
        read_offsets(fs, str(LOG_DIR / kind)).get(partition, 0)
        for kind in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
    ]
    return open_log(
        fs,
        ManualClock(),
        str(log_dir / name),
        partition,
        LogConfig(),
        topic_id=read_topic_id(fs, str(LOG_DIR / name)),
        is_clean=is_clean,
        recovery_point=checkpoints[0] if is_clean else 0,
        log_start_offset=checkpoints[1],
    )


def fetched(log: Log, max_bytes: int = 1 << 20) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch from the log start offset on, by reads, as a client gets them."""
    offset = log.log_start_offset
    while (found := log.read(offset, max_bytes)).size_bytes:
        content = found.read()
        for position, header in iter_batches(content):
            check_crc(content, position, header)
            yield header, content[position : position + header.size_bytes]
            offset = header.next_offset


def batches_of(lines: list[str]) -> list[dict[str, str]]:
    """The fields of every batch line."""
    found = []
    for line in lines:
        if line.startswith("baseOffset:"):
            words = line.split()
            found.append(
                {key.rstrip(":"): value for key, value in zip(words[::2], words[1::2], strict=True)}
            )
    return found


def as_dumped(header: BatchHeader, position: int) -> dict[str, str]:
    """A batch's fields as DumpLogSegments writes them."""
    horizon = header.delete_horizon_ms
    return {
        "baseOffset": str(header.base_offset),
        "lastOffset": str(header.last_offset),
        "count": str(header.count),
        "baseSequence": str(header.base_sequence),
        "lastSequence": str(header.last_sequence),
        "producerId": str(header.producer_id),
        "producerEpoch": str(header.producer_epoch),
        "partitionLeaderEpoch": str(header.leader_epoch),
        "isTransactional": str(header.is_transactional).lower(),
        "isControl": str(header.is_control).lower(),
        "deleteHorizonMs": "OptionalLong.empty" if horizon is None else f"OptionalLong[{horizon}]",
        "position": str(position),
        header.timestamp_type: str(header.max_timestamp),
        "size": str(header.size_bytes),
        "magic": "2",
        "compresscodec": {number: name for name, number in CODECS.items()}[header.codec],
        "crc": str(header.crc & 0xFFFFFFFF),
        "isvalid": "true",
    }


def dumped_records(dumps: Dump, name: str) -> list[tuple[Any, ...]]:
    """(offset, timestamp, key, value, header keys) of every record of a folder."""
    found = []
    for file in sorted(key for key in dumps if key.startswith(f"{name}/") and key.endswith(".log")):
        for line in dumps[file]:
            match = RECORD.fullmatch(line)
            assert match or not line.startswith("| offset"), line
            if match:
                offset, timestamp, key_size, value_size, _, headers, text = match.groups()
                is_decoded = name in DECODED or "endTxnMarker" in text
                key, value = (sizes if is_decoded else split)(text, int(key_size), int(value_size))
                found.append(
                    (int(offset), int(timestamp), key, value, headers.split(",") if headers else [])
                )
    return found


def sizes(text: str, key_size: int, value_size: int) -> tuple[int | None, int | None]:
    """What is left of a key and a value that the tool has decoded."""
    return (None if key_size < 0 else key_size), (None if value_size < 0 else value_size)


def split(text: str, key_size: int, value_size: int) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record's line."""
    key = value = None
    if key_size >= 0:
        text = text.removeprefix("key: ")
        key, text = text[:key_size].encode(), text[key_size:].lstrip(" ")
    if value_size >= 0:
        value = text.removeprefix("payload: ").encode()
        assert len(value) == value_size
    return key, value


# -- every partition -------------------------------------------------------------------------------


def test_every_topic_of_kafkas_can_be_opened() -> None:
    """None is left out."""
    assert len(FOLDERS) == 24


@pytest.mark.parametrize("name", FOLDERS)
def test_every_batch_is_what_kafka_says(dumps: Dump, copy: Path, name: str) -> None:
    log = opened(copy, name)
    for segment in log.segments:
        said = batches_of(dumps[f"{name}/{segment.base_offset:020d}.log"])
        assert [as_dumped(header, position) for position, header in segment.batches()] == said
    assert log.recovery_point == log.log_end_offset


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("name", FOLDERS)
def test_every_record_is_what_kafka_says(
    dumps: Dump, tmp_path: Path, name: str, is_clean: bool
) -> None:
    shutil.copytree(LOG_DIR / name, tmp_path / name)
    log = opened(tmp_path, name, is_clean=is_clean)
    said = [record for record in dumped_records(dumps, name) if record[0] >= log.log_start_offset]
    got = []
    for header, content in fetched(log, 5000):
        for record in decode_records(content, start_offset=log.log_start_offset, control=True):
            sized = name in DECODED or header.is_control
            key, value = (None if x is None else len(x) if sized else x for x in record[2:4])
            got.append(
                (
                    record.offset,
                    record.timestamp,
                    key,
                    value,
                    [header.key for header in record.headers],
                )
            )
    assert got == said
    assert len(said) > 0 or log.log_end_offset == log.log_start_offset


@pytest.mark.parametrize("name", FOLDERS)
def test_uncompressed_batches_encode_to_the_same_bytes(name: str) -> None:
    for path in (LOG_DIR / name).glob("*.log"):
        content = path.read_bytes()
        for position, header in iter_batches(content):
            batch = content[position : position + header.size_bytes]
            if not header.codec and not is_compacted(header):
                assert encoded_again(batch) == batch, (path.name, position)


def is_compacted(header: BatchHeader) -> bool:
    """Whether records are missing: Kafka's cleaner keeps the base timestamp of one that it
    drops."""
    return header.count != header.last_offset_delta + 1


@pytest.mark.parametrize("name", [name for name in FOLDERS if name.startswith("g-")])
def test_kafkas_indexes_are_read_and_agree_with_the_log(dumps: Dump, copy: Path, name: str) -> None:
    for segment in opened(copy, name).segments:
        stem = f"{segment.base_offset:020d}"
        path = str(LOG_DIR / name / stem)
        offsets = OffsetIndex(RealFileSystem(), path + ".index", segment.base_offset, 1 << 20)
        said = [
            tuple(map(int, line.split()[1::2]))
            for line in dumps[f"{name}/{stem}.index"]
            if "position:" in line
        ]
        assert [tuple(offsets[number]) for number in range(len(offsets))] == said
        times = TimeIndex(RealFileSystem(), path + ".timeindex", segment.base_offset, 1 << 20)
        said = [
            tuple(map(int, line.split()[1::2]))
            for line in dumps[f"{name}/{stem}.timeindex"]
            if "timestamp:" in line
        ]
        assert [tuple(times[number]) for number in range(len(times))] == said
        check_indexes(segment)
        for suffix in (".index", ".timeindex"):
            assert (copy / name / (stem + suffix)).read_bytes() == Path(path + suffix).read_bytes()


@pytest.mark.parametrize("name", [name for name in FOLDERS if name.startswith("g-")])
def test_times_are_found_in_kafkas_logs(dumps: Dump, copy: Path, name: str) -> None:
    log = opened(copy, name)
    records = [
        (record.timestamp, record.offset)
        for _, content in fetched(log)
        for record in decode_records(content, start_offset=log.log_start_offset, control=True)
    ]
    for timestamp in {timestamp + more for timestamp, _ in records[::3] for more in (0, 1)}:
        expected = next(((t, offset) for t, offset in records if t >= timestamp), None)
        assert log.offset_for_timestamp(timestamp) == expected
    if records:
        largest = max(timestamp for timestamp, _ in records)
        first = next(offset for timestamp, offset in records if timestamp == largest)
        assert log.offset_for_timestamp(MAX_TIMESTAMP) == (largest, first)


@pytest.mark.parametrize("name", [name for name in FOLDERS if name.startswith("g-")])
def test_kafkas_producer_snapshots_are_read_and_written_back_to_the_byte(
    dumps: Dump, name: str
) -> None:
    for path in sorted((LOG_DIR / name).glob("*.snapshot")):
        states = ProducerStates(name)
        states.decode(str(path), path.read_bytes(), int(path.stem), 0)
        assert states.encode() == path.read_bytes()
        said = [line for line in dumps[f"{name}/{path.name}"] if line.startswith("producerId:")]
        assert len(said) == len(states)
        for line, (producer_id, known) in zip(said, states._producers.items(), strict=True):
            last = known.batches[-1]
            start = known.transaction_start
            assert line == (
                f"producerId: {producer_id} producerEpoch: {known.epoch} "
                f"coordinatorEpoch: {known.coordinator_epoch} "
                "currentTxnFirstOffset: "
                f"{f'OptionalLong[{start}]' if start >= 0 else 'OptionalLong.empty'} "
                f"lastTimestamp: {known.timestamp} firstSequence: {last.first_sequence} "
                f"lastSequence: {last.last_sequence} lastOffset: {last.last_offset} "
                f"offsetDelta: {last.offset_delta} timestamp: {last.timestamp}"
            )


def test_a_producer_of_kafkas_goes_on_where_it_was(tmp_path: Path) -> None:
    """Its batches tell: Kafka's own last snapshot has forgotten it, since its records are old."""
    shutil.copytree(
        LOG_DIR / "g-idem-0", tmp_path / "g-idem-0", ignore=shutil.ignore_patterns("*.snapshot")
    )
    log = opened(tmp_path, "g-idem-0")
    *_, (last, content) = (item for item in fetched(log) if item[0].producer_id >= 0)
    answer = log.append(content)
    assert (answer.base_offset, answer.last_offset, answer.is_duplicate) == (
        last.base_offset,
        last.last_offset,
        True,
    )


# -- the log dir -----------------------------------------------------------------------------------


def test_kafkas_log_dir_is_taken_over(tmp_path: Path) -> None:
    log_dir = LogDir(
        RealFileSystem(), shutil.copytree(LOG_DIR, tmp_path / "logs").as_posix(), CLUSTER, 1
    )
    assert log_dir.was_clean
    assert log_dir.meta == MetaProperties(CLUSTER, 1, "7AYb80xjaRsOgecNp41_gw")
    assert {str(partition) for partition in log_dir.partitions()} == set(FOLDERS) - {
        "__cluster_metadata-0"
    }
    offsets = log_dir.offsets()
    assert len(offsets) == 23
    assert offsets[TopicPartition("g-deleted", 0)] == (800, 333, 800)
    assert offsets[TopicPartition("g-lz4", 0)] == (1100, 0, 1100)
    log_dir.close(clean=True)
    assert log_dir.meta == read_meta(RealFileSystem(), str(LOG_DIR))


def test_kafkas_small_files_are_read() -> None:
    fs = RealFileSystem()
    assert read_meta(fs, str(LOG_DIR)) == MetaProperties(CLUSTER, 1, "7AYb80xjaRsOgecNp41_gw")
    cleaner = read_offsets(fs, str(LOG_DIR / "cleaner-offset-checkpoint"))
    assert cleaner == {
        TopicPartition("g-compact-none", 0): 1550,
        TopicPartition("g-compact", 0): 2050,
    }
    for name in FOLDERS:
        topic_id = read_topic_id(fs, str(LOG_DIR / name))
        assert topic_id is not None
        assert len(topic_id) == 22
        assert read_epochs(fs, str(LOG_DIR / name / "leader-epoch-checkpoint"))
    assert read_epochs(fs, str(LOG_DIR / "g-deleted-0/leader-epoch-checkpoint")) == [(0, 333)]
