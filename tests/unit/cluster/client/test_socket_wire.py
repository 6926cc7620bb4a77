"""Requests are what the schemas read; answers are read as the schemas wrote them, or refused."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.actors.errors import NotLeader, UnknownTopicId
from raylog.actors.plane import frames
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.records import FETCH, LIST_OFFSETS, PRODUCE
from raylog.actors.plane.hot.produce import read_produce
from raylog.actors.plane.own_clients import BOUNDS, BOUNDS_TAG, ERROR_TAG, error_tags, read_error
from raylog.cluster.client.connection import FetchRequest, OffsetRequest, ProduceRequest
from raylog.cluster.client.sockets import wire
from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord, InvalidRecord, RaylogError
from raylog.storage.limits import MAX_INT
from raylog.storage.schemas.types import UNKNOWN_TAGS
from raylog.storage.state.epochs import EpochEnd
from raylog.storage.state.properties import id_text

TOPIC_ID = uuid.UUID("e5e19dbb-a3d5-4914-be9b-cc4772e5cf3f")
ID = id_text(TOPIC_ID)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
ERROR = CorruptRecord("a batch", "its CRC is wrong")
examples = settings(max_examples=60, deadline=None, derandomize=True)


def request_in(pieces: tuple[Buffer, ...]) -> frames.Request:
    content = b"".join(bytes(piece) for piece in pieces)
    assert int.from_bytes(content[:4], "big") == len(content) - 4
    request = frames.parse(content[4:])
    assert (request.version, request.client_id) == (request.api.last_version, "raylog")
    return request


def frame_of(api: Api, body: dict[str, Any]) -> memoryview:
    request = frames.Request(api, api.last_version, 7, "raylog", memoryview(b""), 0)
    return memoryview(frames.answer(request, body))[4:]


# -- requests --------------------------------------------------------------------------------------


@examples
@given(number=INT32, index=INT32, records=st.binary(max_size=300))
def test_a_produce_request(number: int, index: int, records: bytes) -> None:
    asked = ProduceRequest("orders", ID, index, records)
    request = request_in(wire.produce_request(asked, number))
    assert (request.api, request.correlation_id) == (PRODUCE, number)
    body = read_produce(request)
    assert (body.transactional_id, body.acks, body.timeout_ms) == (None, -1, 30_000)
    ((_, topic_id, ((partition, sent),)),) = body.topics
    assert (topic_id, partition, bytes(sent or b"")) == (TOPIC_ID.bytes, index, records)
    frames.read_body(request)  # the schema agrees that it ends here


@examples
@given(
    number=INT32,
    index=INT32,
    offset=INT64,
    epochs=st.tuples(INT32, INT32),
    max_bytes=st.integers(0, 2**40),
    min_bytes=st.integers(0, 2**40),
    max_wait_ms=st.integers(0, 2**40),
    isolation=st.sampled_from([0, 1]),
)
def test_a_fetch_request(
    number: int,
    index: int,
    offset: int,
    epochs: tuple[int, int],
    max_bytes: int,
    min_bytes: int,
    max_wait_ms: int,
    isolation: int,
) -> None:
    asked = FetchRequest(
        topic="orders",
        topic_id=ID,
        partition=index,
        leader_epoch=epochs[0],
        offset=offset,
        max_bytes=max_bytes,
        min_bytes=min_bytes,
        max_wait_ms=max_wait_ms,
        isolation=isolation,
        last_fetched_epoch=epochs[1],
    )
    request = request_in(wire.fetch_request(asked, number))
    assert (request.api, request.correlation_id) == (FETCH, number)
    body = frames.read_body(request)
    (topic,) = body["topics"]
    (part,) = topic["partitions"]
    assert topic["topicId"] == TOPIC_ID
    assert (body["isolationLevel"], body["sessionId"], body["sessionEpoch"]) == (isolation, 0, -1)
    assert body["maxWaitMs"] == min(max_wait_ms, MAX_INT)
    assert body["minBytes"] == min(min_bytes, MAX_INT)
    assert body["maxBytes"] == part["partitionMaxBytes"] == min(max_bytes, MAX_INT)
    assert (part["partition"], part["fetchOffset"], part["logStartOffset"]) == (index, offset, -1)
    assert (part["currentLeaderEpoch"], part["lastFetchedEpoch"]) == epochs
    assert (body["forgottenTopicsData"], body["rackId"]) == ([], "")


def test_an_offset_request() -> None:
    asked = OffsetRequest("orders", ID, 3, 4, -2, isolation=1)
    body = frames.read_body(request_in(wire.offset_request(asked, 9)))
    assert (body["replicaId"], body["isolationLevel"]) == (-1, 1)
    part = {"partitionIndex": 3, "currentLeaderEpoch": 4, "timestamp": -2}
    assert body["topics"] == [{"name": "orders", "partitions": [part]}]


# -- answers ---------------------------------------------------------------------------------------


def produced(**fields: Any) -> memoryview:
    part = {
        "index": 3,
        "errorCode": 0,
        "baseOffset": 70,
        "logAppendTimeMs": -1,
        "logStartOffset": 5,
        "recordErrors": [],
        "errorMessage": None,
        **fields,
    }
    topic = {"topicId": TOPIC_ID, "partitionResponses": [part]}
    return frame_of(PRODUCE, {"responses": [topic], "throttleTimeMs": 0})


def fetched(**fields: Any) -> memoryview:
    part = {
        "partitionIndex": 3,
        "errorCode": 0,
        "highWatermark": 90,
        "lastStableOffset": 80,
        "logStartOffset": 10,
        "abortedTransactions": None,
        "preferredReadReplica": -1,
        "records": b"",
        **fields,
    }
    topic = {"topicId": TOPIC_ID, "partitions": [part]}
    whole = {"throttleTimeMs": 0, "errorCode": 0, "sessionId": 0}
    return frame_of(FETCH, {**whole, "responses": [topic]})


def listed(**fields: Any) -> memoryview:
    part = {
        "partitionIndex": 3,
        "errorCode": 0,
        "timestamp": 500,
        "offset": 7,
        "leaderEpoch": 2,
        **fields,
    }
    topics = [{"name": "orders", "partitions": [part]}]
    return frame_of(LIST_OFFSETS, {"throttleTimeMs": 0, "topics": topics})


KINDS: list[Any] = [
    (produced, wire.produce_answer),
    (fetched, wire.fetch_answer),
    (listed, wire.offset_answer),
]
kinds = pytest.mark.parametrize(("made", "read"), KINDS)


def test_what_was_produced() -> None:
    assert wire.correlation_of(produced()) == 7
    assert wire.produce_answer(produced(), "p")[:3] == (70, -1, 5)
    assert wire.produce_answer(produced(errorMessage="fine"), "p")[:3] == (70, -1, 5)
    assert wire.produce_answer(produced(**{UNKNOWN_TAGS: {5: b"x"}}), "p")[:3] == (70, -1, 5)


@examples
@given(
    numbers=st.tuples(INT64, INT64, INT64),
    aborted=st.none() | st.lists(st.tuples(INT64, INT64), max_size=150),
    records=st.binary(max_size=300),
    bounds=st.none() | st.tuples(INT32, INT64),
    diverging=st.none() | st.builds(EpochEnd, st.integers(0, 2**31 - 1), INT64),
    replica=INT32,
)
def test_what_was_fetched(
    numbers: tuple[int, int, int],
    aborted: list[tuple[int, int]] | None,
    records: bytes,
    bounds: tuple[int, int] | None,
    diverging: EpochEnd | None,
    replica: int,
) -> None:
    entries = (
        None
        if aborted is None
        else [{"producerId": one, "firstOffset": other} for one, other in aborted]
    )
    epoch, end_offset = diverging or (-1, -1)
    frame = fetched(
        highWatermark=numbers[0],
        lastStableOffset=numbers[1],
        logStartOffset=numbers[2],
        abortedTransactions=entries,
        records=records,
        preferredReadReplica=replica,
        divergingEpoch={"epoch": epoch, "endOffset": end_offset},
        **{UNKNOWN_TAGS: {} if bounds is None else {BOUNDS_TAG: BOUNDS.pack(*bounds)}},
    )
    found = wire.fetch_answer(frame, "p")
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == numbers
    assert found.aborted == (None if aborted is None else tuple(aborted))
    assert (None if found.records is None else bytes(found.records)) == (records or None)
    assert (found.leader_epoch, found.end_offset) == (bounds or (-1, -1))
    assert found.diverging == diverging


def test_where_an_offset_is() -> None:
    assert wire.offset_answer(listed(), "p") == (7, 500, 2)


@kinds
def test_an_error_is_that_of_its_words(made: Callable[..., Any], read: Callable[..., Any]) -> None:
    request = frames.Request(PRODUCE, 13, 0, "raylog", memoryview(b""), 0)
    tags = {UNKNOWN_TAGS: error_tags(request, ERROR)}
    with pytest.raises(CorruptRecord) as raised:
        read(made(errorCode=ERROR.code, **tags), "orders-3")
    assert str(raised.value) == str(ERROR)
    with pytest.raises(NotLeader, match="orders-3"):
        read(made(errorCode=6), "orders-3")
    with pytest.raises(RaylogError, match="error code 99"):
        read(made(errorCode=99), "orders-3")


@kinds
def test_an_answer_that_is_cut_is_refused(
    made: Callable[..., Any], read: Callable[..., Any]
) -> None:
    frame = made()
    behind_bytes = 10 if read is wire.produce_answer else 2  # what nobody asks for
    for size in range(len(frame) - behind_bytes):
        with pytest.raises(ValueError, match="answer"):
            read(frame[:size], "p")
    with pytest.raises(ValueError, match="a frame of 3 bytes"):
        wire.correlation_of(frame[:3])


@kinds
@pytest.mark.parametrize("seed", range(200))
def test_an_answer_with_other_bytes_is_read_or_refused(
    made: Callable[..., Any], read: Callable[..., Any], seed: int
) -> None:
    content = bytearray(made(**{UNKNOWN_TAGS: {BOUNDS_TAG: BOUNDS.pack(1, 2)}}))
    content[5 + seed % (len(content) - 5)] ^= 1 + seed % 255
    try:
        read(memoryview(content), "p")
    except (ValueError, RaylogError):
        pass


# -- the words of errors ---------------------------------------------------------------------------


def request_of(client_id: str, version: int) -> frames.Request:
    return frames.Request(FETCH, version, 0, client_id, memoryview(b""), 0)


@pytest.mark.parametrize(
    "error", [ERROR, InvalidRecord("é"), UnknownTopicId("orders-0", "one", "another")]
)
def test_an_error_crosses_with_its_class_and_fields(error: RaylogError) -> None:
    again = read_error(error_tags(request_of("raylog", 18), error)[ERROR_TAG])
    assert type(again) is type(error)
    assert (again.args, str(again)) == (error.args, str(error))


@pytest.mark.parametrize(
    "content",
    [
        b'["raylog.errors.Nobody", [], "words"]',
        b'["raylog.storage.errors.CorruptRecord", [1, 2, 3], "words"]',
        b'["os.system", ["true"], "words"]',
        b'["raylog.storage.state.properties.random_id", [], "words"]',
        b'["raylog.nowhere.Nobody", [], "words"]',
    ],
)
def test_what_is_no_known_error_keeps_its_words(content: bytes) -> None:
    error = read_error(content)
    assert type(error) is RaylogError
    assert str(error) == "words"


def test_clients_of_others_and_old_versions_get_no_such_field() -> None:
    assert error_tags(request_of("librdkafka", 18), ERROR) == {}
    assert error_tags(request_of("raylog", 11), ERROR) == {}
