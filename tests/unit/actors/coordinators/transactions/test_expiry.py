"""What time does: transactions that are open for too long, ids that nobody uses, clocks."""

import pytest

from raylog.actors.coordinators.transactions import expiry
from raylog.actors.coordinators.transactions.config import TransactionConfig
from raylog.actors.coordinators.transactions.messages import (
    DescribeAnswer,
    DescribedTransaction,
    DescribeRequest,
    InitAnswer,
    InitRequest,
    ListAnswer,
    ListRequest,
    Owner,
)
from tests.unit.actors.coordinators.transactions.playing import (
    FIRST,
    ID,
    SECOND,
    TIMEOUT_MS,
    WALL_MS,
    Coordinator,
)

QUICK = TransactionConfig(abort_interval_ms=10)
DAYS_7_MS = 7 * 24 * 3_600_000


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_is_open_for_too_long_is_aborted(version: int) -> None:
    coordinator = Coordinator(QUICK)
    owner = coordinator.init()
    coordinator.wait(TIMEOUT_MS)
    coordinator.add(owner, FIRST, version=version)
    coordinator.wait(TIMEOUT_MS)
    assert coordinator.state == "ONGOING"
    coordinator.wait(10)
    assert coordinator.state == "PREPARE_ABORT"
    (markers, _) = coordinator.markers[0]
    assert (markers.epoch, markers.is_commit) == (owner.epoch + 1, False), "raised once"
    coordinator.mark()
    assert coordinator.end(owner, version=version).error_code == 90
    assert coordinator.try_init(owner.producer_id, owner.epoch) == InitAnswer(90)
    assert coordinator.init().epoch == owner.epoch + 2


def test_nothing_else_is_aborted_by_time() -> None:
    coordinator = Coordinator(QUICK)
    owner = coordinator.init()
    coordinator.add(owner, FIRST)
    coordinator.commit(owner)
    coordinator.wait(10 * TIMEOUT_MS)
    assert coordinator.state == "PREPARE_COMMIT"
    coordinator.mark()
    coordinator.wait(10 * TIMEOUT_MS)
    assert coordinator.state == "COMPLETE_COMMIT"


def test_time_goes_on_while_nobody_coordinates() -> None:
    coordinator = Coordinator(QUICK)
    owner = coordinator.init()
    coordinator.add(owner, FIRST)
    coordinator.now_ms += 2 * TIMEOUT_MS
    coordinator.restart()
    coordinator.wait(9)
    assert coordinator.state == "ONGOING", "its owner has a moment to come back"
    coordinator.wait(1)
    assert coordinator.state == "PREPARE_ABORT"


def test_ids_are_old_while_nobody_coordinates() -> None:
    coordinator = Coordinator(TransactionConfig(id_expiration_ms=500, expiry_interval_ms=100))
    coordinator.init()
    coordinator.now_ms += 1_000
    coordinator.restart()
    coordinator.wait(99)
    assert coordinator.state == "EMPTY"
    coordinator.wait(1)
    assert coordinator.state == "none"


def test_an_abort_that_is_not_written_is_tried_again() -> None:
    coordinator = Coordinator(QUICK)
    owner = coordinator.init()
    coordinator.add(owner, FIRST)
    coordinator.refusal = 15
    coordinator.wait(2 * TIMEOUT_MS)
    assert coordinator.state == "ONGOING"
    coordinator.refusal = 0
    coordinator.wait(10)
    known = coordinator.last()
    assert known is not None
    assert known.epoch == owner.epoch + 1, "what was tried in vain has raised nothing"


def test_a_clock_that_is_set_back_does_not_abort() -> None:
    coordinator = Coordinator(QUICK)
    owner = coordinator.init()
    coordinator.skew_ms = -3_600_000
    coordinator.add(owner, FIRST)
    coordinator.wait(TIMEOUT_MS // 2)
    assert coordinator.commit(owner) == 0
    coordinator.mark()
    assert coordinator.state == "COMPLETE_COMMIT"


def test_an_id_that_nobody_uses_goes() -> None:
    coordinator = Coordinator()
    owner = coordinator.init()
    coordinator.add(owner, FIRST)
    coordinator.commit(owner)
    coordinator.mark()
    coordinator.wait(DAYS_7_MS - 3_600_000)
    assert coordinator.state == "COMPLETE_COMMIT"
    coordinator.wait(2 * 3_600_000)
    assert coordinator.state == "none"
    assert coordinator.add(owner, FIRST) == 49
    assert coordinator.init() == Owner(ID, owner.producer_id + 1, 0), "its producer id is not used"


def test_an_id_goes_at_its_age_and_not_before() -> None:
    coordinator = Coordinator(TransactionConfig(id_expiration_ms=500, expiry_interval_ms=100))
    coordinator.init()
    coordinator.wait(499)
    assert coordinator.state == "EMPTY"
    coordinator.wait(1)
    assert coordinator.state == "none"


def test_ids_of_which_something_is_open_stay() -> None:
    coordinator = Coordinator()
    owner = coordinator.init()
    coordinator.add(owner, FIRST)
    coordinator.commit(owner)
    coordinator.wait(2 * DAYS_7_MS)
    assert coordinator.state == "PREPARE_COMMIT"


def test_many_tombstones_go_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "EXPIRED_IN_A_BATCH", 2)
    coordinator = Coordinator()
    for number in range(5):
        request = InitRequest(Owner(f"id-{number}", -1, -1), TIMEOUT_MS)
        coordinator.ask(request, InitAnswer)
    coordinator.refusal = 15
    coordinator.wait(DAYS_7_MS + 3_600_000)
    coordinator.refusal = 0
    assert coordinator.ask(ListRequest(), ListAnswer).transactions != ()
    coordinator.wait(3_600_000)
    assert coordinator.ask(ListRequest(), ListAnswer).transactions == ()
    assert [record.value for record in coordinator.log[5:]] == [None] * 5


# -- what administrators see -----------------------------------------------------------------------


def described(coordinator: Coordinator, name: str = ID) -> DescribedTransaction:
    answer = coordinator.ask(DescribeRequest((name,)), DescribeAnswer)
    return answer.transactions[0]


def test_a_transaction_is_described_with_what_has_no_marker_yet() -> None:
    coordinator = Coordinator()
    assert described(coordinator).error_code == 105
    assert described(coordinator, "").error_code == 42
    owner = coordinator.init()
    coordinator.add(owner, SECOND, FIRST)
    assert described(coordinator) == DescribedTransaction(
        transactional_id=ID,
        error_code=0,
        state="Ongoing",
        timeout_ms=TIMEOUT_MS,
        start_ms=WALL_MS + coordinator.now_ms,
        producer_id=owner.producer_id,
        epoch=0,
        partitions=(FIRST, SECOND),
    )
    coordinator.commit(owner)
    coordinator.mark(1)
    assert described(coordinator).partitions == (SECOND,)
    assert described(coordinator).state == "PrepareCommit"


def test_transactions_are_listed_by_what_they_are() -> None:
    coordinator = Coordinator()
    owner = coordinator.init()
    request = InitRequest(Owner("other", -1, -1), TIMEOUT_MS)
    other = coordinator.ask(request, InitAnswer).producer_id
    coordinator.add(owner, FIRST)
    coordinator.wait(100)

    def listed(request: ListRequest) -> list[str]:
        return [one.transactional_id for one in coordinator.ask(request, ListAnswer).transactions]

    assert coordinator.ask(ListRequest(), ListAnswer).error_code == 0
    assert listed(ListRequest()) == [ID, "other"]
    assert listed(ListRequest(states=("Ongoing",))) == [ID]
    assert listed(ListRequest(states=("Dead",))) == []
    assert listed(ListRequest(states=("Empty", "Strange"))) == ["other"]
    assert listed(ListRequest(states=("Strange",))) == []
    assert coordinator.ask(ListRequest(("Strange",)), ListAnswer).unknown_states == ("Strange",)
    assert listed(ListRequest(producer_ids=(other,))) == ["other"]
    assert listed(ListRequest(older_than_ms=99)) == [ID]
    assert listed(ListRequest(older_than_ms=100)) == []
    coordinator.commit(owner)
    assert listed(ListRequest(older_than_ms=99)) == [ID], "its markers are on their way"
