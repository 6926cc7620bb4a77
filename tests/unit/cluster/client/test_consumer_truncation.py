"""What a consumer does about a log that lost its end under it, and has grown again."""

import logging
from typing import Any

import pytest

from raylog.cluster.client.consumer.consumer import Consumer
from raylog.storage.errors import LogTruncation, OffsetOutOfRange
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
