"""KeyboardInterrupt at every line of a consumer: whoever goes on gets each record once.

A trace function raises it before one line after the other. Left out are the lines between the
consumer's last word and the caller's assignment, where nobody can know whether the records have
arrived; and those around a ``yield``, where Python handles no signal: they call nothing.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from raylog.cluster.client.consumer import Consumer
from raylog.storage.testing.logs import batch
from tests.harness.consuming import FakeConnection

PER_PARTITION = 7
WANTED = [(p, n) for p in (0, 1) for n in range(PER_PARTITION)]
ON_THE_WAY_OUT = ("return answer", "self._lock.release()", "self._last = record", "yield record")
Place = tuple[int, int]


def poll(consumer: Consumer) -> Iterator[list[Place]]:
    while polled := consumer.poll(10):
        yield [(record.partition, record.offset) for record in polled]


def poll_arrow(consumer: Consumer) -> Iterator[list[Place]]:
    while (table := consumer.poll_arrow(10, 100)).num_rows:
        columns = table.column("partition").to_pylist(), table.column("offset").to_pylist()
        yield list(zip(*columns, strict=True))


def iterate(consumer: Consumer) -> Iterator[list[Place]]:
    for record in consumer:
        yield [(record.partition, record.offset)]


class Interrupt:
    """Raises KeyboardInterrupt before the n-th line of the consumer's modules, once."""

    def __init__(self, at: int) -> None:
        self.left, self.where = at, ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if "/cluster/client/consumer/" not in frame.f_code.co_filename:
            return None
        if event != "line" or _line(frame).startswith(ON_THE_WAY_OUT):
            return self
        self.left -= 1
        if not self.left:
            self.where = f"{frame.f_code.co_qualname}: {_line(frame)}"
            sys.settrace(None)
            raise KeyboardInterrupt
        return self


_lines: dict[str, list[str]] = {}


def _line(frame: FrameType) -> str:
    name = frame.f_code.co_filename
    if name not in _lines:
        with open(name, encoding="utf-8") as file:
            _lines[name] = file.read().splitlines()
    return _lines[name][frame.f_lineno - 1].strip()


def read(read_on: Iterator[list[Place]], found: list[Place]) -> None:
    for some in read_on:
        found += some
        if len(found) >= len(WANTED):
            return


@pytest.mark.parametrize("begin", [poll, poll_arrow, iterate])
@pytest.mark.parametrize("go_on", [poll, iterate])
def test_an_interrupt_at_any_line_loses_no_record_and_gives_none_twice(
    begin: Callable[..., Any], go_on: Callable[..., Any]
) -> None:
    wrong = Counter[str]()
    for at in range(1, 10_000):
        connection = FakeConnection(t=2)
        for served in connection.topics["t"]:
            served.partition.append(batch(PER_PARTITION))
        consumer = connection.consumer("t", from_="earliest", max_poll_records=3)
        interrupt, found = Interrupt(at), list[Place]()
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            read(begin(consumer), found)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if not interrupt.where:
            break
        if len(found) < len(WANTED):
            read(go_on(consumer), found)
        if sorted(found) != WANTED:
            wrong[interrupt.where] += 1
    assert at > 100
    assert not wrong
