"""A LogActor's answers to the requests of raylog's own clients."""

from typing import Any

import numpy as np
import pytest

from raylog.actors.errors import FencedLeaderEpoch, UnknownTopicId
from raylog.actors.messages import FetchResult
from raylog.actors.partition.log_actor import LogActorImpl
from raylog.actors.requests import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    FetchRequest,
    OffsetAnswer,
    OffsetRequest,
    ProduceAnswer,
    ProduceRequest,
)
from raylog.storage.errors import OffsetOutOfRange
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.decode import decode_records
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import PARTITION, TOPIC_ID, Disk, batch, of_producer
from raylog.storage.validation import COORDINATOR
from tests.harness.log_alone import FakeLogActor, FakeProcess

HERE = FakeProcess.node_id
PRODUCE = ProduceRequest(PARTITION.topic, TOPIC_ID, PARTITION.partition, 0, batch(2))
FOREVER_MS = 10**9
FETCH = FetchRequest(PARTITION.topic, TOPIC_ID, PARTITION.partition, 0, 0, 1 << 20)
OFFSET = OffsetRequest(PARTITION.topic, TOPIC_ID, PARTITION.partition, 0, -1)


@pytest.fixture
def actor(disk: Disk) -> LogActorImpl:
    return FakeLogActor(disk).run().impl


def offsets(result: Any) -> list[int]:
    assert isinstance(result, FetchResult)
    return [record.offset for record in decode_records(result.records)]  # type: ignore[arg-type]


def test_a_batch_inside_of_a_request_and_one_beside_it_are_appended(actor: LogActorImpl) -> None:
    first = actor.produce(PRODUCE.encode(with_records=True))
    second = actor.produce(
        PRODUCE.encode(with_records=False),
        np.frombuffer(batch(3), np.uint8),  # type: ignore[arg-type]
    )
    assert ProduceAnswer.decode(first) == ProduceAnswer(0, -1, 0, 0, False)
    assert ProduceAnswer.decode(second) == ProduceAnswer(2, -1, 0, 0, False)
    assert offsets(actor.fetch_batches(FETCH.encode("another node"))) == [0, 1, 2, 3, 4]


def test_nothing_is_written_to_a_topic_that_was_made_again(actor: LogActorImpl) -> None:
    with pytest.raises(UnknownTopicId):
        actor.produce(PRODUCE._replace(topic_id="before").encode(with_records=True))
    actor._partition.leader_epoch = 1
    with pytest.raises(FencedLeaderEpoch):
        actor.produce(PRODUCE.encode(with_records=True))
    assert actor._partition.offsets().log_end_offset == 0


def test_nothing_is_read_from_a_topic_that_was_made_again(actor: LogActorImpl) -> None:
    with pytest.raises(UnknownTopicId):
        actor.fetch_batches(FETCH._replace(topic_id="before").encode(""))
    with pytest.raises(UnknownTopicId):
        actor.poll_batches(FETCH._replace(topic_id="before").encode(""))
    with pytest.raises(UnknownTopicId):
        actor.list_offset(OFFSET._replace(topic_id="before").encode())


def test_a_reader_of_this_node_is_told_where_the_batches_lie(actor: LogActorImpl) -> None:
    actor.produce(PRODUCE.encode(with_records=True))
    answer = actor.fetch_batches(FETCH.encode(HERE))
    assert isinstance(answer, bytes)
    result = FetchResult.decode(answer)
    assert result.location is not None
    assert result.location.path.endswith("00000000000000000000.log")
    assert (result.high_watermark, result.last_stable_offset, result.aborted) == (2, 2, None)


def test_a_reader_of_a_log_that_lost_its_end_is_told_where(actor: LogActorImpl) -> None:
    actor.produce(PRODUCE.encode(with_records=True))  # two records
    fetch = FETCH._replace(offset=3, last_fetched_epoch=0)
    for node in (HERE, "another node"):
        for ask in (actor.fetch_batches, actor.poll_batches):
            answer = ask(fetch._replace(max_wait_ms=FOREVER_MS).encode(node))  # at once
            assert isinstance(answer, bytes)
            result = FetchResult.decode(answer)
            assert (result.location, result.diverging) == (None, (0, 2))
            assert (result.high_watermark, result.leader_epoch) == (2, 0)
    located = actor.fetch_batches(fetch._replace(offset=2).encode(HERE))
    assert isinstance(located, bytes)
    assert FetchResult.decode(located).diverging is None


def test_the_end_of_the_log_is_an_answer_without_batches(actor: LogActorImpl) -> None:
    for node in (HERE, "another node"):
        answer = actor.fetch_batches(FETCH.encode(node))
        assert isinstance(answer, bytes)
        assert FetchResult.decode(answer) == FetchResult(None, None, 0, 0, -1, 0, leader_epoch=0)
    with pytest.raises(OffsetOutOfRange):
        actor.fetch_batches(FETCH._replace(offset=1).encode(HERE))


def test_who_reads_what_is_committed_stops_at_the_open_and_hears_what_was_aborted(
    actor: LogActorImpl,
) -> None:
    log = actor._partition.log
    abort = encode_marker(Marker(True, 0, T0), producer_id=7, producer_epoch=0)
    with log.locks.end:
        log.append(of_producer(0, producer=7, transactional=True))  # offset 0
        log.append(abort, origin=COORDINATOR)  # 1
        log.append(of_producer(0, producer=8, transactional=True))  # 2, which is open
        log.append(batch())  # 3

    def read(isolation: int) -> FetchResult:
        request = FETCH._replace(isolation=isolation)
        answer = actor.fetch_batches(request.encode("another"))
        assert isinstance(answer, FetchResult)
        return answer

    plain, stable = read(READ_UNCOMMITTED), read(READ_COMMITTED)
    assert (offsets(plain), plain.aborted, plain.last_stable_offset) == ([0, 2, 3], None, 2)
    assert (offsets(stable), stable.aborted, stable.last_stable_offset) == ([0], ((7, 0),), 2)
    end = actor.list_offset(OFFSET._replace(isolation=READ_COMMITTED).encode())
    assert OffsetAnswer.decode(end).offset == 2


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (-1, OffsetAnswer(2, -1, 0)),
        (-2, OffsetAnswer(0, -1, 0)),
        (T0, OffsetAnswer(0, T0, 0)),
        (T0 + 1_000_000, OffsetAnswer(-1, -1, -1)),
    ],
)
def test_an_offset_is_found_by_time_with_its_leader_epoch(
    actor: LogActorImpl, timestamp: int, answer: OffsetAnswer
) -> None:
    actor.produce(PRODUCE.encode(with_records=True))
    found = actor.list_offset(OFFSET._replace(timestamp=timestamp).encode())
    assert OffsetAnswer.decode(found) == answer
