"""Requests to a Controller that is away: they wait, take effect once, and end by name."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from raylog.actors.errors import (
    ActorAway,
    AnswerLost,
    BrokerNotFound,
    NotController,
    NothingChanged,
    NotLeader,
    ReadTimedOut,
    RequestTimedOut,
    TopicExists,
)
from raylog.actors.runtime.calls import Call
from raylog.cluster.client.commanding import Command, Commanding
from raylog.cluster.client.deadlines import Deadlines
from raylog.cluster.controller.stub import ControllerStub

AWAY = ActorAway("creating t", "the actor is temporarily unavailable")
STARTING = NotController("the broker", "it is starting")
LOOK = "the Controller"


class Play:
    """A request for 60 s, and a Controller that answers as a test says."""

    def __init__(
        self, *, timeout_s: float = 60.0, is_read: bool = False, look_at: str | None = None
    ) -> None:
        self.now_s = 0.0
        self.deadlines = Deadlines(lambda: self.now_s, threaded=False)
        self.asked: list[tuple[str, Future[Any]]] = []
        self.repeated: list[bool] = []
        commanding: Commanding[str] = Commanding(
            self._ask_controller,
            self.deadlines,
            Command(call=self._call, is_read=is_read, look_at=look_at),
            what="creating t",
            timeout_s=timeout_s,
            patience_s=60.0,
        )
        self.future = commanding.begin()

    def _ask_controller(
        self,
        what: str,
        timeout_s: float,
        ask: Callable[[ControllerStub], Call[Any]],
        *,
        is_read: bool = False,
    ) -> "Future[Any]":
        if what != LOOK:
            ask(ControllerStub(None))
        future: Future[Any] = Future()
        self.asked.append((what, future))
        return future

    def _call(self, controller: ControllerStub, is_repeated: bool) -> Call[str]:
        self.repeated.append(is_repeated)
        return Call(None, "creating t")

    def pending(self) -> list[str]:
        return [what for what, future in self.asked if not future.done()]

    def answers(self, outcome: object, what: str = "creating t") -> None:
        """Answer the newest question of this kind that has no answer."""
        waiting = [future for asked, future in self.asked if asked == what and not future.done()]
        if isinstance(outcome, BaseException):
            waiting[-1].set_exception(outcome)
        else:
            waiting[-1].set_result(outcome)

    def later(self, seconds: float) -> None:
        """Time passes, in steps of 0.1 s."""
        for _ in range(round(seconds * 10)):
            self.now_s += 0.1
            self.deadlines.expire()

    def error(self) -> BaseException | None:
        return self.future.exception(0)


def test_a_request_waits_for_a_controller_that_is_started_again_and_succeeds() -> None:
    play = Play()
    play.answers(AWAY)
    assert play.pending() == [LOOK], "it is looked for at once"
    play.answers(AWAY, LOOK)
    play.later(0.2)
    play.answers(STARTING, LOOK)
    play.later(0.3)
    play.answers("id", LOOK)
    play.answers("made")
    assert play.future.result(0) == "made"
    assert play.repeated == [False, True], "the first one may have taken effect"


def test_a_question_that_hangs_keeps_no_other_waiting() -> None:
    """Ray may hold a call to a process that has died for two seconds."""
    play = Play()
    play.answers(AWAY)
    play.later(1.0)
    assert play.pending() == [LOOK] * 4, "asked after 0, 0.1, 0.3 and 0.7 s"
    play.answers("id", LOOK)
    assert play.pending() == [LOOK] * 3 + ["creating t"]
    play.answers("id", LOOK)
    assert play.pending() == [LOOK] * 2 + ["creating t"], "the request goes out once"
    play.later(5.0)
    assert play.pending() == [LOOK] * 2 + ["creating t"], "and the search has ended"


def test_what_a_starting_controller_has_refused_is_no_repetition() -> None:
    play = Play()
    play.answers(STARTING)
    play.answers("id", LOOK)
    assert play.repeated == [False, False]
    play.answers(AWAY)
    play.answers("id", LOOK)
    play.answers(STARTING)
    play.answers("id", LOOK)
    assert play.repeated == [False, False, True, True]


@pytest.mark.parametrize("answer", [TopicExists("t", "t"), NotLeader("t-0", "node n left")])
def test_what_the_controller_says_of_the_request_is_the_answer(answer: Exception) -> None:
    play = Play()
    play.answers(answer)
    assert play.error() is answer
    assert play.pending() == []


def test_where_nothing_was_changed_the_error_says_so_and_why() -> None:
    play = Play()
    play.answers(STARTING)
    while not play.future.done():
        play.later(0.1)
        if play.pending():
            play.answers(NotController("the broker", "the disk is away"), LOOK)
    error = play.error()
    assert isinstance(error, NothingChanged)
    assert (error.timeout_ms, error.why) == (60_000, "the disk is away")
    assert "nothing was changed" in str(error)
    assert play.now_s == pytest.approx(60, abs=0.5)


def test_a_request_waits_no_longer_than_its_own_time() -> None:
    """However long the Controller may be away, and whenever it has gone."""
    play = Play(timeout_s=5.0)
    play.answers(STARTING)
    play.later(5.1)
    error = play.error()
    assert isinstance(error, NothingChanged)
    assert error.timeout_ms == 5_000
    play = Play(timeout_s=70.0)
    play.later(30)
    play.answers(AWAY)
    play.later(41)
    assert isinstance(play.error(), RequestTimedOut)


def test_after_the_request_was_given_up_an_answer_does_not_send_it() -> None:
    """The error has said that nothing was changed."""
    play = Play()
    play.answers(STARTING)
    play.later(61)
    assert isinstance(play.error(), NothingChanged)
    play.answers("id", LOOK)
    assert play.repeated == [False]


def test_a_request_that_was_cancelled_is_not_sent_again() -> None:
    play = Play()
    play.answers(STARTING)
    assert play.future.cancel()
    play.answers("id", LOOK)
    assert play.repeated == [False]


def test_where_it_may_have_taken_effect_the_error_says_so() -> None:
    play = Play()
    play.answers(AWAY)
    play.later(61)
    error = play.error()
    assert isinstance(error, RequestTimedOut)
    assert "may have taken effect" in str(error)


def test_where_it_only_asks_nothing_was_changed_and_the_error_says_why_it_had_no_answer() -> None:
    play = Play(is_read=True)
    play.answers(AWAY)
    play.answers(STARTING, LOOK)
    play.later(61)
    error = play.error()
    assert isinstance(error, NothingChanged)
    assert error.why == "it is starting"


# -- what the Controller cannot know again ---------------------------------------------------------


def test_a_change_that_could_undo_what_others_did_is_not_repeated() -> None:
    """It overrode an answered change of somebody else, or changed another topic of the name."""
    play = Play(look_at="raylog config get t")
    play.answers("id", LOOK)
    play.answers(AWAY)
    error = play.error()
    assert isinstance(error, AnswerLost)
    assert isinstance(error, RequestTimedOut)
    assert error.timeout_ms == 0
    assert error.__cause__ is AWAY
    assert "may have taken effect" in str(error)
    assert "`raylog config get t`" in str(error)
    play.later(61)
    assert play.pending() == []
    assert play.repeated == [False]


def test_such_a_change_is_sent_when_the_controller_is_there() -> None:
    """What is sent to one that is away is lost, though nothing was changed."""
    play = Play(look_at="raylog config get t")
    play.answers(AWAY, LOOK)
    assert play.repeated == []
    play.later(0.2)
    play.answers("id", LOOK)
    play.answers(STARTING)
    play.answers("id", LOOK)
    play.answers("made")
    assert play.future.result(0) == "made"
    assert play.repeated == [False, False]


@pytest.mark.parametrize("answer", [AWAY, STARTING, None])
def test_such_a_change_that_was_never_sent_has_changed_nothing(answer: NotLeader | None) -> None:
    play = Play(look_at="raylog config get t")
    if answer is not None:
        play.answers(answer, LOOK)
    play.later(61)
    error = play.error()
    assert isinstance(error, NothingChanged)
    assert error.why == ("it does not answer" if answer is None else answer.why)
    assert play.repeated == []


def test_a_broker_that_was_stopped_is_not_waited_for() -> None:
    play = Play()
    play.answers(AWAY)
    play.answers(BrokerNotFound("raylog"), LOOK)
    assert isinstance(play.error(), BrokerNotFound)


def test_the_time_counts_while_the_controller_is_away_and_not_while_it_works() -> None:
    """A move may take hours, and its Controller may be started again twice meanwhile."""
    play = Play(timeout_s=86_400.0)
    play.answers(AWAY)
    play.answers("id", LOOK)
    for _ in range(360):
        play.later(10)
        if LOOK in play.pending():
            play.answers("id", LOOK)
    play.answers(AWAY)
    play.later(59)
    assert not play.future.done()
    play.answers("id", LOOK)
    play.answers("moved")
    assert play.future.result(0) == "moved"


# -- a Controller that hangs -----------------------------------------------------------------------


def end_of(play: Play, answers_until_s: float) -> float:
    """When a request ends of which nothing is heard; questions are answered until then."""
    while not play.future.done():
        play.later(1.0)
        if play.now_s <= answers_until_s and LOOK in play.pending():
            play.answers("id", LOOK)
    return play.now_s


def test_a_request_to_a_controller_that_hangs_ends_by_name_in_time() -> None:
    play = Play(timeout_s=86_400.0)
    assert end_of(play, answers_until_s=0) == pytest.approx(70, abs=2)
    error = play.error()
    assert type(error) is RequestTimedOut
    assert error.timeout_ms == 60_000
    assert "may have taken effect. Check `raylog health`" in str(error)
    assert "creating t" not in play.pending()


def test_a_request_takes_as_long_as_the_controller_answers_questions() -> None:
    play = Play(timeout_s=86_400.0)
    assert end_of(play, answers_until_s=3600) == pytest.approx(3670, abs=12)


def test_a_long_request_that_is_answered_ends_its_questions() -> None:
    play = Play(timeout_s=86_400.0)
    play.later(15)
    play.answers("made")
    play.answers("id", LOOK)
    play.later(30)
    assert play.pending() == []
    assert play.future.result(0) == "made"


def test_a_long_request_that_changes_nothing_says_so_when_the_controller_hangs() -> None:
    play = Play(timeout_s=86_400.0, is_read=True)
    end_of(play, answers_until_s=0)
    assert isinstance(play.error(), ReadTimedOut)


def test_time_without_a_question_is_no_silence() -> None:
    """The client was suspended: nobody has asked."""
    play = Play(timeout_s=86_400.0)
    play.later(12)
    play.answers("id", LOOK)
    play.now_s += 3600
    play.deadlines.expire()
    assert play.pending() == ["creating t", LOOK], "asked as soon as it goes on"
    play.later(50)
    assert not play.future.done()
    play.answers("made")
    assert play.future.result(0) == "made"


def test_a_controller_that_answers_late_is_there() -> None:
    play = Play(timeout_s=86_400.0)
    for _ in range(100):
        play.later(10)
        oldest = next((future for what, future in play.asked[:-1] if what == LOOK), None)
        play.asked = [entry for entry in play.asked if entry[1] is not oldest]
        if oldest is not None:
            oldest.set_result("id")
    assert not play.future.done()
