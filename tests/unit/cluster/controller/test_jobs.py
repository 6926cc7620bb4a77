"""Work beside the watch: what fails is told once, and whoever waits, waits for all of it."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from raylog.cluster.controller.jobs import Jobs
from raylog.storage.errors import StorageError
from raylog.storage.testing.waiting import DEADLINE_S


@pytest.fixture
def stopped() -> threading.Event:
    return threading.Event()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    found: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message: Any = record.msg
            found.append(message["event"])

    handler = Heard()
    logger = logging.getLogger("raylog.cluster.controller.jobs")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def failing(why: str) -> None:
    raise StorageError("/disk", why)


def test_what_fails_in_the_same_way_again_is_told_once(
    stopped: threading.Event, said: list[str]
) -> None:
    jobs = Jobs(stopped)
    for why in ("full", "full", "gone", "gone"):
        jobs.attempt("watch", lambda why=why: failing(why))  # type: ignore[misc]
    assert said == ["watch-failed"] * 2
    jobs.attempt("watch", lambda: None)
    jobs.attempt("watch", lambda: failing("gone"))
    assert said == ["watch-failed"] * 3, "it went well in between"


def test_nothing_is_told_of_what_fails_because_the_broker_stops(
    stopped: threading.Event, said: list[str]
) -> None:
    stopped.set()
    Jobs(stopped).attempt("watch", lambda: failing("closed"))
    assert said == []


def test_work_does_not_hold_up_who_begins_it_and_can_be_waited_for(
    stopped: threading.Event,
) -> None:
    jobs, go_on, done = Jobs(stopped), threading.Event(), []

    def work() -> None:
        assert go_on.wait(DEADLINE_S)
        done.append(1)

    for _ in range(3):
        jobs.begin("opening", work)
    jobs.wait(timeout_s=0)
    assert done == []
    go_on.set()
    jobs.wait()
    assert done == [1, 1, 1]


def test_of_what_is_done_alone_one_runs_at_a_time(stopped: threading.Event) -> None:
    jobs, go_on, begun = Jobs(stopped), threading.Event(), []

    def work() -> None:
        begun.append(1)
        assert go_on.wait(DEADLINE_S)

    jobs.begin_alone("upkeep", work)
    jobs.begin_alone("upkeep", work)
    go_on.set()
    jobs.wait()
    assert begun == [1]
    jobs.begin_alone("upkeep", work)
    jobs.wait()
    assert begun == [1, 1]
