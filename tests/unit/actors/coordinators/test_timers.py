"""Alarms of a machine: one for each key."""

from raylog.actors.coordinators.timers import Timers


def test_an_alarm_rings_once_and_not_before_its_time() -> None:
    timers: Timers[str] = Timers()
    timers.set("b", 20)
    timers.set("a", 10)
    assert timers.next_ms() == 10
    assert list(timers.due(9)) == []
    assert list(timers.due(25)) == ["a", "b"]
    assert list(timers.due(25)) == []
    assert timers.next_ms() is None


def test_an_alarm_that_is_moved_rings_at_its_new_time_alone() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.set("a", 30)
    assert list(timers.due(20)) == []
    assert timers.next_ms() == 30
    timers.set("a", 15)
    assert list(timers.due(20)) == ["a"]
    assert list(timers.due(40)) == []


def test_an_alarm_that_is_cancelled_does_not_ring() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    timers.cancel("b")
    assert "a" not in timers
    assert timers.next_ms() is None
    assert list(timers.due(40)) == []


def test_an_alarm_that_is_set_while_others_ring_rings_with_them_if_it_is_due() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    rung = []
    for key in timers.due(20):
        rung.append(key)
        if key == "a":
            timers.set("b", 20)
    assert rung == ["a", "b"]


def test_alarms_that_are_moved_again_and_again_take_no_room() -> None:
    timers: Timers[str] = Timers()
    for at_ms in range(10_000):
        timers.set("a", 1_000_000 + at_ms)
    assert len(timers._heap) < 100
    assert timers.next_ms() == 1_009_999
