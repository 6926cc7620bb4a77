"""The head is lost with all of Ray, and everything is started again over the same disks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from raylog.actors.errors import MetadataIncomplete
from tests.harness.nodes import HEAD, Nodes
from tests.soak import outage
from tests.soak.cluster import OTHERS
from tests.soak.outage import Outage
from tests.soak.workers import Workers

EARLY, LATE = 0.01, 0.06
BEFORE = ["rest", "change", "abandon workers", "lose head"]
DOWN = ["crash one", "crash two", "kill workers", "end", "return"]
UP = ["add one", "add two"]


class Cluster:
    """Nodes, workers, and a thread; what was done to them, in order."""

    def __init__(self, refused: int = 0) -> None:
        self.done: list[str] = []
        self.refused = refused  # attempts to start
        self.names = [HEAD, *OTHERS]

    def crash(self, name: str) -> None:
        self.done.append(f"crash {name}")

    def lose_head(self) -> None:
        self.done.append("lose head")

    def end(self) -> None:
        self.done.append("end")

    def begin(self) -> None:
        self.done.append("begin")

    def add(self, name: str) -> None:
        self.done.append(f"add {name}")

    def abandon(self) -> None:
        self.done.append("abandon workers")

    def kill_all(self) -> None:
        self.done.append("kill workers")

    def start_again(self) -> None:
        self.done.append("start workers")

    @contextmanager
    def resting(self) -> Iterator[None]:
        self.done.append("rest")
        yield
        self.done.append("rested")

    def change(self, _: float) -> str:
        self.done.append("change")
        return "a change"

    def start_broker(self) -> None:
        self.done.append("start")
        if self.refused:
            self.refused -= 1
            raise MetadataIncomplete("head", "one", "")

    def strike(self, chance: float, *, can_change: bool = True) -> str:
        made = Outage(
            cast(Nodes, self),
            cast(Workers, self),
            [self],
            change=self.change,
            start_broker=self.start_broker,
        )
        return made.strike(
            chance,
            0.0,
            can_change=can_change,
            returns=lambda: self.done.append("return"),
            meanwhile=lambda: self.done.append("meanwhile"),
        )


def test_all_ends_directly_behind_the_answer_of_a_change_and_begins_again() -> None:
    cluster = Cluster()
    assert cluster.strike(LATE) == "a change"
    after = ["meanwhile", "start", "rested", "start workers"]
    assert cluster.done == [*BEFORE, *DOWN, "begin", *UP, *after]


def test_an_operator_may_be_too_early_and_starts_again_when_all_nodes_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outage, "RETRY_S", 0.0)
    cluster = Cluster(refused=2)
    cluster.strike(EARLY)
    again = ["meanwhile", "start", "meanwhile", "start", "rested", "start workers"]
    assert cluster.done == [*BEFORE, *DOWN, "begin", "start", *UP, *again]


def test_where_the_head_has_all_of_the_metadata_it_is_not_started_twice() -> None:
    cluster = Cluster()
    cluster.strike(EARLY)
    assert cluster.done[-5:] == ["start", *UP, "rested", "start workers"]


def test_nothing_is_changed_where_nobody_may_answer() -> None:
    cluster = Cluster()
    assert cluster.strike(LATE, can_change=False) == "nothing"
    assert "change" not in cluster.done


def test_a_start_that_is_refused_for_long_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(TimeoutError, match="has not started again within 180 s"):
        Cluster(refused=9).strike(LATE)
