"""Answers by structs and in pieces are to the byte what the schemas write."""

import os
import uuid
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.actors.plane import frames
from raylog.actors.plane.apis.records import FETCH, PRODUCE
from raylog.actors.plane.hot.fetch_answer import FetchedPartition, fetch_answer
from raylog.actors.plane.hot.parts import NO_TOPIC_ID, Endpoint, Leader, Topic
from raylog.actors.plane.hot.produce import ProducedPartition, produce_answer
from raylog.actors.plane.own_clients import BOUNDS_TAG, ERROR_TAG
from raylog.actors.plane.sending import FileRange, Piece
from raylog.storage.descriptors import Descriptor
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.schemas.types import UNKNOWN_TAGS
from raylog.storage.state.epochs import EpochEnd
from tests.unit.actors.plane.bodies import request_of
from tests.unit.actors.plane.hot_values import FETCHED, PRODUCED

NO_FILE = Descriptor(os.devnull, os.O_RDONLY)
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEADERS = st.builds(Leader, st.integers(0, 2**31 - 1), INT32)
ENDPOINTS = st.lists(st.builds(Endpoint, INT32, TEXTS, INT32, st.none() | TEXTS), max_size=2)
MORE_TAGS = st.none() | st.dictionaries(
    st.sampled_from([ERROR_TAG, BOUNDS_TAG]), st.binary(max_size=200), max_size=2
)
PRODUCED_PARTITIONS = st.builds(
    ProducedPartition,
    partition=INT32,
    error_code=INT16,
    base_offset=INT64,
    log_append_time_ms=INT64,
    log_start_offset=INT64,
    record_errors=st.just(()) | st.lists(st.tuples(INT32, st.none() | TEXTS), max_size=2),
    error_message=st.none() | TEXTS,
    current_leader=st.none() | LEADERS,
    more_tags=MORE_TAGS,
)
FETCHED_PARTITIONS = st.builds(
    FetchedPartition,
    partition=INT32,
    error_code=INT16,
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    aborted=st.none()
    | st.lists(st.builds(AbortedTransaction, INT64, INT64, INT64, INT64), max_size=2),
    records=st.binary(max_size=200),
    preferred_replica=INT32,
    diverging=st.none() | st.builds(EpochEnd, st.integers(0, 2**31 - 1), INT64),
    current_leader=st.none() | LEADERS,
    more_tags=MORE_TAGS,
)


@cache
def topics(version: int, partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    names = st.just("") if version >= 13 else TEXTS
    ids = st.binary(min_size=16, max_size=16) if version >= 13 else st.just(NO_TOPIC_ID)
    return st.lists(st.builds(Topic, names, ids, st.lists(partitions, max_size=3)), max_size=3)


def leader_value(leader: Leader | None) -> dict[str, int]:
    node_id, epoch = leader or (-1, -1)
    return {"leaderId": node_id, "leaderEpoch": epoch}


def endpoint_values(endpoints: Sequence[Endpoint]) -> list[dict[str, Any]]:
    return [
        {"nodeId": node_id, "host": host, "port": port, "rack": rack}
        for node_id, host, port, rack in endpoints
    ]


def more_tags(version: int, flexible: int, part: Any) -> dict[str, Any]:
    return {UNKNOWN_TAGS: part.more_tags or {}} if version >= flexible else {}


def produced_value(
    version: int, answered: list[Any], endpoints: Sequence[Endpoint]
) -> dict[str, Any]:
    return {
        "responses": [
            {
                "name": topic.name,
                "topicId": uuid.UUID(bytes=topic.topic_id),
                "partitionResponses": [
                    {
                        **more_tags(version, PRODUCE.flexible_version, part),
                        "index": part.partition,
                        "errorCode": part.error_code,
                        "baseOffset": part.base_offset,
                        "logAppendTimeMs": part.log_append_time_ms,
                        "logStartOffset": part.log_start_offset,
                        "recordErrors": [
                            {"batchIndex": index, "batchIndexErrorMessage": why}
                            for index, why in part.record_errors
                        ],
                        "errorMessage": part.error_message,
                        "currentLeader": leader_value(part.current_leader),
                    }
                    for part in topic.partitions
                ],
            }
            for topic in answered
        ],
        "throttleTimeMs": 0,
        "nodeEndpoints": endpoint_values(endpoints),
    }


def fetched_value(
    version: int, answered: list[Any], error_code: int, endpoints: Sequence[Endpoint]
) -> dict[str, Any]:
    return {
        "throttleTimeMs": 0,
        "errorCode": error_code,
        "sessionId": 0,
        "responses": [
            {
                "topic": topic.name,
                "topicId": uuid.UUID(bytes=topic.topic_id),
                "partitions": [fetched_partition(version, part) for part in topic.partitions],
            }
            for topic in answered
        ],
        "nodeEndpoints": endpoint_values(endpoints),
    }


def fetched_partition(version: int, part: FetchedPartition) -> dict[str, Any]:
    epoch, end_offset = part.diverging or (-1, -1)
    aborted = (
        None
        if part.aborted is None
        else [
            {"producerId": entry.producer_id, "firstOffset": entry.first_offset}
            for entry in part.aborted
        ]
    )
    return {
        **more_tags(version, FETCH.flexible_version, part),
        "partitionIndex": part.partition,
        "errorCode": part.error_code,
        "highWatermark": part.high_watermark,
        "lastStableOffset": part.last_stable_offset,
        "logStartOffset": part.log_start_offset,
        "divergingEpoch": {"epoch": epoch, "endOffset": end_offset},
        "currentLeader": leader_value(part.current_leader),
        "abortedTransactions": aborted,
        "preferredReadReplica": part.preferred_replica if version >= 11 else -1,
        "records": part.records,
    }


def joined(pieces: list[Piece]) -> bytes:
    content = []
    for piece in pieces:
        if isinstance(piece, FileRange):
            content.append(os.pread(piece.file.fileno(), piece.size_bytes, piece.position))
        else:
            content.append(bytes(piece))
    return b"".join(content)


@pytest.mark.parametrize("version", PRODUCED)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_produce_answer_is_what_the_schema_writes(version: int, data: st.DataObject) -> None:
    answered = data.draw(topics(version, PRODUCED_PARTITIONS))
    endpoints = data.draw(ENDPOINTS)
    request = request_of(PRODUCE, version)
    expected = frames.answer(request, produced_value(version, answered, endpoints))
    assert produce_answer(request, answered, endpoints) == expected


@pytest.mark.parametrize("version", FETCHED)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_fetch_answer_is_what_the_schema_writes(version: int, data: st.DataObject) -> None:
    answered = data.draw(topics(version, FETCHED_PARTITIONS))
    endpoints = data.draw(ENDPOINTS)
    error_code = data.draw(INT16)
    request = request_of(FETCH, version)
    value = fetched_value(version, answered, error_code, endpoints)
    pieces = fetch_answer(request, answered, error_code, endpoints)
    assert joined(pieces) == frames.answer(request, value)


@pytest.mark.parametrize("count", [1, 126, 127, 200])
@pytest.mark.parametrize("name", ["topic", "n" * 126, "n" * 127, "n" * 249])
@pytest.mark.parametrize("version", PRODUCED)
def test_counts_and_names_of_more_than_one_byte(version: int, name: str, count: int) -> None:
    topic_id = bytes(range(16))
    topic: Topic[Any]
    topic = Topic("", topic_id, []) if version >= 13 else Topic(name, NO_TOPIC_ID, [])
    topic.partitions.extend(ProducedPartition(index, 0, index) for index in range(count))
    request = request_of(PRODUCE, version)
    answered = [topic] * count
    value = produced_value(version, answered, ())
    assert produce_answer(request, answered) == frames.answer(request, value)


def partition_of(records: Any, **fields: Any) -> FetchedPartition:
    known = {"aborted": None, **fields}
    return FetchedPartition(0, 0, 10, 10, 0, records=records, **known)


@pytest.mark.parametrize("version", FETCHED)
def test_records_of_a_file_are_a_piece_of_their_own(version: int, tmp_path: Path) -> None:
    """Head, file, trailer: the trailer is what flexible versions have behind the records."""
    path = tmp_path / "log"
    path.write_bytes(b"before" + b"r" * 1000 + b"behind")
    records = FileRange(Descriptor(str(path), os.O_RDONLY), 6, 1000)
    topic = Topic("" if version >= 13 else "topic", NO_TOPIC_ID, [partition_of(records)])
    request = request_of(FETCH, version)
    pieces = fetch_answer(request, [topic])
    assert pieces[1] is records
    assert pieces[2:] == ([b"\0\0\0"] if version >= 12 else [])
    in_memory = [topic._replace(partitions=[partition_of(b"r" * 1000)])]
    assert joined(pieces) == joined(fetch_answer(request, in_memory))


@pytest.mark.parametrize("version", FETCHED)
def test_an_answer_without_records_is_one_piece(version: int) -> None:
    empty = [partition_of(b""), partition_of(FileRange(NO_FILE, 0, 0)), partition_of(bytearray())]
    topic = Topic("" if version >= 13 else "topic", NO_TOPIC_ID, empty)
    assert len(fetch_answer(request_of(FETCH, version), [topic])) == 1


def test_records_in_memory_are_not_copied() -> None:
    records = bytearray(b"records")
    topic = Topic("", bytes(16), [partition_of(records), partition_of(memoryview(records))])
    pieces = fetch_answer(request_of(FETCH, 17), [topic])
    assert [piece.obj for piece in pieces if isinstance(piece, memoryview)] == [records] * 2


def test_the_sizes_that_kafka_has() -> None:
    """57 bytes for a Produce answer of a topic of six letters; 75 before 1 MB, and 3 behind it."""
    produced = [Topic("abcdef", NO_TOPIC_ID, [ProducedPartition(0, 0, 5)])]
    assert len(produce_answer(request_of(PRODUCE, 12), produced)) == 57
    fetched = [Topic("", bytes(16), [partition_of(FileRange(NO_FILE, 0, 1 << 20))])]
    head, _, trailer = fetch_answer(request_of(FETCH, 17), fetched)
    assert isinstance(head, bytes)
    assert isinstance(trailer, bytes)
    assert (len(head), len(trailer)) == (75, 3)
