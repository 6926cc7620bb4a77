"""Questions of an administrator, each asked again while its error may pass, until its time is up.

Consumers and producers go on with other work meanwhile. Who administers has none: several questions
may be on their way at once, and the calls that return an answer wait for it.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from raylog.actors.plane.apis.api import Api
from raylog.cluster.client.connection import ApiRequest, GroupConnection, TopicMetadata
from raylog.cluster.client.consumer.group.offsets import Repeated
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.cluster.client.partitions import ask_partitions
from raylog.cluster.client.repeating import taken
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.types import Value

T = TypeVar("T")

TIMEOUT_S: Final = 60.0
REQUEST_TIMEOUT_S: Final = 10.0
BACKOFF_S: Final = 0.1


class Asker:
    """See the module's head. Not safe for threads.

    ``timeout_s``: of a question with all its repetitions.
    """

    def __init__(
        self,
        connection: GroupConnection,
        *,
        timeout_s: float = TIMEOUT_S,
        waiter: Waiter | None = None,
    ) -> None:
        self.connection, self.timeout_s = connection, timeout_s
        self._waiter = waiter or Waiter()

    # -- waits for an answer -----------------------------------------------------------------------

    def result(self, asked: Repeated[T]) -> T:
        """The answer, or its error."""
        while not asked.has_ended():
            self._waiter.wait(max(asked.wakes_at() - self._waiter.now(), 0))
        return asked.result()

    def metadata(self, topic: str) -> TopicMetadata:
        """Raises UnknownTopicOrPartition."""

        def ask() -> "Future[TopicMetadata]":
            return self.connection.metadata(topic, timeout_s=REQUEST_TIMEOUT_S)

        return self.result(self.repeated(f"the metadata of {topic}", ask))

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""

        def ask() -> "Future[list[str]]":
            return self.connection.list_topics(timeout_s=REQUEST_TIMEOUT_S)

        return self.result(self.repeated("the names of topics", ask))

    def pause(self, seconds: float) -> None:
        """Wait for so long."""
        ends_at = self.now() + seconds
        while self.now() < ends_at:
            self._waiter.wait(ends_at - self.now())

    def now(self) -> float:
        """By the clock that timeouts go by, in seconds."""
        return self._waiter.now()

    # -- asks, and does not wait -------------------------------------------------------------------

    def repeated(
        self, what: str, ask: "Callable[[], Future[T]]", *, is_read: bool = True
    ) -> Repeated[T]:
        """``what``: as an error names it."""
        return Repeated(
            what,
            ask,
            self._waiter,
            timeout_s=self.timeout_s,
            backoff_s=BACKOFF_S,
            is_read=is_read,
        )

    def of_partition(
        self,
        partition: TopicPartition,
        api: Api,
        body: Value,
        take: Callable[[Value], T],
        *,
        is_read: bool = True,
    ) -> Repeated[T]:
        """What the process of a partition answers, as ``take`` makes it, which may raise.

        It ends with UnknownTopicOrPartition where there is no such partition.
        """

        def send(key: TopicPartition, topic: TopicMetadata) -> "Future[T]":
            request = ApiRequest(topic.topic, topic.topic_id, key.partition, api, body)
            return taken(self.connection.ask(request, timeout_s=REQUEST_TIMEOUT_S), take)

        def ask() -> "Future[T]":
            asked = ask_partitions(self.connection, [partition], send, timeout_s=REQUEST_TIMEOUT_S)
            return asked[partition]

        return self.repeated(f"{api.name} of {partition}", ask, is_read=is_read)
