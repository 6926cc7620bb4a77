"""EndTxn: Kafka's two tables, row by row; decisions that are made once."""

import pytest

from raylog.actors.coordinators.transactions.messages import EndAnswer, Owner
from tests.unit.actors.coordinators.transactions.playing import (
    FIRST,
    ID,
    SECOND,
    TIMEOUT_MS,
    Coordinator,
)
from tests.unit.actors.coordinators.transactions.test_beginning import exhausted

STATES = (
    "EMPTY",
    "ONGOING",
    "PREPARE_COMMIT",
    "PREPARE_ABORT",
    "COMPLETE_COMMIT",
    "COMPLETE_ABORT",
)


def brought_to(state: str, version: int) -> tuple[Coordinator, Owner]:
    """A coordinator whose id is in a state, and who has brought it there."""
    coordinator = Coordinator()
    owner = coordinator.init()
    if state != "EMPTY":
        coordinator.add(owner, FIRST, version=version)
    if state not in ("EMPTY", "ONGOING"):
        coordinator.end(owner, is_commit="COMMIT" in state, version=version)
    if "COMPLETE" in state:
        coordinator.mark()
    assert coordinator.state == state
    return coordinator, owner


# state: commit, abort
VERSION_1 = {
    "EMPTY": (48, 48),
    "ONGOING": (0, 0),
    "PREPARE_COMMIT": (51, 48),
    "PREPARE_ABORT": (48, 51),
    "COMPLETE_COMMIT": (0, 48),
    "COMPLETE_ABORT": (48, 0),
}


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("state", STATES)
def test_version_1(state: str, is_commit: bool) -> None:
    coordinator, owner = brought_to(state, version=1)
    written = len(coordinator.log)
    answer = coordinator.end(owner, is_commit=is_commit)
    assert answer.error_code == VERSION_1[state][0 if is_commit else 1]
    if answer.error_code == 0:
        assert answer == EndAnswer(0, owner.producer_id, owner.epoch), "the epoch stays"
    if state == "ONGOING":
        assert coordinator.state == ("PREPARE_COMMIT" if is_commit else "PREPARE_ABORT")
        assert coordinator.markers[0][0].epoch == owner.epoch
    else:
        assert len(coordinator.log) == written


# state: commit, commit again, abort, abort again; "again": with the epoch before
VERSION_2 = {
    "EMPTY": (48, 90, 0, 90),
    "ONGOING": (0, 90, 0, 90),
    "PREPARE_COMMIT": (90, 51, 90, 48),
    "PREPARE_ABORT": (90, 48, 90, 51),
    "COMPLETE_COMMIT": (48, 0, 0, 48),
    "COMPLETE_ABORT": (48, 48, 0, 0),
}


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("column", range(4))
@pytest.mark.parametrize("state", STATES)
def test_version_2(state: str, column: int, dies: bool) -> None:
    coordinator, _ = brought_to(state, version=2)
    if dies:
        coordinator.compact()
        coordinator.restart()
    known = coordinator.last()
    assert known is not None
    is_commit, is_again = column < 2, column % 2 == 1
    epoch = known.epoch - 1 if is_again else known.epoch
    before = len(coordinator.log)
    owner = Owner(ID, known.producer_id, epoch)
    answer = coordinator.end(owner, is_commit=is_commit, version=2)
    assert answer.error_code == VERSION_2[state][column]
    if answer.error_code:
        assert answer == EndAnswer(answer.error_code)
        assert len(coordinator.log) == before
    elif is_again:
        assert answer == EndAnswer(0, known.producer_id, known.epoch)
        assert len(coordinator.log) == before
    else:
        assert answer == EndAnswer(0, known.producer_id, known.epoch + 1)
        coordinator.mark()
        assert coordinator.state == ("COMPLETE_COMMIT" if is_commit else "COMPLETE_ABORT")


def test_each_end_of_version_2_raises_the_epoch_and_its_markers_have_it() -> None:
    coordinator, owner = brought_to("ONGOING", version=2)
    answer = coordinator.end(owner, version=2)
    (markers, _) = coordinator.markers[0]
    assert (markers.epoch, markers.version, markers.is_commit) == (1, 2, True)
    coordinator.mark()
    following = Owner(ID, answer.producer_id, answer.epoch)
    assert coordinator.add(owner, FIRST, version=2) == 90
    assert coordinator.add(following, FIRST, version=2) == 0
    assert coordinator.end(owner, version=2) == EndAnswer(90), "late, for the one before"


def test_a_repetition_is_one_of_version_2_only_if_the_end_was() -> None:
    coordinator, owner = brought_to("COMPLETE_COMMIT", version=1)
    second = coordinator.init(owner.producer_id, owner.epoch)
    coordinator.add(second, FIRST)
    coordinator.commit(second)
    coordinator.mark()
    assert coordinator.end(owner, version=2) == EndAnswer(90)


def test_version_1_ends_what_version_2_has_begun() -> None:
    coordinator, owner = brought_to("ONGOING", version=2)
    assert coordinator.end(owner, version=1) == EndAnswer(0, owner.producer_id, owner.epoch)
    assert coordinator.markers[0][0].version == 1, "the marker has the epoch of the batches"
    coordinator.mark()
    assert coordinator.end(owner, version=1) == EndAnswer(0, owner.producer_id, owner.epoch)


def test_without_epochs_the_next_transaction_has_another_producer_id() -> None:
    coordinator = Coordinator()
    last = exhausted(coordinator)
    coordinator.add(last, FIRST, version=2)
    answer = coordinator.end(last, version=2)
    assert answer == EndAnswer(0, last.producer_id + 1, 0)
    assert coordinator.end(last, version=2) == EndAnswer(51)
    (markers, _) = coordinator.markers[0]
    assert (markers.producer_id, markers.epoch) == (last.producer_id, 32_767)
    coordinator.restart()
    coordinator.mark()
    coordinator.restart()
    assert coordinator.end(last, version=2) == answer, "its answer was lost"
    assert coordinator.init(last.producer_id, last.epoch) == Owner(ID, answer.producer_id, 0)
    assert coordinator.add(Owner(ID, answer.producer_id, 0), FIRST, version=2) == 0


@pytest.mark.parametrize("version", [1, 2])
def test_strangers_end_nothing(version: int) -> None:
    coordinator, owner = brought_to("ONGOING", version)
    for other, code in (
        (owner._replace(transactional_id="other"), 49),
        (owner._replace(producer_id=1), 49),
        (owner._replace(epoch=1), 90),
        (owner._replace(epoch=-1), 90),
    ):
        assert coordinator.end(other, version=version) == EndAnswer(code)
    assert coordinator.state == "ONGOING"


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_not_written_is_not_decided(version: int) -> None:
    coordinator, owner = brought_to("ONGOING", version)
    coordinator.refusal = 15
    assert coordinator.end(owner, version=version) == EndAnswer(15)
    assert coordinator.markers == []
    coordinator.refusal = 0
    assert coordinator.end(owner, is_commit=False, version=version).error_code == 0
    assert coordinator.state == "PREPARE_ABORT"


# -- markers ---------------------------------------------------------------------------------------


def test_it_is_complete_when_the_last_partition_has_its_marker() -> None:
    coordinator = Coordinator()
    owner = coordinator.init()
    coordinator.add(owner, FIRST, SECOND)
    coordinator.commit(owner)
    assert [partition for _, partition in coordinator.markers] == [FIRST, SECOND]
    first = coordinator.markers[0]
    coordinator.mark(1)
    coordinator.markers.insert(0, first)
    coordinator.mark(1)
    assert coordinator.state == "PREPARE_COMMIT", "the same partition twice is not both"
    coordinator.mark(1)
    assert coordinator.state == "COMPLETE_COMMIT"


@pytest.mark.parametrize("is_commit", [True, False])
def test_who_was_killed_in_between_sends_all_markers_again(is_commit: bool) -> None:
    coordinator = Coordinator()
    owner = coordinator.init()
    coordinator.add(owner, FIRST, SECOND)
    coordinator.end(owner, is_commit=is_commit)
    coordinator.mark(1)
    coordinator.compact()
    coordinator.restart()
    assert [partition for _, partition in coordinator.markers] == [FIRST, SECOND]
    assert {markers.is_commit for markers, _ in coordinator.markers} == {is_commit}
    coordinator.mark()
    assert coordinator.end(owner, is_commit=is_commit).error_code == 0
    coordinator.restart()
    assert coordinator.markers == []


def test_the_answer_to_a_marker_of_another_transaction_counts_for_none() -> None:
    coordinator = Coordinator()
    owner = coordinator.init()
    coordinator.add(owner, FIRST, version=2)
    answer = coordinator.end(owner, version=2)
    late = coordinator.markers[0]
    coordinator.mark()
    following = Owner(ID, answer.producer_id, answer.epoch)
    coordinator.add(following, FIRST, version=2)
    coordinator.markers.append(late)
    coordinator.mark()
    assert coordinator.state == "ONGOING"
    coordinator.end(following, version=2)
    coordinator.markers.insert(0, late)
    coordinator.mark(1)
    assert coordinator.state == "PREPARE_COMMIT"
    coordinator.mark()
    assert coordinator.state == "COMPLETE_COMMIT"


def test_a_log_that_refuses_the_last_record_is_asked_again() -> None:
    coordinator, owner = brought_to("PREPARE_COMMIT", version=1)
    coordinator.refusal = 15
    coordinator.mark()
    coordinator.wait(1_000)
    assert coordinator.commit(owner) == 51
    coordinator.refusal = 0
    coordinator.wait(999)
    assert coordinator.state == "PREPARE_COMMIT"
    coordinator.wait(1)
    assert coordinator.state == "COMPLETE_COMMIT"
    written = len(coordinator.log)
    coordinator.wait(5_000)
    assert len(coordinator.log) == written


def test_an_end_of_version_2_may_be_repeated_whoever_has_added_the_partitions() -> None:
    coordinator = Coordinator()
    owner = coordinator.init()
    coordinator.add(owner, FIRST, version=1)
    ended = coordinator.end(owner, version=2)
    assert ended == EndAnswer(0, owner.producer_id, 1)
    assert coordinator.markers[0][0].version == 2
    assert coordinator.end(owner, version=2) == EndAnswer(51)
    coordinator.mark()
    assert coordinator.end(owner, version=2) == ended


def test_version_1_does_not_know_the_epoch_before() -> None:
    coordinator, owner = brought_to("COMPLETE_COMMIT", version=2)
    assert coordinator.end(owner, version=1) == EndAnswer(90)
    assert coordinator.end(owner, version=2).error_code == 0


def test_who_has_taken_the_id_again_has_nothing_to_repeat() -> None:
    coordinator, owner = brought_to("COMPLETE_ABORT", version=2)
    now = coordinator.init(owner.producer_id, 1)
    assert coordinator.state == "EMPTY"
    before = now._replace(epoch=1)
    for is_commit in (True, False):
        assert coordinator.end(before, is_commit=is_commit, version=2) == EndAnswer(90)


def test_no_epoch_is_not_taken_for_the_one_before() -> None:
    coordinator = Coordinator()
    owner = coordinator.init()
    coordinator.add(owner, FIRST, version=2)
    coordinator.wait(TIMEOUT_MS + 20_000)  # it is aborted, so nobody has the epoch before
    coordinator.mark()
    assert coordinator.state == "COMPLETE_ABORT"
    nobody = owner._replace(epoch=-1)
    assert coordinator.end(nobody, is_commit=False, version=2) == EndAnswer(90)
