"""A producer of transactions: all of one counts or nothing does, and every loss is told."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import pytest

from raylog.actors.coordinators.errors import (
    CommitFailed,
    CoordinatorNotAvailable,
    CoordinatorRefused,
    OffsetMetadataTooLarge,
)
from raylog.actors.coordinators.transactions.errors import (
    IllegalTransactionState,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
)
from raylog.actors.errors import InvalidRequest, ProduceFailed, ReentrantCall, RequestTimedOut
from raylog.actors.plane.apis.groups import OFFSET_FETCH
from raylog.cluster.client.consumer.group.messages import GroupMetadata, OffsetAndMetadata
from raylog.cluster.client.producer import AsyncProducer, Producer
from raylog.cluster.client.producer.call_lock import CallLock
from raylog.cluster.client.producer.transactions.states import CALLED_ONCE, NEXT, Call, State
from raylog.storage.names import TRANSACTION_STATE, TopicPartition
from raylog.storage.testing.waiting import wait_for
from tests.harness.transaction_lab import LOST, UNANSWERED, Lab
from tests.unit.actors.plane.together import COORDINATOR, FIRST, OFFSETS, ORDERS, SECOND

GROUP = GroupMetadata("readers")
INIT, END, OFFSETS_OF = "InitProducerId", "EndTxn", "TxnOffsetCommit"


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.close()


def open_one(lab: Lab, *values: bytes) -> Producer:
    """A producer in a transaction of these values, one in each partition in turn."""
    producer = lab.ready()
    producer.begin_transaction()
    send(producer, *values)
    return producer


def send(producer: Producer, *values: bytes) -> None:
    for number, value in enumerate(values):
        producer.send(ORDERS, value, partition=number % 2)


def seen(lab: Lab, *values: bytes) -> None:
    """Return when readers of committed records see these, and nothing is open."""
    for partition in (FIRST, SECOND):
        log = lab.cluster.processes[partition].partition.log
        wait_for(lambda at=log: at.last_stable_offset == at.log_end_offset)  # type: ignore[misc]
    assert sorted(lab.all_committed()) == sorted(values)


def offset_of(lab: Lab) -> int:
    """Where the group stands."""
    topics = [{"name": ORDERS, "partitionIndexes": [0]}]
    body = {"groupId": GROUP.group_id, "topics": topics, "requireStable": False}
    told = lab.cluster.ask(OFFSETS, OFFSET_FETCH, 7, body)
    return int(told["topics"][0]["partitions"][0]["committedOffset"])


# -- all or nothing --------------------------------------------------------------------------------


def test_records_count_once_they_are_committed(lab: Lab) -> None:
    producer = open_one(lab, b"a", b"b", b"c")
    producer.flush()
    assert lab.all_committed() == []
    producer.commit_transaction()
    seen(lab, b"a", b"b", b"c")


def test_records_of_an_aborted_transaction_never_count(lab: Lab) -> None:
    producer = open_one(lab, b"a", b"b")
    producer.flush()
    producer.abort_transaction()
    producer.begin_transaction()
    send(producer, b"c", b"d")
    producer.commit_transaction()
    seen(lab, b"c", b"d")


def test_what_was_not_sent_when_it_is_aborted_is_not_sent(lab: Lab) -> None:
    producer = lab.ready(linger_ms=10_000)
    producer.begin_transaction()
    sent = producer.send(ORDERS, b"a")
    producer.abort_transaction()
    with pytest.raises(ProduceFailed) as failed:
        sent.result(0)
    assert isinstance(failed.value.cause, TransactionAborted)
    assert "Produce" not in lab.way.asked
    assert END not in lab.way.asked, "nobody knows of this transaction"
    producer.close()  # and nothing is left to be told


def test_an_empty_transaction_asks_nobody(lab: Lab) -> None:
    producer = open_one(lab, b"a")
    producer.commit_transaction()
    asked = len(lab.way.asked)
    producer.begin_transaction()
    producer.commit_transaction()
    producer.begin_transaction()
    producer.abort_transaction()
    assert len(lab.way.asked) == asked


def test_a_commit_sends_what_lingers(lab: Lab) -> None:
    producer = lab.ready(linger_ms=10_000)
    producer.begin_transaction()
    send(producer, b"a", b"b")
    producer.commit_transaction()
    seen(lab, b"a", b"b")


def test_many_transactions_of_many_records_are_in_order(lab: Lab) -> None:
    producer = lab.ready(batch_size=200)
    values = [b"%d" % number for number in range(200)]
    for start in range(0, 200, 20):
        producer.begin_transaction()
        for value in values[start : start + 20]:
            producer.send(ORDERS, value, partition=0)
        producer.commit_transaction()
    wait_for(lambda: len(lab.committed()) == 200)
    assert lab.committed() == values


def test_tables_are_written_in_transactions_too(lab: Lab) -> None:
    import pyarrow as pa

    producer = lab.ready()
    producer.begin_transaction()
    producer.send_arrow(ORDERS, pa.table({"value": [b"a", b"b"]}), partition=0)
    producer.commit_transaction()
    seen(lab, b"a", b"b")


# -- which call when -------------------------------------------------------------------------------


def call(producer: Producer, which: Call) -> None:
    if which is Call.SEND:
        producer.send(ORDERS, b"x")
    elif which is Call.SEND_OFFSETS:
        producer.send_offsets_to_transaction({(ORDERS, 0): 1}, GROUP)
    else:
        getattr(producer, which.value)()


def in_state(lab: Lab, state: State) -> Producer:
    producer = lab.producer(max_block_ms=20)
    if state is not State.NEW:
        producer.init_transactions()
    if state not in (State.NEW, State.READY):
        producer.begin_transaction()
        send(producer, b"a")
        producer.flush()
    if state is State.FENCED:
        lab.ready().begin_transaction()
        with pytest.raises(ProducerFenced):
            producer.commit_transaction()
    if state is State.FAILED:
        lab.way.faults[OFFSETS_OF] = [LOST] * 100
        with pytest.raises(RequestTimedOut):
            producer.send_offsets_to_transaction({(ORDERS, 0): 1}, GROUP)
    if state in (State.COMMITTING, State.ABORTING):
        lab.way.faults[END] = [UNANSWERED] * 100
        end = Call.COMMIT if state is State.COMMITTING else Call.ABORT
        with pytest.raises(RequestTimedOut):
            call(producer, end)
        lab.way.faults[END].clear()
    return producer


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("which", list(Call))
def test_each_call_is_taken_or_refused_by_name(lab: Lab, state: State, which: Call) -> None:
    producer = in_state(lab, state)
    lab.way.faults.clear()
    if (state, which) in NEXT:
        call(producer, which)
        return
    refused = {State.FENCED: ProducerFenced, State.FAILED: TransactionFailed}
    kind = refused.get(state, IllegalTransactionState)
    with pytest.raises(kind) as told:
        call(producer, which)
    if kind is IllegalTransactionState:
        why = CALLED_ONCE if which is Call.INIT else state.value
        assert str(told.value) == f"{which.value}: {why}"


def test_without_a_transactional_id_there_are_no_transactions(lab: Lab) -> None:
    producer = Producer(lab.way, enable_idempotence=False, is_threaded=False)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match=r"transactional\.id"):
        producer.begin_transaction()
    producer._sender.stop()


def test_the_partitions_of_a_topic_are_told_at_any_time(lab: Lab) -> None:
    producer = lab.producer()
    assert producer.partitions_for(ORDERS) == {0, 1}
    producer.init_transactions()
    assert producer.partitions_for(ORDERS) == {0, 1}


def test_a_topic_that_was_known_before_is_in_the_epoch_of_the_transaction(lab: Lab) -> None:
    producer = lab.producer()
    producer.partitions_for(ORDERS)
    producer.init_transactions()
    producer.begin_transaction()
    send(producer, b"a")
    producer.commit_transaction()
    seen(lab, b"a")


def test_a_call_in_a_callback_would_wait_for_itself(lab: Lab) -> None:
    producer = open_one(lab, b"a")
    told: list[Exception] = []

    def in_callback(_: object) -> None:
        try:
            producer.commit_transaction()
        except InvalidRequest as error:
            told.append(error)

    producer._sender.thread = threading.current_thread()
    sent = producer.send(ORDERS, b"b")
    sent.add_done_callback(in_callback)
    producer._sender.step()
    producer._sender.step()
    assert "callback" in str(told[0])


# -- lost requests and answers ---------------------------------------------------------------------


@pytest.mark.parametrize("fault", [LOST, UNANSWERED])
@pytest.mark.parametrize("api", [INIT, "Produce", OFFSETS_OF, END])
def test_what_is_lost_is_asked_for_again(lab: Lab, api: str, fault: str) -> None:
    lab.way.faults[api] = [fault, fault]
    producer = open_one(lab, b"a", b"b")
    producer.send_offsets_to_transaction({(ORDERS, 0): 7}, GROUP)
    producer.commit_transaction()
    seen(lab, b"a", b"b")
    wait_for(lambda: offset_of(lab) == 7)


@pytest.mark.parametrize("code", [14, 15, 16, 51])
@pytest.mark.parametrize("api", [INIT, END, OFFSETS_OF])
def test_a_coordinator_that_does_not_serve_is_asked_again(lab: Lab, api: str, code: int) -> None:
    lab.way.faults[api] = [code, code]
    producer = open_one(lab, b"a")
    producer.send_offsets_to_transaction({(ORDERS, 0): 7}, GROUP)
    producer.commit_transaction()
    seen(lab, b"a")
    topic = OFFSETS.topic if api == OFFSETS_OF else TRANSACTION_STATE
    assert lab.way.forgotten == ([topic] * 2 if code in (15, 16) else [])


def test_it_is_asked_again_after_longer_and_longer_pauses(lab: Lab) -> None:
    lab.way.faults[INIT] = [14] * 4
    lab.ready(retry_backoff_max_ms=4)
    assert lab.pauses == [0.001, 0.002, 0.004, 0.004]


@pytest.mark.parametrize(("code", "kind"), [(48, ProducerFenced), (-1, CoordinatorRefused)])
def test_what_a_coordinator_refuses_is_raised(lab: Lab, code: int, kind: type[Exception]) -> None:
    producer = open_one(lab, b"a")
    lab.way.faults[END] = [code]
    with pytest.raises(kind, match="writer"):
        producer.commit_transaction()


@pytest.mark.parametrize(
    ("code", "kind"),
    [(48, TransactionFailed), (120, TransactionFailed), (-1, CoordinatorRefused)],
)
def test_what_a_groups_coordinator_refuses_fails_the_transaction(
    lab: Lab, code: int, kind: type[Exception]
) -> None:
    producer = open_one(lab, b"a")
    lab.way.faults[OFFSETS_OF] = [code]
    with pytest.raises(kind):
        producer.send_offsets_to_transaction({(ORDERS, 0): 7}, GROUP)
    with pytest.raises(TransactionFailed):
        producer.commit_transaction()


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_decision_without_an_answer_is_asked_for_again_by_its_user(
    lab: Lab, is_commit: bool
) -> None:
    state = State.COMMITTING if is_commit else State.ABORTING
    producer = in_state(lab, state)
    call(producer, Call.COMMIT if is_commit else Call.ABORT)
    producer.begin_transaction()
    send(producer, b"b")
    producer.commit_transaction()
    seen(lab, *([b"a", b"b"] if is_commit else [b"b"]))


def test_a_commit_whose_batches_are_late_can_be_made_again(lab: Lab) -> None:
    producer = lab.ready(max_block_ms=50)
    producer.begin_transaction()
    send(producer, b"a")
    lab.cluster.processes[FIRST].is_away = True
    with pytest.raises(RequestTimedOut, match="commit_transaction"):
        producer.commit_transaction()
    lab.cluster.processes[FIRST].is_away = False
    producer.commit_transaction()
    seen(lab, b"a")


def test_a_coordinator_that_does_not_come_back_is_named(lab: Lab) -> None:
    lab.cluster.processes[COORDINATOR].is_away = True
    producer = lab.producer(max_block_ms=50)
    with pytest.raises(RequestTimedOut, match="init_transactions") as told:
        producer.init_transactions()
    assert told.value.__cause__ is not None
    lab.cluster.processes[COORDINATOR].is_away = False
    producer.init_transactions()


def test_where_there_is_no_coordinators_topic_any_process_is_asked_for_it(lab: Lab) -> None:
    topics = lab.cluster.topics
    made = topics.pop(TRANSACTION_STATE)
    producer = lab.producer(max_block_ms=30)
    with pytest.raises(RequestTimedOut) as told:
        producer.init_transactions()
    assert isinstance(told.value.__cause__, CoordinatorNotAvailable)
    assert "FindCoordinator" in lab.way.asked
    topics[TRANSACTION_STATE] = made
    producer.init_transactions()


def test_restarts_of_all_processes_in_a_transaction_lose_nothing(lab: Lab) -> None:
    producer = open_one(lab, b"a", b"b")
    producer.flush()
    for partition in (COORDINATOR, FIRST, SECOND, OFFSETS):
        lab.cluster.processes[partition].restart()
    lab.cluster.serves()
    send(producer, b"c", b"d")
    producer.commit_transaction()
    seen(lab, b"a", b"b", b"c", b"d")


# -- what fails ------------------------------------------------------------------------------------


def test_a_batch_that_fails_fails_its_transaction(lab: Lab) -> None:
    producer = lab.ready(delivery_timeout_ms=50, linger_ms=0, max_block_ms=1000)
    producer.begin_transaction()
    send(producer, b"a")
    producer.flush()
    lab.cluster.processes[SECOND].is_away = True
    send(producer, b"b", b"c")
    with pytest.raises(TransactionFailed, match="abort_transaction") as told:
        producer.commit_transaction()
    assert told.value.__cause__ is not None
    with pytest.raises(TransactionFailed):
        send(producer, b"d")
    lab.cluster.processes[SECOND].is_away = False
    producer.abort_transaction()
    producer.begin_transaction()
    send(producer, b"e", b"f")
    producer.commit_transaction()
    seen(lab, b"e", b"f")
    producer.close()


def test_what_waits_when_one_fails_is_not_sent(lab: Lab) -> None:
    producer = lab.ready(delivery_timeout_ms=50, max_block_ms=1000)
    producer.begin_transaction()
    lab.cluster.processes[FIRST].is_away = True
    lost = producer.send(ORDERS, b"a", partition=0)
    with pytest.raises(ProduceFailed):
        producer.flush()
    assert lost.done()
    with pytest.raises(TransactionFailed):
        producer.commit_transaction()
    producer.abort_transaction()


def test_what_arrives_after_its_transaction_was_aborted_is_refused(lab: Lab) -> None:
    producer = open_one(lab, b"a")
    producer.flush()
    lab.way.late = []
    send(producer, b"late", b"late")
    producer._sender.step()
    producer.abort_transaction()
    lab.way.arrive()
    producer.begin_transaction()
    send(producer, b"b")
    producer.commit_transaction()
    seen(lab, b"b")


def test_who_takes_the_id_fences_who_had_it(lab: Lab) -> None:
    first = open_one(lab, b"a", b"b")
    first.flush()
    second = lab.ready()
    with pytest.raises(ProducerFenced, match="another producer"):
        first.commit_transaction()
    for which in (Call.COMMIT, Call.ABORT, Call.BEGIN, Call.SEND):
        with pytest.raises(ProducerFenced):
            call(first, which)
    second.begin_transaction()
    send(second, b"c")
    second.commit_transaction()
    seen(lab, b"c")
    first.close()


def test_who_is_fenced_hears_it_from_its_records(lab: Lab) -> None:
    first = open_one(lab, b"a")
    first.flush()
    lab.ready()
    send(first, b"b")
    with pytest.raises(ProducerFenced):
        first.commit_transaction()
    seen(lab)
    first.close()  # which has nothing left to tell


def test_a_timeout_that_is_too_long_is_refused_by_name(lab: Lab) -> None:
    producer = lab.producer(transaction_timeout_ms=2**31 - 1)
    with pytest.raises(InvalidTransactionTimeout, match=r"transaction\.max\.timeout\.ms"):
        producer.init_transactions()


# -- offsets ---------------------------------------------------------------------------------------


def test_offsets_count_with_their_transaction(lab: Lab) -> None:
    producer = open_one(lab, b"a")
    producer.send_offsets_to_transaction({TopicPartition(ORDERS, 0): 5}, GROUP)
    assert offset_of(lab) == -1
    producer.commit_transaction()
    wait_for(lambda: offset_of(lab) == 5)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({TopicPartition(ORDERS, 0): 9}, GROUP)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({}, GROUP)
    producer.commit_transaction()
    assert offset_of(lab) == 5


def test_offsets_alone_are_a_transaction_too(lab: Lab) -> None:
    producer = lab.ready()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({(ORDERS, 0): (5, 0)}, GROUP)
    producer.commit_transaction()
    wait_for(lambda: offset_of(lab) == 5)


def test_offsets_of_who_is_no_member_fail_the_transaction(lab: Lab) -> None:
    producer = open_one(lab, b"a")
    stranger = GroupMetadata("readers", 3, "somebody")
    with pytest.raises(CommitFailed, match="readers"):
        producer.send_offsets_to_transaction({(ORDERS, 0): 5}, stranger)
    with pytest.raises(TransactionFailed):
        producer.commit_transaction()
    producer.abort_transaction()
    seen(lab)


def test_a_text_that_is_too_long_fails_the_transaction(lab: Lab) -> None:
    producer = open_one(lab, b"a")
    place = OffsetAndMetadata(5, "x" * 10_000)
    with pytest.raises(OffsetMetadataTooLarge):
        producer.send_offsets_to_transaction({(ORDERS, 0): place}, GROUP)
    with pytest.raises(TransactionFailed):
        producer.commit_transaction()


@pytest.mark.parametrize(
    ("offsets", "group"), [("abc", GROUP), ({(ORDERS, 0): 5}, "readers"), ({}, None)]
)
def test_offsets_that_make_no_sense_fail_the_transaction(
    lab: Lab, offsets: Any, group: Any
) -> None:
    """Else its records would be committed without them."""
    producer = open_one(lab, b"a")
    with pytest.raises(InvalidRequest):
        producer.send_offsets_to_transaction(offsets, group)
    with pytest.raises(TransactionFailed):
        producer.commit_transaction()
    producer.abort_transaction()
    seen(lab)


def test_offsets_of_who_is_fenced_do_not_count(lab: Lab) -> None:
    first = open_one(lab, b"a")
    first.flush()
    lab.ready()
    with pytest.raises(ProducerFenced):
        first.send_offsets_to_transaction({(ORDERS, 0): 5}, GROUP)
    with pytest.raises(ProducerFenced):
        first.commit_transaction()
    assert offset_of(lab) == -1


# -- the end ---------------------------------------------------------------------------------------


def test_who_closes_within_a_transaction_aborts_it(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    producer = open_one(lab, b"a")
    producer.flush()
    producer.close()
    seen(lab)
    assert "is aborted" in caplog.text


def test_who_closes_with_records_that_were_not_sent_hears_of_it(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    producer = lab.ready(linger_ms=10_000)
    producer.begin_transaction()
    producer.send(ORDERS, b"a")
    producer.close()
    assert "is aborted" in caplog.text
    assert "Produce" not in lab.way.asked


def test_who_closes_within_an_empty_transaction_loses_nothing(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    producer = lab.ready()
    producer.begin_transaction()
    producer.close()
    assert not caplog.text


def test_who_leaves_by_an_exception_without_a_coordinator_tries_and_says_it_once(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    producer = open_one(lab, b"a")
    producer.flush()
    lab.cluster.processes[COORDINATOR].is_away = True
    with pytest.raises(ZeroDivisionError), producer:
        raise ZeroDivisionError
    assert caplog.text.count("transaction.timeout.ms") == 1
    lab.cluster.processes[COORDINATOR].is_away = False


def test_a_commit_that_is_interrupted_before_it_is_asked_for_is_aborted_at_the_end(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = open_one(lab, b"a")
    producer.flush()

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(producer._sender, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.commit_transaction()
    producer.close()
    seen(lab)


# -- signal handlers, finalizers -------------------------------------------------------------------

CALLS = [
    lambda producer: producer.commit_transaction(),
    lambda producer: producer.abort_transaction(),
    lambda producer: producer.send_offsets_to_transaction({(ORDERS, 0): 5}, GROUP),
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("call", CALLS, ids=["commit", "abort", "send offsets"])
@pytest.mark.parametrize(
    "interrupted", ["_sender.lock", "_transactions._calls", "_transactions._lock"]
)
def test_who_interrupts_a_call_of_its_own_thread_is_refused_and_changes_nothing(
    lab: Lab, call: Callable[[Producer], None], interrupted: str
) -> None:
    producer = open_one(lab, b"a")
    lock: CallLock = attrgetter(interrupted)(producer)
    with lock.thread, lock.alone(), pytest.raises(ReentrantCall):
        call(producer)
    send(producer, b"b")
    producer.commit_transaction()
    seen(lab, b"a", b"b")
    assert offset_of(lab) == -1


@pytest.mark.timeout(30)
def test_the_loop_goes_on_while_a_transaction_waits_for_a_call_that_was_cancelled(lab: Lab) -> None:
    async def begin() -> None:
        settings = {"transactional.id": "writer", "retry.backoff.ms": 1}
        async with AsyncProducer(lab.way, settings) as producer:  # type: ignore[arg-type]
            await producer.init_transactions()
            calls = producer._started._transactions._calls  # type: ignore[union-attr]
            ends, holds = threading.Event(), threading.Event()

            def hold() -> None:
                with calls.thread, calls.alone():
                    holds.set()
                    ends.wait()

            holder = threading.Thread(target=hold)
            holder.start()
            holds.wait()
            beginning = asyncio.create_task(producer.begin_transaction())
            await asyncio.sleep(0.01)
            assert not beginning.done()
            ends.set()
            await beginning
            holder.join()

    asyncio.run(begin())


def test_who_leaves_by_an_exception_aborts_and_nothing_is_logged(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    producer = open_one(lab, b"a")
    producer.flush()
    with pytest.raises(ZeroDivisionError), producer:
        raise ZeroDivisionError
    seen(lab)
    assert not caplog.text


def test_who_closes_without_a_coordinator_says_what_is_left_open(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    producer = open_one(lab, b"a")
    producer.flush()
    lab.cluster.processes[COORDINATOR].is_away = True
    producer.close(0.05)
    assert "transaction.timeout.ms" in caplog.text
    lab.cluster.processes[COORDINATOR].is_away = False


def test_who_closes_while_a_commit_has_no_answer_says_so(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    in_state(lab, State.COMMITTING).close()
    assert "does not know" in caplog.text
    seen(lab, b"a")


def test_a_closed_producer_takes_no_call(lab: Lab) -> None:
    producer = lab.ready()
    producer.close()
    with pytest.raises(InvalidRequest, match="closed"):
        producer.begin_transaction()


def test_coroutines_have_transactions_too(lab: Lab) -> None:
    async def copy() -> None:
        settings = {"transactional.id": "writer", "retry.backoff.ms": 1}
        async with AsyncProducer(lab.way, settings) as producer:  # type: ignore[arg-type]
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(ORDERS, b"a")
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send(ORDERS, b"b")
            await producer.send_offsets_to_transaction({(ORDERS, 0): 5}, GROUP)
            await producer.commit_transaction()

    asyncio.run(copy())
    seen(lab, b"b")
    wait_for(lambda: offset_of(lab) == 5)
