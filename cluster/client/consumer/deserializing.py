"""The user's functions over keys and values, for records that are handed out one by one."""

from typing import Any

from raylog.actors.errors import DeserializationFailed
from raylog.cluster.client.consumer.config import ConsumerConfig, Deserializer
from raylog.storage.names import TopicPartition
from raylog.storage.records.record import ConsumerRecord


class Deserializing:
    """``key.deserializer`` and ``value.deserializer`` of a consumer."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._of_key, self._of_value = config.key_deserializer, config.value_deserializer

    @property
    def is_needed(self) -> bool:
        return self._of_key is not None or self._of_value is not None

    def records(
        self, taken: list[ConsumerRecord]
    ) -> tuple[list[ConsumerRecord], DeserializationFailed | None]:
        """The records up to the first that cannot be made, and why it cannot."""
        made: list[ConsumerRecord] = []
        for record in taken:
            try:
                made.append(self._made(record))
            except DeserializationFailed as error:
                return made, error
        return made, None

    def _made(self, record: ConsumerRecord) -> ConsumerRecord:
        key = _applied(self._of_key, record, "key", record.key)
        value = _applied(self._of_value, record, "value", record.value)
        return ConsumerRecord(*record[:5], key, value, record.headers)


def _applied(
    function: Deserializer | None, record: ConsumerRecord, what: str, content: bytes | None
) -> Any:
    if function is None or content is None:
        return content
    try:
        return function(content)
    except Exception as error:
        where = str(TopicPartition(record.topic, record.partition))
        raise DeserializationFailed(where, record.offset, what, repr(error)) from error
