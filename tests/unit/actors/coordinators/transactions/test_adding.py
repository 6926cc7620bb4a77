"""Partitions come into transactions, and leaders ask whether they are in one."""

import pytest

from raylog.actors.coordinators.transactions.messages import InitAnswer, Owner
from tests.unit.actors.coordinators.transactions.playing import (
    FIRST,
    ID,
    SECOND,
    TIMEOUT_MS,
    WALL_MS,
    Coordinator,
)


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_the_first_partition_begins_the_transaction(coordinator: Coordinator) -> None:
    owner = coordinator.init()
    coordinator.wait(5)
    began_ms = WALL_MS + coordinator.now_ms
    assert coordinator.add(owner, FIRST) == 0
    coordinator.wait(5)
    assert coordinator.add(owner, SECOND) == 0
    known = coordinator.last()
    assert known is not None
    assert known.partitions == {FIRST, SECOND}
    assert (known.start_ms, known.updated_ms) == (began_ms, began_ms + 5)


def test_what_is_in_it_is_not_written_again(coordinator: Coordinator) -> None:
    owner = coordinator.init()
    coordinator.add(owner, FIRST, SECOND)
    written = len(coordinator.log)
    assert coordinator.add(owner, SECOND) == 0
    assert len(coordinator.log) == written


def test_the_next_transaction_begins_with_nothing(coordinator: Coordinator) -> None:
    owner = coordinator.init()
    coordinator.add(owner, FIRST)
    coordinator.commit(owner)
    assert coordinator.add(owner, SECOND) == 51, "markers are on their way"
    coordinator.mark()
    coordinator.wait(7)
    assert coordinator.add(owner, SECOND) == 0
    known = coordinator.last()
    assert known is not None
    assert known.partitions == {SECOND}
    assert known.start_ms == WALL_MS + coordinator.now_ms


def test_strangers_are_told_so(coordinator: Coordinator) -> None:
    owner = coordinator.init()
    assert coordinator.add(Owner("other", owner.producer_id, 0), FIRST) == 49
    assert coordinator.add(Owner(ID, owner.producer_id + 1, 0), FIRST) == 49
    assert coordinator.add(Owner(ID, owner.producer_id, 1), FIRST) == 90
    assert coordinator.state == "EMPTY"


def test_a_raised_epoch_is_no_fence_while_markers_are_on_their_way(
    coordinator: Coordinator,
) -> None:
    owner = coordinator.init()
    coordinator.add(owner, FIRST, version=2)
    coordinator.end(owner, version=2)
    assert coordinator.add(owner, FIRST, version=2) == 51
    coordinator.mark()
    assert coordinator.add(owner, FIRST, version=2) == 90


def test_a_leader_hears_which_partitions_are_in_it(coordinator: Coordinator) -> None:
    owner = coordinator.init()
    assert coordinator.verify(owner, FIRST) == (120,)
    coordinator.add(owner, FIRST)
    written = len(coordinator.log)
    assert coordinator.verify(owner, FIRST, SECOND) == (0, 120)
    assert coordinator.verify(owner._replace(epoch=1), FIRST, SECOND) == (90, 90)
    assert coordinator.verify(owner._replace(producer_id=1), FIRST) == (49,)
    assert coordinator.verify(owner._replace(transactional_id="other"), FIRST) == (49,)
    coordinator.commit(owner)
    assert coordinator.verify(owner, FIRST) == (51,)
    coordinator.mark()
    assert coordinator.verify(owner, FIRST) == (120,)
    assert len(coordinator.log) == written + 2


def test_what_is_not_written_is_not_in_it(coordinator: Coordinator) -> None:
    owner = coordinator.init()
    coordinator.refusal = 16
    assert coordinator.add(owner, FIRST) == 16
    coordinator.refusal = 0
    assert coordinator.verify(owner, FIRST) == (120,)


def test_a_coordinator_that_was_killed_knows_what_it_has_answered(
    coordinator: Coordinator,
) -> None:
    owner = coordinator.init()
    coordinator.add(owner, FIRST)
    coordinator.add(owner, SECOND)
    coordinator.compact()
    coordinator.restart()
    assert coordinator.verify(owner, FIRST, SECOND) == (0, 0)


# -- prepared --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dies", [False, True])
def test_a_prepared_transaction_ends_only_by_its_decision(
    coordinator: Coordinator, dies: bool
) -> None:
    owner = coordinator.init()
    coordinator.add(owner, FIRST)
    assert coordinator.prepare(owner) == 0
    if dies:
        coordinator.compact()
        coordinator.restart()
    coordinator.wait(100 * TIMEOUT_MS + coordinator.config.id_expiration_ms)
    assert coordinator.try_init() == InitAnswer(51)
    assert coordinator.try_init(owner.producer_id, owner.epoch) == InitAnswer(51)
    assert coordinator.markers == []
    assert coordinator.prepare(owner) == 0, "the answer was lost"
    assert coordinator.commit(owner) == 0
    assert coordinator.state == "PREPARE_COMMIT"
    coordinator.mark()
    assert coordinator.state == "COMPLETE_COMMIT"
    assert coordinator.init().epoch == owner.epoch + 1


def test_a_prepared_transaction_takes_nothing_more(coordinator: Coordinator) -> None:
    owner = coordinator.init()
    coordinator.add(owner, FIRST)
    coordinator.prepare(owner)
    assert coordinator.add(owner, SECOND) == 48
    assert coordinator.add(owner, FIRST) == 48
    assert coordinator.verify(owner, FIRST) == (120,)
    assert coordinator.abort(owner) == 0
    coordinator.mark()
    assert coordinator.add(owner, FIRST) == 0
    assert coordinator.verify(owner, FIRST) == (0,)


def test_only_an_open_transaction_of_ones_own_is_prepared(coordinator: Coordinator) -> None:
    owner = coordinator.init()
    assert coordinator.prepare(owner) == 48
    assert coordinator.prepare(owner._replace(transactional_id="other")) == 49
    assert coordinator.prepare(owner._replace(producer_id=1)) == 49
    coordinator.add(owner, FIRST)
    assert coordinator.prepare(owner._replace(epoch=9)) == 90
    coordinator.refusal = 15
    assert coordinator.prepare(owner) == 15
    coordinator.refusal = 0
    assert coordinator.add(owner, SECOND) == 0, "nothing was prepared"
    coordinator.commit(owner)
    assert coordinator.prepare(owner) == 51
