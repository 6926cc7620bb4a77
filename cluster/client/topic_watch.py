"""How a client that runs notices that partitions were added to its topics.

Each ``metadata.max.age.ms`` it asks the Controller, and goes on meanwhile: the answer is taken at a
later call. In the process that added the partitions all clients hear of it at once.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from raylog.storage.errors import InvalidConfig, RaylogError

if TYPE_CHECKING:
    from raylog.cluster.broker import Broker
    from raylog.cluster.controller.placement import TopicDescription

    Later = Callable[[], TopicDescription | None]

logger = logging.getLogger(__name__)

METADATA_MAX_AGE_MS = 300_000  # Kafka's default
RETRY_BACKOFF_S = 0.1


def check_max_age(max_age_ms: object) -> None:
    if isinstance(max_age_ms, bool) or not isinstance(max_age_ms, int) or max_age_ms < 1:
        raise InvalidConfig("metadata.max.age.ms", max_age_ms, "must be an integer of 1 or more")


class TopicWatch:
    """The topics of one client. Safe for threads."""

    def __init__(
        self, broker: "Broker", max_age_ms: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        check_max_age(max_age_ms)
        # topic -> how many partitions it has; looked at before each send or poll
        self.news: dict[str, int] = {}
        self._broker, self._max_age_s, self._clock = broker, max_age_ms / 1000, clock
        self._lock = threading.Lock()
        self._topics: set[str] = set()
        self._answers: dict[str, Later] = {}
        self._due_at = clock() + self._max_age_s
        hear_of_partitions(self)

    def follow(self, topics: Iterable[str]) -> None:
        """Watch these topics, too."""
        with self._lock:
            self._topics.update(topics)

    def tell(self, namespace: str, topic: str, partitions: int) -> None:
        """Somebody in this process knows how many partitions a topic has."""
        if namespace == self._broker.namespace and topic in self._topics:
            with self._lock:
                self.news[topic] = partitions

    def take(self) -> dict[str, int]:
        """The news, once."""
        with self._lock:
            news, self.news = self.news, {}
        return news

    def tick(self) -> None:
        """Ask, or take what has been answered, if it is time. Never waits."""
        now = self._clock()
        if now < self._due_at:
            return
        with self._lock:
            asked = self._answers or dict.fromkeys(self._topics)
            self._answers = {
                topic: later for topic in asked if (later := self._ask(topic, asked[topic]))
            }
            self._due_at = now + (RETRY_BACKOFF_S if self._answers else self._max_age_s)

    def _ask(self, topic: str, answer: "Later | None") -> "Later | None":
        """Begin a question or look after it; None once it is answered, or cannot be now."""
        try:
            answer = answer or self._broker.describe_later(topic)
            described = answer()
        except RaylogError as error:
            logger.info(
                "%s: the lookup of its partitions failed, and is retried later: %s", topic, error
            )
            return None
        if described is None:
            return answer
        self.news[topic] = len(described.partitions)
        return None


class Hearer(Protocol):
    """A client that wants to know of partitions that this process adds."""

    def tell(self, namespace: str, topic: str, partitions: int) -> None: ...


_hearers: WeakSet[Hearer] = WeakSet()


def hear_of_partitions(client: Hearer) -> None:
    """Tell ``client`` for as long as it lives."""
    _hearers.add(client)


def partitions_added(namespace: str, topic: str, partitions: int) -> None:
    """Tell all clients of this process."""
    for hearer in list(_hearers):
        hearer.tell(namespace, topic, partitions)
