"""Upkeep leaves logs alone for a while whose config is not confirmed, and no longer."""

from raylog.actors.messages import Hosted
from raylog.actors.upkeep.unconfirmed import PATIENCE_MS, Unconfirmed
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition
from raylog.storage.testing.clock import ManualClock

FIRST, SECOND = (
    Hosted(TopicPartition("orders", number), "id", f"/logs/orders-{number}", LogConfig())
    for number in range(2)
)


def test_a_log_that_is_not_confirmed_is_left_out_for_a_minute() -> None:
    """Health warned of every new topic."""
    clock = ManualClock()
    unconfirmed = Unconfirmed(clock)
    assert unconfirmed.leave_out([FIRST, SECOND], {FIRST.partition}) == [FIRST]
    clock.advance(PATIENCE_MS - 1)
    assert unconfirmed.leave_out([FIRST, SECOND], {FIRST.partition}) == [FIRST]
    clock.advance(1)
    assert unconfirmed.leave_out([FIRST, SECOND], {FIRST.partition}) == [FIRST, SECOND]


def test_the_minute_begins_anew_with_each_confirmation() -> None:
    clock = ManualClock()
    unconfirmed = Unconfirmed(clock)
    unconfirmed.leave_out([FIRST], ())
    clock.advance(PATIENCE_MS)
    assert unconfirmed.leave_out([FIRST], {FIRST.partition}) == [FIRST]
    assert unconfirmed.leave_out([FIRST], ()) == []
