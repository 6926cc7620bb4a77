"""What is read: from where to where, each record once, and told where some are gone."""

import re
from typing import Any

import pytest

from raylog.actors.errors import NotLeader, UnknownTopicOrPartition
from raylog.cluster.cli import consume
from raylog.cluster.cli.consume import Range
from raylog.cluster.cli.interrupts import Interrupts
from raylog.cluster.cli.lines import template
from raylog.cluster.cli.places import Offset
from raylog.cluster.cli.silence import watched
from raylog.cluster.client.consumer import Consumer
from raylog.storage.errors import OffsetOutOfRange
from raylog.storage.testing.logs import batch
from tests.harness.consuming import FakeConnection, Served

LINE = template("%t-%p:%o\\n", b"")
UNWATCHED = watched(FakeConnection())  # type: ignore[arg-type]


@pytest.fixture
def connection() -> FakeConnection:
    """Ten records in t-0, two in t-1, one in u-0."""
    made = FakeConnection(t=2, u=1)
    for served, count in zip([*made.topics["t"], *made.topics["u"]], [10, 2, 1], strict=True):
        fill(served, count)
    return made


def fill(served: Served, count: int) -> None:
    for _ in range(count):
        served.partition.append(batch(1))


@pytest.fixture
def consumer(connection: FakeConnection) -> Consumer:
    return connection.consumer(auto_offset_reset="none")


def printed(
    consumer: Consumer,
    capfdbinary: pytest.CaptureFixture[bytes],
    topics: Any = ("t",),
    partitions: list[int] | None = None,
    start: Any = "earliest",
    end: Any = "latest",
    last: int | None = None,
    count: int | None = None,
) -> list[str]:
    """The records that are printed, sorted."""
    consume._assign(
        consumer,
        topics if isinstance(topics, re.Pattern) else list(topics),
        partitions,
        Range(start, end, last),
    )
    with Interrupts() as interrupts:
        consume._print_all(
            consumer, LINE, interrupts, count, is_bounded=end is not None, asked=UNWATCHED
        )
    return sorted(capfdbinary.readouterr().out.decode().split())


def places(topic: str, *offsets: int) -> list[str]:
    return [f"{topic}:{offset}" for offset in offsets]


ALL = [*places("t-0", *range(10)), *places("t-1", 0, 1)]
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all": ({}, ALL),
    "from an offset": ({"start": Offset(2)}, places("t-0", *range(2, 10))),
    "to an offset": ({"end": Offset(1)}, [*places("t-0", 0), *places("t-1", 0)]),
    "a range": (
        {"start": Offset(1), "end": Offset(2)},
        [*places("t-0", 1), *places("t-1", 1)],
    ),
    "the last": ({"last": 3}, [*places("t-0", 7, 8, 9), *places("t-1", 0, 1)]),
    "none of the last": ({"last": 0}, []),
    "a partition": ({"partitions": [1, 1]}, places("t-1", 0, 1)),
    "topics": ({"topics": ("t", "u"), "last": 1}, ["t-0:9", "t-1:1", "u-0:0"]),
    "a pattern": ({"topics": re.compile("^u|no")}, ["u-0:0"]),
    "a pattern's partition": ({"topics": re.compile("^."), "partitions": [1]}, ALL[-2:]),
    "a count without an end": ({"end": None, "count": 12}, ALL),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wanted_is_printed_once(
    consumer: Consumer, capfdbinary: pytest.CaptureFixture[bytes], case: str
) -> None:
    wanted, expected = CASES[case]
    assert printed(consumer, capfdbinary, **wanted) == sorted(expected)


@pytest.mark.parametrize(
    ("pattern", "partitions", "end", "why"),
    [
        ("^x", None, "latest", "topic '^x': no topic matches;"),
        ("^x", [1], "latest", "topic '^x', partition 1: no topic that matches has"),
        ("^t", [7], None, "topic '^t', partition 7: no topic that matches has"),
    ],
)
def test_a_pattern_of_which_nothing_can_come_is_refused(
    consumer: Consumer, pattern: str, partitions: list[int] | None, end: Any, why: str
) -> None:
    with pytest.raises(UnknownTopicOrPartition, match=re.escape(why)):
        consume._assign(consumer, re.compile(pattern), partitions, Range("earliest", end, None))


def test_a_pattern_without_an_end_waits_for_a_topic_and_says_so(
    connection: FakeConnection, consumer: Consumer, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    consume._assign(consumer, re.compile("^x"), None, Range("latest", None, None))
    assert capfdbinary.readouterr().err == b"no topic matches yet; waiting for one\n"
    fill(connection.create("x")[0], 1)
    connection.now_s += 301
    assert [record.topic for record in consumer.poll()] == ["x"]
    consume._assign(consumer, re.compile("^u"), None, Range("latest", None, None))
    assert capfdbinary.readouterr().err == b""


def test_an_offset_behind_the_end_is_refused(consumer: Consumer) -> None:
    with pytest.raises(OffsetOutOfRange, match="t-1: offset 5 is out of range"):
        consume._assign(consumer, ["t"], None, Range(Offset(5), None, None))


def test_deleted_records_at_the_start_are_told(
    connection: FakeConnection, consumer: Consumer, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    connection.topics["t"][0].partition.delete_records(4)
    consume._assign(consumer, ["t"], [0], Range(Offset(1), "latest", None))
    assert capfdbinary.readouterr().err == b"t-0: offsets 1 to 3 are deleted; starting at 4\n"
    assert [record.offset for record in consumer] == list(range(4, 10))


def test_records_that_are_deleted_while_it_reads_are_told_and_it_goes_on(
    connection: FakeConnection, consumer: Consumer, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (served,) = connection.create("orders")  # the name of the disks' logs
    fill(served, 10)
    consume._assign(consumer, ["orders"], [0], Range("latest", None, None))
    fill(served, 5)
    served.partition.delete_records(12)
    polled: list[Any] = []
    while len(polled) < 3:
        polled += consume._poll(consumer, None, is_bounded=False)
    assert [record.offset for record in polled] == [12, 13, 14]
    assert (
        capfdbinary.readouterr().err == b"orders-0: offsets 10 to 11 are deleted; starting at 12\n"
    )


def test_a_log_that_has_lost_its_end_ends_it_by_name(
    connection: FakeConnection, consumer: Consumer
) -> None:
    consume._assign(consumer, ["t"], [0], Range("latest", None, None))
    anew = Served()
    fill(anew, 3)
    connection.topics["t"][0] = anew
    with pytest.raises(OffsetOutOfRange):
        consume._poll(consumer, None, is_bounded=False)


def test_while_a_partition_is_away_only_a_reader_without_an_end_waits(
    connection: FakeConnection, consumer: Consumer, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    consume._assign(consumer, ["u"], None, Range("latest", None, None))
    connection.topics["u"][0].fault = NotLeader("u-0", "it is away")
    told = b""
    while not told:
        assert consume._poll(consumer, None, is_bounded=False) == []
        told = capfdbinary.readouterr().err
    assert told.startswith(b"waiting: u-0 cannot be reached: it is away")
    with pytest.raises(NotLeader), Interrupts() as interrupts:
        consume._print_all(consumer, LINE, interrupts, None, is_bounded=True, asked=UNWATCHED)
