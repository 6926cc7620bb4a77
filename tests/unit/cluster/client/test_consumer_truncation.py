"""What a consumer does about a log that lost its end under it, and has grown again."""

import logging
import re
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest

from raylog.cluster.client.connection import FetchRequest
from raylog.cluster.client.consumer.consumer import Consumer
from raylog.storage.errors import LogTruncation, OffsetOutOfRange
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import batch
from tests.harness.consuming import FakeConnection, Served

PLACE = ("t", 0)


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection(t=1)


def served_by(connection: FakeConnection) -> Served:
    return connection.topics["t"][0]


def append(connection: FakeConnection, count: int, value: bytes) -> None:
    """So many batches of one record."""
    for _ in range(count):
        served_by(connection).partition.append(batch(value=value))


def read(consumer: Consumer) -> list[tuple[int, bytes | None]]:
    found = []
    while polled := consumer.poll(1000):
        found += [(record.offset, record.value) for record in polled]
    return found


def records(start: int, end: int, value: bytes) -> list[tuple[int, bytes]]:
    return [(offset, value) for offset in range(start, end)]


def read_ten_of_which_four_get_lost(connection: FakeConnection, **config: Any) -> Consumer:
    append(connection, 10, b"old")
    consumer = connection.consumer("t", **config)
    assert read(consumer) == records(0, 10, b"old")
    served_by(connection).lose_tail(6)
    return consumer


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("grown", [0, 2, 4, 8])
def test_records_in_the_place_of_lost_ones_are_read(
    connection: FakeConnection, policy: str, grown: int, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = read_ten_of_which_four_get_lost(
        connection, from_="earliest", auto_offset_reset=policy
    )
    append(connection, grown, b"new")
    with caplog.at_level(logging.WARNING):
        assert read(consumer) == records(6, 6 + grown, b"new")
    assert "t-0: offset 10 is not there; going on at offset 6: t-0: the log has lost" in caplog.text
    assert consumer.position(*PLACE) == 6 + grown


def test_without_a_reset_it_is_raised_until_a_seek_there(connection: FakeConnection) -> None:
    consumer = read_ten_of_which_four_get_lost(
        connection, from_={PLACE: 0}, auto_offset_reset="none"
    )
    append(connection, 8, b"new")
    for _ in range(3):
        with pytest.raises(LogTruncation) as raised:
            consumer.poll(1000)
        error = raised.value
        assert (error.partition, error.offset, error.diverging_offset) == ("t-0", 10, 6)
        assert (error.log_start_offset, error.log_end_offset) == (0, 14)
        assert isinstance(error, OffsetOutOfRange), "as Kafka's"
        assert not error.retriable
        assert "seek to 6 " in error.advice
        assert consumer.position(*PLACE) == 10
    consumer.seek(*PLACE, error.diverging_offset)
    assert read(consumer) == records(6, 14, b"new")


def test_what_was_fetched_and_is_gone_is_not_handed_out(
    connection: FakeConnection, caplog: pytest.LogCaptureFixture
) -> None:
    append(connection, 10, b"old")
    consumer = connection.consumer("t", from_="earliest")
    assert len(consumer.poll(1000, max_records=4)) == 4
    served_by(connection).lose_tail(6)
    append(connection, 8, b"new")
    consumer.end_offsets([PLACE])  # the answer to the fetch behind the ten comes
    found = read(consumer)
    assert found == records(4, 6, b"old") + records(6, 14, b"new")
    assert caplog.text == "", "nothing that was handed out is gone"


def test_two_losses_are_found(connection: FakeConnection) -> None:
    consumer = read_ten_of_which_four_get_lost(connection, from_="earliest")
    append(connection, 3, b"new")
    served_by(connection).lose_tail(3)
    append(connection, 9, b"newest")
    assert read(consumer) == records(3, 12, b"newest")


def test_a_consumer_at_the_end_that_has_read_nothing_finds_a_loss(
    connection: FakeConnection,
) -> None:
    append(connection, 10, b"old")
    consumer = connection.consumer("t", from_="latest")
    assert consumer.position(*PLACE) == 10
    served_by(connection).lose_tail(6)
    append(connection, 8, b"new")
    assert read(consumer) == records(6, 14, b"new")


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_a_log_that_was_only_opened_again_is_read_on(
    connection: FakeConnection, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(connection, 10, b"old")
    consumer = connection.consumer("t", from_={PLACE: 0}, auto_offset_reset=policy)
    assert read(consumer) == records(0, 10, b"old")
    for life in range(3):
        for _ in range(life):
            served_by(connection).lose_tail(10 + life)  # lives without an append have no epoch
        append(connection, 1, b"new")
        assert read(consumer) == records(10 + life, 11 + life, b"new")
    assert caplog.text == ""


def test_an_iteration_that_holds_records_yields_each_once(connection: FakeConnection) -> None:
    append(connection, 10, b"old")
    consumer = connection.consumer("t", from_="earliest")
    found = []
    for record in consumer:
        found.append((record.offset, record.value))
        if len(found) == 2:
            served_by(connection).lose_tail(6)
            append(connection, 8, b"new")
            consumer.end_offsets([PLACE])
        if len(found) == 18:
            break
    assert found == records(0, 10, b"old") + records(6, 14, b"new")


def test_a_position_behind_the_end_that_was_sought_is_out_of_range(
    connection: FakeConnection,
) -> None:
    append(connection, 10, b"old")
    consumer = connection.consumer("t", from_={PLACE: 0}, auto_offset_reset="none")
    assert read(consumer) == records(0, 10, b"old")
    consumer.seek(*PLACE, 11)
    with pytest.raises(OffsetOutOfRange) as raised:
        consumer.poll(1000)
    assert not isinstance(raised.value, LogTruncation)


def test_a_damaged_epoch_above_all_resets_nothing(connection: FakeConnection) -> None:
    def damaged(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[12] = 64  # the highest byte of the first batch's leader epoch; no CRC covers it
        return bytes(changed)

    append(connection, 1, b"old")
    served_by(connection).damage = damaged
    consumer = connection.consumer("t", from_={PLACE: 0}, auto_offset_reset="none")
    assert read(consumer) == records(0, 1, b"old")
    append(connection, 1, b"new")
    assert read(consumer) == records(1, 2, b"new")


# -- a reader with an end --------------------------------------------------------------------------


class Impatient(FakeConnection):
    """Nobody waits on it for ever. ``on_fetch``: called before the fetch ``at_fetch``."""

    on_fetch: Callable[[], object] | None = None
    at_fetch = 3

    def pass_time(self, seconds: float) -> None:
        assert self.now_s < 5000, "somebody waits for ever"
        super().pass_time(seconds)

    def fetch(self, request: FetchRequest, *, timeout_s: float) -> "Future[Any]":
        if self.on_fetch is not None and len(self.fetches) == self.at_fetch:
            self.on_fetch()
        return super().fetch(request, timeout_s=timeout_s)


ONE_BATCH = {"max_partition_fetch_bytes": 1}
ENDS: dict[str, Any] = {"the end": "latest", "a time": T0 + 9, "an offset": {PLACE: 9}}
RESETS = ["earliest", "latest"]


@pytest.fixture
def impatient() -> Impatient:
    """Ten batches of one record, a millisecond apart, of which the fourth fetch loses six."""
    made = Impatient(t=1)
    for number in range(10):
        made.topics["t"][0].partition.append(batch(timestamp=T0 + number, value=b"old"))
    made.on_fetch = partial(made.topics["t"][0].lose_tail, 4)
    return made


@pytest.mark.parametrize("policy", RESETS)
@pytest.mark.parametrize("end", ENDS)
def test_a_reader_whose_end_is_lost_ends_where_the_log_does(
    impatient: Impatient, caplog: pytest.LogCaptureFixture, policy: str, end: str
) -> None:
    consumer = impatient.consumer(
        "t", from_="earliest", to=ENDS[end], auto_offset_reset=policy, **ONE_BATCH
    )
    assert [record.offset for record in consumer] == [0, 1, 2, 3]
    assert consumer.is_at_end
    (warning,) = caplog.messages
    assert re.match(r"t-0: the log ends at 4, before offset (9|10), where .* was to end: ", warning)


@pytest.mark.parametrize("end", [T0 + 9, "latest"])
def test_an_end_that_is_lost_before_the_first_answer(impatient: Impatient, end: Any) -> None:
    impatient.at_fetch = 0
    consumer = impatient.consumer("t", from_="earliest", to=end, **ONE_BATCH)
    assert [record.offset for record in consumer] == [0, 1, 2, 3]


@pytest.mark.parametrize("end", ENDS)
def test_without_a_reset_a_lost_end_is_raised_behind_the_records(
    impatient: Impatient, end: str
) -> None:
    consumer = impatient.consumer(
        "t", from_="earliest", to=ENDS[end], auto_offset_reset="none", **ONE_BATCH
    )
    found: list[int] = []
    with pytest.raises(OffsetOutOfRange) as raised:
        found.extend(record.offset for record in consumer)
    assert found == [0, 1, 2, 3]
    error = raised.value
    assert (error.log_start_offset, error.log_end_offset) == (0, 4)
    assert error.offset in (9, 10)
    with pytest.raises(OffsetOutOfRange):
        consumer.poll(1000)
    assert consumer.position(*PLACE) == 4


@pytest.mark.parametrize("policy", RESETS)
@pytest.mark.parametrize("loss", ["read", "before"])
def test_a_table_whose_end_is_lost_ends_where_the_log_does(
    impatient: Impatient, policy: str, loss: str
) -> None:
    if loss == "before":
        impatient.on_fetch = None
        served_by(impatient).lose_tail(4)
    consumer = impatient.consumer(auto_offset_reset=policy, **ONE_BATCH)
    table = consumer.read_table("t", to={PLACE: 10})
    assert table["offset"].to_pylist() == [0, 1, 2, 3]


def test_without_a_reset_a_table_is_whole_or_raises(impatient: Impatient) -> None:
    consumer = impatient.consumer(auto_offset_reset="none", **ONE_BATCH)
    for end in (10, 7):  # it is lost while it is read; it is gone before
        with pytest.raises(OffsetOutOfRange, match=f"offset {end} is out of range"):
            consumer.read_table("t", to={PLACE: end})
    assert consumer.read_table("t", to={PLACE: 4}).num_rows == 4


@pytest.mark.parametrize("policy", [*RESETS, "none"])
def test_an_end_that_the_log_never_had_is_waited_for(
    connection: FakeConnection, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    append(connection, 3, b"old")
    consumer = connection.consumer("t", from_={PLACE: 0}, to={PLACE: 5}, auto_offset_reset=policy)
    assert read(consumer) == records(0, 3, b"old")
    assert not consumer.is_at_end
    append(connection, 4, b"new")
    assert read(consumer) == records(3, 5, b"new")
    assert consumer.is_at_end
    assert caplog.text == ""


@pytest.mark.parametrize("policy", RESETS)
@pytest.mark.parametrize("end", ENDS)
def test_a_reader_ends_where_everything_before_its_end_was_deleted(
    impatient: Impatient, policy: str, end: str
) -> None:
    impatient.on_fetch = partial(served_by(impatient).partition.delete_records, 10)
    consumer = impatient.consumer(
        "t", from_="earliest", to=ENDS[end], auto_offset_reset=policy, **ONE_BATCH
    )
    assert [record.offset for record in consumer] == [0, 1, 2]
