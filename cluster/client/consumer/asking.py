"""The offsets of times, asked of all partitions together, and again where an error may pass."""

from collections.abc import Mapping
from concurrent.futures import Future

from raylog.cluster.client.connection import Connection, OffsetAnswer
from raylog.cluster.client.consumer.config import ConsumerConfig
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.cluster.client.offsets import list_offsets
from raylog.cluster.client.patience import may_pass
from raylog.storage.names import TopicPartition


class Asking:
    """One question of a consumer; its partitions need not be assigned."""

    def __init__(
        self,
        connection: Connection,
        wanted: Mapping[TopicPartition, int],
        config: ConsumerConfig,
        waiter: Waiter,
    ) -> None:
        self._connection, self._wanted = connection, wanted
        self._config, self._waiter = config, waiter
        self._asked: dict[TopicPartition, Future[OffsetAnswer]] = {}
        self._answers: dict[TopicPartition, int] = {}
        self._errors: list[BaseException] = []
        self._retry_at = 0.0

    def has_ended(self) -> bool:
        """Take the answers that have come, and ask for what is missing."""
        for partition, future in list(self._asked.items()):
            if future.done():
                del self._asked[partition]
                self._take(partition, future)
        if not self._errors and self._retry_at <= self._waiter.now():
            self._ask()
        return bool(self._errors) or len(self._answers) == len(self._wanted)

    def wakes_at(self) -> float:
        """When there may be something to ask that no answer tells."""
        is_all_asked = len(self._asked) + len(self._answers) == len(self._wanted)
        return float("inf") if is_all_asked else self._retry_at

    def offsets(self) -> dict[TopicPartition, int]:
        """Once it has ended. Raises its first error."""
        if self._errors:
            raise self._errors[0]
        return {partition: self._answers[partition] for partition in self._wanted}

    def _take(self, partition: TopicPartition, future: "Future[OffsetAnswer]") -> None:
        error = future.exception()
        if error is None:
            self._answers[partition] = future.result().offset
        elif may_pass(error):
            self._retry_at = self._waiter.now() + self._config.retry_backoff_s
        else:
            self._errors.append(error)

    def _ask(self) -> None:
        known = self._answers.keys() | self._asked.keys()
        missing = {each: when for each, when in self._wanted.items() if each not in known}
        futures = list_offsets(
            self._connection,
            missing,
            isolation=self._config.isolation,
            timeout_s=self._config.request_timeout_s,
        )
        self._asked.update(futures)
        for future in futures.values():
            future.add_done_callback(lambda _: self._waiter.wake())
