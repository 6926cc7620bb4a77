"""Requests to Produce that are answered together: each has its own fate, and all one fsync."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.partition.partition import Partition
from raylog.actors.plane.apis.records import PRODUCE
from raylog.actors.plane.connection import LastAnswer
from raylog.actors.plane.errors import MalformedRequest, NotAcknowledged, UnsupportedRequest
from raylog.actors.plane.frames import parse
from raylog.actors.plane.producing import produce
from raylog.storage.buffers import Buffer
from raylog.storage.errors import StorageError
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.testing.logs import batch, of_producer
from tests.unit.actors.plane.bodies import header
from tests.unit.actors.plane.clients import TOPIC_ID, hosts, partition

VERSION = PRODUCE.last_version
ANSWER_HEAD_BYTES = 4 + 4 + 1


def frame(records: Buffer | None, *more: Buffer, acks: int = -1) -> bytes:
    """A request with a batch for partition 0, and for 1 and so on."""
    parts = [{"index": n, "records": one} for n, one in enumerate((records, *more))]
    topics = [{"topicId": TOPIC_ID, "partitionData": parts}]
    body = {"transactionalId": None, "acks": acks, "timeoutMs": 1000, "topicData": topics}
    return header(PRODUCE, VERSION) + PRODUCE.request.write(body, VERSION)


def told(answers: Sequence[Any]) -> list[list[tuple[int, int]]]:
    """Of each answer, the error code and the offset of each partition."""
    fates = []
    for one in answers:
        body = PRODUCE.answer.read(ByteReader(memoryview(one), ANSWER_HEAD_BYTES), VERSION)
        (topic,) = body["responses"]
        parts = topic["partitionResponses"]
        fates.append([(part["errorCode"], part["baseOffset"]) for part in parts])
    return fates


class Flushes:
    """Counts the fsyncs of a partition; ``problem``: what each of them raises."""

    def __init__(self, patch: pytest.MonkeyPatch, of: Partition) -> None:
        self.up_to: list[int | None] = []
        self.problem: StorageError | None = None
        self._flush: Callable[..., None] = of.flush
        patch.setattr(of, "flush", self._note)

    def _note(self, up_to: int | None = None) -> None:
        self.up_to.append(up_to)
        if self.problem is not None:
            raise self.problem
        self._flush(up_to)


def test_one_fsync_is_for_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = partition(tmp_path, flush_messages=1), partition(tmp_path, 1, flush_messages=1)
    flushes, others = Flushes(monkeypatch, one), Flushes(monkeypatch, other)
    frames = [frame(batch(2)), frame(batch(), batch(3)), frame(batch())]
    answers = produce(map(parse, frames), hosts(one, other))
    assert told(answers) == [[(0, 0)], [(0, 2), (0, 0)], [(0, 3)]]
    assert (flushes.up_to, others.up_to) == ([4], [3])
    assert one.offsets().high_watermark == one.offsets().recovery_point == 4


def test_each_has_its_own_fate(tmp_path: Path) -> None:
    log = partition(tmp_path, max_message_bytes=1000, flush_messages=1)
    frames = [
        frame(of_producer(0)),
        frame(batch(value=b"x" * 2000)),
        frame(of_producer(1)),
        frame(of_producer(1)),  # again
        frame(of_producer(9)),
        frame(None),
    ]
    answers = produce(map(parse, frames), hosts(log))
    assert told(answers) == [[(0, 0)], [(10, -1)], [(0, 1)], [(0, 1)], [(45, -1)], [(87, -1)]]
    assert [len(log.meters.appends), len(log.meters.failed_appends)] == [3, 2]


def test_a_disk_that_fails_is_told_to_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = partition(tmp_path, flush_messages=1)
    flushes = Flushes(monkeypatch, log)
    flushes.problem = StorageError("the disk", "EIO")
    answers = produce(map(parse, [frame(batch()), frame(batch())]), hosts(log))
    assert told(answers) == [[(56, -1)], [(56, -1)]]
    assert list(log.meters.failed_appends) == ["KAFKA_STORAGE_ERROR"] * 2


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (frame(batch())[:-9], MalformedRequest),
        (b"\0\0\0\x63" + bytes(20), UnsupportedRequest),
    ],
)
def test_those_before_one_that_cannot_be_read_are_answered(
    tmp_path: Path, wrong: bytes, error: type[Exception]
) -> None:
    log = partition(tmp_path)
    with pytest.raises(LastAnswer) as last:
        produce(map(parse, [frame(batch()), wrong, frame(batch())]), hosts(log))
    assert told(last.value.pieces) == [[(0, 0)]]
    assert isinstance(last.value.error, error)
    assert log.offsets().log_end_offset == 1


def test_one_that_asks_for_no_answer_gets_none(tmp_path: Path) -> None:
    log = partition(tmp_path)
    frames = [frame(batch()), frame(batch(), acks=0), frame(batch())]
    assert told(produce(map(parse, frames), hosts(log))) == [[(0, 0)], [(0, 2)]]


def test_one_that_asks_for_no_answer_and_fails_ends_the_connection(tmp_path: Path) -> None:
    log = partition(tmp_path, max_message_bytes=1000)
    frames = [frame(batch()), frame(batch(value=b"x" * 2000), acks=0), frame(batch())]
    with pytest.raises(LastAnswer) as last:
        produce(map(parse, frames), hosts(log))
    assert told(last.value.pieces) == [[(0, 0)]]
    assert isinstance(last.value.error, NotAcknowledged)
