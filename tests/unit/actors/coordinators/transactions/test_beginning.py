"""InitProducerId: who gets an id, with which epoch, and who is fenced by it."""

from dataclasses import replace

import pytest

from raylog.actors.coordinators.transactions.beginning import MAX_ID_BYTES
from raylog.actors.coordinators.transactions.config import TransactionConfig
from raylog.actors.coordinators.transactions.messages import (
    InitAnswer,
    InitRequest,
    Owner,
    ProducerIdNeeded,
)
from raylog.actors.coordinators.transactions.records import transaction_record
from tests.unit.actors.coordinators.transactions.playing import (
    FIRST,
    ID,
    TIMEOUT_MS,
    Coordinator,
)


def exhausted(coordinator: Coordinator) -> Owner:
    """The owner of the last epoch that a producer may have."""
    first = coordinator.init()
    known = coordinator.last()
    assert known is not None
    coordinator.log.append(transaction_record(replace(known, epoch=32_765)))
    coordinator.restart()
    last = coordinator.init()
    assert last == Owner(ID, first.producer_id, 32_766)
    return last


def test_a_new_id_gets_a_new_producer_id_and_the_epoch_0() -> None:
    coordinator = Coordinator()
    request = InitRequest(Owner(ID, -1, -1), TIMEOUT_MS)
    assert coordinator.ask(request, ProducerIdNeeded) == ProducerIdNeeded()
    assert coordinator.log == []
    assert coordinator.init() == Owner(ID, 1000, 0)
    assert coordinator.state == "EMPTY"


def test_who_comes_next_gets_the_next_epoch_and_no_new_producer_id() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    second = coordinator.init()
    assert second == Owner(ID, first.producer_id, 1)
    assert coordinator.add(first, FIRST) == 90
    assert coordinator.add(second, FIRST) == 0
    assert coordinator.fresh_id == 1000


def test_a_producer_may_ask_for_its_own_next_epoch() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    second = coordinator.init(first.producer_id, first.epoch)
    assert second == Owner(ID, first.producer_id, 1)


@pytest.mark.parametrize("dies", [False, True])
def test_a_lost_answer_is_answered_alike(dies: bool) -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    second = coordinator.init(first.producer_id, first.epoch)
    written = len(coordinator.log)
    if dies:
        coordinator.restart()
    assert coordinator.init(first.producer_id, first.epoch) == second
    assert len(coordinator.log) == written


def test_who_was_fenced_by_another_does_not_come_back() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    coordinator.init()
    assert coordinator.try_init(first.producer_id, first.epoch) == InitAnswer(90)
    assert coordinator.try_init(first.producer_id + 1, 1) == InitAnswer(90)


def test_an_open_transaction_is_aborted_for_who_comes_next() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    assert coordinator.add(first, FIRST) == 0
    assert coordinator.try_init() == InitAnswer(51)
    assert coordinator.state == "PREPARE_ABORT"
    assert [(one.epoch, one.is_commit) for one, _ in coordinator.markers] == [(1, False)]
    assert coordinator.try_init() == InitAnswer(51)
    assert coordinator.commit(first) == 90
    coordinator.mark()
    assert coordinator.try_init(first.producer_id, first.epoch) == InitAnswer(90), "nor before him"
    assert coordinator.init() == Owner(ID, first.producer_id, 2)
    assert coordinator.try_init(first.producer_id, first.epoch) == InitAnswer(90)


def test_a_producer_that_aborts_its_own_transaction_by_it_goes_on() -> None:
    coordinator = Coordinator()
    owner = coordinator.init()
    coordinator.add(owner, FIRST)
    assert coordinator.try_init(owner.producer_id, owner.epoch) == InitAnswer(51)
    coordinator.mark()
    assert coordinator.init(owner.producer_id, owner.epoch) == Owner(ID, owner.producer_id, 1)


def test_an_old_epoch_does_not_abort_the_transaction_of_the_current_one() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    second = coordinator.init(first.producer_id, first.epoch)
    coordinator.add(second, FIRST)
    assert coordinator.try_init(first.producer_id, first.epoch) == InitAnswer(90)
    assert coordinator.state == "ONGOING"


def test_without_epochs_there_is_another_producer_id() -> None:
    coordinator = Coordinator()
    last = exhausted(coordinator)
    fresh = coordinator.init(last.producer_id, last.epoch)
    assert fresh == Owner(ID, last.producer_id + 1, 0)
    assert coordinator.init(last.producer_id, last.epoch) == fresh, "its answer was lost"
    assert coordinator.add(last, FIRST) == 49
    after = coordinator.init(fresh.producer_id, 0)
    assert after == Owner(ID, fresh.producer_id, 1)
    assert coordinator.try_init(last.producer_id, last.epoch) == InitAnswer(90)


def test_whoever_comes_to_an_id_without_epochs_fences_its_producer() -> None:
    coordinator = Coordinator()
    last = exhausted(coordinator)
    coordinator.add(last, FIRST)
    assert coordinator.try_init() == InitAnswer(51)
    assert coordinator.markers[0][0].epoch == 32_767
    coordinator.mark()
    fresh = coordinator.init()
    assert fresh == Owner(ID, last.producer_id + 1, 0)
    assert coordinator.try_init(last.producer_id, last.epoch) == InitAnswer(90)


def test_a_producer_that_aborts_its_own_transaction_never_has_the_epoch_of_a_fence() -> None:
    coordinator = Coordinator()
    last = exhausted(coordinator)
    coordinator.add(last, FIRST)
    assert coordinator.try_init(last.producer_id, last.epoch) == InitAnswer(51)
    assert coordinator.markers[0][0].epoch == 32_767
    coordinator.mark()
    fresh = coordinator.init(last.producer_id, last.epoch)
    assert fresh == Owner(ID, last.producer_id + 1, 0)
    assert coordinator.init(last.producer_id, last.epoch) == fresh, "its answer was lost"
    assert coordinator.add(fresh, FIRST) == 0


def test_the_epoch_of_a_fence_is_nobodys() -> None:
    coordinator = Coordinator()
    last = exhausted(coordinator)
    coordinator.add(last, FIRST)
    coordinator.try_init()
    coordinator.mark()
    nobody = last._replace(epoch=32_767)
    assert coordinator.add(nobody, FIRST) == 90
    assert coordinator.verify(nobody, FIRST) == (90,)
    assert coordinator.prepare(nobody) == 90
    for version in (1, 2):
        for is_commit in (True, False):
            assert coordinator.end(nobody, is_commit=is_commit, version=version).error_code == 90
    assert coordinator.try_init(nobody.producer_id, nobody.epoch) == InitAnswer(90)
    assert coordinator.state == "COMPLETE_ABORT"


def test_an_epoch_of_the_producer_id_before_is_not_taken_for_one_of_the_current() -> None:
    coordinator = Coordinator()
    last = exhausted(coordinator)
    coordinator.init(last.producer_id, last.epoch)
    fresh = coordinator.init()
    assert fresh.epoch == 1
    assert coordinator.try_init(last.producer_id, 1) == InitAnswer(90)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitRequest(Owner("", -1, -1), TIMEOUT_MS), 42),
        (InitRequest(Owner("x" * (MAX_ID_BYTES + 1), -1, -1), TIMEOUT_MS), 42),
        (InitRequest(Owner(ID, 1000, -1), TIMEOUT_MS), 42),
        (InitRequest(Owner(ID, -1, 0), TIMEOUT_MS), 42),
        (InitRequest(Owner(ID, -1, -1), 0), 50),
        (InitRequest(Owner(ID, -1, -1), 900_001), 50),
    ],
)
def test_what_cannot_be_is_refused(request_: InitRequest, code: int) -> None:
    coordinator = Coordinator()
    assert coordinator.ask(request_, InitAnswer) == InitAnswer(code)
    assert coordinator.log == []


def test_the_longest_id_and_timeout_are_taken() -> None:
    coordinator = Coordinator(TransactionConfig(max_timeout_ms=5))
    longest = InitRequest(Owner("x" * MAX_ID_BYTES, -1, -1), 5)
    assert coordinator.ask(longest, InitAnswer).error_code == 0
    assert coordinator.try_init(timeout_ms=6) == InitAnswer(50)
    assert coordinator.try_init(timeout_ms=1).error_code == 0


def test_a_timeout_is_that_of_the_last_owner() -> None:
    coordinator = Coordinator()
    coordinator.init(timeout_ms=5)
    coordinator.init(timeout_ms=7)
    known = coordinator.last()
    assert known is not None
    assert known.timeout_ms == 7


def test_what_is_not_written_has_not_happened() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    coordinator.add(first, FIRST)
    coordinator.refusal = 15
    assert coordinator.try_init() == InitAnswer(15)
    assert coordinator.try_init(first.producer_id, first.epoch) == InitAnswer(15)
    coordinator.refusal = 0
    assert coordinator.commit(first) == 0
