"""What a LogManager believes of the Controller's word on config versions, and for how long."""

import pytest

from raylog.actors.errors import UnsupportedVersion
from raylog.actors.messages import (
    DESIRED_VERSIONS_VERSION,
    REMOVED,
    Confirmed,
    DesiredVersions,
    NodeState,
)
from raylog.actors.node.confirmations import ANSWERS_KEPT, CONFIRMED_FOR_MS, Confirmations

T = "id-of-t"


def word(
    heard: NodeState | None,
    *topics: tuple[str, int],
    since: int = 0,
    revision: int = 1,
    controller: str = "controller-1",
) -> DesiredVersions:
    return DesiredVersions(
        version=DESIRED_VERSIONS_VERSION,
        controller=controller,
        life=heard.life if heard else "",
        number=heard.number if heard else 0,
        since=since,
        revision=revision,
        topics=topics,
    )


@pytest.fixture
def node() -> Confirmations:
    return Confirmations("LogManager:n1", "life-1")


def answer(node: Confirmations, now_ms: int) -> NodeState:
    node.validate()
    return node.answer((), now_ms)


def test_a_version_is_confirmed_from_the_answer_on_that_the_controller_has_heard(
    node: Confirmations,
) -> None:
    first = answer(node, 1000)
    node.hear(word(first, (T, 3)))  # at whatever time
    end_ms = 1000 + CONFIRMED_FOR_MS
    assert node.of(T, end_ms - 1) == Confirmed(T, 3, end_ms)
    assert node.of(T, end_ms) is None
    assert node.of("another", 1000) is None


def test_a_word_that_refers_to_no_answer_of_this_life_confirms_nothing(node: Confirmations) -> None:
    first = answer(node, 1000)
    for heard in (
        None,
        first._replace(life="life-0"),
        first._replace(number=2),
    ):
        node.hear(word(heard, (T, 3)))
        assert node.of(T, 1000) is None
    node.hear(word(first, (T, 3)))
    node.hear(word(None, (T, 3)))
    assert node.of(T, 1000) is None, "the last word counts"


def test_a_word_that_was_under_way_while_the_process_stood_still_confirms_nothing_any_more(
    node: Confirmations,
) -> None:
    first = answer(node, 1000)
    late = word(first, (T, 1))
    now_ms = 1000 + 10 * CONFIRMED_FOR_MS
    node.hear(late)
    assert node.of(T, now_ms) is None
    node.hear(word(answer(node, now_ms), (T, 2), since=1, revision=2))
    assert node.of(T, now_ms) == Confirmed(T, 2, now_ms + CONFIRMED_FOR_MS)


def test_only_changes_travel_and_what_does_not_follow_is_not_taken(node: Confirmations) -> None:
    node.hear(word(answer(node, 0), (T, 1), ("u", 1), revision=2))
    state = answer(node, 0)
    assert (state.controller, state.revision) == ("controller-1", 2)
    node.hear(word(state, (T, 2), since=2, revision=3))
    assert node.of(T, 0) == Confirmed(T, 2, CONFIRMED_FOR_MS)
    assert node.of("u", 0) == Confirmed("u", 1, CONFIRMED_FOR_MS)
    newer = answer(node, 5000)
    node.hear(word(newer, (T, 9), since=4, revision=5))  # a gap
    node.hear(word(newer, (T, 9), since=3, revision=5, controller="controller-2"))
    assert node.of(T, 0) == Confirmed(T, 2, CONFIRMED_FOR_MS), "neither table nor time has changed"
    node.hear(word(newer, (T, REMOVED), since=3, revision=4))
    assert node.of(T, 5000) is None
    assert node.of("u", 5000) == Confirmed("u", 1, 5000 + CONFIRMED_FOR_MS)


def test_a_new_controller_tells_everything_and_what_it_does_not_name_is_not_confirmed(
    node: Confirmations,
) -> None:
    node.hear(word(answer(node, 0), (T, 1), ("u", 1), revision=2))
    node.hear(word(answer(node, 0), (T, 4), controller="controller-2"))
    assert node.of(T, 0) == Confirmed(T, 4, CONFIRMED_FOR_MS)
    assert node.of("u", 0) is None
    state = answer(node, 0)
    assert (state.controller, state.revision) == ("controller-2", 1)


def test_an_older_controllers_word_that_comes_late_prolongs_nothing(node: Confirmations) -> None:
    first = answer(node, 0)
    node.hear(word(answer(node, 9000), (T, 4), controller="controller-2"))
    node.hear(word(first, (T, 3)))
    assert node.of(T, 0) == Confirmed(T, 3, CONFIRMED_FOR_MS)


def test_only_the_last_answers_are_remembered(node: Confirmations) -> None:
    first = answer(node, 0)
    for _ in range(ANSWERS_KEPT):
        answer(node, 1)
    node.hear(word(first, (T, 3)))
    assert node.of(T, 0) is None


def test_a_newer_controllers_message_is_refused_by_name(node: Confirmations) -> None:
    newer = word(answer(node, 0), (T, 3))._replace(version=DESIRED_VERSIONS_VERSION + 1)
    with pytest.raises(UnsupportedVersion, match="LogManager:n1"):
        node.hear(newer)
