"""Requests wait for their answers by number, each with its own deadline."""

import pytest

from raylog.actors.errors import NotLeader, RequestTimedOut, TopicExists
from raylog.cluster.controller.instructions import Answer
from raylog.cluster.controller.requests import Requests


def test_each_request_gets_its_own_answer() -> None:
    requests = Requests()
    first, second = requests.begin(), requests.begin()
    requests.answer(Answer(request=second.number, value=2))
    requests.answer(Answer(request=first.number, error=TopicExists("t", "t")))
    assert requests.wait(second, "it", 0) == 2
    with pytest.raises(TopicExists):
        requests.wait(first, "it", 0)


def test_what_is_not_answered_in_time_is_given_up_and_its_late_answer_dropped() -> None:
    requests = Requests()
    request = requests.begin()
    with pytest.raises(RequestTimedOut, match="creating t"):
        requests.wait(request, "creating t", 0)
    requests.answer(Answer(request=request.number, value=1))
    assert not request.future.done()


def test_in_the_end_all_who_wait_and_all_who_come_are_told_why() -> None:
    requests = Requests()
    request = requests.begin()
    requests.close(NotLeader("the broker", "it is stopping"))
    with pytest.raises(NotLeader, match="stopping"):
        requests.wait(request, "it", 0)
    with pytest.raises(NotLeader, match="stopping"):
        requests.begin()


def test_who_is_told_why_again_and_again_keeps_nothing_of_those_before() -> None:
    requests = Requests()
    requests.close(NotLeader("the broker", "it is stopping"))
    depths: list[int] = []
    for _ in range(3):
        with pytest.raises(NotLeader) as caught:
            requests.begin()
        depths.append(len(caught.traceback))
    assert depths[0] == depths[-1]
