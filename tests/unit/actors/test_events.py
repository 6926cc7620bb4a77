"""The lines that actors log: one an event, in logfmt."""

import io
import logging
import re
from collections.abc import Iterator

import pytest

from raylog.actors import events
from raylog.storage.names import TopicPartition


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What raylog's logger writes, formatted as in an actor."""
    stream, logger = io.StringIO(), logging.getLogger("raylog.test-events")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(events.Lines("Log:orders-0"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield stream
    logger.removeHandler(handler)


logger = logging.getLogger("raylog.test-events")


def test_an_event_is_a_line_with_time_level_actor_pid_and_its_fields(lines: io.StringIO) -> None:
    events.event(
        logger,
        "log-opened",
        partition=TopicPartition("orders", 0),
        log_end_offset=7,
        seconds=0.12345,
    )
    assert re.fullmatch(
        r"at=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=INFO actor=Log:orders-0 pid=\d+ "
        r"event=log-opened partition=orders-0 log_end_offset=7 seconds=0\.123\n",
        lines.getvalue(),
    )


def test_text_with_spaces_quotes_and_line_ends_stays_one_quoted_field(lines: io.StringIO) -> None:
    events.warn(logger, "dir-offline", why='no "space"\nleft')
    assert lines.getvalue().count("\n") == 1
    assert lines.getvalue().endswith('event=dir-offline why="no \\"space\\"\\nleft"\n')


def test_a_traceback_stays_on_the_line_of_its_event(lines: io.StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        events.warn(logger, "upkeep-failed", trace=True, partition="orders-0")
    line = lines.getvalue()
    assert line.count("\n") == 1
    assert "level=WARNING" in line
    assert "event=upkeep-failed partition=orders-0 exc_info=" in line
    assert "ValueError: broken" in line


def test_a_plain_log_call_is_a_line_too(lines: io.StringIO) -> None:
    logger.warning("%s is %d", "it", 3)
    assert lines.getvalue().endswith('msg="it is 3"\n')


def test_an_actors_lines_go_to_its_standard_error_once(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger(events.LOGGER)
    before = (root.handlers[:], root.level, root.propagate)
    try:
        events.set_up_logs("Log:orders-0")
        events.set_up_logs("Log:orders-0")  # an actor that is started again in one process
        events.event(logging.getLogger("raylog.actors.x"), "log-closed", partition="orders-0")
        assert capsys.readouterr().err.count("event=log-closed") == 1
    finally:
        root.handlers[:], root.level, root.propagate = before
