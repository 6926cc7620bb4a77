"""Which of two lives of a LogManager is the newer one."""

from raylog.actors.control import Report
from raylog.cluster.controller.observed import Watched


def report(life: str, number: int, orders: int) -> Report:
    return Report(
        node="b", life=life, number=number, controller_epoch=1, dirs=(), logs=(), orders=orders
    )


def test_orders_that_were_sent_before_a_life_was_known_say_nothing_of_it() -> None:
    """Else the late report of the life before would end the one that has just begun, for good."""
    watched = Watched()
    watched.see(["b"], 0)
    assert watched.take(report("old", 1, 1), epoch=1, sent=1, now_ms=0)
    assert watched.take(report("new", 1, -1), epoch=1, sent=5, now_ms=1)
    watched.take(report("old", 2, 5), epoch=1, sent=5, now_ms=2)  # it obeyed orders 5, and died
    assert "new" not in watched.past_lives("b")


def test_how_long_a_node_is_known_to_be_away() -> None:
    watched = Watched()
    assert watched.absent_ms("b", 10) == 0, "nobody has looked yet"
    watched.see(["a"], 20)
    assert watched.absent_ms("b", 50) == 30, "since the first look"
    watched.see(["a", "b"], 60)
    assert watched.absent_ms("b", 70) is None
    watched.see(["a"], 80)
    assert watched.absent_ms("b", 95) == 15
    watched.see(["b"], 100)
    assert (watched.absent_ms("b", 110), watched.absent_ms("a", 110)) == (None, 10)
