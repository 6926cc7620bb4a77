"""Work that may wait is done in order, by a thread that nothing ends."""

import threading

import pytest

from raylog.cluster.client.background import Background
from raylog.storage.testing.waiting import DEADLINE_S


def test_work_is_done_in_order_and_a_failure_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background, done, is_done = Background(), list[int](), threading.Event()
    background.run(lambda: done.append(1))
    background.run(lambda: done.append(1 // 0))
    background.run(lambda: done.append(2))
    background.run(is_done.set)
    assert is_done.wait(DEADLINE_S)
    assert done == [1, 2]
    assert "ZeroDivisionError" in caplog.text


def test_the_thread_keeps_no_process_from_ending() -> None:
    background, names = Background(), list[tuple[str, bool]]()
    is_done = threading.Event()

    def look() -> None:
        thread = threading.current_thread()
        names.append((thread.name, thread.daemon))
        is_done.set()

    background.run(look)
    assert is_done.wait(DEADLINE_S)
    assert names == [("raylog-lookups", True)]
