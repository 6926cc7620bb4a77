"""Fetch answers in pieces: numbers by precompiled structs, records from a file or from memory.

An answer, by version; counts and lengths are int32 up to version 11, and unsigned varints plus one
since version 12::

    throttle (4) | error (2) 7+ | session id (4) 7+ | count of topics
      name, or id (16) since version 13 | count of partitions
        index (4) | error (2) | high watermark (8) | last stable offset (8) | log start (8) 5+
        aborted: null, or a count of (producer id (8), first offset (8), tags 12+)
        preferred replica (4) 11+ | length of records | records | tags 12+
      tags 12+
    tags 12+

The records of a partition are bytes, or a part of a file that is sent from the file. So an answer
is a list of pieces, each to be sent behind the one before; the size in the first one counts them
all. The answer of one partition is its head, its records and, since version 12, a trailer.

Joined, the pieces are what the schema writes, to the byte, and a test compares them. Source:
``FetchResponse.json`` of Kafka 4.3; KIP-98, KIP-227, KIP-516, KIP-595, KIP-951.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from raylog.actors.plane.apis.records import FETCH
from raylog.actors.plane.frames import Request, answer_head
from raylog.actors.plane.hot.parts import (
    FIRST_VERSION_OF_IDS,
    NO_TAGS,
    Endpoint,
    Leader,
    Tags,
    Topic,
    compact_size,
    compact_string,
    endpoint_value,
)
from raylog.actors.plane.sending import FileRange, Piece
from raylog.storage.buffers import Buffer
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.schemas.binary import put_unsigned
from raylog.storage.state.epochs import EpochEnd


class FetchedPartition(NamedTuple):
    """What is answered for one partition.

    With an error the offsets are -1 and there are no records.
    """

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    # Null where the reader takes uncommitted records, too.
    aborted: Sequence[AbortedTransaction] | None
    records: Buffer | FileRange
    preferred_replica: int = -1
    diverging: EpochEnd | None = None
    current_leader: Leader | None = None
    more_tags: Tags | None = None  # of flexible versions: ``own_clients.py``


_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_HEAD: Final = Struct(">i")  # throttle
_HEAD_7: Final = Struct(">ihi")  # throttle, error, session id
_PARTITION: Final = Struct(">ihqq")
_PARTITION_5: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_COMPACT_ABORTED: Final = Struct(">qqB")
_DIVERGING: Final = Struct(">BBiqB")  # tag, size, the fields, no tags
_LEADER: Final = Struct(">BBiiB")
_DIVERGING_TAG, _DIVERGING_BYTES = 0, 13
_LEADER_TAG, _LEADER_BYTES = 1, 9
_NO_THROTTLE, _NO_SESSION = 0, 0
_NULL: Final = -1


def fetch_answer(
    request: Request,
    topics: Sequence[Topic[FetchedPartition]],
    error_code: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> list[Piece]:
    """The pieces of the frame that answers a Fetch request.

    ``endpoints``: of every leader that is named. They, the leaders and what else the version has no
    field for are left out.
    """
    pieces = _body(topics, request.version, error_code, endpoints)
    body_bytes = sum(_size_bytes(piece) for piece in pieces)
    first = pieces[0]
    assert isinstance(first, bytes), "a body begins with its numbers"
    pieces[0] = answer_head(request, body_bytes) + first
    return pieces


def _body(
    topics: Sequence[Topic[FetchedPartition]],
    version: int,
    error_code: int,
    endpoints: Sequence[Endpoint],
) -> list[Piece]:
    is_compact = FETCH.is_flexible(version)
    pieces: list[Piece] = []
    out = bytearray(_answer_head(version, error_code))
    out += compact_size(len(topics)) if is_compact else _INT32.pack(len(topics))
    for topic in topics:
        out += _topic_head(topic, version)
        for part in topic.partitions:
            out += _partition_head(part, version)
            if _size_bytes(part.records):
                pieces += (bytes(out), _piece(part.records))
                out.clear()
            if is_compact:
                out += _partition_tags(part)
        if is_compact:
            out += NO_TAGS
    if is_compact:
        out += _answer_tags(endpoints, version)
    if out:
        pieces.append(bytes(out))
    return pieces


def _answer_head(version: int, error_code: int) -> bytes:
    if version < 7:
        return _HEAD.pack(_NO_THROTTLE)
    return _HEAD_7.pack(_NO_THROTTLE, error_code, _NO_SESSION)


def _topic_head(topic: Topic[FetchedPartition], version: int) -> bytes:
    count = len(topic.partitions)
    if version >= FIRST_VERSION_OF_IDS:
        return topic.topic_id + compact_size(count)
    if FETCH.is_flexible(version):
        return compact_string(topic.name) + compact_size(count)
    name = topic.name.encode()
    return b"".join((_INT16.pack(len(name)), name, _INT32.pack(count)))


def _partition_head(part: FetchedPartition, version: int) -> bytes:
    """A partition up to its records: the last number is how many bytes they have."""
    numbers = _PARTITION.pack(*part[:4]) if version < 5 else _PARTITION_5.pack(*part[:5])
    records_bytes = _size_bytes(part.records)
    if FETCH.is_flexible(version):
        preferred = _INT32.pack(part.preferred_replica)
        return b"".join(
            (numbers, _compact_aborted(part.aborted), preferred, compact_size(records_bytes))
        )
    preferred = b"" if version < 11 else _INT32.pack(part.preferred_replica)
    return b"".join((numbers, _old_aborted(part.aborted), preferred, _INT32.pack(records_bytes)))


def _old_aborted(aborted: Sequence[AbortedTransaction] | None) -> bytes:
    if aborted is None:
        return _INT32.pack(_NULL)
    entries = (_ABORTED.pack(one.producer_id, one.first_offset) for one in aborted)
    return b"".join((_INT32.pack(len(aborted)), *entries))


def _compact_aborted(aborted: Sequence[AbortedTransaction] | None) -> bytes:
    if aborted is None:
        return compact_size(_NULL)
    entries = (_COMPACT_ABORTED.pack(one.producer_id, one.first_offset, 0) for one in aborted)
    return b"".join((compact_size(len(aborted)), *entries))


def _partition_tags(part: FetchedPartition) -> bytes:
    more_tags = part.more_tags or {}
    if part.diverging is None and part.current_leader is None and not more_tags:
        return NO_TAGS
    fields = []
    if part.diverging is not None:
        epoch, end_offset = part.diverging
        fields.append(_DIVERGING.pack(_DIVERGING_TAG, _DIVERGING_BYTES, epoch, end_offset, 0))
    if part.current_leader is not None:
        node_id, epoch = part.current_leader
        fields.append(_LEADER.pack(_LEADER_TAG, _LEADER_BYTES, node_id, epoch, 0))
    fields += (_tagged(tag, content) for tag, content in sorted(more_tags.items()))
    return b"".join((bytes((len(fields),)), *fields))


def _tagged(tag: int, content: bytes) -> bytes:
    out = bytearray()
    put_unsigned(out, tag)
    put_unsigned(out, len(content))
    return bytes(out + content)


def _answer_tags(endpoints: Sequence[Endpoint], version: int) -> bytes:
    """The tags behind all topics: what the schema writes behind none."""
    if not endpoints:
        return NO_TAGS
    value = {
        "throttleTimeMs": 0,
        "errorCode": 0,
        "sessionId": 0,
        "responses": [],
        "nodeEndpoints": [endpoint_value(endpoint) for endpoint in endpoints],
    }
    return FETCH.answer.write(value, version)[_HEAD_7.size + len(compact_size(0)) :]


def _size_bytes(piece: Buffer | FileRange) -> int:
    return piece.size_bytes if isinstance(piece, FileRange) else len(piece)


def _piece(records: Buffer | FileRange) -> Piece:
    return records if isinstance(records, FileRange) else memoryview(records)
