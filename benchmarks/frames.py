"""How long reading a request and writing an answer of Kafka's protocol take, in one thread.

Produce and Fetch go by precompiled structs. They are measured in turn with the same message by its
schema, which reads and writes all other APIs; the ratio is how much longer the schema takes. The
first figure is the parse of a header, beside the smallest body that goes by its schema.

Run: ``./dev bench frames [--quick]``.
"""

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from benchmarks.measure import Figure, alternate, seconds
from raylog.actors.plane import frames
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import METADATA
from raylog.actors.plane.apis.records import FETCH, PRODUCE
from raylog.actors.plane.hot.fetch import read_fetch
from raylog.actors.plane.hot.fetch_answer import FetchedPartition, fetch_answer
from raylog.actors.plane.hot.parts import FIRST_VERSION_OF_IDS, NO_TOPIC_ID, Topic
from raylog.actors.plane.hot.produce import ProducedPartition, produce_answer, read_produce
from raylog.storage.schemas.types import Value

CALLS = 2_000
TOPIC = "measured"
TOPIC_ID = bytes(range(16))
Work: TypeAlias = Callable[[], object]

_METADATA = {
    "topics": None,
    "allowAutoTopicCreation": True,
    "includeTopicAuthorizedOperations": False,
}
_FETCH = {
    "replicaId": -1,
    "maxWaitMs": 500,
    "minBytes": 1,
    "maxBytes": 1 << 20,
    "isolationLevel": 0,
    "sessionId": 0,
    "sessionEpoch": -1,
    "forgottenTopicsData": [],
    "rackId": "",
}
_FETCHED = {
    "currentLeaderEpoch": -1,
    "fetchOffset": 5,
    "lastFetchedEpoch": -1,
    "logStartOffset": -1,
    "partitionMaxBytes": 1 << 20,
}


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One dict for each figure: name, value, unit, limit_name, limit_value, ratio, target."""
    rounds = 3 if quick else 31
    works = [*_requests(), *_answers()]
    return [_figure(rounds, *work).as_dict() for work in works]


def _figure(rounds: int, name: str, by_structs: Work, by_schema: Work) -> Figure:
    value, peer_value = alternate(
        rounds, partial(_microseconds, by_structs), partial(_microseconds, by_schema)
    )
    return Figure(name, value, "µs", "by the schema", peer_value, peer_value / value, "-")


def _microseconds(work: Work) -> float:
    """Of one call."""

    def repeat() -> None:
        for _ in range(CALLS):
            work()

    return seconds(repeat) / CALLS * 1e6


def _requests() -> Iterator[tuple[str, Work, Work]]:
    header = _frame(METADATA, 12, _METADATA)
    request = frames.parse(header)
    yield (
        "parse a header, read Metadata 12",
        partial(frames.parse, header),
        partial(frames.read_body, request),
    )
    for version, count in ((13, 1), (7, 1), (13, 16)):
        parts = [{"index": index, "records": bytes(16_384)} for index in range(count)]
        topic = {**_named(version, "name"), "partitionData": parts}
        value = {"transactionalId": None, "acks": -1, "timeoutMs": 1, "topicData": [topic]}
        request = frames.parse(_frame(PRODUCE, version, value))
        name = f"read Produce {version}, partitions: {count}"
        yield name, partial(read_produce, request), partial(frames.read_body, request)
    for version, count in ((18, 1), (11, 1), (18, 100)):
        parts = [{"partition": index, **_FETCHED} for index in range(count)]
        topic = {**_named(version, "topic"), "partitions": parts}
        request = frames.parse(_frame(FETCH, version, {**_FETCH, "topics": [topic]}))
        name = f"read Fetch {version}, partitions: {count}"
        yield name, partial(read_fetch, request), partial(frames.read_body, request)


def _answers() -> Iterator[tuple[str, Work, Work]]:
    for version, count in ((13, 1), (7, 1), (13, 16)):
        produced = [ProducedPartition(index, 0, 5) for index in range(count)]
        request, topic = _answered(PRODUCE, version, produced)
        content = produce_answer(request, [topic])
        value = _body(request, content)
        name = f"answer Produce {version}, partitions: {count}"
        yield (
            name,
            partial(produce_answer, request, [topic]),
            partial(frames.answer, request, value),
        )
    for version, count in ((18, 1), (11, 1), (18, 100)):
        fetched = [FetchedPartition(index, 0, 9, 9, 0, None, b"") for index in range(count)]
        request, topic = _answered(FETCH, version, fetched)
        (piece,) = fetch_answer(request, [topic])
        assert isinstance(piece, bytes)
        value = _body(request, piece)
        name = f"answer Fetch {version}, partitions: {count}"
        yield name, partial(fetch_answer, request, [topic]), partial(frames.answer, request, value)


def _answered(api: Api, version: int, parts: list[Any]) -> tuple[frames.Request, Topic[Any]]:
    request = frames.Request(api, version, 7, "", memoryview(b""), 0)
    has_id = version >= FIRST_VERSION_OF_IDS
    topic: Topic[Any]
    topic = Topic("", TOPIC_ID, parts) if has_id else Topic(TOPIC, NO_TOPIC_ID, parts)
    return request, topic


def _body(request: frames.Request, frame: bytes) -> Value:
    """The body of an answer, as the schema has it."""
    head_bytes = len(frames.answer_head(request, 0))
    return request.api.answer.read(frame[head_bytes:], request.version)


def _frame(api: Api, version: int, value: Value) -> bytes:
    """A request's frame with the client id "client"."""
    tags = b"\0" if api.is_flexible(version) else b""
    head = struct.pack(">hhih6s", api.key, version, 7, 6, b"client")
    return head + tags + api.request.write(value, version)


def _named(version: int, field: str) -> Value:
    if version >= FIRST_VERSION_OF_IDS:
        return {"topicId": UUID(bytes=TOPIC_ID)}
    return {field: TOPIC}
