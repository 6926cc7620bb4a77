"""Which orders an upkeep actor obeys, and how long it remembers a log that no order names."""

from dataclasses import replace

import pytest

from raylog.actors.errors import NotLeader, UnsupportedVersion
from raylog.actors.node_messages import VERSION, UpkeepOrder
from raylog.actors.upkeep.orders import LIVES_REMEMBERED, OrderGate, RememberedLogs
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition
from tests.harness.upkeep import ordered_log, upkeep_order

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_each_order_is_obeyed_once_and_a_late_one_never() -> None:
    gate = OrderGate("n1")
    transcript: list[tuple[UpkeepOrder, bool]] = [
        (upkeep_order(number=1), True),
        (upkeep_order(number=1), False),
        (upkeep_order(number=3), True),
        (upkeep_order(number=2), False),
        (upkeep_order(number=1, life="second"), True),
        (upkeep_order(number=9, life="first"), False),
        (upkeep_order(number=2, life="second", controller_epoch=4), True),
        (upkeep_order(number=3, life="second", controller_epoch=3), False),
    ]
    for order, is_obeyed in transcript:
        assert gate.accept(order) is is_obeyed, order


def test_of_the_lives_before_only_the_last_are_remembered() -> None:
    """A node whose LogManager dies again and again must not fill the actor's memory."""
    gate = OrderGate("n1")
    lives = [f"life {number}" for number in range(LIVES_REMEMBERED + 2)]
    assert all(gate.accept(upkeep_order(life=life)) for life in lives)
    assert [gate.accept(upkeep_order(number=9, life=life)) for life in lives[1:-1]] == [
        False
    ] * LIVES_REMEMBERED


def test_an_order_for_another_node_or_of_a_layout_that_is_not_known_is_refused() -> None:
    gate = OrderGate("n1")
    with pytest.raises(NotLeader, match="node n1"):
        gate.accept(replace(upkeep_order(), node="n2"))
    with pytest.raises(UnsupportedVersion):
        gate.accept(replace(upkeep_order(), version=VERSION + 1))
    assert gate.accept(upkeep_order()), "neither counts"


def test_a_log_is_the_same_until_another_topic_has_its_name() -> None:
    logs, config = RememberedLogs(), LogConfig()
    first, again = ordered_log(A, config), ordered_log(A, config, topic_id="another")
    assert logs.update([first], ()) == set(), "nothing is known of it"
    assert logs.update([first], ()) == {A}
    assert logs.update([again], ()) == set()
    assert not logs.is_same(first)
    assert logs.update([again], ()) == {A}


def test_a_log_that_is_left_alone_is_remembered_and_one_that_is_not_named_is_not() -> None:
    logs, config = RememberedLogs(), LogConfig()
    a, b = ordered_log(A, config), ordered_log(B, config)
    logs.update([a, b], ())
    assert logs.update([b], [a.log]) == {A, B}
    assert logs.update([b], ()) == {B}
    assert logs.update([a, b], ()) == {B}
