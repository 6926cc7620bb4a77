"""A process at the limits that the system sets it: of a file's size, and of memory.

Neither is the disk's fault. What is not written is undone, the error has a name and says what to
do, and nothing ends the process.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import cramjam
import pytest

from raylog.actors.partition.partition import Partition
from raylog.storage.config import LogConfig
from raylog.storage.errors import OutOfResources
from raylog.storage.files import RealFileSystem
from raylog.storage.limits import MAX_INT
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.records.batch import read_header, seal, stamp
from raylog.storage.records.compression import CODECS
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.recovery import check_indexes
from raylog.storage.testing.clock import T0, ManualClock
from raylog.storage.testing.logs import (
    PARTITION,
    TOPIC_ID,
    Disk,
    batch_of_size,
    of_producer,
    offsets_of,
)
from raylog.storage.validation import check_append
from tests.harness.limits import file_size_limit

FS = RealFileSystem()


def opened(folder: str, *, is_clean: bool = True, **config: int) -> Log:
    if not FS.exists(folder):
        create_log(FS, folder, TOPIC_ID)
    config = {"index_interval_bytes": 0, **config}
    return open_log(
        FS,
        ManualClock(),
        folder,
        PARTITION,
        LogConfig(**config),  # type: ignore[arg-type]
        is_clean=is_clean,
        recovery_point=0,
        log_start_offset=0,
    )


def is_sound(folder: str, end: int) -> bool:
    """Whether a crash leaves a log with these records."""
    log = opened(folder, is_clean=False)
    for segment in log.segments:
        check_indexes(segment)
    log.append(batch_of_size(100))
    return offsets_of(log) == [*range(end + 1)]


# -- the size of a file ----------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, 1, 99, 100, 299, 300, 301, 399])
def test_an_append_beyond_the_limit_is_undone_and_named(tmp_path: Path, limit: int) -> None:
    folder = str(tmp_path / str(PARTITION))
    log = opened(folder)
    partition = Partition(log, ManualClock())
    with file_size_limit(limit):
        written = limit // 100
        for _ in range(written):
            partition.append(batch_of_size(100))
        with pytest.raises(OutOfResources, match=r"ulimit -f.*segment\.bytes") as raised:
            partition.append(batch_of_size(100))
        assert not raised.value.is_disk_failure
        with pytest.raises(OutOfResources):
            partition.append(batch_of_size(101))
        assert not partition.is_offline
        assert os.path.getsize(log.segments[-1].path) == 100 * written
        assert offsets_of(log) == [*range(written)]
    assert partition.append(of_producer(0)).base_offset == written
    assert is_sound(folder, written + 1)


@pytest.mark.parametrize("limit", [0, 1, 20, 60, 100, 200, 10_000])
def test_a_roll_at_the_limit_is_undone_and_named(tmp_path: Path, limit: int) -> None:
    """Of the last index entries, of the producers' snapshot, of the new segment."""
    folder = str(tmp_path / str(PARTITION))
    log = opened(folder, segment_bytes=10_000)
    partition = Partition(log, ManualClock())
    for number in range(20):
        partition.append(of_producer(number))
    is_rolled = False
    with file_size_limit(limit):
        with suppress(OutOfResources):
            partition.roll()
            is_rolled = True
        assert not partition.is_offline
        assert offsets_of(log) == [*range(20)]
    assert is_rolled is (limit >= 200)
    assert partition.append(of_producer(20)).base_offset == 20
    partition.roll()
    assert partition.append(of_producer(21)).base_offset == 21
    assert is_sound(folder, 22)


def test_a_preallocated_segment_beyond_the_limit_is_not_made(tmp_path: Path) -> None:
    folder = str(tmp_path / str(PARTITION))
    log = opened(folder, segment_bytes=1000)
    log.append(batch_of_size(100))
    log.reconfigure(LogConfig(segment_bytes=MAX_INT, preallocate=True))
    with file_size_limit(10_000):
        with suppress(OutOfResources):
            log.roll()
        log.append(batch_of_size(100))
    assert is_sound(folder, 2)


# -- memory ----------------------------------------------------------------------------------------

MB = 1 << 20
BOMB = """
import sys
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.records.batch import read_header
from raylog.storage.records.compression import decompress
from raylog.storage.records.decode import decode_records
from raylog.storage.testing.clock import T0
from raylog.storage.validation import check_append
from tests.harness.limits import limit_memory

content = open(sys.argv[1], "rb").read()
plain = LogConfig(max_message_bytes=100 << 20)
other = "gzip" if read_header(content).codec != 1 else "zstd"
again = LogConfig(max_message_bytes=100 << 20, compression_type=other)
work = {
    "checked": lambda: check_append(content, plain, T0),
    "encoded again": lambda: check_append(content, again, T0),
    "read": lambda: decode_records(content),
}[sys.argv[2]]
try:  # its library is loaded before
    decompress(read_header(content).codec, b"no stream")
except RaylogError:
    pass
limit_memory(int(sys.argv[3]) << 20)
try:
    work()
except RaylogError as error:
    print(type(error).__name__)
else:
    print("done")
"""


def bomb(codec: str, plain_bytes: int) -> bytes:
    """A batch of one record of zeros."""
    records = [(T0, None, bytes(plain_bytes), ())]
    if codec != "snappy in one block":
        return bytes(encode_records(records, compression_type=codec))
    plain = encode_records(records)
    header = read_header(plain)._replace(attributes=CODECS["snappy"])
    block = bytes(cramjam.snappy.compress_raw(memoryview(plain)[HEADER_SIZE:]))
    return bytes(seal(bytearray(HEADER_SIZE) + block, header))


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of the bomb of a codec, made once."""
    folder = tmp_path_factory.mktemp("bombs")

    def made(codec: str) -> Path:
        path = folder / codec
        if not path.exists():
            path.write_bytes(bomb(codec, 20 * MB if "snappy" in codec else 90 * MB))
        return path

    return made


@pytest.mark.parametrize("work", ["checked", "encoded again", "read"])
@pytest.mark.parametrize("codec", ["gzip", "snappy", "snappy in one block", "lz4", "zstd"])
@pytest.mark.parametrize("room_mb", [0, 8])
def test_a_bomb_without_memory_has_a_name_and_ends_no_process(
    bombs: Callable[[str], Path], codec: str, work: str, room_mb: int
) -> None:
    arguments = [sys.executable, "-c", BOMB, str(bombs(codec)), work, str(room_mb)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    is_chunked = work == "checked" and codec != "snappy in one block"
    answers = {"done"} if is_chunked else {"OutOfResources"}
    if not room_mb:
        answers.add("OutOfResources")  # what the process has freed may do, or not
    assert ended.stdout.strip() in answers


# -- the 32 bits of an index -----------------------------------------------------------------------


def near_the_last_offset(disk: Disk, left: int, **config: Any) -> Log:
    """A log of one segment, as compaction leaves it, with room for so many offsets."""
    log = disk.open(**config)
    log.append(batch_of_size(100))
    log.close()
    far = batch_of_size(100)
    stamp(far, MAX_INT - left, 0)
    name = "00000000000000000000.log"
    disk.write(name, disk.read(name) + bytes(far))
    return disk.open(is_clean=False, **config)


@pytest.mark.parametrize("left", [0, 1, 2, 5])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("together", [False, True])
def test_a_segment_ends_before_its_indexes_would_overflow(
    disk: Disk, left: int, count: int, together: bool
) -> None:
    log = near_the_last_offset(disk, left, index_interval_bytes=0)
    first = MAX_INT - left + 1
    assert log.log_end_offset == first
    whole = left // count
    batches = [bytes(batch_of_size(200, count))] * (whole + 2)
    if together:
        checked = [check_append(records, log.config, T0) for records in batches]
        answers: list[Any] = [*log.append_all(checked, T0)]
        assert [answer.base_offset for answer in answers] == [
            first + n * count for n in range(len(batches))
        ]
    else:
        for number, records in enumerate(batches):
            assert log.append(records).base_offset == first + number * count
    assert [segment.base_offset for segment in log.segments] == [0, first + whole * count]
    end = first + len(batches) * count
    for again in (log, Disk(disk.fs.crash()).open(is_clean=False, index_interval_bytes=0)):
        assert offsets_of(again) == [0, first - 1, *range(first, end)]
        assert offsets_of(again, first, 0) == [*range(first, end)]
        for segment in again.segments:
            check_indexes(segment)
