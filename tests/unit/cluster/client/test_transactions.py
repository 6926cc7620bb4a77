"""Transactions for administrators: what is told, what hangs, what is ended, what is refused."""

import pytest

from raylog.actors.coordinators.errors import (
    CoordinatorNotAvailable,
    CoordinatorRefused,
    MarkerRefused,
    NoOpenTransaction,
    TransactionalIdNotFound,
    TransactionEnding,
    TransactionOpen,
    TransactionPrepared,
)
from raylog.actors.errors import InvalidRequest, NotLeader, UnknownTopicOrPartition
from raylog.cluster.client.transactions import TransactionDescription
from raylog.storage.errors import StorageError
from raylog.storage.names import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from tests.harness.futures import future_of
from tests.harness.transacting import TransactionBroker

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER = TopicPartition("u", 0)
STRANGE = 77  # a producer id that no coordinator has given
MINUTE_MS = 60_000
ANN, CARL = "ann", "carl"  # one at each coordinator


@pytest.fixture
def broker() -> TransactionBroker:
    return TransactionBroker(t=2, u=1)


def hanging(broker: TransactionBroker, **wanted: int) -> list[tuple[str, int, int]]:
    found = broker.transactions().find_hanging(**{"older_than_ms": 0, **wanted})  # type: ignore[arg-type]
    return [(str(one.partition), one.start_offset, one.producer.producer_id) for one in found]


# -- what there is ---------------------------------------------------------------------------------


def test_before_the_first_transaction_there_is_none(broker: TransactionBroker) -> None:
    admin = broker.transactions()
    assert admin.list() == ()
    assert admin.find_hanging() == ()
    for ask in (admin.describe, admin.fence):
        with pytest.raises(TransactionalIdNotFound, match="'nobody'"):
            ask("nobody")
    assert TRANSACTION_STATE not in broker.topics, "nobody has had it made by asking"


def test_all_coordinators_are_asked_for_their_transactions(broker: TransactionBroker) -> None:
    ann, carl = broker.producer(ANN), broker.producer(CARL)
    assert ann.coordinator is not carl.coordinator
    carl.write(ZERO)
    admin = broker.transactions()
    assert [(one.transactional_id, one.state) for one in admin.list()] == [
        (ANN, "Empty"),
        (CARL, "Ongoing"),
    ]
    assert [one.transactional_id for one in admin.list(states=["Ongoing"])] == [CARL]
    assert [one.transactional_id for one in admin.list(producer_ids=[ann.owner.producer_id])] == [
        ANN
    ]
    assert admin.list(older_than_ms=MINUTE_MS // 2) == ()
    broker.pass_time(40)
    assert [one.transactional_id for one in admin.list(older_than_ms=MINUTE_MS // 2)] == [CARL]
    with pytest.raises(InvalidRequest, match="take of Empty, Ongoing"):
        admin.list(states=["open"])


def test_a_transaction_is_described_while_it_is_open_and_afterwards(
    broker: TransactionBroker,
) -> None:
    ann = broker.producer(ANN)
    ann.write(ZERO, OTHER)
    began_ms = broker.now_ms()
    broker.pass_time(5)
    found = broker.transactions().describe(ANN)
    assert found.is_open
    assert found == TransactionDescription(
        transactional_id=ANN,
        state="Ongoing",
        producer_id=ann.owner.producer_id,
        epoch=0,
        timeout_ms=60_000,
        start_ms=began_ms,
        age_ms=5000,
        partitions=(ZERO, OTHER),
    )
    broker.holds_markers = True
    ann.end()
    found = broker.transactions().describe(ANN)
    assert (found.state, found.is_open, found.age_ms) == ("PrepareCommit", True, 5000)
    broker.deliver_markers()
    found = broker.transactions().describe(ANN)
    assert (found.state, found.is_open, found.start_ms, found.age_ms, found.partitions) == (
        "CompleteCommit",
        False,
        None,
        None,
        (),
    )
    with pytest.raises(TransactionalIdNotFound, match="raylog txn list"):
        broker.transactions().describe(CARL)


def test_a_partition_tells_its_producers(broker: TransactionBroker) -> None:
    ann = broker.producer(ANN)
    ann.write(ZERO)
    ann.end()
    broker.deliver_markers()
    ann.write(ZERO)
    began_ms = broker.now_ms()
    broker.append(ZERO, STRANGE, epoch=3)
    found = broker.transactions().producers("t", 0)
    ann_id = ann.owner.producer_id
    assert found == ((STRANGE, 3, 0, began_ms, -1, 3), (ann_id, 0, 1, began_ms, 0, 2))
    assert broker.transactions().producers("t", 1) == ()
    with pytest.raises(UnknownTopicOrPartition, match="2 partitions"):
        broker.transactions().producers("t", 2)


# -- what hangs ------------------------------------------------------------------------------------


def test_what_a_coordinator_knows_does_not_hang_and_what_none_knows_does(
    broker: TransactionBroker,
) -> None:
    ann, carl = broker.producer(ANN), broker.producer(CARL)
    ann.write(ZERO)
    carl.write(ONE)
    assert hanging(broker) == []
    broker.append(ZERO, STRANGE)
    broker.append(ONE, ann.owner.producer_id)  # a producer that is known, elsewhere
    assert hanging(broker) == [
        ("t-0", 1, STRANGE),
        ("t-1", 1, ann.owner.producer_id),
    ]
    assert broker.transactions().find_hanging("u", older_than_ms=0) == ()
    (found,) = broker.transactions().find_hanging("t", 0, older_than_ms=0)
    assert (found.partition, found.start_offset) == (ZERO, 1)
    with pytest.raises(InvalidRequest, match="give a topic"):
        broker.transactions().find_hanging(partition=0)


def test_without_any_coordinator_all_that_is_open_hangs(broker: TransactionBroker) -> None:
    broker.append(OTHER, STRANGE)
    assert hanging(broker) == [("u-0", 0, STRANGE)]


def test_offsets_of_groups_may_hang_and_the_coordinators_own_topic_is_not_asked(
    broker: TransactionBroker,
) -> None:
    broker.producer(ANN)
    broker.create(CONSUMER_OFFSETS)
    broker.append(TopicPartition(CONSUMER_OFFSETS, 0), STRANGE)
    assert hanging(broker) == [("__consumer_offsets-0", 0, STRANGE)]
    asked = [place for name, place in broker.asked if name == "DescribeProducers"]
    assert all(place.topic != TRANSACTION_STATE for place in asked)


def test_only_what_has_been_silent_for_so_long_hangs(broker: TransactionBroker) -> None:
    broker.append(ZERO, STRANGE)
    admin = broker.transactions()
    broker.pass_time(14 * 60)
    assert admin.find_hanging() == ()
    broker.pass_time(60)
    assert len(admin.find_hanging()) == 1
    broker.append(ONE, STRANGE)
    broker.now_s -= 3600  # its client's clock is ahead
    assert len(admin.find_hanging(older_than_ms=0)) == 2


def test_what_has_its_marker_before_the_coordinators_are_asked_does_not_hang(
    broker: TransactionBroker,
) -> None:
    ann = broker.producer(ANN)
    ann.write(ZERO)

    def end() -> None:
        ann.end()
        broker.deliver_markers()

    broker.first["ListTransactions"] = end
    assert hanging(broker) == []


def test_what_is_being_ended_does_not_hang_before_it_has_its_marker(
    broker: TransactionBroker,
) -> None:
    ann = broker.producer(ANN)
    ann.write(ZERO, ONE)
    broker.holds_markers = True
    ann.end()
    assert hanging(broker) == []
    broker.first["DescribeTransactions"] = broker.deliver_markers
    assert hanging(broker) == []


def test_the_next_transaction_of_a_producer_is_not_taken_for_the_one_before(
    broker: TransactionBroker,
) -> None:
    ann = broker.producer(ANN)
    ann.write(ZERO)

    def begin_again() -> None:
        """After the coordinators have said that nothing is open."""
        ann.write(ZERO)

    def end() -> None:
        ann.end()
        broker.deliver_markers()
        broker.first["DescribeProducers"] = begin_again

    broker.first["ListTransactions"] = end
    assert hanging(broker) == []
    assert "DescribeProducers" not in broker.first, "it has begun"


def test_a_topic_that_is_deleted_meanwhile_is_passed_over(broker: TransactionBroker) -> None:
    broker.append(ZERO, STRANGE)
    broker.list_topics = lambda **_: future_of(["gone", "t"])  # type: ignore[method-assign]
    assert hanging(broker) == [("t-0", 0, STRANGE)]
    with pytest.raises(UnknownTopicOrPartition):
        broker.transactions().find_hanging("gone")


def test_nothing_hangs_by_the_silence_of_a_coordinator(broker: TransactionBroker) -> None:
    broker.producer(ANN).write(ZERO)
    broker.codes["ListTransactions"] = [14] * 1000
    with pytest.raises(CoordinatorNotAvailable, match="it reads its log"):
        hanging(broker)
    broker.codes["ListTransactions"] = []
    broker.codes["DescribeTransactions"] = [29]
    with pytest.raises(CoordinatorRefused, match="29"):
        hanging(broker)


@pytest.mark.parametrize(
    ("api", "codes"),
    [
        ("ListTransactions", [14, 15, 16]),
        ("DescribeTransactions", [14, 15, 16]),
        ("DescribeProducers", [6, 56]),
    ],
)
def test_who_does_not_serve_yet_is_asked_again(
    broker: TransactionBroker, api: str, codes: list[int]
) -> None:
    broker.producer(ANN).write(ZERO)
    broker.codes[api] = list(codes)
    assert hanging(broker) == []
    assert not broker.codes[api]


# -- what is ended ---------------------------------------------------------------------------------


def test_a_transaction_that_hangs_is_ended_and_readers_go_on(broker: TransactionBroker) -> None:
    ann = broker.producer(ANN)
    ann.write(ZERO)
    broker.append(ONE, STRANGE, epoch=4)
    assert broker.stable(ONE) == (0, 1)
    ended = broker.transactions().abort("t", 1, 0)
    assert (ended.partition, ended.producer.producer_id, ended.producer.epoch) == (ONE, STRANGE, 4)
    assert broker.stable(ONE) == (2, 2)
    (standing,) = broker.transactions().producers("t", 1)
    assert (standing.coordinator_epoch, standing.transaction_start) == (0, -1)
    assert hanging(broker) == []
    assert broker.stable(ZERO) == (0, 1), "the other is as open as before"


def test_a_transaction_that_its_coordinator_knows_is_not_ended_in_one_partition(
    broker: TransactionBroker,
) -> None:
    ann = broker.producer("ann's own")
    ann.write(ZERO)
    with pytest.raises(TransactionOpen, match=r"raylog txn abort 'ann'\"'\"'s own'"):
        broker.transactions().abort("t", 0, 0)
    broker.holds_markers = True
    ann.end()
    with pytest.raises(TransactionOpen):
        broker.transactions().abort("t", 0, 0)
    assert broker.stable(ZERO) == (0, 1)


def test_where_no_transaction_begins_none_is_ended(broker: TransactionBroker) -> None:
    broker.append(ZERO, STRANGE)
    with pytest.raises(NoOpenTransaction, match="t-0: no open transaction begins at offset 5"):
        broker.transactions().abort("t", 0, 5)
    with pytest.raises(NoOpenTransaction):
        broker.transactions().abort("t", 1, -1)
    with pytest.raises(UnknownTopicOrPartition):
        broker.transactions().abort("t", 9, 0)


def test_a_marker_is_sent_until_it_is_written_or_refused(broker: TransactionBroker) -> None:
    broker.append(ZERO, STRANGE)
    broker.codes["WriteTxnMarkers"] = [6, 56]
    broker.transactions().abort("t", 0, 0)
    broker.append(ONE, STRANGE)
    broker.codes["WriteTxnMarkers"] = [52]
    with pytest.raises(MarkerRefused, match="52"):
        broker.transactions().abort("t", 1, 0)
    broker.codes["WriteTxnMarkers"] = [6] * 1000
    with pytest.raises(NotLeader, match="t-1"):
        broker.transactions(timeout_s=5).abort("t", 1, 0)
    broker.codes["WriteTxnMarkers"] = [56] * 1000
    with pytest.raises(StorageError, match="t-1"):
        broker.transactions(timeout_s=5).abort("t", 1, 0)


def test_a_fence_aborts_in_all_partitions_and_shuts_the_producer_out(
    broker: TransactionBroker,
) -> None:
    ann = broker.producer(ANN)
    ann.write(ZERO, OTHER)
    fenced = broker.transactions().fence(ANN)
    assert fenced == (ANN, ann.owner.producer_id, 2, "Abort")
    assert (broker.stable(ZERO), broker.stable(OTHER)) == ((2, 2), (2, 2))
    assert ann.end() == 90
    again = broker.producer(ANN)
    again.write(ZERO)
    assert again.end() == 0


def test_a_fence_shuts_the_producer_out_where_nothing_is_open(broker: TransactionBroker) -> None:
    ann = broker.producer(ANN)
    assert broker.transactions().fence(ANN).ended is None
    assert ann.end() == 90


def test_a_fence_does_not_change_a_decision(broker: TransactionBroker) -> None:
    ann = broker.producer(ANN)
    ann.write(ZERO)
    broker.holds_markers = True
    ann.end()
    broker.first["DescribeTransactions"] = lambda: setattr(broker, "holds_markers", False)
    assert broker.transactions().fence(ANN).ended == "Commit"


def test_a_commit_that_comes_between_the_questions_is_told(broker: TransactionBroker) -> None:
    ann = broker.producer(ANN)
    ann.write(ZERO)
    broker.first["InitProducerId"] = ann.end
    assert broker.transactions().fence(ANN).ended == "Commit"


def test_a_prepared_transaction_is_not_touched(broker: TransactionBroker) -> None:
    ann = broker.producer(ANN)
    ann.write(ZERO)
    ann.prepare()
    with pytest.raises(TransactionPrepared, match="only its decision ends it"):
        broker.transactions().fence(ANN)
    with pytest.raises(TransactionOpen):
        broker.transactions().abort("t", 0, 0)
    assert hanging(broker) == []
    assert ann.end() == 0


def test_one_that_is_prepared_between_the_questions_is_not_touched_either(
    broker: TransactionBroker,
) -> None:
    ann = broker.producer(ANN)

    def prepare() -> None:
        ann.write(ZERO)
        ann.prepare()

    broker.first["InitProducerId"] = prepare
    with pytest.raises(TransactionPrepared):
        broker.transactions().fence(ANN)
    assert ann.end() == 0


def test_who_takes_the_id_between_the_questions_is_fenced_too(broker: TransactionBroker) -> None:
    broker.producer(ANN).write(ZERO)
    later = []

    def take_over() -> None:
        """What was open has been aborted; the next transaction is as open as it was."""
        broker.deliver_markers()
        later.append(broker.producer(ANN))
        later[0].write(ONE)

    broker.first["InitProducerId"] = lambda: broker.first.update(DescribeTransactions=take_over)
    assert broker.transactions().fence(ANN).ended == "Abort"
    assert later[0].end() == 90
    assert (broker.stable(ZERO), broker.stable(ONE)) == ((2, 2), (2, 2))


def test_partitions_that_take_no_markers_are_named(broker: TransactionBroker) -> None:
    broker.producer(ANN).write(ZERO, ONE)
    broker.holds_markers = True
    with pytest.raises(TransactionEnding, match="t-0, t-1"):
        broker.transactions(timeout_s=5).fence(ANN)
    broker.holds_markers = False
    assert broker.transactions().fence(ANN).ended == "Abort"


def test_a_coordinator_that_loads_is_asked_again_for_a_fence(broker: TransactionBroker) -> None:
    broker.producer(ANN).write(ZERO)
    broker.codes["InitProducerId"] = [14, 15, 16]
    assert broker.transactions().fence(ANN).ended == "Abort"
