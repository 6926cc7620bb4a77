"""A round of compaction over a log of 1 KB records, beside a plain read and write of the same
bytes.

A tenth of the records is the last of its key, or all are: then nothing can be dropped, and all is
copied. Nothing but the records' keys is held: the most memory that a round takes is told beside
what its offset map may take.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.measure import Figure, rate, seconds
from raylog.actors.node.broker_config import BrokerConfig
from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records
from raylog.storage.state.properties import random_id

VALUE_BYTES = 1024
SEGMENT_BYTES = 256 << 20
CHUNK_BYTES = 256 << 10
PROMISED_MB_A_SECOND = 150
# (name, keys for each record, records in a batch, codec)
CASES = (
    ("every key once, batches of 16 KB", 1.0, 16, "none"),
    ("a key ten times, batches of 16 KB", 0.1, 16, "none"),
    ("a key ten times, batches of one record", 0.1, 1, "none"),
    ("a key ten times, batches of 16 KB, lz4", 0.1, 16, "lz4"),
)


def run(quick: bool = False) -> list[dict[str, Any]]:
    records = 100_000 if quick else 1_000_000
    folder = tempfile.mkdtemp(prefix="raylog-bench-")
    try:
        figures = [figure for case in CASES for figure in _one(folder, records, *case)]
        return [*figures, _memory(records)]
    finally:
        shutil.rmtree(folder)


def _one(
    folder: str, records: int, name: str, keys: float, batch: int, codec: str
) -> list[dict[str, Any]]:
    path = os.path.join(folder, "bench-0")
    log = _filled(path, records, int(records * keys), batch, codec)
    megabytes = (log.size_bytes - log.segments[-1].size) / 1e6
    copied = seconds(lambda: _copy(log, os.path.join(folder, "copy")))
    cleaned = seconds(lambda: _clean(log))
    log.close()
    shutil.rmtree(path)
    beside = "read and write of the same bytes"
    target = f"{PROMISED_MB_A_SECOND} MB/s"
    return [
        rate(
            f"compaction: {name}", megabytes / cleaned, "MB/s", beside, megabytes / copied, target
        ),
        rate(f"compaction: {name}", records / cleaned, "records/s", beside, records / copied),
    ]


def _filled(path: str, records: int, keys: int, batch: int, codec: str) -> Log:
    create_log(RealFileSystem(), path, random_id())
    config = LogConfig(segment_bytes=SEGMENT_BYTES)
    log = open_log(RealFileSystem(), SystemClock(), path, TopicPartition("bench", 0), config)
    for rows in _rows(records, keys, batch):
        log.append(encode_records(rows, compression_type=codec))
    log.roll()
    log.flush()
    return log


def _rows(records: int, keys: int, batch: int) -> Iterator[list[Any]]:
    random = Random(1)
    pool = random.randbytes(1 << 20)
    now_ms = SystemClock().now_ms()
    for start in range(0, records, batch):
        at = [random.randrange(len(pool) - VALUE_BYTES) for _ in range(batch)]
        yield [
            (
                now_ms,
                b"key-%010d" % ((start + n) % keys),
                pool[at[n] : at[n] + VALUE_BYTES // 2] * 2,
                (),
            )
            for n in range(batch)
        ]


def _clean(log: Log) -> None:
    defaults = BrokerConfig()
    buffers = Buffers.share(
        threads=1,
        dedupe_bytes=defaults.log_cleaner_dedupe_buffer_size,
        load_factor=defaults.log_cleaner_io_buffer_load_factor,
        io_bytes=defaults.log_cleaner_io_buffer_size,
    )
    clean(
        RealFileSystem(),
        SystemClock(),
        log,
        Cleanable(0, log.segments[-1].base_offset, 0, 1),
        buffers,
    )


def _copy(log: Log, path: str) -> None:
    for segment in log.segments[:-1]:
        target = RealFileSystem().open(path, create=True)
        for position in range(0, segment.size, CHUNK_BYTES):
            target.append([segment.log.read(CHUNK_BYTES, position)])
        target.flush()
        target.close()
        os.unlink(path)


def _memory(records: int) -> dict[str, Any]:
    """How much a process grows by one round, in MB: in a process of its own, since the most is for
    ever."""
    source = f"from benchmarks.compaction import grown; print(grown({records}))"
    told = subprocess.run(
        [sys.executable, "-c", source], check=True, capture_output=True, text=True
    )
    grown, allowed = float(told.stdout), BrokerConfig().log_cleaner_dedupe_buffer_size / 1e6
    return Figure(
        "memory of a round",
        grown,
        "MB",
        "log.cleaner.dedupe.buffer.size",
        allowed,
        grown / allowed,
        "1",
    ).as_dict()


def grown(records: int) -> float:
    """MB that this process's memory grows at the most while it compacts so many keys."""
    folder = tempfile.mkdtemp(prefix="raylog-bench-")
    try:
        log = _filled(os.path.join(folder, "bench-0"), records, records, 16, "none")
        Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
        before = _status_kb("VmRSS")
        _clean(log)
        return (_status_kb("VmHWM") - before) / 1e3
    finally:
        shutil.rmtree(folder)


def _status_kb(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))
