"""Reading a log back, and opening one that crashed: each beside what the same bytes cost without a
log around them.

- all of it, 1 MB a read, by offset: beside ``os.pread`` of the same bytes;
- one batch at a random offset, and at a random time: beside ``os.pread`` of the 4 KB between two
  index entries;
- the newest batch of a log of 2,500 segments: beside that of a log of one;
- where 2,500 sealed segments end, as each opening looks: beside ``os.open`` and ``os.pread`` of the
  same two files;
- a lookup in an offset index of a million entries: beside ``bisect`` in a Python list of as many
  integers;
- opening after a crash with nothing flushed, so that every byte is checked and every index made
  again: beside a plain read and CRC-32C of the same bytes. Both read them from the disk, not from
  the page cache (``storage/on_disk.py``).
"""

import os
import shutil
import tempfile
import time
from bisect import bisect_right
from collections.abc import Callable
from random import Random
from typing import Any

from crc32c import crc32c

from benchmarks.measure import alternate, rate, seconds
from raylog.actors.partition.partition import Partition
from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.indexes.offset_index import OffsetIndex
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records
from raylog.storage.recovery import LOOK_BYTES, end_by_index
from raylog.storage.state.properties import random_id

MB = 1 << 20
INTERVAL = 4096  # index.interval.bytes
RECORDS_A_BATCH, VALUE_BYTES = 16, 1000
SEGMENT_BYTES = 64 * MB
ENTRIES, SEGMENTS = 1_000_000, 2_500
LOOKUPS = 2_000
FS, PARTITION = RealFileSystem(), TopicPartition("bench", 0)


def run(quick: bool = False) -> list[dict[str, Any]]:
    rounds, megabytes = (3, 64) if quick else (7, 512)
    folder = tempfile.mkdtemp(prefix="raylog-bench-")
    try:
        path = os.path.join(folder, "bench-0")
        create_log(FS, path, random_id())
        log = _open(path)
        _fill(log, megabytes * MB)
        figures = [_all(log, rounds), *_here_and_there(log, rounds)]
        log.close()
        figures += [
            _newest(folder, rounds),
            _ends(folder, rounds),
            _lookup(folder, rounds),
            *_recovery(path, rounds),
        ]
    finally:
        shutil.rmtree(folder)
    return figures


def _open(path: str) -> Log:
    return open_log(FS, SystemClock(), path, PARTITION, LogConfig(segment_bytes=SEGMENT_BYTES))


def _fill(log: Log, size_bytes: int) -> None:
    """Batches of 16 KB, a millisecond apart."""
    start_ms = time.time_ns() // 1_000_000
    while log.size_bytes < size_bytes:
        now_ms = start_ms + log.log_end_offset // RECORDS_A_BATCH
        log.append(encode_records([(now_ms, None, bytes(VALUE_BYTES), ())] * RECORDS_A_BATCH))


def _all(log: Log, rounds: int) -> dict[str, Any]:
    def by_offset() -> None:
        offset = 0
        while (found := log.read(offset, MB)).size_bytes:
            found.read()
            # The slice's last header says where the next read begins; a client decodes it anyway.
            offset += found.size_bytes // batch_bytes * RECORDS_A_BATCH

    batch_bytes = log.size_bytes * RECORDS_A_BATCH // log.log_end_offset
    ours, raw = alternate(
        rounds, lambda: seconds(by_offset), lambda: seconds(lambda: _read_files(log.folder))
    )
    megabytes = log.size_bytes / 1e6
    return rate(
        "read by offset, 1 MB a read", megabytes / ours, "MB/s", "os.pread", megabytes / raw
    )


def _files(folder: str) -> list[str]:
    return sorted(
        os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".log")
    )


def _read_files(folder: str, checked: bool = False) -> None:
    for path in _files(folder):
        descriptor = os.open(path, os.O_RDONLY)
        position = 0
        while content := os.pread(descriptor, MB, position):
            position += len(content)
            if checked:
                crc32c(content)
        os.close(descriptor)


def _here_and_there(log: Log, rounds: int) -> list[dict[str, Any]]:
    random = Random(0)
    first = log.offset_for_timestamp(0)
    assert first is not None
    numbers = [random.randrange(log.log_end_offset) for _ in range(LOOKUPS)]
    descriptor = os.open(_files(log.folder)[0], os.O_RDONLY)
    places = [random.randrange(SEGMENT_BYTES - INTERVAL) for _ in range(LOOKUPS)]

    def by_offset() -> None:
        for offset in numbers:
            log.read(offset, INTERVAL).read()

    def by_time() -> None:
        for offset in numbers:
            log.offset_for_timestamp(first.timestamp + offset // RECORDS_A_BATCH)

    def plain() -> None:
        for place in places:
            os.pread(descriptor, INTERVAL, place)

    *ours, raw = alternate(
        rounds, lambda: seconds(by_offset), lambda: seconds(by_time), lambda: seconds(plain)
    )
    os.close(descriptor)
    names = ("read of a batch at a random offset", "offset for a random time")
    return [
        rate(name, LOOKUPS / taken, "a second", "os.pread of 4 KB", LOOKUPS / raw)
        for name, taken in zip(names, ours, strict=True)
    ]


def _newest(folder: str, rounds: int) -> dict[str, Any]:
    def fetches(partition: Partition) -> Callable[[], float]:
        newest = partition.log.log_end_offset - 1
        return lambda: seconds(lambda: [partition.fetch(newest, MB) for _ in range(LOOKUPS)])

    partitions = [_of_segments(folder, count) for count in (SEGMENTS, 1)]
    many, one = alternate(rounds, *map(fetches, partitions))
    for partition in partitions:
        partition.close()
    name = f"fetch of the newest of {SEGMENTS:,} segments"
    return rate(name, LOOKUPS / many, "a second", "of one segment", LOOKUPS / one)


def _of_segments(folder: str, count: int) -> Partition:
    """A partition of so many segments, with a batch of one record in each."""
    partition = TopicPartition(f"of{count}", 0)
    path = os.path.join(folder, str(partition))
    create_log(FS, path, random_id())
    log = open_log(FS, SystemClock(), path, partition, LogConfig())
    for number in range(count):
        if number:
            log.roll()
        log.append(encode_records([(time.time_ns() // 1_000_000, None, bytes(100), ())]))
    return Partition(log, SystemClock())


def _ends(folder: str, rounds: int) -> dict[str, Any]:
    partition = TopicPartition("ends", 0)
    path = os.path.join(folder, str(partition))
    create_log(FS, path, random_id())
    log = open_log(FS, SystemClock(), path, partition, LogConfig(segment_bytes=8 * INTERVAL))
    while len(log.segments) <= SEGMENTS:
        log.append(encode_records([(0, None, bytes(VALUE_BYTES), ())]))
    sealed = log.segments[:-1]
    ends = [segment.base_offset for segment in log.segments[1:]]

    def looked_at() -> float:
        return seconds(lambda: [end_by_index(segment) for segment in sealed])

    def read() -> None:
        for segment in sealed:
            for name in (segment.offset_index.path, segment.path):
                descriptor = os.open(name, os.O_RDONLY)
                os.pread(descriptor, LOOK_BYTES, 0)
                os.close(descriptor)

    assert [end_by_index(segment) for segment in sealed] == ends
    ours, raw = alternate(rounds, looked_at, lambda: seconds(read))
    log.close()
    name = f"where {SEGMENTS:,} segments end"
    limit = "os.pread of both files"
    return rate(name, SEGMENTS / ours, "a second", limit, SEGMENTS / raw, "16,700: 60 µs each")


def _lookup(folder: str, rounds: int) -> dict[str, Any]:
    random = Random(0)
    offsets, path = [], os.path.join(folder, "0.index")
    offset = -1
    for _ in range(ENTRIES):
        offset += random.randrange(1, 1000)
        offsets.append(offset)
    content = b"".join(OffsetIndex.entry.pack(each, 2 * n) for n, each in enumerate(offsets))
    FS.write_file(path, content)
    index = OffsetIndex(FS, path, 0, len(content))
    wanted = [random.randrange(offset) for _ in range(LOOKUPS)]
    ours, raw = alternate(
        rounds,
        lambda: seconds(lambda: [index.lookup(each) for each in wanted]),
        lambda: seconds(lambda: [bisect_right(offsets, each) for each in wanted]),
    )
    index.close()
    name = "lookup in an index of a million entries"
    return rate(name, LOOKUPS / ours, "a second", "bisect in a list", LOOKUPS / raw)


def _drop_cache(folder: str) -> None:
    for path in _files(folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _recovery(path: str, rounds: int) -> list[dict[str, Any]]:
    megabytes = sum(os.path.getsize(each) for each in _files(path)) / 1e6

    def open_again(*, is_clean: bool) -> None:
        log = open_log(FS, SystemClock(), path, PARTITION, LogConfig(), is_clean=is_clean)
        for segment in log.segments:
            segment.close()

    def read_again() -> None:
        _drop_cache(path)
        _read_files(path, checked=True)

    crashed, raw = alternate(
        rounds,
        lambda: seconds(lambda: open_again(is_clean=False)),
        lambda: seconds(read_again),
    )
    return [
        rate(
            "opening after a crash",
            megabytes / crashed,
            "MB/s",
            "read from disk + crc32c",
            megabytes / raw,
            "60%",
        )
    ]
