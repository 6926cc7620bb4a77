"""Two answers, field by field: what is each cluster's own has a word in its place.

Ids, ports, numbers of brokers and the clock are not compared, nor are the words of errors. Where
Kafka's own order is that of a hash table, or shuffled, entries are sorted. A batch is compared by
its header and its records; its CRC covers the producer's id, so it only has to be right.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from raylog.storage.errors import CorruptRecord
from raylog.storage.records.batch import BatchHeader, check_crc, iter_batches
from raylog.storage.records.compression import decompress
from raylog.storage.records.layout import HEADER_SIZE
from tests.kafka.differential.link import Seen
from tests.kafka.differential.question import ASTRAY, Question
from tests.kafka.differential.side import INTERNAL, Side

_NO_ID: Final = UUID(int=0)
# Fields whose value is a cluster's own, where there is one at all.
_NUMBERS: Final = frozenset(("nodeId", "leaderId", "controllerId", "brokerId"))
_NODES: Final = frozenset(("replicaNodes", "isrNodes", "offlineReplicas"))
_TEXTS: Final = frozenset(("batchIndexErrorMessage", "documentation"))
_IGNORED: Final = frozenset(("throttleTimeMs", "clusterId"))
_WORDS: Final = "errorMessage"  # of an error: not compared
_STAMPED: Final = "stamped"  # a topic whose times are those of the append
_PACKED: Final = "packed"  # a topic whose log compresses
# Lists whose order says nothing, and what they are sorted by.
_SORTED: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("Metadata", "topics"): ("name", "topicId"),
    ("CreateTopics", "topics"): ("name",),
    ("CreatePartitions", "results"): ("name",),
    ("DeleteTopics", "responses"): ("name", "topicId"),
    ("DescribeProducers", "activeProducers"): ("producerId",),
    ("ListGroups", "groups"): ("groupId",),
    ("OffsetCommit", "topics"): ("name",),
    ("OffsetCommit", "partitions"): ("partitionIndex",),
    ("TxnOffsetCommit", "topics"): ("name",),
    ("TxnOffsetCommit", "partitions"): ("partitionIndex",),
    ("OffsetDelete", "topics"): ("name",),
    ("OffsetFetch", "topics"): ("name",),
    ("OffsetFetch", "partitions"): ("partitionIndex",),
    ("DescribeTransactions", "topics"): ("topic",),
    ("ListTransactions", "transactionStates"): ("transactionalId",),
}
# Lists whose entries are found by what names them.
_NAMED: Final[Mapping[str, str]] = {"configs": "name", "apiKeys": "apiKey"}
# Lists of brokers: a partition of raylog is one, so only the kinds of entries are compared.
_BROKERS: Final = "brokers"


MISSING: Final = "<no such field>"


class Difference(NamedTuple):
    """One field. ``path``: with the places in lists."""

    path: str
    kafka: Any
    raylog: Any


def differences(
    question: Question, kafka: tuple[Side, Seen], raylog: tuple[Side, Seen]
) -> list[Difference]:
    """Where two answers are not alike."""
    return list(_compared("", shown(question, *kafka), shown(question, *raylog)))


def shown(question: Question, side: Side, seen: Seen) -> Any:
    """An answer as it is compared."""
    return _Showing(question, side).shown("", seen)


class _Showing:
    def __init__(self, question: Question, side: Side) -> None:
        self._api, self._side = question.api.name, side
        self._is_stamped = _STAMPED in question.topics
        self._is_packed = _PACKED in question.topics

    def shown(self, name: str, value: Any) -> Any:
        """``name``: of the field that has the value."""
        if isinstance(value, Mapping):
            ignored = _IGNORED | ({_WORDS} if value.get("errorCode") else set())
            return {
                key: self.shown(key, entry) for key, entry in value.items() if key not in ignored
            }
        if isinstance(value, list):
            return self._list(name, value)
        return self._scalar(name, value)

    def _list(self, name: str, value: list[Any]) -> Any:
        if self._api in ("Metadata", "DescribeTopicPartitions") and name == "topics":
            value = [one for one in value if not (one["name"] or "").startswith(INTERNAL)]
        if self._api == "ListTransactions" and name == "transactionStates":
            value = [one for one in value if one["transactionalId"] != ASTRAY]
        entries = [self.shown(name, entry) for entry in value]
        if name == _BROKERS:
            return [one for n, one in enumerate(entries) if one not in entries[:n]]
        if name in _NAMED:
            return {str(entry[_NAMED[name]]): entry for entry in entries}
        keys = _SORTED.get((self._api, name))
        if keys is not None:
            entries.sort(key=lambda entry: [str(entry[key]) for key in keys])
        return entries

    def _scalar(self, name: str, value: Any) -> Any:
        show = _SHOWN.get(name)
        if show is not None:
            return show(self._side, value)
        if name in _NUMBERS or name in _NODES:
            return "<a broker>" if value >= 0 else value
        if name in _TEXTS:
            return "<text>" if value else value
        is_time = name in ("timestamp", "lastTimestamp") and value >= 0
        if is_time and self._is_stamped:
            return "<now>"
        if isinstance(value, bytes | bytearray | memoryview):
            return self._batches(bytes(value)) if name == "records" else bytes(value)
        return value

    def _batches(self, content: bytes) -> list[Any]:
        batches = []
        end = 0
        for position, header in iter_batches(content):
            end = position + header.size_bytes
            batches.append(
                {
                    **header._asdict(),
                    "crc": _crc_word(content, position, header),
                    "producer_id": _producer(self._side, header.producer_id),
                    "max_timestamp": "<now>" if self._is_stamped else header.max_timestamp,
                    "records": content[position + HEADER_SIZE : end],
                    **self._plain(content[position:end], header),
                }
            )
        return [*batches, f"{len(content) - end} bytes of one more"]

    def _plain(self, batch: bytes, header: BatchHeader) -> dict[str, Any]:
        """Of a batch that the log has compressed: the records themselves."""
        if not self._is_packed or not header.codec:
            return {}
        records = decompress(header.codec, memoryview(batch)[HEADER_SIZE:])
        return {"records": bytes(records), "batch_length": "<of a compressed batch>"}


def _crc_word(content: bytes, position: int, header: BatchHeader) -> str:
    try:
        check_crc(content, position, header)
    except CorruptRecord:
        return "<wrong>"
    return "<right>"


def _topic_id(side: Side, topic_id: UUID) -> str:
    known = side.name_of_id(topic_id)
    if known is not None:
        return f"<id of {known}>"
    return "<no id>" if topic_id == _NO_ID else "<unknown id>"


def _producer(side: Side, producer_id: int) -> Any:
    number = side.number_of_producer(producer_id)
    if number is not None:
        return f"<producer {number}>"
    owned = side.id_of_owner(producer_id)
    if owned is not None:
        return f"<producer of {owned}>"
    return "<a producer>" if producer_id >= 0 else producer_id


def _member(side: Side, member_id: str) -> str:
    group = side.group_of_member(member_id)
    return member_id if group is None else f"<member of {group}>"


def _time(_: Side, time_ms: int) -> Any:
    return "<a time>" if time_ms > 0 else time_ms


def _port(_: Side, port: int) -> Any:
    return "<a port>" if port > 0 else port


def _append_time(_: Side, time_ms: int) -> Any:
    return "<now>" if time_ms >= 0 else time_ms


_SHOWN: Final[Mapping[str, Callable[[Side, Any], Any]]] = {
    "topicId": _topic_id,
    "producerId": _producer,
    "port": _port,
    "logAppendTimeMs": _append_time,
    "memberId": _member,
    "leader": _member,
    "transactionStartTimeMs": _time,
}


def _compared(path: str, kafka: Any, raylog: Any) -> Iterator[Difference]:
    if isinstance(kafka, dict) and isinstance(raylog, dict):
        for name in sorted(map(str, kafka.keys() | raylog.keys())):
            if name == _WORDS and not (name in kafka and name in raylog):
                continue  # one of both has an error, which is told by its code
            below = f"{path}.{name}" if path else name
            yield from _compared(below, kafka.get(name, MISSING), raylog.get(name, MISSING))
    elif isinstance(kafka, list) and isinstance(raylog, list) and len(kafka) == len(raylog):
        for index, entries in enumerate(zip(kafka, raylog, strict=True)):
            yield from _compared(f"{path}[{index}]", *entries)
    elif kafka != raylog:
        yield Difference(path, kafka, raylog)
