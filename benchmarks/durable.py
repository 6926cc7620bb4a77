"""What an acknowledgement costs that waits for the disk: appends of one partition at
``flush.messages=1``.

In one process, without Ray: callers' threads on a ``Partition`` over a real file system. Appends
that wait for an fsync share it, so that eight callers get more of them out of a disk than one does.
"""

import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.measure import Figure
from raylog.actors.partition.partition import Partition
from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records

APPENDS = 2000
RECORD = bytes(encode_records([(1, None, b"x" * 100, ())]))


def run(quick: bool = False) -> list[dict[str, Any]]:
    figures = []
    for callers in (1, 8, 32):
        waits, fsync_waits, fsyncs = _appends(callers, APPENDS // 10 if quick else APPENDS)
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            ours, limit = _at(waits, part), _at(fsync_waits, part)
            what = f"append fsynced, {callers} callers: {name}"
            figures.append(
                Figure(what, ours, "ms", "one fsync alone", limit, ours / limit, "").as_dict()
            )
        what, count = f"appends a fsync, {callers} callers", len(waits)
        figures.append(
            Figure(
                what, count / fsyncs, "", "callers", callers, count / fsyncs / callers, ""
            ).as_dict()
        )
    return figures


def _appends(callers: int, count: int) -> tuple[list[float], list[float], int]:
    """(ms of each append, ms of each fsync of a file that one thread writes, fsyncs that the
    appends took)"""
    fs, folder = RealFileSystem(), tempfile.mkdtemp(prefix="rl-")
    try:
        path = f"{folder}/durable-0"
        create_log(fs, path, "5eGdu6PVSRS-s9xHKXlyPg")
        log = open_log(
            fs, SystemClock(), path, TopicPartition("durable", 0), LogConfig(flush_messages=1)
        )
        partition, waits, lock = Partition(log, SystemClock()), [], threading.Lock()

        def call() -> None:
            own = []
            for _ in range(count // callers):
                began = time.perf_counter()
                partition.append(RECORD)
                own.append((time.perf_counter() - began) * 1000)
            with lock:
                waits.extend(own)

        with ThreadPoolExecutor(callers) as pool:
            for done in [pool.submit(call) for _ in range(callers)]:
                done.result()
        fsyncs = len(partition.meters.fsyncs)
        partition.close()
        return sorted(waits), sorted(_fsyncs(fs, f"{folder}/alone", count)), fsyncs
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fsyncs(fs: RealFileSystem, path: str, count: int) -> list[float]:
    file, taken = fs.open(path, create=True), []
    for _ in range(count):
        began = time.perf_counter()
        file.append((RECORD,))
        file.flush()
        taken.append((time.perf_counter() - began) * 1000)
    file.close()
    return taken


def _at(values: list[float], part: float) -> float:
    return values[min(int(len(values) * part), len(values) - 1)]
