"""Transactions and truncations, stopped at every file operation: what the next start knows is what
the log holds."""

from typing import Any

from raylog.storage.errors import RaylogError
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.loader import create_log
from raylog.storage.log import Log
from raylog.storage.records.control import Marker, encode_marker, read_marker
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, TOPIC_ID, Disk, batch, of_producer
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives
from raylog.storage.validation import COORDINATOR

CRASHES: list[tuple[Survives, Survives]] = [
    ("all", "all"),
    ("flushed", "flushed"),
    ("flushed", "all"),
    ("all", "flushed"),
    ("torn", "all"),
    ("torn", "torn"),
]
CONFIG: dict[str, Any] = {
    "segment_bytes": 500,
    "index_interval_bytes": 60,
    "file_delete_delay_ms": 0,
}


def live(fs: MemoryFileSystem) -> None:
    create_log(fs, FOLDER, TOPIC_ID)
    sequences = {1: 0, 2: 0, 3: 0}
    log = Disk(fs).open(**CONFIG)

    def send(producer: int, count: int) -> None:
        records = of_producer(sequences[producer], count, producer=producer, transactional=True)
        log.append(records)
        sequences[producer] += count

    def end(producer: int, abort: bool) -> None:
        marker = encode_marker(Marker(abort, 0, T0), producer_id=producer, producer_epoch=0)
        log.append(marker, origin=COORDINATOR)

    for turn in range(6):
        send(1, 2)
        send(2, 1)
        log.append(batch(2))
        end(1, abort=turn % 2 == 0)
        send(3, 1) if turn == 2 else log.append(batch())
        end(2, abort=turn % 3 == 1)
        if turn == 3:
            log.flush()
            log.purge_deleted()
        if turn == 4:
            log.truncate_to(log.log_end_offset - 9)
            sequences = {1: 1000, 2: 1000, 3: 1000}
            return  # what is open now is for the check to find
    log.close()


def told(log: Log) -> tuple[list[AbortedTransaction], int]:
    """The aborted transactions and the last stable offset, by the batches alone."""
    open_since: dict[int, int] = {}
    aborted = []
    for segment in log.segments:
        for position, header in segment.batches():
            if header.is_control:
                first = open_since.pop(header.producer_id, None)
                marker = read_marker(segment.log.read(header.size_bytes, position))
                if first is not None and marker is not None and marker.is_abort:
                    stable = min(open_since.values(), default=header.next_offset)
                    aborted.append(
                        AbortedTransaction(
                            producer_id=header.producer_id,
                            first_offset=first,
                            last_offset=header.last_offset,
                            last_stable_offset=stable,
                        )
                    )
            elif header.is_transactional:
                open_since.setdefault(header.producer_id, header.base_offset)
    return aborted, min(open_since.values(), default=log.log_end_offset)


def lived(stop: int | None) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_dir("/logs")
    fs.sync_dir("/")
    if stop is not None:
        fs.stop_at(stop)
    try:
        live(fs)
    except Stopped:
        pass
    return fs


def test_after_any_crash_transactions_are_what_the_markers_say() -> None:
    operations = lived(None).operations
    aborted_seen = open_seen = 0
    for stop in range(operations + 1):
        fs = lived(stop)
        for seed, (survives, names) in enumerate(CRASHES):
            after = fs.crash(survives, names=names, seed=seed + stop)
            if not after.is_dir(FOLDER) or not any(
                name.endswith(".log") for name in after.list_dir(FOLDER)
            ):
                continue
            where = f"stop {stop} of {operations}, {survives}/{names}"
            try:
                log = Disk(after).open(is_clean=False, **CONFIG)
                aborted, stable = told(log)
                entries = [entry for segment in log.segments for entry in segment.txn_index.entries]
                assert entries == aborted, where
                assert log.last_stable_offset == stable, where
                log.append(batch())
            except RaylogError as error:
                raise AssertionError(f"{where}: {fs.log[-3:]}") from error
            aborted_seen += bool(aborted)
            open_seen += stable < log.log_end_offset - 1
    assert aborted_seen > 100
    assert open_seen > 100
