"""Transactions by requests, from the first to what readers see: coordinator, partitions, groups."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from raylog.actors.coordinators.homes import partition_of
from raylog.actors.partition.transaction_end import TransactionEnd
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.groups import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from raylog.actors.plane.apis.records import INIT_PRODUCER_ID, PRODUCE
from raylog.actors.plane.apis.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
)
from raylog.actors.plane.errors import PeerAway, PeerGone
from raylog.actors.plane.frames import read_answer, request_frame
from raylog.actors.plane.peers.peers import Topic
from raylog.actors.plane.transactions.beginning import beginning
from raylog.actors.plane.transactions.verifying import Verifier, Writer
from raylog.storage.names import TRANSACTION_STATE, TopicPartition
from raylog.storage.schemas.types import Value
from raylog.storage.state.properties import id_uuid
from raylog.storage.testing.logs import TOPIC_ID, of_producer
from raylog.storage.testing.waiting import wait_for
from tests.unit.actors.coordinators.test_group_coordinator import Place
from tests.unit.actors.plane.together import (
    COORDINATOR,
    FIRST,
    OFFSETS,
    ORDERS,
    SECOND,
    Cluster,
)

ID, GROUP = "writer", "readers"
OLD = 11  # of Produce: the last one of version 1 of transactions


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.serves()
    yield made
    made.close()


class Client:
    """A producer, by the version of transactions that it makes."""

    def __init__(self, cluster: Cluster, version: int = 1) -> None:
        self.id = ID
        self.cluster, self.version = cluster, version
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[TopicPartition, int] = {}

    def init(self, timeout_ms: int = 60_000, version: int = 4) -> int:
        told = self.cluster.ask(
            COORDINATOR,
            INIT_PRODUCER_ID,
            version,
            {
                "transactionalId": ID,
                "transactionTimeoutMs": timeout_ms,
                "producerId": self.producer_id,
                "producerEpoch": self.epoch,
            }
            if version >= 3
            else {"transactionalId": ID, "transactionTimeoutMs": timeout_ms},
        )
        if not told["errorCode"]:
            self.producer_id, self.epoch = told["producerId"], told["producerEpoch"]
            self.sequences.clear()
        return int(told["errorCode"])

    @property
    def owner(self) -> dict[str, Any]:
        return {
            "transactionalId": self.id,
            "producerId": self.producer_id,
            "producerEpoch": self.epoch,
        }

    def add(self, *partitions: TopicPartition, version: int = 3) -> list[int]:
        owner = self.owner
        body = {
            "v3AndBelowTransactionalId": owner["transactionalId"],
            "v3AndBelowProducerId": owner["producerId"],
            "v3AndBelowProducerEpoch": owner["producerEpoch"],
            "v3AndBelowTopics": [
                {"name": one.topic, "partitions": [one.partition]} for one in partitions
            ],
        }
        told = self.cluster.ask(COORDINATOR, ADD_PARTITIONS_TO_TXN, version, body)
        return [
            result["partitionErrorCode"]
            for topic in told["resultsByTopicV3AndBelow"]
            for result in topic["resultsByPartition"]
        ]

    def write(self, partition: TopicPartition, *, transactional_id: str | None = ID) -> int:
        version = OLD if self.version == 1 else PRODUCE.last_version
        sequence = self.sequences.get(partition, 0)
        records = of_producer(
            sequence, producer=self.producer_id, epoch=self.epoch, transactional=True
        )
        part = {"index": partition.partition, "records": records}
        topic: dict[str, Any] = {"partitionData": [part]}
        if version == OLD:
            topic["name"] = partition.topic
        else:
            topic["topicId"] = id_uuid(TOPIC_ID)
        body = {
            "transactionalId": transactional_id,
            "acks": -1,
            "timeoutMs": 1000,
            "topicData": [topic],
        }
        told = self.cluster.ask(partition, PRODUCE, version, body)
        (answered,) = told["responses"]
        (result,) = answered["partitionResponses"]
        if not result["errorCode"]:
            self.sequences[partition] = sequence + 1
        return int(result["errorCode"])

    def end(self, *, is_commit: bool = True, version: int | None = None) -> int:
        if version is None:
            version = 4 if self.version == 1 else 5
        told = self.cluster.ask(
            COORDINATOR, END_TXN, version, {**self.owner, "committed": is_commit}
        )
        if not told["errorCode"] and version >= 5:
            self.producer_id, self.epoch = told["producerId"], told["producerEpoch"]
            self.sequences.clear()
        return int(told["errorCode"])

    def add_offsets(self, version: int = 3) -> int:
        body = {**self.owner, "groupId": GROUP}
        return int(self.cluster.ask(COORDINATOR, ADD_OFFSETS_TO_TXN, version, body)["errorCode"])

    def commit_offset(
        self, offset: int, version: int = 3, generation: int = -1, group: str = GROUP
    ) -> int:
        part = {
            "partitionIndex": 0,
            "committedOffset": offset,
            "committedMetadata": "",
        }
        if version >= 2:
            part["committedLeaderEpoch"] = -1
        body = {
            **self.owner,
            "groupId": group,
            "topics": [{"name": ORDERS, "partitions": [part]}],
        }
        if version >= 3:
            body |= {"generationId": generation, "memberId": "", "groupInstanceId": None}
        told = self.cluster.ask(OFFSETS, TXN_OFFSET_COMMIT, version, body)
        return int(told["topics"][0]["partitions"][0]["errorCode"])


def stable(cluster: Cluster, partition: TopicPartition) -> tuple[int, int]:
    """How far readers of committed records see, and the log's end."""
    log = cluster.processes[partition].partition.log
    return log.last_stable_offset, log.log_end_offset


def all_stable(cluster: Cluster) -> None:
    """Return when nothing is open."""
    for partition in (FIRST, SECOND, OFFSETS):
        wait_for(lambda at=partition: len(set(stable(cluster, at))) == 1)  # type: ignore[misc]


def state(cluster: Cluster) -> Value:
    body = {"transactionalIds": [ID]}
    (told,) = cluster.ask(COORDINATOR, DESCRIBE_TRANSACTIONS, 0, body)["transactionStates"]
    return told


def ended(cluster: Cluster) -> str:
    """The state, once all markers are written."""
    wait_for(lambda: state(cluster)["transactionState"].startswith("Complete"))
    return str(state(cluster)["transactionState"])


def fetched(cluster: Cluster, *, must_be_stable: bool = False) -> tuple[int, int]:
    """The group's offset, and the error."""
    body = {
        "groupId": GROUP,
        "topics": [{"name": ORDERS, "partitionIndexes": [0]}],
        "requireStable": must_be_stable,
    }
    told = cluster.ask(OFFSETS, OFFSET_FETCH, 7, body)
    part = told["topics"][0]["partitions"][0]
    return part["committedOffset"], part["errorCode"]


def aborted(cluster: Cluster, partition: TopicPartition) -> int:
    found = cluster.processes[partition].partition.fetch(0, isolation="committed")
    return len(found.aborted or ())


def marker_of(client: Client, partition: TopicPartition, number: int = 0, **fields: int) -> Value:
    """A marker of the client's transaction; ``fields``: of it."""
    return {
        "producerId": client.producer_id,
        "producerEpoch": client.epoch,
        "transactionResult": False,
        "topics": [{"name": partition.topic, "partitionIndexes": [number]}],
        "coordinatorEpoch": 0,
        "transactionVersion": 0,
        **fields,
    }


def marked(client: Client, partition: TopicPartition, number: int = 0, **fields: int) -> int:
    """The code for it."""
    marker = marker_of(client, partition, number, **fields)
    told = client.cluster.ask(partition, WRITE_TXN_MARKERS, 2, {"markers": [marker]})
    (answered,) = told["markers"]
    return int(answered["topics"][0]["partitions"][0]["errorCode"])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_over_two_partitions(cluster: Cluster, version: int, is_commit: bool) -> None:
    client = Client(cluster, version)
    assert client.init() == 0
    for round_ in range(1, 3):
        if version == 1:
            assert client.add(FIRST, SECOND) == [0, 0]
        for partition in (FIRST, SECOND, FIRST):
            assert client.write(partition) == 0
        assert stable(cluster, FIRST)[0] == 3 * (round_ - 1)
        assert client.end(is_commit=is_commit) == 0
        assert ended(cluster) == ("CompleteCommit" if is_commit else "CompleteAbort")
        all_stable(cluster)
        assert stable(cluster, FIRST) == (3 * round_, 3 * round_)
        assert aborted(cluster, FIRST) == (0 if is_commit else round_)
    assert client.epoch == (0 if version == 1 else 2)


def test_a_marker_that_comes_while_the_coordinator_is_busy_refuses_nobody(cluster: Cluster) -> None:
    """The first batch of the next transaction asks while the end of the one before is on its way.

    The coordinator says that it is busy; then the marker comes; then it says yes.
    """
    may_come, ask = threading.Event(), cluster.ask

    def late(partition: TopicPartition, api: Api, version: int, body: Value) -> Value:
        if api is WRITE_TXN_MARKERS and not may_come.is_set():
            raise PeerAway(str(partition), "it is late")
        return ask(partition, api, version, body)

    def comes_now(_: float) -> None:
        may_come.set()
        ended(cluster)

    cluster.ask = late  # type: ignore[method-assign]
    cluster.verifier._pause = comes_now
    client = Client(cluster, 2)
    client.init()
    assert client.write(FIRST) == 0
    assert client.end() == 0
    assert client.write(FIRST) == 0
    assert may_come.is_set()


def test_a_batch_of_no_transaction_is_refused(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    assert client.write(FIRST) == 48
    client.add(SECOND)
    assert client.write(FIRST) == 48
    assert client.write(SECOND, transactional_id=None) == 48
    assert client.write(SECOND, transactional_id="other") == 49
    assert client.write(SECOND) == 0
    newer = Client(cluster, 2)
    newer.producer_id, newer.epoch = client.producer_id, client.epoch + 1
    assert newer.write(FIRST) == 47


def test_a_marker_while_the_coordinator_is_asked_makes_its_yes_void(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(cluster)
    client.init()
    client.add(FIRST)
    end = TransactionEnd(client.producer_id, client.epoch, is_commit=False, coordinator_epoch=0)
    ask = cluster.ask

    def ask_and_end(partition: TopicPartition, api: Api, version: int, body: Value) -> Value:
        told = ask(partition, api, version, body)
        if "transactions" in body:  # it is the leader who asks
            cluster.processes[FIRST].partition.end_transaction(end)
        return told

    monkeypatch.setattr(cluster, "ask", ask_and_end)
    assert client.write(FIRST) == 48
    monkeypatch.undo()
    assert client.write(FIRST) == 0


def test_a_no_of_the_coordinator_lets_no_batch_of_another_request_in(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    partition = cluster.processes[FIRST].partition
    writer = Writer(ID, client.producer_id, client.epoch, version=1)
    with beginning(partition, FIRST, Verifier(cluster), writer) as code:
        assert code == 48
        assert not partition.verifications.allow(client.producer_id, client.epoch)
        client.add(FIRST)
        with beginning(partition, FIRST, Verifier(cluster), writer) as code:
            assert code == 0
            assert partition.verifications.allow(client.producer_id, client.epoch)
    assert not partition.verifications


def test_who_has_no_coordinator_waits_with_his_batches(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    client.add(FIRST)
    cluster.processes[COORDINATOR].is_away = True
    assert client.write(FIRST) == 19
    client.sequences[FIRST] = 1
    assert client.write(FIRST) == 19, "what is behind it is not out of order"
    cluster.processes[COORDINATOR].is_away = False
    client.sequences[FIRST] = 1
    assert client.write(FIRST) == 19, "not even when the coordinator is there again"
    client.sequences[FIRST] = 0
    assert client.write(FIRST) == 0
    assert client.write(FIRST) == 0


def test_who_writes_to_a_partition_of_which_the_coordinator_has_not_heard_yet_waits(
    cluster: Cluster,
) -> None:
    client = Client(cluster, 2)
    client.init()
    orders = cluster.topics[ORDERS]
    cluster.topics[ORDERS] = orders._replace(partitions=1)
    assert client.write(SECOND) == 19
    cluster.topics[ORDERS] = orders
    assert client.write(SECOND) == 0
    assert client.end() == 0
    assert ended(cluster) == "CompleteCommit"


def test_a_fence_is_told_in_the_words_of_each_version(cluster: Cluster) -> None:
    old = Client(cluster)
    old.init()
    new = Client(cluster)
    assert new.init() == 0
    assert new.epoch == 1
    assert old.add(FIRST, version=1) == [47]
    assert old.add(FIRST, version=3) == [90]
    assert old.add_offsets(version=1) == 47
    assert old.add_offsets(version=2) == 90
    assert old.end(version=1) == 47
    assert old.end(version=4) == 90
    assert old.init(version=3) == 47
    assert old.init(version=4) == 90
    assert new.add(FIRST) == [0]


def test_a_new_owner_aborts_what_is_open(cluster: Cluster) -> None:
    old, new = Client(cluster), Client(cluster)
    old.init()
    old.add(FIRST)
    old.write(FIRST)
    assert new.init() == 51
    wait_for(lambda: new.init() == 0)
    assert aborted(cluster, FIRST) == 1
    assert old.write(FIRST) == 47


def test_partitions_that_are_not_there_are_named_and_nothing_is_added(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    strange = TopicPartition("strange", 0)
    assert client.add(FIRST, strange) == [55, 3]
    assert client.add(FIRST, TopicPartition(ORDERS, 2)) == [55, 3]
    assert client.add(COORDINATOR, FIRST) == [17, 55]
    assert state(cluster)["transactionState"] == "Empty"
    cluster.is_manager_away = True
    assert client.add(FIRST) == [15]
    cluster.is_manager_away = False


@pytest.mark.parametrize("version", [1, 2])
def test_offsets_count_when_the_transaction_is_committed(cluster: Cluster, version: int) -> None:
    client = Client(cluster, version)
    client.init()
    of_request = 3 if version == 1 else 5
    if version == 1:
        assert client.commit_offset(5) == 48, "its partition is not in the transaction"
        assert client.add_offsets() == 0
    assert client.commit_offset(5, of_request) == 0
    assert fetched(cluster) == (-1, 0)
    assert fetched(cluster, must_be_stable=True) == (-1, 88)
    assert client.end() == 0
    ended(cluster)
    assert fetched(cluster, must_be_stable=True) == (5, 0)
    if version == 1:
        client.add_offsets()
    assert client.commit_offset(9, of_request) == 0
    assert client.end(is_commit=False) == 0
    ended(cluster)
    assert fetched(cluster, must_be_stable=True) == (5, 0)
    cluster.processes[OFFSETS].restart()
    cluster.serves()
    assert fetched(cluster, must_be_stable=True) == (5, 0)


def test_a_partition_that_is_not_in_the_transaction_is_told_as_the_version_knows_it(
    cluster: Cluster,
) -> None:
    client = Client(cluster)
    client.init()
    assert client.commit_offset(5, 3) == 48
    assert client.commit_offset(5, 4) == 120, "abort, and go on (KIP-890)"
    assert client.commit_offset(5, 4, group="") == 24


def test_an_id_that_is_empty_is_none(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    client.id = ""
    assert client.add(FIRST) == [42]
    assert client.add_offsets() == 42
    assert client.end() == 42
    assert client.commit_offset(5) == 42


COMMITTED: dict[str, Any] = {
    "committedOffset": 5,
    "committedLeaderEpoch": -1,
    "committedMetadata": None,
}


def offset_codes(cluster: Cluster, api: Api, version: int, **more: Any) -> list[tuple[str, int]]:
    """By partition; those of a topic that is there, with two partitions, and of one that is not."""
    said: dict[str, Any] = {} if api is OFFSET_DELETE else COMMITTED
    topics = [
        {
            "name": name,
            "partitions": [{"partitionIndex": number, **said} for number in numbers],
        }
        for name, numbers in ((ORDERS, (0, 2, -1)), ("strange", (0,)))
    ]
    told = cluster.ask(OFFSETS, api, version, {"groupId": GROUP, "topics": topics, **more})
    return [
        (f"{topic['name']}-{part['partitionIndex']}", part["errorCode"])
        for topic in told["topics"]
        for part in topic["partitions"]
    ]


def test_offsets_of_partitions_that_are_not_there_are_refused_and_the_others_taken(
    cluster: Cluster,
) -> None:
    client = Client(cluster)
    client.init()
    client.add_offsets()
    nobody = {"memberId": "", "groupInstanceId": None}
    who = {**client.owner, **nobody, "generationId": -1}
    simple = {**nobody, "generationIdOrMemberEpoch": -1}
    expected = [(f"{ORDERS}-0", 0), (f"{ORDERS}-2", 3), (f"{ORDERS}--1", 3), ("strange-0", 3)]
    assert offset_codes(cluster, OFFSET_COMMIT, 7, **simple) == expected
    assert offset_codes(cluster, TXN_OFFSET_COMMIT, 3, **who) == expected
    assert offset_codes(cluster, OFFSET_DELETE, 0) == expected
    cluster.is_manager_away = True
    assert {code for _, code in offset_codes(cluster, OFFSET_COMMIT, 7, **simple)} == {0}, (
        "a commit does not wait for a LogManager"
    )


@pytest.mark.parametrize("version", range(6))
def test_offsets_in_every_version(cluster: Cluster, version: int) -> None:
    client = Client(cluster)
    client.init()
    client.add_offsets()
    assert client.commit_offset(7, version) == 0
    if version >= 3:
        assert client.commit_offset(8, version, generation=3) == 22, "a generation of no group"
    assert client.end() == 0
    ended(cluster)
    assert fetched(cluster) == (7, 0)


def test_open_offsets_are_open_after_a_restart(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    client.add_offsets()
    client.commit_offset(5)
    cluster.processes[OFFSETS].restart()
    cluster.serves()
    assert fetched(cluster, must_be_stable=True) == (-1, 88)
    client.end()
    ended(cluster)
    assert fetched(cluster) == (5, 0)


def test_a_partition_that_is_away_gets_its_marker_when_it_is_back(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    client.add(FIRST, SECOND)
    client.write(FIRST)
    client.write(SECOND)
    cluster.processes[FIRST].is_away = True
    assert client.end() == 0
    wait_for(lambda: len(set(stable(cluster, SECOND))) == 1)
    assert state(cluster)["topics"] == [{"topic": ORDERS, "partitions": [0]}]
    assert client.add(FIRST) == [51]
    cluster.processes[FIRST].restart()
    assert stable(cluster, FIRST)[0] == 0
    cluster.processes[FIRST].is_away = False
    assert ended(cluster) == "CompleteCommit"
    all_stable(cluster)


def test_a_coordinator_that_was_killed_ends_what_it_has_decided(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    client.add(FIRST, SECOND)
    client.write(FIRST)
    cluster.processes[FIRST].is_away = True
    assert client.end() == 0
    cluster.processes[COORDINATOR].restart()
    cluster.serves()
    assert client.end() == 51
    cluster.processes[FIRST].is_away = False
    assert ended(cluster) == "CompleteCommit"
    assert client.end() == 0
    all_stable(cluster)


def test_a_topic_that_is_deleted_needs_no_marker(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    client.add(FIRST)
    client.write(FIRST)
    del cluster.topics[ORDERS]
    assert client.end() == 0
    assert ended(cluster) == "CompleteCommit"


def test_a_transaction_that_nobody_ends_is_aborted(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init(timeout_ms=1_000)
    client.add(FIRST)
    client.write(FIRST)
    cluster.clock.advance(2_000)
    assert ended(cluster) == "CompleteAbort"
    assert client.end() == 90
    all_stable(cluster)


def test_who_is_no_coordinator_says_so(cluster: Cluster) -> None:
    owner = {"transactionalId": ID, "producerId": 1, "producerEpoch": 0}

    def code(api: Api, body: Value) -> int:
        return int(cluster.ask(FIRST, api, 3, body)["errorCode"])

    assert code(END_TXN, {**owner, "committed": True}) == 16
    assert code(ADD_OFFSETS_TO_TXN, {**owner, "groupId": GROUP}) == 16
    (told,) = cluster.ask(FIRST, DESCRIBE_TRANSACTIONS, 0, {"transactionalIds": [ID]})[
        "transactionStates"
    ]
    assert told["errorCode"] == 16
    body: Value = {"stateFilters": [], "producerIdFilters": []}
    listed = cluster.ask(FIRST, LIST_TRANSACTIONS, 0, body)
    assert (listed["errorCode"], listed["transactionStates"]) == (0, [])
    client = Client(cluster)
    client.init()
    assert [
        one["transactionalId"]
        for one in cluster.ask(COORDINATOR, LIST_TRANSACTIONS, 0, body)["transactionStates"]
    ] == [ID]


def test_an_id_of_another_coordinator_is_not_taken(cluster: Cluster) -> None:
    cluster.topics[TRANSACTION_STATE] = Topic(TOPIC_ID, 2)
    for name in ("a", "b"):
        is_here = partition_of(name, 2) == COORDINATOR.partition
        body = {
            "transactionalId": name,
            "transactionTimeoutMs": 1_000,
            "producerId": -1,
            "producerEpoch": -1,
        }
        told = cluster.ask(COORDINATOR, INIT_PRODUCER_ID, 4, body)
        assert told["errorCode"] == (0 if is_here else 16)


def test_an_administrator_ends_what_hangs(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    client.add(FIRST)
    client.write(FIRST)
    assert marked(client, FIRST, number=1) == 6
    assert marked(client, FIRST, producerEpoch=-1) == 87
    assert marked(client, COORDINATOR) == 17
    assert marked(client, OFFSETS) == 0
    assert marked(client, FIRST) == 0
    assert aborted(cluster, FIRST) == 1


def test_a_marker_of_an_older_coordinator_is_refused(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    for partition in (FIRST, OFFSETS):
        assert marked(client, partition, coordinatorEpoch=4) == 0
        assert marked(client, partition, coordinatorEpoch=3) == 52
        assert marked(client, partition, coordinatorEpoch=4) == 0


def test_a_late_marker_of_version_2_does_not_end_the_next_transaction(cluster: Cluster) -> None:
    client = Client(cluster, 2)
    client.init()
    client.write(FIRST)
    client.commit_offset(5, 5)
    for partition in (FIRST, OFFSETS):
        assert marked(client, partition, transactionVersion=2) == 47
        assert stable(cluster, partition) == (0, 1)
    assert client.end() == 0
    ended(cluster)
    assert fetched(cluster, must_be_stable=True) == (5, 0)


@pytest.mark.parametrize("has_gone", [True, False])
def test_an_older_copy_of_a_marker_does_not_end_the_next_transaction(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, has_gone: bool
) -> None:
    """The copy is read when its sender has gone (``has_gone``), or that moment it goes."""
    client = Client(cluster)
    client.init()
    process = cluster.processes[FIRST]

    def next_one_begins() -> None:
        assert client.end() == 0
        ended(cluster)
        assert client.add(FIRST) == [0]
        assert client.write(FIRST) == 0

    class Sender(Place):
        def has_peer_gone(self) -> bool:
            if not has_gone:
                next_one_begins()  # another copy was answered
            return has_gone

    client.add(FIRST)
    client.write(FIRST)
    if has_gone:
        next_one_begins()
    copy = {"markers": [marker_of(client, FIRST, transactionResult=True)]}
    frame = bytearray(request_frame(WRITE_TXN_MARKERS, 2, copy))
    if has_gone:
        with pytest.raises(PeerGone):
            process.door([frame], Sender())  # type: ignore[arg-type]
    else:
        pieces: Any = process.door([frame], Sender())  # type: ignore[arg-type]
        told = read_answer(WRITE_TXN_MARKERS, 2, b"".join(pieces))
        assert told["markers"][0]["topics"][0]["partitions"][0]["errorCode"] == 6
    assert stable(cluster, FIRST) == (2, 3)
    assert client.end(is_commit=False) == 0
    ended(cluster)
    assert aborted(cluster, FIRST) == 1


def test_a_marker_of_offsets_waits_for_their_coordinator(cluster: Cluster) -> None:
    client = Client(cluster)
    client.init()
    client.add_offsets()
    client.commit_offset(5)
    groups = cluster.processes[OFFSETS].groups
    assert groups is not None
    groups.stop()
    assert client.end() == 0
    assert marked(client, OFFSETS) == 6
    assert state(cluster)["transactionState"] == "PrepareCommit"
    cluster.processes[OFFSETS].restart()
    cluster.serves()
    assert ended(cluster) == "CompleteCommit"
    assert fetched(cluster, must_be_stable=True) == (5, 0)


def test_nobody_gets_an_id_where_no_producer_id_can_be_had(cluster: Cluster) -> None:
    client = Client(cluster)
    cluster.processes[COORDINATOR].coordinator._fresh_producer_id = _none  # type: ignore[union-attr]
    assert client.init() == 14


def _none() -> int:
    raise PeerAway("the Controller", "it is away")
