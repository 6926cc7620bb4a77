"""How requests travel, and which of them a partition refuses."""

from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.errors import (
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnsupportedVersion,
)
from raylog.actors.messages import FetchResult
from raylog.actors.requests import (
    PRODUCE_VERSION,
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
    ProduceAnswer,
    ProduceRequest,
    Serves,
    check_head,
    decode_fetch,
    decode_offset,
    records_in,
)
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.readable import Slice
from raylog.storage.state.epochs import EpochEnd
from raylog.storage.state.properties import random_id

TOPIC_ID = random_id()
SERVES = Serves(TopicPartition("orders", 3), TOPIC_ID, leader_epoch=7)
PRODUCE = ProduceRequest("orders", TOPIC_ID, 3, 7, b"batch")
FETCH = FetchRequest("orders", TOPIC_ID, 3, 7, 1 << 40, 1 << 20, 2, 500, 1, 6)
OFFSET = OffsetRequest("orders", TOPIC_ID, 3, -1, -2, 1)


def test_a_fetch_is_decoded_as_it_was() -> None:
    assert decode_fetch(FETCH.encode("node"), SERVES) == (FETCH, "node")
    assert decode_fetch(FETCH.encode(""), SERVES) == (FETCH, "")


def test_a_request_for_an_offset_is_decoded_as_it_was() -> None:
    assert decode_offset(OFFSET.encode(), SERVES) == OFFSET


def test_a_batch_travels_inside_of_the_request_or_beside_it() -> None:
    assert bytes(records_in(PRODUCE.encode(with_records=True))) == b"batch"
    assert bytes(records_in(PRODUCE.encode(with_records=False))) == b""


@pytest.mark.parametrize("records", [b"batch", bytearray(b"batch"), memoryview(b"batch")])
def test_a_batch_may_be_any_buffer(records: bytes) -> None:
    request = PRODUCE._replace(records=records).encode(with_records=True)
    assert bytes(records_in(request)) == b"batch"


@pytest.mark.parametrize(
    "answer", [ProduceAnswer(1 << 40, -1, 5, 9, True), ProduceAnswer(0, 1, 0, 0, False)]
)
def test_an_answer_to_a_produce_is_decoded_as_it_was(answer: ProduceAnswer) -> None:
    assert ProduceAnswer.decode(answer.encode()) == answer


def test_an_offset_is_decoded_as_it_was() -> None:
    answer = OffsetAnswer(1 << 40, -1, 3)
    assert OffsetAnswer.decode(answer.encode()) == answer


@pytest.mark.parametrize("aborted", [None, (), ((7, 100), (8, 1 << 40))])
@pytest.mark.parametrize("location", [None, Slice("/disk/ä.log", 9, 8, 7)])
def test_an_answer_to_a_fetch_is_decoded_as_it_was(
    aborted: tuple[tuple[int, int], ...] | None, location: Slice | None
) -> None:
    result = FetchResult(None, location, 9, 2, 7, 8, aborted, 4)
    assert FetchResult.decode(result.encode()) == result


def test_where_a_log_parts_from_its_reader_is_decoded_as_it_was() -> None:
    result = FetchResult(None, None, 9, 2, -1, 8, leader_epoch=7, diverging=EpochEnd(3, 1 << 40))
    assert FetchResult.decode(result.encode()) == result


@pytest.mark.parametrize(("request_", "decode"), [(FETCH, decode_fetch), (OFFSET, decode_offset)])
@pytest.mark.parametrize("step", [-1, 1])
def test_each_kind_of_request_has_one_version(request_: Any, decode: Any, step: int) -> None:
    other = request_._replace(version=(request_.version + step) % 256)
    content = other.encode("") if request_ is FETCH else other.encode()
    with pytest.raises(UnsupportedVersion) as raised:
        decode(content, SERVES)
    assert raised.value.newest == request_.version


Change = Callable[[ProduceRequest], ProduceRequest]


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (
            lambda request: request._replace(topic_id="of-a-topic-before-it"),
            UnknownTopicId("orders-3", "of-a-topic-before-it", TOPIC_ID),
        ),
        (
            lambda request: request._replace(topic_id=""),
            UnknownTopicId("orders-3", "", TOPIC_ID),
        ),
        (
            lambda request: request._replace(leader_epoch=6),
            FencedLeaderEpoch("orders-3", 6, 7),
        ),
        (
            lambda request: request._replace(leader_epoch=8),
            UnknownLeaderEpoch("orders-3", 8, 7),
        ),
        (
            lambda request: request._replace(version=1),
            UnsupportedVersion("orders-3", 1, 0),
        ),
    ],
)
def test_a_request_for_another_log_is_refused_by_name(change: Change, refusal: RaylogError) -> None:
    with pytest.raises(type(refusal)) as raised:
        check_head(change(PRODUCE).encode(with_records=True), SERVES, PRODUCE_VERSION)
    assert raised.value.args == refusal.args


@pytest.mark.parametrize("leader_epoch", [7, -1])
def test_the_epoch_that_serves_or_none_at_all_is_taken(leader_epoch: int) -> None:
    request = PRODUCE._replace(leader_epoch=leader_epoch).encode(with_records=True)
    check_head(request, SERVES, PRODUCE_VERSION)
