"""The LogActors that a node has found: looked up once, and again after they were let go. No Ray."""

import pytest

from raylog.actors.node.known_logs import KnownLogs
from raylog.actors.runtime.stubs import LogActorStub
from raylog.storage.names import TopicPartition

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)


class Names:
    """Finds the actors that it was given, each time as a new stub."""

    def __init__(self) -> None:
        self.handles: dict[TopicPartition, str] = {}
        self.lookups: list[TopicPartition] = []

    def find(self, partition: TopicPartition) -> LogActorStub | None:
        self.lookups.append(partition)
        handle = self.handles.get(partition)
        return None if handle is None else LogActorStub(handle, partition)


@pytest.fixture
def names() -> Names:
    return Names()


@pytest.fixture
def known(names: Names) -> KnownLogs:
    return KnownLogs(names.find)


def handle_of(known: KnownLogs, partition: TopicPartition = ORDERS) -> str | None:
    log = known.get(partition)
    return None if log is None else log.handle


def test_an_actor_is_looked_up_once(names: Names, known: KnownLogs) -> None:
    names.handles = {ORDERS: "first", PAYMENTS: "other"}
    assert [handle_of(known) for _ in range(3)] == ["first"] * 3
    assert handle_of(known, PAYMENTS) == "other"
    assert names.lookups == [ORDERS, PAYMENTS]


def test_where_there_is_none_it_is_looked_up_each_time(names: Names, known: KnownLogs) -> None:
    assert handle_of(known) is None
    names.handles[ORDERS] = "first"
    assert handle_of(known) == "first"


def test_one_that_was_let_go_is_looked_up_and_no_other(names: Names, known: KnownLogs) -> None:
    names.handles = {ORDERS: "first", PAYMENTS: "other"}
    assert (handle_of(known), handle_of(known, PAYMENTS)) == ("first", "other")
    names.handles = {ORDERS: "second", PAYMENTS: "not asked for"}
    known.let_go(ORDERS)
    assert (handle_of(known), handle_of(known, PAYMENTS)) == ("second", "other")


def test_one_that_nobody_knows_may_be_let_go(known: KnownLogs) -> None:
    known.let_go(ORDERS)
    assert handle_of(known) is None


def test_it_is_kept_while_it_answers(names: Names, known: KnownLogs) -> None:
    names.handles[ORDERS] = "first"
    with known.kept_if_answered(ORDERS):
        handle_of(known)
    assert (handle_of(known), names.lookups) == ("first", [ORDERS])


def test_it_is_let_go_after_an_error_which_is_raised_on(names: Names, known: KnownLogs) -> None:
    names.handles[ORDERS] = "first"
    handle_of(known)
    with pytest.raises(KeyError), known.kept_if_answered(ORDERS):
        raise KeyError
    names.handles[ORDERS] = "second"
    assert handle_of(known) == "second"
