"""``Log.append`` beside a raw ``os.write`` of the same bytes, to files in the same folder.

Both write fresh pages of the page cache; nothing is fsynced. The batches are uncompressed, without
a producer id.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.measure import alternate, rate, seconds
from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records
from raylog.storage.state.properties import random_id

# (bytes of a batch, share of os.write's speed that we promise)
SIZES = ((1 << 20, 0.68), (64 << 10, 0.68), (16 << 10, 0.65), (1 << 10, 0.50))
BYTES_A_ROUND = 64 << 20
SMALL_BATCHES_A_ROUND = 20_000


def run(quick: bool = False) -> list[dict[str, Any]]:
    folder = tempfile.mkdtemp(prefix="raylog-bench-")
    try:
        return [_one(folder, size, promise, 5 if quick else 15) for size, promise in SIZES]
    finally:
        shutil.rmtree(folder)


def _one(folder: str, size: int, promise: float, rounds: int) -> dict[str, Any]:
    batch = bytes(_batch(size))
    count = min(BYTES_A_ROUND // size, SMALL_BATCHES_A_ROUND)
    ours, raw = alternate(
        rounds, lambda: _append_all(folder, batch, count), lambda: _write_all(folder, batch, count)
    )
    megabytes = len(batch) * count / 1e6
    name = f"append of {size >> 10} KB batches"
    return rate(
        name,
        megabytes / ours,
        "MB/s",
        "os.write of the same bytes",
        megabytes / raw,
        f"{promise:.0%}",
    )


def _batch(size: int) -> bytearray:
    now_ms = time.time_ns() // 1_000_000
    rows = [(now_ms, None, b"x" * 88, ())] * max(1, (size - 61) // 99)
    return encode_records(rows)


def _append_all(folder: str, batch: bytes, count: int) -> float:
    path = os.path.join(folder, "bench-0")
    fs = RealFileSystem()
    create_log(fs, path, random_id())
    log = open_log(fs, SystemClock(), path, TopicPartition("bench", 0), LogConfig())
    taken = seconds(lambda: _repeat(log.append, batch, count))
    for segment in log.segments:
        segment.close()
    shutil.rmtree(path)
    return taken


def _write_all(folder: str, batch: bytes, count: int) -> float:
    path = os.path.join(folder, "raw")
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND)
    taken = seconds(lambda: _repeat(partial(os.write, descriptor), batch, count))
    os.close(descriptor)
    os.unlink(path)
    return taken


def _repeat(work: Callable[[bytes], object], batch: bytes, count: int) -> None:
    for _ in range(count):
        work(batch)
