"""Which topics a member subscribes to, and how many partitions they have. No network, no time.

A member asks for its own topics. Who leads the group also asks for those of the other members,
since it assigns them.
"""

import re
from collections.abc import Iterable

from raylog.actors.errors import UnknownTopicOrPartition
from raylog.cluster.client.consumer.group.messages import Learn, ListTopics
from raylog.storage.names import INTERNAL_TOPICS

_NEVER = float("inf")


class _Question:
    """Something that is asked again and again."""

    __slots__ = ("due_at", "is_asked")

    def __init__(self) -> None:
        self.due_at, self.is_asked = 0.0, False

    def is_due(self, now: float) -> bool:
        return not self.is_asked and self.due_at <= now

    def ask_again(self, at: float) -> None:
        self.is_asked, self.due_at = False, at


class Watching:
    """See the module's head."""

    def __init__(self, max_age_s: float, backoff_s: float) -> None:
        self._max_age_s, self._backoff_s = max_age_s, backoff_s
        self.troubles: list[Exception] = []  # of the user's own topics; raised by the shell
        # The partitions that a topic had when a subscription first knew it: 0 if it was made later.
        self.first_counts: dict[str, int] = {}
        self.subscribe((), None)

    # -- what the user wants -----------------------------------------------------------------------

    def subscribe(self, names: Iterable[str], pattern: re.Pattern[str] | None) -> None:
        """In the place of what was before."""
        self._pattern = pattern
        self._list = _Question()
        self._is_listed = pattern is None
        self._own: dict[str, None] = dict.fromkeys(names)
        self._others: frozenset[str] = frozenset()
        self._questions = {name: _Question() for name in self._own}
        self.counts: dict[str, int] = {}
        if not self.is_subscribed:
            self.first_counts.clear()
        self.troubles.clear()

    @property
    def is_subscribed(self) -> bool:
        return self._pattern is not None or bool(self._own)

    @property
    def topics(self) -> tuple[str, ...]:
        """The member's own, sorted."""
        return tuple(sorted(self._own))

    @property
    def is_known(self) -> bool:
        """Whether the member's own topics are known, with their partitions."""
        return self._is_listed and self._own.keys() <= self.counts.keys()

    def watch_others(self, topics: Iterable[str]) -> None:
        """The group's topics, as its leader assigns them: ask for all of them now."""
        self._others = frozenset(topics)
        for name in self._others | self._own.keys():
            self._questions.setdefault(name, _Question()).due_at = 0.0
            self.counts.pop(name, None)

    def watch_own(self) -> None:
        """Another member leads: the other members' topics are no concern."""
        self._others = frozenset()
        for name in self._questions.keys() - self._own.keys():
            del self._questions[name]
            self.counts.pop(name, None)

    def knows_all(self) -> bool:
        """Whether each topic of the group is known."""
        return (self._others | self._own.keys()) <= self.counts.keys()

    def counts_of_group(self) -> dict[str, int]:
        """The partitions of the group's topics; of one that is not there it is 0."""
        return {name: self.counts.get(name, 0) for name in self._others | self._own.keys()}

    def refresh(self, topic: str) -> None:
        """What is known of a topic may be old."""
        if topic in self._questions:
            self._questions[topic].due_at = 0.0

    # -- questions ---------------------------------------------------------------------------------

    def instructions(self, now: float) -> list[Learn | ListTopics]:
        """What is to be asked now."""
        made: list[Learn | ListTopics] = []
        if self._pattern is not None and self._list.is_due(now):
            self._list.is_asked = True
            made.append(ListTopics())
        for name, question in self._questions.items():
            if question.is_due(now):
                question.is_asked = True
                made.append(Learn(name))
        return made

    def wakes_at(self) -> float:
        """When there is something to ask that no answer tells."""
        questions = [*self._questions.values(), *([self._list] if self._pattern else [])]
        return min((one.due_at for one in questions if not one.is_asked), default=_NEVER)

    def learned(self, topic: str, partitions: int, now: float) -> None:
        """A topic has so many partitions; 0: it is not there."""
        question = self._questions.get(topic)
        if question is None:
            return
        question.ask_again(now + self._max_age_s)
        self.counts[topic] = partitions
        if partitions:
            self.first_counts.setdefault(topic, partitions)

    def not_learned(self, topic: str, error: Exception, now: float) -> None:
        """A topic is not there, or nobody can say."""
        question = self._questions.get(topic)
        if question is None:
            return
        if not isinstance(error, UnknownTopicOrPartition):
            question.ask_again(now + self._backoff_s)
            return
        is_new = topic in self._own and self._pattern is None and topic not in self.first_counts
        if is_new:
            self.troubles.append(error)
        self.learned(topic, 0, now)

    def listed(self, names: Iterable[str], now: float) -> None:
        """The topics that there are."""
        self._list.ask_again(now + self._max_age_s)
        if self._pattern is None:
            return
        is_first, self._is_listed = not self._is_listed, True
        found = {
            name for name in names if name not in INTERNAL_TOPICS and self._pattern.search(name)
        }
        for name in self._own.keys() - found:
            del self._own[name]
            if name not in self._others:
                del self._questions[name]
                self.counts.pop(name, None)
        for name in sorted(found - self._own.keys()):
            if not is_first:
                self.first_counts.setdefault(name, 0)
            self._own[name] = None
            self._questions.setdefault(name, _Question())

    def not_listed(self, now: float) -> None:
        self._list.ask_again(now + self._backoff_s)

    def ask_all_again(self) -> None:
        """Answers that are on their way may never come."""
        for question in (*self._questions.values(), self._list):
            question.is_asked = False
