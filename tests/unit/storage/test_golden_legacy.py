"""Log dirs that Kafka wrote in message formats 0 and 1, opened, read and appended to.

``tests/golden/PROVENANCE.md`` tells what they hold; ``dumps`` what Kafka's own tool says of them.
"""

import re
import shutil
from pathlib import Path

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import open_log
from raylog.storage.log import Log
from raylog.storage.names import parse_folder
from raylog.storage.readable import MAX_TIMESTAMP
from raylog.storage.records.batch import check_crc, iter_batches
from raylog.storage.records.compression import CODECS
from raylog.storage.records.decode import decode_records, decode_table
from raylog.storage.records.encode import encode_records
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.recovery import check_indexes
from raylog.storage.state.checkpoints import CLEANER_OFFSETS
from raylog.storage.testing.clock import ManualClock
from tests.harness.paths import GOLDEN

LOG_DIRS = ("kafka-3.9-zk-v0-ibp0.9", "kafka-3.9-zk-v1-ibp0.10.2")
FOLDERS = [
    (d, path.name) for d in LOG_DIRS for path in sorted((GOLDEN / d).iterdir()) if path.is_dir()
]
CODEC_NAMES = {number: name for name, number in CODECS.items()}
RECORD = re.compile(
    r"\| offset: (\d+) (\w+): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) "
    r"isValid: true crc: \d+\} ?(.*)"
)
T0 = 1_700_000_000_000
LATER = 1_800_000_000_000  # than every message

parametrized = pytest.mark.parametrize(
    ("log_dir", "name"), FOLDERS, ids=[name for _, name in FOLDERS]
)


def opened(folder: Path, *, is_clean: bool = True) -> Log:
    partition = parse_folder(folder.name)
    assert partition is not None
    return open_log(
        RealFileSystem(), ManualClock(LATER), str(folder), partition, LogConfig(), is_clean=is_clean
    )


@pytest.fixture
def folder(tmp_path: Path, log_dir: str, name: str) -> Path:
    # it tells compaction's gaps from lost tails
    shutil.copy(GOLDEN / log_dir / CLEANER_OFFSETS, tmp_path)
    return shutil.copytree(GOLDEN / log_dir / name, tmp_path / name)


def dumped(log_dir: str, name: str, suffix: str = ".log") -> list[str]:
    """The lines of every file of a folder with this suffix, the file names among them."""
    lines, wanted = [], False
    kind = "offsets" if name.startswith("__") else "data"
    for line in (GOLDEN / "dumps" / f"{log_dir}.{kind}.txt").read_text().split("\n"):
        if line.startswith("Dumping ./"):
            wanted = line.startswith(f"Dumping ./{name}/") and line.endswith(suffix)
        if wanted:
            lines.append(line)
    return lines


def dumped_records(log_dir: str, name: str) -> list[tuple]:
    found = []
    for line in dumped(log_dir, name):
        if match := RECORD.fullmatch(line):
            offset, _, timestamp, key_size, value_size, text = match.groups()
            key = value = None
            if int(key_size) >= 0:
                text = text.removeprefix("key: ")
                key, text = text[: int(key_size)].encode(), text[int(key_size) :].lstrip(" ")
            if int(value_size) >= 0:
                value = text.removeprefix("payload: ").encode()
            found.append((int(offset), int(timestamp), key, value))
    return found


def fetched(log: Log, max_bytes: int = 5000) -> list[tuple]:
    """(offset, timestamp, key, value) of every record, by reads, as a client gets them."""
    records, offset = [], log.log_start_offset
    while (found := log.read(offset, max_bytes)).size_bytes:
        content = found.read()
        rows = [record[:4] for record in decode_records(content, start_offset=offset)]
        assert decode_table(content, start_offset=offset).num_rows == len(rows)
        records += rows
        offset = [header for _, header in iter_batches(content)][-1].next_offset
    return records


def test_the_folders_are_there() -> None:
    assert len(FOLDERS) == 16


@parametrized
def test_every_message_is_what_kafka_says(folder: Path, log_dir: str, name: str) -> None:
    log, lines = opened(folder), []
    for segment in log.segments:
        view = segment.log.view()
        lines += [
            f"Dumping ./{name}/{Path(segment.path).name}",
            f"Log starting offset: {segment.base_offset}",
        ]
        for position, header in segment.batches():
            check_crc(view, position, header)
            lines.append(
                f"offset: {header.last_offset} position: {position} "
                f"{header.timestamp_type}: {header.max_timestamp} size: {header.size_bytes} "
                f"magic: {header.magic} compresscodec: {CODEC_NAMES[header.codec]} crc: "
                f"{header.crc} isvalid: true"
            )
    assert lines == [line for line in dumped(log_dir, name) if not line.startswith("|") and line]


@pytest.mark.parametrize("is_clean", [True, False])
@parametrized
def test_every_record_is_what_kafka_says(
    folder: Path, log_dir: str, name: str, is_clean: bool
) -> None:
    log = opened(folder, is_clean=is_clean)
    said = dumped_records(log_dir, name)
    assert fetched(log) == said
    assert len(said) > 0 or name.startswith("__")
    assert log.log_end_offset >= (said[-1][0] + 1 if said else 0)
    # nothing was cut, and a second opening finds nothing to mend
    for segment in log.segments:
        stem = f"{segment.base_offset:020d}.log"
        assert (folder / stem).read_bytes() == (GOLDEN / log_dir / name / stem).read_bytes()
        check_indexes(segment)


@parametrized
def test_every_offset_can_be_read(folder: Path, log_dir: str, name: str) -> None:
    log, said = opened(folder), dumped_records(log_dir, name)
    for offset in range(0, log.log_end_offset, 7):
        found = log.read(offset, 1)
        rest = [record for record in said if record[0] >= offset]
        if not found.size_bytes:
            assert not rest
            continue
        content = found.read()
        assert len(list(iter_batches(content))) == 1
        rows = decode_records(content, start_offset=offset)
        assert [row[:4] for row in rows] == rest[: len(rows)]
        assert rows


@parametrized
def test_times_are_found(folder: Path, log_dir: str, name: str) -> None:
    log = opened(folder)
    records = [(timestamp, offset) for offset, timestamp, _, _ in dumped_records(log_dir, name)]
    for timestamp in {timestamp + more for timestamp, _ in records[::5] for more in (0, 1)} - {-1}:
        expected = next(((t, offset) for t, offset in records if t >= timestamp), None)
        assert log.offset_for_timestamp(timestamp) == expected
    largest = max((timestamp for timestamp, _ in records), default=-1)
    first = next((offset for timestamp, offset in records if timestamp == largest), None)
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == (None if largest < 0 else (largest, first))


@pytest.mark.parametrize("name", ["v1-none-0", "v1-gzip-0", "v1-lz4-0", "v1-compact-0"])
def test_kafkas_indexes_are_kept(tmp_path: Path, name: str) -> None:
    """An entry may pair the last offset of what was appended at once with where that began."""
    before = GOLDEN / LOG_DIRS[1] / name
    # it tells compaction's gaps from lost tails
    shutil.copy(GOLDEN / LOG_DIRS[1] / CLEANER_OFFSETS, tmp_path)
    log = opened(shutil.copytree(before, tmp_path / name))
    for segment in log.segments:
        for suffix in (".index", ".timeindex"):
            file = f"{segment.base_offset:020d}{suffix}"
            assert (tmp_path / name / file).read_bytes() == (before / file).read_bytes()


def test_a_time_index_for_messages_without_times_is_made_again(tmp_path: Path) -> None:
    """A LogAppendTime topic in message format 0: Kafka wrote times that no message has."""
    before = GOLDEN / LOG_DIRS[0] / "v0-appendtime-0"
    assert (before / "00000000000000000000.timeindex").stat().st_size == 36
    log = opened(shutil.copytree(before, tmp_path / before.name))
    assert (tmp_path / before.name / "00000000000000000000.timeindex").stat().st_size == 0
    # the file's own time, as for any segment without times
    assert log.segments[0].largest_timestamp > T0


@pytest.mark.parametrize("is_clean", [True, False])
@parametrized
def test_what_is_appended_after_an_upgrade_is_version_2(
    folder: Path, log_dir: str, name: str, is_clean: bool
) -> None:
    log, said = opened(folder), dumped_records(log_dir, name)
    end = log.log_end_offset
    batch = bytes(encode_records([(LATER + i, b"k", b"new", ()) for i in range(3)]))
    assert log.append(batch, leader_epoch=4).base_offset == end
    old = encode_legacy([(LATER + 9, b"k", b"old")], magic=LOG_DIRS.index(log_dir))
    assert log.append(old, leader_epoch=4).base_offset == end + 3
    if is_clean:
        log.close()
    log = opened(folder, is_clean=is_clean)
    time = LATER + 9 if log_dir == LOG_DIRS[1] else -1
    new = [*((end + i, LATER + i, b"k", b"new") for i in range(3)), (end + 3, time, b"k", b"old")]
    assert fetched(log, 1 << 20) == [*said, *new]
    assert [header.magic for _, header in log.segments[-1].batches()][-2:] == [2, 2]
    assert log.offset_for_timestamp(LATER + 1) == (LATER + 1, end + 1)
    assert log.epochs.latest == 4


@pytest.mark.parametrize("cut", [1, 20, 30, 40])
@pytest.mark.parametrize(
    ("log_dir", "name"), [(LOG_DIRS[0], "v0-none-0"), (LOG_DIRS[1], "v1-lz4-0")]
)
def test_a_torn_message_is_cut(folder: Path, log_dir: str, name: str, cut: int) -> None:
    last = max(folder.glob("*.log"))
    content = last.read_bytes()
    last.write_bytes(content[:-cut])
    log, said = opened(folder, is_clean=False), dumped_records(log_dir, name)
    whole = fetched(log)
    assert whole == said[: len(whole)]
    assert 0 < len(whole) < len(said)
    assert log.log_end_offset == whole[-1][0] + 1


@pytest.mark.parametrize(
    ("log_dir", "name"), [(LOG_DIRS[0], "v0-gzip-0"), (LOG_DIRS[1], "v1-none-0")]
)
def test_a_flipped_bit_ends_the_log_at_a_recovery(folder: Path, log_dir: str, name: str) -> None:
    last = max(folder.glob("*.log"))
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.write_bytes(content)
    log, said = opened(folder, is_clean=False), dumped_records(log_dir, name)
    whole = fetched(log)
    assert whole == said[: len(whole)]
    assert 0 < len(whole) < len(said)
