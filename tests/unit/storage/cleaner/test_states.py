"""Which logs may be compacted now."""

import pytest

from raylog.storage.cleaner.states import CleaningStates
from raylog.storage.errors import CleaningAborted


@pytest.fixture
def states() -> CleaningStates[str]:
    return CleaningStates()


def test_a_log_that_is_being_compacted_is_not_taken_twice(states: CleaningStates[str]) -> None:
    states.begin("a")
    assert states.free(["a", "b"]) == ["b"]
    states.check("a")
    assert states.end("a"), "the round counts"
    assert states.free(["a", "b"]) == ["a", "b"]


def test_an_abort_ends_the_round_that_runs_and_its_end_does_not_count(
    states: CleaningStates[str],
) -> None:
    states.begin("a")
    states.abort("a")
    assert not states.is_quiet("a")
    with pytest.raises(CleaningAborted, match="a: the compaction was aborted"):
        states.check("a")
    assert not states.end("a")
    assert states.is_quiet("a")
    assert states.free(["a"]) == ["a"]


def test_an_abort_of_what_does_not_run_is_nothing(states: CleaningStates[str]) -> None:
    states.abort("a")
    states.begin("a")
    states.check("a")
    assert states.end("a")


def test_to_begin_with_what_is_not_free_is_a_mistake(states: CleaningStates[str]) -> None:
    states.begin("a")
    with pytest.raises(AssertionError, match="not free"):
        states.begin("a")


def test_an_uncleanable_log_is_left_alone_until_it_is_gone(states: CleaningStates[str]) -> None:
    states.begin("a")
    states.end("a")
    states.mark_uncleanable("a", "offset 5: CRC-32C")
    assert states.free(["a", "b"]) == ["b"]
    assert states.uncleanable == {"a": "offset 5: CRC-32C"}
    states.keep(["a", "b"])
    assert states.free(["a", "b"]) == ["b"]
    states.keep(["b"])
    assert states.free(["a", "b"]) == ["a", "b"], "a new log of that name"


def test_the_round_of_a_log_that_is_gone_is_given_up(
    states: CleaningStates[str],
) -> None:
    states.begin("a")
    states.begin("b")
    states.keep(["b"])
    with pytest.raises(CleaningAborted):
        states.check("a")
    states.check("b")
    assert not states.end("a")
    assert states.end("b")
