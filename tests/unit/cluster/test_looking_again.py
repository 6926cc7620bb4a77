"""``raylog log-dirs online`` of a log dir that its node could not read when it began."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.actors.errors import InvalidRequest, RequestTimedOut, UnknownLogDir
from raylog.actors.messages import LogDirStatus
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster import looking_again
from raylog.cluster.looking_again import online_again
from raylog.storage.errors import LogDirOffline
from raylog.storage.state.properties import random_id

ID = random_id()
NO_SUCH = UnknownLogDir("log_dir", "/a", "is not a log dir of a node; offline are: none")
SEVERAL = InvalidRequest("log_dir", "/a", "is the path of several log dirs")


class Answered:
    """An answer that is there."""

    def __init__(self, answer: object) -> None:
        self.answer = answer


class Manager:
    """A node's LogManager: its log dirs, and why each still cannot be used."""

    def __init__(self, node: str = "n", /, **why_by_name: str | Exception) -> None:
        self.node = node
        self.why = {f"/{name}": why for name, why in why_by_name.items()}
        self.looked_at: list[str] = []
        self.refuses: Exception | None = None  # to tell its log dirs
        self.dirs = [LogDirStatus.offline(node, path, None, "missing") for path in self.why]

    def log_dirs(self) -> Answered:
        return Answered(self.refuses or self.dirs)

    def look_again(self, path: str) -> Answered:
        self.looked_at.append(path)
        return Answered(self.why[path])


@pytest.fixture(autouse=True)
def calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(calls: dict[Any, Answered], _: float) -> Any:
        given = {key: call.answer for key, call in calls.items()}
        errors = {key: answer for key, answer in given.items() if isinstance(answer, Exception)}
        answers = {key: answer for key, answer in given.items() if key not in errors}
        return SimpleNamespace(answers=answers, errors=errors, raise_faults=lambda: None)

    monkeypatch.setattr(looking_again, "gather", gather)
    monkeypatch.setattr("time.sleep", lambda _: None)


class Controller:
    """It says these one after another; an error is raised."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.nodes: list[str | None] = []

    def __call__(self, node: str | None) -> str:
        self.nodes.append(node)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def online(log_dir: str, manager: Manager, controller: Controller, *known: LogDirStatus) -> str:
    return online_at([manager], log_dir, controller, *known)


def online_at(
    managers: Sequence[Manager], log_dir: str, controller: Controller, *known: LogDirStatus
) -> str:
    """The answer for the only node that is ordered."""
    (answer,) = answers_at(managers, log_dir, controller, *known)
    return answer


def answers_at(
    managers: Sequence[Manager],
    log_dir: str,
    controller: Controller,
    *known: LogDirStatus,
    node: str | None = None,
) -> list[str]:
    by_node = {manager.node: cast(LogManagerStub, manager) for manager in managers}
    return online_again(log_dir, known, by_node, controller, node)


def test_its_node_looks_afresh_and_the_controller_may_hear_of_it_late() -> None:
    manager = Manager(a="", b="missing")
    assert online("/a", manager, Controller(NO_SUCH, NO_SUCH, "online")) == "online"
    assert manager.looked_at == ["/a"]


def test_by_its_id_where_the_controller_knows_it() -> None:
    manager = Manager(a="")
    known = LogDirStatus.offline("n", "/a", ID, "missing")
    assert online(ID, manager, Controller("returning"), known) == "returning"
    assert manager.looked_at == ["/a"]


def test_what_is_wrong_now_is_said() -> None:
    with pytest.raises(InvalidRequest) as raised:
        online("/a", Manager(a="it is a file"), Controller(NO_SUCH))
    assert str(raised.value) == (
        "log_dir='/a' cannot be used yet: node n: it is a file; mend that first"
    )


def test_each_node_is_named_that_cannot_use_it_yet() -> None:
    managers = [Manager("n", a="it is a file"), Manager("m", a=RequestTimedOut("looking", 30_000))]
    with pytest.raises(InvalidRequest, match=r"node n: it is a file, node m: .*looking"):
        online_at(managers, "/a", Controller(NO_SUCH))


def test_a_log_dir_that_no_node_has_is_refused_at_once() -> None:
    controller = Controller(NO_SUCH)
    with pytest.raises(InvalidRequest):
        online("/other", Manager(a=""), controller)
    assert controller.answers == []


def test_a_log_dir_that_failed_later_is_left_to_the_controller() -> None:
    manager = Manager(a="")
    manager.dirs = [LogDirStatus.offline("n", "/a", ID, "EIO")]
    assert online("/a", manager, Controller("returning")) == "returning"
    assert manager.looked_at == []


# -- another node has a dir at the same path ------------------------------------------------------


def test_by_its_id_only_its_own_node_looks() -> None:
    other = Manager("m", a="its disk has failed")
    mine = Manager("n", a="")
    known = LogDirStatus.offline("n", "/a", ID, "missing")
    assert online_at([other, mine], ID, Controller("returning"), known) == "returning"
    assert (other.looked_at, mine.looked_at) == ([], ["/a"])


def test_a_broken_dir_of_another_node_does_not_hold_up_one_that_can_be_used() -> None:
    managers = [Manager("m", a="its disk has failed"), Manager("n", a="")]
    assert online_at(managers, "/a", Controller(NO_SUCH, "online")) == "online"


def test_a_broken_dir_of_another_node_does_not_hold_up_one_that_the_controller_knows() -> None:
    managers = [Manager("m", a="its disk has failed"), Manager("n")]
    known = LogDirStatus.offline("n", "/a", ID, "EIO")
    assert online_at(managers, "/a", Controller("returning"), known) == "returning"


def test_the_order_is_for_the_node_that_uses_it_now() -> None:
    managers = [Manager("m"), Manager("n", a="")]
    controller = Controller(NO_SUCH, LogDirOffline("/a", "missing"), "online")
    assert online_at(managers, "/a", controller) == "online"
    assert controller.nodes == ["n", "n", "n"]


@pytest.mark.parametrize("states", [("returning", "online"), ("online", "returning")])
def test_where_several_nodes_use_theirs_now_each_has_its_order(states: tuple[str, str]) -> None:
    controller = Controller(*states)
    managers = [Manager("m", a=""), Manager("n", a="")]
    assert answers_at(managers, "/a", controller) == list(states)
    assert controller.nodes == ["m", "n"]


def test_with_a_node_only_that_one_looks_and_has_the_order() -> None:
    other, mine = Manager("m", a=""), Manager("n", a="")
    controller = Controller("online")
    assert answers_at([other, mine], "/a", controller, node="n") == ["online"]
    assert (other.looked_at, controller.nodes) == ([], ["n"])


def test_with_a_node_the_order_is_for_it_also_without_a_look() -> None:
    controller = Controller("returning")
    assert answers_at([Manager("n")], "/a", controller, node="n") == ["returning"]
    assert controller.nodes == ["n"]


def test_a_node_that_is_not_heard_of_yet_does_not_hold_up_another_one() -> None:
    controller = Controller(NO_SUCH, "online", "online")
    managers = [Manager("m", a=""), Manager("n", a="")]
    assert answers_at(managers, "/a", controller) == ["online", "online"]
    assert controller.nodes == ["m", "n", "m"]


def test_a_node_that_is_never_heard_of_is_told_when_the_others_have_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(looking_again, "HEARD_TIMEOUT_S", 0.0)
    controller = Controller(LogDirOffline("/a", "missing"), "online")
    with pytest.raises(LogDirOffline, match="missing"):
        online_at([Manager("m", a=""), Manager("n", a="")], "/a", controller)
    assert controller.nodes == ["m", "n"]


def test_a_node_that_does_not_tell_its_log_dirs_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    silent = Manager("m")
    silent.refuses = RequestTimedOut("the log dirs", 5_000)
    assert online_at([silent, Manager("n", a="")], "/a", Controller("online")) == "online"
    assert "the LogManager of node m does not answer" in caplog.text


def test_only_what_the_controller_has_not_heard_yet_is_ordered_again() -> None:
    controller = Controller(SEVERAL, "online")
    with pytest.raises(InvalidRequest, match="several log dirs"):
        online("/a", Manager(a=""), controller)
    assert controller.answers == ["online"]


def test_without_a_look_the_order_is_for_whoever_has_it() -> None:
    controller = Controller("returning")
    assert online("/a", Manager(), controller) == "returning"
    assert controller.nodes == [None]
