"""Positions that a program keeps, and begins at again: with what their records were."""

import json
import logging
import pickle
from typing import Any

import pytest

from raylog.actors.errors import InvalidRequest, UnknownTopicOrPartition
from raylog.cluster.client.consumer import Consumer, OffsetAndEpoch
from raylog.storage.errors import LogTruncation, OffsetOutOfRange
from raylog.storage.names import TopicPartition
from raylog.storage.testing.logs import batch
from tests.harness.consuming import FakeConnection

PLACE = TopicPartition("t", 0)


@pytest.fixture
def connection() -> FakeConnection:
    made = FakeConnection(t=1, u=1)
    append(made, 10)
    return made


def append(connection: FakeConnection, count: int, topic: str = "t") -> None:
    for _ in range(count):
        connection.topics[topic][0].partition.append(batch())


def offsets(consumer: Consumer) -> list[int]:
    found: list[int] = []
    while polled := consumer.poll(1000):
        found += [record.offset for record in polled]
    return found


def saved_at(connection: FakeConnection, count: int) -> dict[TopicPartition, OffsetAndEpoch]:
    """The positions of a consumer that got so many records and has gone."""
    with connection.consumer("t", from_="earliest") as consumer:
        assert len(consumer.poll(1000, max_records=count)) == count
        return consumer.positions()


def lose_from(connection: FakeConnection, end: int, grown: int) -> None:
    """The log loses what is from ``end`` on, and grows by so many."""
    connection.topics["t"][0].lose_tail(end)
    append(connection, grown)


def test_positions_have_the_epoch_of_what_was_read(connection: FakeConnection) -> None:
    epoch = connection.topics["t"][0].partition.log.epoch_at(0)
    assert saved_at(connection, 6) == {PLACE: (6, epoch)}
    consumer = connection.consumer("t", "u", from_="earliest")
    for record in consumer:
        if record.offset == 3:
            break
    assert consumer.positions() == {PLACE: (4, epoch), ("u", 0): (0, 0)}
    assert [consumer.position(*PLACE), consumer.position("u", 0)] == [4, 0]
    consumer.seek(*PLACE, 2)
    assert consumer.positions()[PLACE] == (2, epoch), "the next answer tells"


FORMS: dict[str, Any] = {
    "as it is": lambda saved: saved,
    "pickled": lambda saved: pickle.loads(pickle.dumps(saved)),
    "as JSON": lambda saved: {
        (topic, number): place
        for topic, number, place in json.loads(
            json.dumps([(*partition, place) for partition, place in saved.items()])
        )
    },
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", ["consumer", "assign", "seek"])
def test_a_loss_between_saving_and_going_on_is_noticed(
    connection: FakeConnection, caplog: pytest.LogCaptureFixture, form: str, way: str
) -> None:
    saved = FORMS[form](saved_at(connection, 8))
    lose_from(connection, 5, grown=9)
    if way == "consumer":
        consumer = connection.consumer("t", from_=saved)
    else:
        consumer = connection.consumer(auto_offset_reset="earliest")
        consumer.assign([PLACE], from_=saved if way == "assign" else None)
    if way == "seek":
        consumer.seek(*PLACE, saved[PLACE])
    with caplog.at_level(logging.WARNING):
        assert offsets(consumer) == list(range(5, 14))
    assert "t-0: offset 8 is not there; going on at offset 5: t-0: the log has lost" in caplog.text


def test_without_a_reset_a_loss_before_is_raised(connection: FakeConnection) -> None:
    saved = saved_at(connection, 8)
    lose_from(connection, 5, grown=9)
    consumer = connection.consumer("t", from_=saved, auto_offset_reset="none")
    with pytest.raises(LogTruncation) as raised:
        consumer.poll(1000)
    assert raised.value.diverging_offset == 5
    assert consumer.positions() == saved, "who saves this again is told again"


@pytest.mark.parametrize("lost_from", [8, 9])
def test_a_loss_of_what_was_not_read_is_no_loss(
    connection: FakeConnection, caplog: pytest.LogCaptureFixture, lost_from: int
) -> None:
    saved = saved_at(connection, 8)
    lose_from(connection, lost_from, grown=4)
    consumer = connection.consumer("t", from_=saved, auto_offset_reset="none")
    assert offsets(consumer) == list(range(8, lost_from + 4))
    assert caplog.text == ""


def test_an_offset_alone_is_a_place_as_before(connection: FakeConnection) -> None:
    lose_from(connection, 5, grown=9)
    for place in (8, (8, -1), OffsetAndEpoch(8)):
        consumer = connection.consumer("t", from_={PLACE: place}, auto_offset_reset="none")
        assert offsets(consumer) == list(range(8, 14))


@pytest.mark.parametrize(("policy", "found"), [("earliest", 6), ("latest", 0)])
def test_a_topic_that_was_made_again_is_noticed(
    connection: FakeConnection, caplog: pytest.LogCaptureFixture, policy: str, found: int
) -> None:
    lose_from(connection, 8, grown=1)  # the next epoch
    saved = saved_at(connection, 3)
    connection.create("t")
    append(connection, 6)
    consumer = connection.consumer("t", from_=saved, auto_offset_reset=policy)
    assert len(offsets(consumer)) == found
    assert "t-0: offset 3 is not there; going on at the " in caplog.text
    raising = connection.consumer("t", from_=saved, auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRange, match=r"offset 3 is out of range: the log holds \[0, 6\)"):
        raising.poll(1000)


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
def test_a_topic_that_was_made_again_with_the_same_epoch_is_noticed_behind_its_end(
    connection: FakeConnection, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    saved = saved_at(connection, 8)
    connection.create("t")
    append(connection, 3)
    consumer = connection.consumer("t", from_=saved, auto_offset_reset=policy)
    if policy == "none":
        with pytest.raises(OffsetOutOfRange) as raised:
            consumer.poll(1000)
        assert raised.value.args == ("t-0", 8, 0, 3)
        return
    assert offsets(consumer) == ([0, 1, 2] if policy == "earliest" else [])
    assert "t-0: offset 8 is not there; going on at the " in caplog.text
    assert "out of range" in caplog.text


def test_a_log_that_parts_from_a_position_may_be_of_a_new_topic(
    connection: FakeConnection, caplog: pytest.LogCaptureFixture
) -> None:
    saved = saved_at(connection, 8)
    connection.create("t")
    append(connection, 3)
    lose_from(connection, 3, grown=0)  # nothing: it is opened again, in the next epoch
    consumer = connection.consumer("t", from_=saved)
    assert offsets(consumer) == []
    assert "going on at offset 3" in caplog.text
    assert "If the topic was deleted and made again" in caplog.text


def test_positions_are_an_end_too(connection: FakeConnection) -> None:
    saved = saved_at(connection, 4)
    assert connection.consumer().read_table("t", to=saved).num_rows == 4


@pytest.mark.parametrize("way", ["lost", "made again"])
def test_saved_positions_are_an_end_that_the_log_had(
    connection: FakeConnection, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    saved = saved_at(connection, 8)
    if way == "lost":
        lose_from(connection, 5, grown=0)
    else:
        connection.create("t")
        append(connection, 5)
    consumer = connection.consumer("t", from_="earliest", to=saved)
    assert offsets(consumer) == [0, 1, 2, 3, 4]
    assert consumer.is_at_end
    assert "t-0: the log ends at 5, before offset 8" in caplog.text
    raising = connection.consumer("t", from_="earliest", to=saved, auto_offset_reset="none")
    with pytest.raises(OffsetOutOfRange):
        offsets(raising)


def test_an_end_without_an_epoch_is_waited_for(connection: FakeConnection) -> None:
    consumer = connection.consumer("t", from_="earliest", to={PLACE: (12, -1)})
    assert len(offsets(consumer)) == 10
    assert not consumer.is_at_end


def test_positions_wait_for_a_seek_and_raise_what_keeps_one_away(
    connection: FakeConnection,
) -> None:
    consumer = connection.consumer("t", from_="earliest")
    consumer.seek_to_end(PLACE)
    assert consumer.positions()[PLACE].offset == 10
    connection.topics["t"][0].fault = UnknownTopicOrPartition("t", 0, "it is gone")
    consumer.seek_to_end()
    with pytest.raises(UnknownTopicOrPartition):
        consumer.positions()


@pytest.mark.parametrize(
    "place", [(1,), (1, 2, 3), (-1, 0), (1, -2), (1, "0"), (1, True), (1, 1 << 31), [1, 1.5]]
)
def test_what_is_no_place_is_refused(connection: FakeConnection, place: Any) -> None:
    with pytest.raises(InvalidRequest, match="from_"):
        connection.consumer("t", from_={PLACE: place})
    consumer = connection.consumer("t")
    with pytest.raises(InvalidRequest, match="offset"):
        consumer.seek(*PLACE, place)


@pytest.mark.parametrize("argument", ["from_", "to"])
@pytest.mark.parametrize("key", [("t", 7), ("typo", 0), ("u", 0)])
def test_a_place_of_what_is_not_read_is_refused(
    connection: FakeConnection, argument: str, key: tuple[str, int]
) -> None:
    places: Any = {argument: {PLACE: 1, key: 1}}
    consumer = connection.consumer(auto_offset_reset="earliest")
    ways: list[Any] = [
        lambda: connection.consumer("t", **places),
        lambda: connection.consumer("^t", **places),
        lambda: connection.consumer("t", partitions=[0], **places),
        lambda: connection.consumer().read_table("t", **places),
        lambda: consumer.incremental_assign([PLACE], **places),
        lambda: consumer.assign([PLACE], **places),
        lambda: consumer.subscribe("t", **places),
    ]
    consumer.assign([("u", 0)])
    for way in ways:
        with pytest.raises(UnknownTopicOrPartition, match=argument) as raised:
            way()
        assert (raised.value.topic, raised.value.partition) == key
    assert consumer.assignment == []
