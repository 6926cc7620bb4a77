"""Markers are sent until they are done; leaders ask coordinators until they know."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from raylog.actors.coordinators.transactions.turn import SendMarkers
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.transactions import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS
from raylog.actors.plane.errors import PeerAway
from raylog.actors.plane.peers.peers import Topic
from raylog.actors.plane.transactions import markers as markers_module
from raylog.actors.plane.transactions.markers import MarkerSender
from raylog.actors.plane.transactions.verifying import Verifier, Writer
from raylog.storage.names import TRANSACTION_STATE, TopicPartition
from raylog.storage.schemas.types import Value
from raylog.storage.testing.waiting import wait_for

FOUR = Topic("id", 4)
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def markers(producer_id: int, *partitions: TopicPartition, version: int = 1) -> SendMarkers:
    return SendMarkers(
        transactional_id=f"id-{producer_id}",
        producer_id=producer_id,
        epoch=3,
        is_commit=True,
        version=version,
        partitions=partitions or (FIRST, SECOND),
    )


class Partitions:
    """What they answer: ``codes`` one after the other, and then 0. ``is_gone``: their topic.

    ``count``: those that the topic has by now. ``hung``: one that does not answer. ``unknown``: the
    answers that are to come where nobody says what topics there are. ``left_out``: a producer that
    is in no answer yet, so many times.
    """

    def __init__(self) -> None:
        self.codes: dict[TopicPartition, list[int | None]] = {FIRST: [], SECOND: []}
        self.asked: list[tuple[TopicPartition, list[Value]]] = []
        self.is_gone, self.count = False, 2
        self.hold: threading.Event | None = None
        self.hung: TopicPartition | None = None
        self.unknown = self.left_out = 0
        self.forgotten: list[str] = []

    def topic(self, name: str) -> Topic | None:
        if self.unknown:
            self.unknown -= 1
            raise PeerAway("the LogManager", "it is away")
        return None if self.is_gone else Topic("id", self.count)

    def forget(self, name: str) -> None:
        self.forgotten.append(name)

    def ask(self, partition: TopicPartition, api: Api, version: int, body: Value) -> Value:
        assert api is WRITE_TXN_MARKERS
        assert api.request.write(body, version), "it can be written"
        self.asked.append((partition, body["markers"]))
        if self.hold is not None and self.hung in (None, partition):
            assert self.hold.wait(10)
        code = self.codes[partition].pop(0) if self.codes[partition] else 0
        if code is None or self.is_gone:
            raise PeerAway(str(partition), "it is away")
        told = [self._told(one, code) for one in body["markers"]]
        if self.left_out:
            self.left_out -= 1
            told.pop()
        return {"markers": told}

    def _told(self, marker: Value, code: int) -> Value:
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {"partitionIndex": number, "errorCode": code}
                    for number in topic["partitionIndexes"]
                ],
            }
            for topic in marker["topics"]
        ]
        return {"producerId": marker["producerId"], "topics": topics}


class Sent:
    """A sender, and what it has done."""

    def __init__(self, partitions: Partitions) -> None:
        self.done: list[tuple[int, TopicPartition]] = []
        self.failures: list[BaseException] = []
        self.sender = MarkerSender(partitions, 5, self.failures.append)
        self.sender.begin(lambda one, partition: self.done.append((one.producer_id, partition)))

    def all_of(self, *expected: tuple[int, TopicPartition]) -> None:
        wait_for(lambda: sorted(self.done) == sorted(expected), what="all are done")


@pytest.fixture
def partitions() -> Partitions:
    return Partitions()


@pytest.fixture
def sent(partitions: Partitions, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sent]:
    monkeypatch.setattr(markers_module, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(markers_module, "LONGEST_PAUSE_S", 0.002)
    made = Sent(partitions)
    yield made
    made.sender.stop()
    assert not made.failures


def test_each_partition_gets_its_marker(partitions: Partitions, sent: Sent) -> None:
    sent.sender.send(markers(7))
    sent.all_of((7, FIRST), (7, SECOND))
    for partition, (marker,) in partitions.asked:
        assert marker == {
            "producerId": 7,
            "producerEpoch": 3,
            "transactionResult": True,
            "topics": [{"name": "t", "partitionIndexes": [partition.partition]}],
            "coordinatorEpoch": 5,
            "transactionVersion": 0,
        }


def test_the_version_goes_along_where_each_end_raises_the_epoch(
    partitions: Partitions, sent: Sent
) -> None:
    sent.sender.send(markers(7, FIRST, version=2))
    sent.all_of((7, FIRST))
    assert partitions.asked[0][1][0]["transactionVersion"] == 2


def test_what_fails_is_sent_again(partitions: Partitions, sent: Sent) -> None:
    partitions.codes[FIRST] = [None, 6, 56, None, 52]
    sent.sender.send(markers(7))
    sent.all_of((7, FIRST), (7, SECOND))
    assert [partition for partition, _ in partitions.asked].count(FIRST) == 6


def test_a_newer_epoch_in_the_partition_is_the_end(partitions: Partitions, sent: Sent) -> None:
    partitions.codes[FIRST] = [47]
    sent.sender.send(markers(7, FIRST))
    sent.all_of((7, FIRST))
    assert len(partitions.asked) == 1


def test_a_partition_of_no_topic_needs_none(partitions: Partitions, sent: Sent) -> None:
    partitions.is_gone = True
    sent.sender.send(markers(7))
    sent.all_of((7, FIRST), (7, SECOND))


def test_a_partition_that_its_topic_does_not_have_any_more_needs_none(
    partitions: Partitions, sent: Sent
) -> None:
    partitions.codes[SECOND] = [None] * 3
    partitions.count = 1  # the topic was deleted, and made anew with fewer partitions
    sent.sender.send(markers(7))
    sent.all_of((7, FIRST), (7, SECOND))
    assert [partition for partition, _ in partitions.asked].count(SECOND) == 1


def test_a_topic_of_which_nobody_speaks_is_not_gone(partitions: Partitions, sent: Sent) -> None:
    partitions.codes[FIRST] = [None] * 3
    partitions.unknown = 3
    sent.sender.send(markers(7, FIRST))
    sent.all_of((7, FIRST))
    assert len(partitions.asked) == 4
    assert partitions.forgotten == ["t"] * 3, "what was known of it may be old"


def test_a_marker_that_is_not_answered_is_sent_again(partitions: Partitions, sent: Sent) -> None:
    partitions.left_out = 1
    sent.sender.send(markers(7, FIRST))
    sent.all_of((7, FIRST))
    assert len(partitions.asked) == 2


def test_one_line_says_that_a_partition_does_not_take_its_markers(
    partitions: Partitions, sent: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    tries = 2 * markers_module.LOUD_AFTER
    partitions.codes[FIRST] = [6] * tries
    sent.sender.send(markers(7, FIRST))
    sent.all_of((7, FIRST))
    assert len(partitions.asked) == tries + 1
    assert caplog.text.count("markers-not-written") == 1


def test_a_topic_that_is_being_made_is_not_gone(partitions: Partitions, sent: Sent) -> None:
    partitions.codes[FIRST] = [None] * 3
    partitions.count = 0
    sent.sender.send(markers(7, FIRST))
    sent.all_of((7, FIRST))
    assert len(partitions.asked) == 4


def test_those_for_one_partition_go_together_and_one_request_at_a_time(
    partitions: Partitions, sent: Sent
) -> None:
    partitions.hold = threading.Event()
    sent.sender.send(markers(1, FIRST))
    wait_for(lambda: len(partitions.asked) == 1)
    for number in (2, 3, 4):
        sent.sender.send(markers(number, FIRST))
    assert len(partitions.asked) == 1
    partitions.hold.set()
    sent.all_of((1, FIRST), (2, FIRST), (3, FIRST), (4, FIRST))
    assert [len(some) for _, some in partitions.asked] == [1, 3]


def test_many_markers_go_in_several_requests(
    partitions: Partitions, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers_module, "MOST_MARKERS", 2)
    partitions.hold = threading.Event()
    for number in range(6):
        sent.sender.send(markers(number, FIRST))
    partitions.hold.set()
    sent.all_of(*((number, FIRST) for number in range(6)))
    assert max(len(some) for _, some in partitions.asked) <= 2


def test_a_partition_that_hangs_does_not_hold_up_another(
    partitions: Partitions, sent: Sent
) -> None:
    partitions.hold = threading.Event()
    sent.sender.send(markers(1, FIRST))
    wait_for(lambda: len(partitions.asked) == 1)
    held, partitions.hold = partitions.hold, None
    sent.sender.send(markers(2, SECOND))
    sent.all_of((2, SECOND))
    held.set()
    sent.all_of((1, FIRST), (2, SECOND))


def test_a_partition_that_hangs_does_not_hold_up_another_of_its_transaction(
    partitions: Partitions, sent: Sent
) -> None:
    partitions.hold, partitions.hung = threading.Event(), FIRST
    sent.sender.send(markers(1, FIRST, SECOND))
    sent.all_of((1, SECOND))
    partitions.hold.set()
    sent.all_of((1, FIRST), (1, SECOND))


# -- the leader's question -------------------------------------------------------------------------


class Coordinator:
    """What it answers, one after the other; the last one stays. None: it is away."""

    def __init__(self, *codes: int | None, topic: Topic | None = FOUR) -> None:
        self.codes, self._topic = list(codes), topic
        self.asked: list[tuple[TopicPartition, Value]] = []

    def topic(self, name: str) -> Topic | None:
        assert name == TRANSACTION_STATE
        return self._topic

    def ask(self, partition: TopicPartition, api: Api, version: int, body: Value) -> Value:
        assert api is ADD_PARTITIONS_TO_TXN
        assert api.request.write(body, version), "it can be written"
        self.asked.append((partition, body["transactions"][0]))
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        if code is None:
            raise PeerAway(str(partition), "it is away")
        result = {"partitionIndex": 0, "partitionErrorCode": code}
        topics = [{"name": "t", "resultsByPartition": [result]}]
        answered = {"transactionalId": "g", "topicResults": topics}
        return {"errorCode": 0, "resultsByTransaction": [answered]}


def verified(coordinator: Coordinator, version: int = 1) -> int:
    now = [0.0]

    def pause(duration_s: float) -> None:
        now[0] += duration_s

    verifier = Verifier(coordinator, lambda: now[0], pause)
    return verifier.ask(Writer("g", 7, 3, version), FIRST)


@pytest.mark.parametrize(("version", "only_verifies"), [(1, True), (2, False)])
def test_the_coordinator_of_the_id_is_asked(version: int, only_verifies: bool) -> None:
    coordinator = Coordinator(0)
    assert verified(coordinator, version) == 0
    ((place, body),) = coordinator.asked
    assert place == TopicPartition(TRANSACTION_STATE, 3)
    expected: Any = {
        "transactionalId": "g",
        "producerId": 7,
        "producerEpoch": 3,
        "verifyOnly": only_verifies,
        "topics": [{"name": "t", "partitions": [0]}],
    }
    assert body == expected


@pytest.mark.parametrize("busy", [51, 14, 15, 16, None])
def test_a_coordinator_that_is_busy_is_asked_again_for_a_moment(busy: int | None) -> None:
    if busy is not None:
        assert verified(Coordinator(busy, busy, 0)) == 0
    coordinator = Coordinator(busy)
    assert verified(coordinator) == 15
    assert len(coordinator.asked) > 5


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (1, 90, 47),
        (2, 90, 47),
        (1, 120, 48),
        (2, 120, 120),
        (1, 49, 49),
        (1, 48, 48),
        (2, 3, 3),
        (2, -1, 15),
    ],
)
def test_a_refusal_is_told_as_clients_know_it(version: int, code: int, told: int) -> None:
    coordinator = Coordinator(code)
    assert verified(coordinator, version) == told
    assert len(coordinator.asked) == 1


@pytest.mark.parametrize("topic", [None, Topic("id", 0)])
def test_without_its_topic_nobody_says_it(topic: Topic | None) -> None:
    coordinator = Coordinator(0, topic=topic)
    assert verified(coordinator) == 15
    assert coordinator.asked == []
