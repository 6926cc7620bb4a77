"""What one partition counts of itself: lists of measurements that an exporter empties.

Several threads add at once, without a lock: a ``deque`` takes an item in one step. The exporter
takes the items off again, so that their sums are exact. While nothing is exported, each list keeps
the newest items, and no more.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from raylog.actors.metrics import Exporter
from raylog.storage.errors import RaylogError

if TYPE_CHECKING:
    from raylog.actors.partition.partition import Partition

Item = TypeVar("Item")
# The items kept between two exports, five seconds apart: twice what Ray can bring in that time.
KEPT = 50_000


# Plain tuples, since each append and fetch makes one: a NamedTuple takes four times as long.
Append = tuple[float, int, int, bool]  # seconds, bytes, records, whether it is a duplicate
Fetch = tuple[float, int]  # seconds, bytes


class Meters:
    """The measurements of one partition since they were last exported."""

    def __init__(self) -> None:
        self.appends: deque[Append] = deque(maxlen=KEPT)
        self.fetches: deque[Fetch] = deque(maxlen=KEPT)
        self.fsyncs: deque[float] = deque(maxlen=KEPT)
        self.failed_appends: deque[str] = deque(maxlen=KEPT)
        self.failed_fetches: deque[str] = deque(maxlen=KEPT)

    @contextmanager
    def fsync(self) -> Iterator[None]:
        """Measure one fsync."""
        began_s = time.perf_counter()
        yield
        self.fsyncs.append(time.perf_counter() - began_s)

    def export(self, partition: "Partition", exporter: Exporter) -> None:
        """Export what has come since the last time, and the partition's present state."""
        appends, fetches = drain(self.appends), drain(self.fetches)
        written = [
            (size_bytes, records)
            for _, size_bytes, records, is_duplicate in appends
            if not is_duplicate
        ]
        exporter.add("raylog_bytes_in", sum(size_bytes for size_bytes, _ in written))
        exporter.add("raylog_records_in", sum(records for _, records in written))
        exporter.add("raylog_duplicates", len(appends) - len(written))
        exporter.add("raylog_bytes_out", sum(size_bytes for _, size_bytes in fetches))
        exporter.observe("raylog_append_seconds", (seconds for seconds, _, _, _ in appends))
        exporter.observe("raylog_fetch_seconds", (seconds for seconds, _ in fetches))
        exporter.observe("raylog_fsync_seconds", drain(self.fsyncs))
        for name in drain(self.failed_appends):
            exporter.add("raylog_append_errors", 1, error=name)
        for name in drain(self.failed_fetches):
            exporter.add("raylog_fetch_errors", 1, error=name)
        for name, value in _present_state(partition).items():
            exporter.gauge(name, value)


def name_of(error: BaseException) -> str:
    """Kafka's name of an error."""
    return error.error_name if isinstance(error, RaylogError) else type(error).__name__


def drain(items: "deque[Item]") -> list[Item]:
    """Take all items off a deque to which other threads add."""
    return [items.popleft() for _ in range(len(items))]


def _present_state(partition: "Partition") -> dict[str, float]:
    log, offsets = partition.log, partition.offsets()
    retention_lag_s = 0.0 if partition.is_offline else log.retention_lag_ms() / 1000
    return {
        "raylog_in_flight_bytes": partition.in_flight_bytes,
        "raylog_parked_polls": partition.waiting,
        "raylog_log_size_bytes": log.size_bytes,
        "raylog_log_segments": len(log.segments),
        "raylog_log_start_offset": offsets.log_start_offset,
        "raylog_log_end_offset": offsets.log_end_offset,
        "raylog_unflushed_records": offsets.log_end_offset - offsets.recovery_point,
        "raylog_offline": float(partition.is_offline),
        "raylog_retention_lag_seconds": retention_lag_s,
    }
