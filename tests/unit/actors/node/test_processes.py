"""The process of a LogActor: whether it runs, and its end, also where it stands still."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from raylog.actors.node.processes import LogProcess, end_at_once, is_running, process_at
from raylog.storage.testing.waiting import DEADLINE_S, wait_for

TITLE = sys.executable


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) as running:
        yield running
        running.kill()


def test_a_process_that_stands_still_runs_and_can_be_ended(
    sleeping: "subprocess.Popen[bytes]",
) -> None:
    process = process_at(sleeping.pid, TITLE)
    assert process is not None
    sleeping.send_signal(signal.SIGSTOP)
    assert is_running(process)
    end_at_once(process)
    wait_for(lambda: not is_running(process), DEADLINE_S, "nobody has asked for its status yet")
    end_at_once(process)
    assert sleeping.wait(DEADLINE_S) == -signal.SIGKILL
    assert not is_running(process)
    assert process_at(sleeping.pid, TITLE) is None


def test_a_later_process_of_the_same_number_is_another_one() -> None:
    own = process_at(os.getpid(), "")
    assert own is not None
    assert is_running(own)
    earlier = LogProcess(own.pid, own.began - 1)
    assert not is_running(earlier)
    end_at_once(earlier)  # or this would be the end


def test_who_has_the_number_but_not_the_title_is_somebody_else(
    sleeping: "subprocess.Popen[bytes]",
) -> None:
    assert process_at(sleeping.pid, "ray::LogActorImpl") is None
    sleeping.kill()
    wait_for(
        lambda: process_at(sleeping.pid, TITLE) is None, DEADLINE_S, "one that has ended has none"
    )
