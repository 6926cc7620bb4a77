"""A LogActor's words to its LogManager: whatever Ray answers, the actor goes on."""

from typing import Any

import pytest

from raylog.actors.errors import ConfigUnconfirmed, NotLeader
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node_messages import LogSays
from raylog.actors.partition import manager_link
from raylog.actors.partition.manager_link import ManagerLink
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.storage.errors import StorageError
from raylog.storage.testing.logs import FOLDER, PARTITION
from tests.harness.futures import future_of, futures_are_references
from tests.harness.log_alone import LOG, SPEC, order_of, right_of

OFFSETS = PartitionOffsets(log_start_offset=2, recovery_point=5, high_watermark=5, log_end_offset=5)
FAILURE = StorageError(FOLDER, "Input/output error")


class Method:
    """A method of the LogManager's handle: it records, and answers what it is told to."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []

    def remote(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        if isinstance(self.answer, Exception):
            raise self.answer
        return future_of(self.answer)


class LogManager:
    """A LogManager's handle."""

    def __init__(self) -> None:
        self.failed, self.recovering = Method(None), Method(None)
        self.record_log_start, self.said = Method(None), Method(None)
        self.order_of, self.confirmed = Method(order_of(2)), Method({PARTITION: right_of(2)})


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> LogManager:
    made = LogManager()
    futures_are_references(monkeypatch)
    monkeypatch.setattr(manager_link, "find_log_manager", lambda *_: LogManagerStub(made, "n1"))
    return made


def test_its_order_and_its_right_are_asked_for_by_the_log(manager: LogManager) -> None:
    link = ManagerLink(SPEC)
    assert link.order(1.0) == order_of(2)
    assert manager.order_of.calls == [(LOG,)]
    assert link.confirmed() == right_of(2)
    manager.confirmed.answer = {}
    assert link.confirmed() is None


def test_where_its_log_begins_is_written_or_that_is_told(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = ManagerLink(SPEC)
    link.record_log_start(OFFSETS)
    assert manager.record_log_start.calls == [(LOG, OFFSETS)]
    manager.record_log_start.answer = FAILURE
    with pytest.raises(StorageError):
        link.record_log_start(OFFSETS)
    del manager.record_log_start
    with pytest.raises(NotLeader, match="older release"):
        link.record_log_start(OFFSETS)
    monkeypatch.setattr(manager_link, "find_log_manager", lambda *_: None)
    with pytest.raises(NotLeader, match="not running"):
        link.record_log_start(OFFSETS)


def test_what_it_says_by_itself_may_be_lost(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    link = ManagerLink(SPEC)
    says = LogSays(
        log=LOG,
        directory_id="dir",
        folder="/dir/t-0",
        node_id="here",
        state="serving",
        controller_epoch=3,
    )
    with monkeypatch.context() as patch:
        patch.setattr(Call, "ignore", lambda _: None)  # it needs a reference of Ray
        link.say(says)
    assert manager.said.calls == [(says,)]
    manager.said.answer = RuntimeError("the GCS does not answer")
    link.say(says)
    del manager.said  # it is of an older release
    link.say(says)
    assert len(caplog.records) == 2


def test_a_log_that_was_not_ordered_has_no_order_yet(manager: LogManager) -> None:
    manager.order_of.answer = None
    with pytest.raises(NotLeader, match="not been told yet"):
        ManagerLink(SPEC).order(1.0)


def test_a_failure_is_heard_when_the_log_manager_has_answered(manager: LogManager) -> None:
    assert ManagerLink(SPEC).report(FAILURE)
    assert manager.failed.calls == [(LOG, FAILURE)]


def test_an_error_of_rays_own_is_a_report_that_was_not_heard(
    manager: LogManager, caplog: pytest.LogCaptureFixture
) -> None:
    manager.failed.answer = RuntimeError("the GCS does not answer")
    with caplog.at_level("WARNING"):
        assert not ManagerLink(SPEC).report(FAILURE)
        assert not ManagerLink(SPEC).report(FAILURE, is_loud=False)
    assert len(caplog.records) == 1


def test_without_a_log_manager_nothing_is_heard_and_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager_link, "find_log_manager", lambda *_: None)
    link = ManagerLink(SPEC)
    assert not link.report(FAILURE)
    assert link.confirmed() is None
    with pytest.raises(NotLeader, match="is not running"):
        link.order(1.0)


def test_who_cannot_be_asked_for_the_right_gives_none(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager.confirmed.answer = NotLeader("LogManager:n1", "it is away")
    with pytest.raises(ConfigUnconfirmed, match="cannot be asked"):
        ManagerLink(SPEC).confirmed()
