"""The bytes of a client's requests to one partition, and of their answers. No socket.

They are Produce 13, Fetch 18 and ListOffsets 11 of Kafka's protocol, of one partition each, from a
client that calls itself ``raylog``: answers have the tagged fields of ``plane/own_clients.py``, so
errors come with their words. What is usual is written and read by structs, anything else by the
schemas (``plane/hot/`` draws the forms).

A broker is trusted less than this process: every length is checked against the bytes that are
there. What cannot be read is a ValueError, and the connection is closed.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from raylog.actors.errors import NotLeader
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.records import FETCH, LIST_OFFSETS, PRODUCE
from raylog.actors.plane.hot.parts import compact_size
from raylog.actors.plane.own_clients import BOUNDS, BOUNDS_TAG, CLIENT_ID, ERROR_TAG, read_error
from raylog.cluster.client.connection import (
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
    ProduceAnswer,
    ProduceRequest,
)
from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord, RaylogError
from raylog.storage.limits import MAX_INT
from raylog.storage.schemas.binary import STORED, ByteReader
from raylog.storage.schemas.types import UNKNOWN_TAGS, Value
from raylog.storage.state.epochs import NO_EPOCH, EpochEnd
from raylog.storage.state.properties import id_uuid

_CLIENT: Final = CLIENT_ID.encode()
# Size, key, version, correlation id, the client id's length and bytes, no tags.
_HEAD: Final = Struct(f">ihhih{len(_CLIENT)}sB")
_PLAIN_HEAD: Final = Struct(f">ihhih{len(_CLIENT)}s")  # of a version that is not flexible
_SIZE_BYTES: Final = 4
_ANSWER_HEAD_BYTES: Final = 5  # correlation id, no tags; behind the size
_CORRELATION_BYTES: Final = 4
_ONE: Final = 2  # a compact count of one
_NONE: Final = 1

# Acks, timeout, one topic: its id, one partition: its index; behind the transactional id.
_PRODUCE: Final = Struct(">hiB16sBi")
_NO_TRANSACTION: Final = bytes(1)
_PRODUCE_END: Final = bytes(3)  # no tags of the partition, the topic, the request
_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000  # Kafka's default; raylog asks no replica, and the client has its own

# Max wait, min bytes, max bytes, isolation, session id and epoch, one topic: its id, one partition:
# index, leader epoch, offset, last fetched epoch, log start, max bytes, no tags of partition and
# topic; no forgotten topics, no rack, no tags.
_FETCH: Final = Struct(">iiibiiB16sBiiqiqiBBBBB")

_PRODUCED: Final = Struct(">B16sBihqqq")
# Throttle, error, session; one topic: its id, one partition: index, error, high watermark, last
# stable offset, log start.
_FETCHED: Final = Struct(">ihiB16sBihqqq")
_ABORTED: Final = Struct(">qqB")
_PREFERRED: Final = Struct(">i")
_DIVERGING_TAG: Final = 0
_DIVERGING: Final = Struct(">iqB")


class Fetched(NamedTuple):
    """See ``connection.FetchAnswer``. ``records``: a part of the frame; None: there are none."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] | None
    records: memoryview | None
    leader_epoch: int
    end_offset: int
    diverging: EpochEnd | None

    def read(self) -> Buffer | None:
        """The batches, for as long as anything refers to them."""
        return self.records


# -- requests --------------------------------------------------------------------------------------


def produce_request(request: ProduceRequest, correlation_id: int) -> tuple[Buffer, ...]:
    """The frame's pieces: the batch itself is the second, and is not copied."""
    topic_id = id_uuid(request.topic_id).bytes
    size_bytes = len(request.records)
    body = _NO_TRANSACTION
    if request.transactional_id is not None:
        text = request.transactional_id.encode()
        body = compact_size(len(text)) + text
    body += _PRODUCE.pack(_ALL, _TIMEOUT_MS, _ONE, topic_id, _ONE, request.partition)
    body += compact_size(size_bytes)
    rest_bytes = len(body) + size_bytes + len(_PRODUCE_END)
    return _head(PRODUCE, correlation_id, rest_bytes) + body, request.records, _PRODUCE_END


def fetch_request(request: FetchRequest, correlation_id: int) -> tuple[Buffer, ...]:
    """The frame's pieces."""
    max_bytes = min(request.max_bytes, MAX_INT)
    body = _FETCH.pack(
        min(request.max_wait_ms, MAX_INT),
        min(request.min_bytes, MAX_INT),
        max_bytes,
        request.isolation,
        0,  # no session
        -1,
        _ONE,
        id_uuid(request.topic_id).bytes,
        _ONE,
        request.partition,
        request.leader_epoch,
        request.offset,
        request.last_fetched_epoch,
        -1,
        max_bytes,
        0,
        0,
        _NONE,
        _NONE,
        0,
    )
    return _head(FETCH, correlation_id, len(body)), body


def offset_request(request: OffsetRequest, correlation_id: int) -> tuple[Buffer, ...]:
    """The frame's pieces."""
    partition = {
        "partitionIndex": request.partition,
        "currentLeaderEpoch": request.leader_epoch,
        "timestamp": request.timestamp,
    }
    value = {
        "replicaId": -1,
        "isolationLevel": request.isolation,
        "topics": [{"name": request.topic, "partitions": [partition]}],
        "timeoutMs": 0,
    }
    return request_frame(LIST_OFFSETS, correlation_id, value)


def request_frame(
    api: Api, correlation_id: int, value: Value, version: int | None = None
) -> tuple[Buffer, ...]:
    """The frame's pieces, by the schema. ``version``: the last one by default."""
    version = api.last_version if version is None else version
    body = api.request.write(value, version)
    if api.is_flexible(version):
        return _head(api, correlation_id, len(body)), body
    size = _PLAIN_HEAD.size - _SIZE_BYTES + len(body)
    head = _PLAIN_HEAD.pack(size, api.key, version, correlation_id, len(_CLIENT), _CLIENT)
    return head, body


def _head(api: Api, correlation_id: int, body_bytes: int) -> bytes:
    size = _HEAD.size - _SIZE_BYTES + body_bytes
    return _HEAD.pack(size, api.key, api.last_version, correlation_id, len(_CLIENT), _CLIENT, 0)


# -- answers: of a frame without its size ----------------------------------------------------------


def correlation_of(frame: memoryview) -> int:
    """Which request it answers. Raises ValueError."""
    if len(frame) < _CORRELATION_BYTES:
        raise ValueError(f"a frame of {len(frame)} bytes")
    return int.from_bytes(frame[:_CORRELATION_BYTES], "big", signed=True)


def produce_answer(frame: memoryview, partition: str) -> ProduceAnswer:
    """Where the batch is. Raises the error that is answered, and ValueError."""
    try:
        *_, error_code, base_offset, append_time, log_start = _PRODUCED.unpack_from(
            frame, _ANSWER_HEAD_BYTES
        )
    except StructError:
        raise ValueError("a Produce answer that ends too early") from None
    if error_code:
        _raise(_only_partition(PRODUCE, frame, "responses", "partitionResponses"), partition)
    return ProduceAnswer(base_offset, append_time, log_start)


def answer_body(api: Api, frame: memoryview, version: int | None = None) -> Value:
    """The body of an answer, by the schema. Raises ValueError."""
    version = api.last_version if version is None else version
    position = _ANSWER_HEAD_BYTES if api.is_flexible(version) else _CORRELATION_BYTES
    try:
        return api.answer.read(ByteReader(frame, position, STORED), version)
    except InvalidRecord as error:
        raise ValueError(f"an answer to {api.name} ({error})") from None


def offset_answer(frame: memoryview, partition: str) -> OffsetAnswer:
    """The offset. Raises the error that is answered, and ValueError."""
    part = _only_partition(LIST_OFFSETS, frame, "topics", "partitions")
    _raise(part, partition)
    return OffsetAnswer(part["offset"], part["timestamp"], part["leaderEpoch"])


def fetch_answer(frame: memoryview, partition: str) -> Fetched:
    """The batches. Raises the error that is answered, and ValueError.

    ``frame``: must not be written to for as long as the records are in use.
    """
    try:
        fetched, error_code, tags = _fetched(frame)
    except (StructError, InvalidRecord) as error:
        raise ValueError(f"a Fetch answer ({error})") from None
    if error_code:
        _raise({"errorCode": error_code, UNKNOWN_TAGS: tags}, partition)
    return fetched


def _fetched(frame: memoryview) -> tuple[Fetched, int, dict[int, bytes]]:
    """What the frame holds, the partition's error code, and its tagged fields."""
    (_, whole_error, _, topics, _, partitions, _, error_code, mark, stable, start) = (
        _FETCHED.unpack_from(frame, _ANSWER_HEAD_BYTES)
    )
    if (topics, partitions) != (_ONE, _ONE):
        raise InvalidRecord(f"error {whole_error}, {topics - 1} topics")
    reader = ByteReader(frame, _ANSWER_HEAD_BYTES + _FETCHED.size)
    aborted = _aborted(reader)
    reader.number(_PREFERRED)
    size_bytes = reader.unsigned() - 1
    records = reader.view(size_bytes) if size_bytes > 0 else None
    tags = _tags(reader)
    leader_epoch, end_offset = NO_EPOCH, -1
    if BOUNDS_TAG in tags:
        leader_epoch, end_offset = BOUNDS.unpack(tags[BOUNDS_TAG])
    diverging = None
    if _DIVERGING_TAG in tags:
        epoch, offset, _ = _DIVERGING.unpack(tags[_DIVERGING_TAG])
        diverging = EpochEnd(epoch, offset)
    fetched = Fetched(mark, stable, start, aborted, records, leader_epoch, end_offset, diverging)
    return fetched, error_code, tags


def _aborted(reader: ByteReader) -> tuple[tuple[int, int], ...] | None:
    count = reader.unsigned() - 1
    if count < 0:
        return None
    content = reader.view(count * _ABORTED.size)
    return tuple(entry[:2] for entry in _ABORTED.iter_unpack(content))


def _tags(reader: ByteReader) -> dict[int, bytes]:
    return {reader.unsigned(): reader.take(reader.unsigned()) for _ in range(reader.unsigned())}


def _only_partition(api: Api, frame: memoryview, topics: str, partitions: str) -> Value:
    """The one partition of an answer, read by its schema. Raises ValueError."""
    try:
        (topic,) = answer_body(api, frame)[topics]
        (part,) = topic[partitions]
    except ValueError as error:
        raise ValueError(f"an answer to {api.name} ({error})") from None
    return part


def _raise(part: Value, partition: str) -> None:
    """Raise the error of a partition's answer, if it has one."""
    code = part["errorCode"]
    if not code:
        return
    content = part.get(UNKNOWN_TAGS, {}).get(ERROR_TAG)
    if content is not None:
        raise read_error(content)
    if code == NotLeader.code:
        raise NotLeader(partition, "its process serves another partition now")
    raise RaylogError(f"{partition}: the answer has error code {code} of Kafka's protocol")
