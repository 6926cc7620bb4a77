"""What one partition counts of itself: lists of measurements that ``exports.py`` empties.

Several threads add at once, without a lock: a ``deque`` takes an item in one step. The exporter
takes the items off again, so that their sums are exact. While nothing is exported, each list keeps
the newest items, and no more.
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from raylog.storage.errors import RaylogError

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


def name_of(error: BaseException) -> str:
    """Kafka's name of an error."""
    return error.error_name if isinstance(error, RaylogError) else type(error).__name__


def drain(items: "deque[Item]") -> list[Item]:
    """Take all items off a deque to which other threads add."""
    return [items.popleft() for _ in range(len(items))]
