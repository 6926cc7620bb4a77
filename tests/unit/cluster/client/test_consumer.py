"""What a consumer promises: no record skipped, none twice, a position that can be trusted.

The partitions are real ones on disks in memory; the connection is a fake, and time passes only
while the consumer waits.
"""

import logging
import pickle
import re
import struct
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from raylog.actors.errors import (
    ConsumerBusy,
    ConsumerClosed,
    ConsumerWokenUp,
    ForkedProcess,
    InvalidRequest,
    NoOffsetForPartition,
    NothingAssigned,
    NotLeader,
    RangeUndecided,
    RequestTimedOut,
    TooManyPolls,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from raylog.actors.runtime import clusters
from raylog.cluster.client.added_partitions import partitions_added
from raylog.cluster.client.connection import READ_COMMITTED
from raylog.cluster.client.consumer import consumer as consumer_module
from raylog.cluster.client.consumer.ranges import UNDECIDED_WAIT_S, read_range
from raylog.storage.errors import (
    CorruptRecord,
    DamagedBatch,
    InvalidConfig,
    LogMissing,
    OffsetOutOfRange,
    RaylogError,
    SegmentDeleted,
    StorageError,
)
from raylog.storage.records.batch import stamp
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.encode import encode_records
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.records.record import ConsumerRecord
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import batch, flip, of_producer
from tests.harness.consuming import FakeConnection, ManualWaiter

PATIENCE_S = 30


@pytest.fixture
def connection() -> FakeConnection:
    return FakeConnection(t=2)


def offsets(records: list[ConsumerRecord]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


def append(connection: FakeConnection, number: int, count: int, **fields: Any) -> None:
    connection.topics["t"][number].partition.append(batch(count, **fields))


def drain(consumer: Any) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while polled := consumer.poll(1000):
        found += polled
    return found


# -- the position ----------------------------------------------------------------------------------


def test_the_position_is_behind_the_record_that_was_yielded_last(
    connection: FakeConnection,
) -> None:
    append(connection, 0, 100)
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    assert consumer.position("t", 0) == 0
    for record in consumer:
        assert consumer.position("t", 0) == record.offset + 1
        if record.offset == 10:
            break
    again = connection.consumer(from_=None)
    again.assign([("t", 0)], from_={("t", 0): consumer.position("t", 0)})
    assert again.poll_one().offset == 11  # type: ignore[union-attr]
    assert [record.offset for record in consumer.poll(max_records=2)] == [11, 12]
    assert next(iter(consumer)).offset == 13
    assert consumer.poll_arrow().column("offset").to_pylist() == list(range(14, 100))


def test_an_iteration_that_is_left_goes_on_where_it_was(connection: FakeConnection) -> None:
    for number in (0, 1):
        append(connection, number, 700)
    consumer = connection.consumer("t", from_="earliest", to="latest")
    found = []
    while not consumer.is_at_end:
        for record in consumer:
            found.append((record.partition, record.offset))
            if len(found) % 7 == 0:
                break
    assert sorted(found) == [(p, n) for p in (0, 1) for n in range(700)]
    assert list(consumer) == []


def test_a_seek_within_an_iteration_drops_what_is_buffered(connection: FakeConnection) -> None:
    append(connection, 0, 20)
    append(connection, 1, 5)
    consumer = connection.consumer("t", from_="earliest", to="latest")
    found = []
    for record in consumer:
        found.append((record.partition, record.offset))
        if found == [(0, n) for n in range(4)]:
            consumer.seek("t", 0, 17)
    assert sorted(found) == [(0, n) for n in (0, 1, 2, 3, 17, 18, 19)] + [(1, n) for n in range(5)]


def test_a_seek_drops_the_answer_that_is_on_its_way(connection: FakeConnection) -> None:
    append(connection, 0, 20)
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    assert len(consumer.poll(max_records=3)) == 3
    append(connection, 0, 5)  # the fetch behind the first answer gets these
    consumer.seek("t", 0, 2)
    assert [record.offset for record in drain(consumer)] == list(range(2, 25))


def test_seeks_to_the_ends_and_to_times(connection: FakeConnection) -> None:
    append(connection, 0, 10, step_ms=1000)
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    consumer.seek_to_end(("t", 0))
    assert consumer.position("t", 0) == 10
    consumer.seek_to_beginning()
    assert consumer.position("t", 0) == 0
    consumer.seek_to_time(datetime.fromtimestamp((T0 + 2500) / 1000, UTC))
    assert consumer.poll_one().offset == 3  # type: ignore[union-attr]
    consumer.seek_to_time(T0 + 10**6)
    assert consumer.position("t", 0) == 10
    wrong: Any
    for wrong in (-1, True, 1.5, "0"):
        with pytest.raises(InvalidRequest):
            consumer.seek("t", 0, wrong)
    with pytest.raises(UnknownTopicOrPartition, match="not assigned"):
        consumer.seek("t", 9, 0)


def test_questions_about_offsets(connection: FakeConnection) -> None:
    append(connection, 0, 10, step_ms=1000)
    consumer = connection.consumer()
    both = [("t", 0), ("t", 1)]
    assert list(consumer.beginning_offsets(both).values()) == [0, 0]
    assert list(consumer.end_offsets(both).values()) == [10, 0]
    times: Any = {("t", 0): T0 + 1, ("t", 1): datetime(2020, 1, 1)}
    assert list(consumer.offsets_for_times(times).values()) == [1, None]
    with pytest.raises(UnknownTopicOrPartition):
        consumer.end_offsets([("none", 0)])
    connection.topics["t"][0].fault = NotLeader("t-0", "restarting")
    with pytest.raises(RequestTimedOut):
        consumer.end_offsets(both)


def test_lag_and_where_a_partition_stands(connection: FakeConnection) -> None:
    append(connection, 0, 10)
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    assert len(consumer.poll(max_records=4)) == 4
    assert consumer.lag("t", 0) == 6
    iter_ = iter(consumer)
    next(iter_)
    assert consumer.lag("t", 0) == 5


# -- budgets ---------------------------------------------------------------------------------------


def compressed(connection: FakeConnection, batches: int, mb: int) -> None:
    for _ in range(batches):
        rows = [(T0, None, bytes(1 << 20), ())] * mb
        connection.topics["t"][0].partition.append(encode_records(rows, compression_type="zstd"))


@pytest.mark.parametrize("read", ["poll", "poll_arrow", "iterate", "read_table"])
def test_what_is_much_larger_when_it_is_decompressed_is_read_in_parts(
    connection: FakeConnection, read: str
) -> None:
    """20 KB that hold 1.2 GB: over the gigabyte that one decoding may hold."""
    compressed(connection, 40, 30)
    consumer = connection.consumer("t", from_="earliest", to="latest", partitions=[0])
    if read == "iterate":
        assert sum(1 for _ in consumer) == 1200
        return
    if read == "read_table":
        assert consumer.read_table("t", from_={("t", 0): 1100}, partitions=[0]).num_rows == 100
        return
    count = 0
    while not consumer.is_at_end:
        taken = getattr(consumer, read)()
        count += len(taken)
        assert len(taken) <= 33, "32 MiB, or a record more"
    assert count == 1200


def test_a_poll_is_bounded_by_records_and_by_bytes(connection: FakeConnection) -> None:
    append(connection, 0, 2000, value=b"x" * 90)
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    assert len(consumer.poll()) == 500, "Kafka's max.poll.records"
    assert len(consumer.poll(max_records=3)) == 3
    small = connection.consumer("t", from_="earliest", partitions=[0], max_poll_bytes=1000)
    assert 9 <= len(small.poll()) <= 11
    assert 9 <= small.poll_arrow(max_bytes=1000).num_rows <= 11
    assert small.poll_arrow(max_bytes=1).num_rows == 1
    for wrong in ({"max_records": 0}, {"max_records": -1}):
        with pytest.raises(InvalidRequest):
            small.poll(**wrong)


def test_what_is_fetched_ahead_is_bounded_for_all_partitions_together() -> None:
    connection = FakeConnection(t=40)
    for served in connection.topics["t"]:
        for _ in range(8):
            served.partition.append(batch(1, value=bytes(50_000)))
    consumer = connection.consumer(
        "t", from_="earliest", **{"queued.max.messages.kbytes": 40 * 2 * 100}
    )
    consumer.poll(max_records=1)
    assert {request.max_bytes for request in connection.fetches} == {100 << 10}
    asked = [request.partition for request in connection.fetches]
    assert all(asked.count(number) <= 3 for number in range(40))


def test_both_types_of_timestamps_in_one_fetch(connection: FakeConnection) -> None:
    log = connection.topics["t"][0]
    log.partition.append(batch(4))
    content = bytes(
        encode_records([(T0, None, b"a", ())])
        + encode_records([(T0, None, b"b", ())], base_offset=1, log_append_time=T0 + 5)
        + encode_legacy([(T0, None, b"c")], magic=0, base_offset=2)
        + encode_legacy([(T0, None, b"d")], magic=1, base_offset=3, log_append_time=T0 + 6)
    )
    log.damage = lambda _: content
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    records = consumer.poll()
    assert [(r.value, r.timestamp_type, r.timestamp) for r in records] == [
        (b"a", 0, T0),
        (b"b", 1, T0 + 5),
        (b"c", -1, -1),
        (b"d", 1, T0 + 6),
    ]
    consumer.seek_to_beginning()
    table = consumer.poll_arrow()
    assert table.column("timestampType").to_pylist() == [0, 1, -1, 1]


def test_a_record_is_a_tuple_of_eight(connection: FakeConnection) -> None:
    rows = [(T0, b"k", None, [("h", b"x"), ("h", None)])]
    connection.topics["t"][0].partition.append(encode_records(rows))
    record = connection.consumer("t", from_="earliest").poll_one()
    assert record == ("t", 0, 0, T0, 0, b"k", None, (("h", b"x"), ("h", None)))
    assert type(record) is ConsumerRecord
    assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(AttributeError):
        record.value = b"other"  # type: ignore[misc, union-attr]


def append_transactions(connection: FakeConnection) -> None:
    """To t-0: offset 0 is aborted, 1 the marker; 2 and 3 are committed, 4 the marker; 5 is open."""
    log = connection.topics["t"][0].partition.log
    with log.locks.end:
        log.append(of_producer(0, transactional=True))
        log.append(marker(is_abort=True), origin="coordinator")
        log.append(of_producer(1, 2, transactional=True))
        log.append(marker(is_abort=False), origin="coordinator")
        log.append(of_producer(0, producer=8, transactional=True))


def marker(is_abort: bool, producer: int = 7) -> bytearray:
    return encode_marker(Marker(is_abort, 0, T0), producer_id=producer, producer_epoch=0)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_reader_of_committed_gets_nothing_of_aborted_transactions(
    connection: FakeConnection, isolation: str
) -> None:
    append_transactions(connection)
    consumer = connection.consumer(
        "t", from_="earliest", partitions=[0], **{"isolation.level": isolation}
    )
    found = [record.offset for record in drain(consumer)]
    assert found == ([2, 3] if isolation == "read_committed" else [0, 2, 3, 5])


def test_the_lag_of_a_reader_of_committed_ends_where_a_transaction_is_open(
    connection: FakeConnection,
) -> None:
    append_transactions(connection)
    config = {"isolation.level": "read_committed"}
    consumer = connection.consumer("t", from_="earliest", partitions=[0], **config)
    assert [record.offset for record in consumer.poll(max_records=1)] == [2]
    assert consumer.lag("t", 0) == 2, "3 and the marker; 5 may be aborted yet"
    drain(consumer)
    assert consumer.lag("t", 0) == 0


# -- fetching ahead --------------------------------------------------------------------------------


def test_every_partition_has_its_next_fetch_on_its_way_while_the_caller_works() -> None:
    connection = FakeConnection(t=4)
    for served in connection.topics["t"]:
        served.partition.append(batch(10))
    consumer = connection.consumer("t", from_="earliest")
    consumer.poll(max_records=1)
    assert sorted(r.partition for r in connection.fetches if r.offset == 0) == [0, 1, 2, 3]
    consumer.poll(max_records=1)
    assert sorted(r.partition for r in connection.fetches if r.offset == 10) == [0, 1, 2, 3]
    assert connection.waiting == 4, "all of them behind what came"


def test_the_fetches_say_what_the_settings_say(connection: FakeConnection) -> None:
    connection.consumer(
        "t",
        from_="earliest",
        **{"fetch.min.bytes": 7, "fetch.max.wait.ms": 9, "isolation.level": "read_committed"},
    ).poll(10)
    asked = connection.fetches[0]
    assert (asked.min_bytes, asked.max_wait_ms, asked.isolation) == (7, 9, 1)
    assert asked.topic_id == connection.ids["t"]


# -- auto.offset.reset -----------------------------------------------------------------------------


def overtake(connection: FakeConnection) -> None:
    """Retention takes what a consumer of partition 0 has not read."""
    connection.create("t", 2, segment_bytes=200, retention_bytes=1, file_delete_delay_ms=0)
    for _ in range(4):
        append(connection, 0, 2, value=b"x" * 50)
    append(connection, 1, 3)


def retain(connection: FakeConnection) -> None:
    assert connection.topics["t"][0].partition.delete_old_segments().segments


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"from_": "earliest"}, [6, 7]),
        ({"from_": T0}, [6, 7]),
        ({"from_": "earliest", "auto.offset.reset": "latest"}, []),
        ({"auto_offset_reset": "earliest"}, [6, 7]),
    ],
)
def test_a_position_that_retention_took_is_reset(
    connection: FakeConnection,
    settings: dict[str, Any],
    expected: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    overtake(connection)
    consumer = connection.consumer("t", **settings)
    retain(connection)
    for number in (0, 1):
        consumer.seek("t", number, 0)
    with caplog.at_level(logging.WARNING):
        found = drain(consumer)
    assert [r.offset for r in found if r.partition == 1] == [0, 1, 2]
    assert [r.offset for r in found if r.partition == 0] == expected
    assert "t-0: offset 0 is not there" in caplog.text
    assert consumer.position("t", 0) == 8


def test_without_a_reset_it_is_raised_while_the_others_go_on(connection: FakeConnection) -> None:
    overtake(connection)
    retain(connection)
    starts = {("t", 0): 0, ("t", 1): 0}
    consumer = connection.consumer("t", from_=starts, auto_offset_reset="none")
    told: list[tuple[int, int]] = []
    for _ in range(6):
        try:
            told += offsets(consumer.poll(100, 1))
        except OffsetOutOfRange as error:
            told.append((0, -error.log_start_offset))
    assert [each for each in told if each[0] == 1] == [(1, 0), (1, 1), (1, 2)]
    assert told.count((0, -6)) >= 2
    consumer.seek("t", 0, 6)
    assert offsets(consumer.poll(100)) == [(0, 6), (0, 7)]


def test_where_a_consumer_begins_that_is_not_told(connection: FakeConnection) -> None:
    append(connection, 0, 3)
    default = connection.consumer("t")
    assert default.position("t", 0) == 3, "latest, as Kafka's consumer"
    assert connection.consumer("t", auto_offset_reset="earliest").position("t", 0) == 0
    consumer = connection.consumer("t", auto_offset_reset="none")
    for _ in range(2):
        with pytest.raises(NoOffsetForPartition):
            consumer.poll(10)
    for number in (0, 1):
        consumer.seek("t", number, 0)
    assert len(consumer.poll()) == 3


def test_a_topic_that_was_made_again_is_read_anew(connection: FakeConnection) -> None:
    append(connection, 0, 5)
    consumer = connection.consumer("t", from_="earliest")
    assert len(consumer.poll()) == 5
    connection.create("t", 2)
    append(connection, 0, 2)
    assert offsets(drain(consumer)) == [(0, 0), (0, 1)]
    strict = connection.consumer("t", from_="earliest", auto_offset_reset="none")
    connection.create("t", 2)
    with pytest.raises(UnknownTopicId):
        drain(strict)


def test_a_topic_that_was_made_again_with_fewer_partitions(connection: FakeConnection) -> None:
    consumer = connection.consumer("t", from_="earliest")
    connection.create("t", 1)
    append(connection, 0, 2)
    assert offsets(drain(consumer)) == [(0, 0), (0, 1)]
    assert consumer.assignment == [("t", 0)]


def test_nothing_is_reset_before_what_was_fetched_is_handed_out(
    connection: FakeConnection,
) -> None:
    overtake(connection)
    consumer = connection.consumer(
        "t", from_="earliest", partitions=[0], max_partition_fetch_bytes=1
    )
    assert [r.offset for r in consumer.poll(max_records=1)] == [0]
    connection.topics["t"][0].partition.delete_old_segments()
    assert [r.offset for r in drain(consumer)] == [1, 2, 3, 6, 7]


# -- what is away, or damaged ----------------------------------------------------------------------


@pytest.mark.parametrize("poll", ["poll", "poll_arrow"])
def test_damage_is_raised_and_loses_no_record(connection: FakeConnection, poll: str) -> None:
    for number in (0, 1):
        append(connection, number, 3)
    connection.topics["t"][1].damage = flip(30)
    consumer = connection.consumer("t", from_="earliest")
    assert len(getattr(consumer, poll)(100)) == 3
    for _ in range(2):
        with pytest.raises(DamagedBatch, match=r"^t-1: the record at offset 0, or one behind it"):
            getattr(consumer, poll)(100)
    assert [consumer.position("t", n) for n in (0, 1)] == [3, 0]
    connection.topics["t"][1].damage = bytes
    consumer.seek("t", 1, 0)
    assert len(getattr(consumer, poll)(100)) == 3


@pytest.mark.parametrize("poll", ["poll", "poll_arrow"])
@pytest.mark.parametrize(
    "length", [0, 5, 60, 70, 2**31 - 1, -1], ids=lambda length: f"a length of {length}"
)
def test_what_is_before_a_damaged_length_is_handed_out(
    connection: FakeConnection, length: int, poll: str
) -> None:
    for _ in range(4):
        append(connection, 0, 3)
    served = connection.topics["t"][0]
    size = len(batch(3))

    def damaged(content: bytes) -> bytes:
        """The log as it is read, whose third batch has another length."""
        changed = bytearray(content)
        position = 2 * size - (4 * size - len(content))  # a fetch may begin behind the first
        struct.pack_into(">i", changed, position + 8, length)
        return bytes(changed)

    served.damage = damaged
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    assert len(getattr(consumer, poll)(100)) == 6
    for _ in range(2):
        with pytest.raises(DamagedBatch, match=r"^t-0: the record at offset 6, or one behind it"):
            getattr(consumer, poll)(100)
        assert consumer.position("t", 0) == 6
    served.damage = bytes
    consumer.seek("t", 0, 6)
    assert len(getattr(consumer, poll)(1000)) == 6


def test_offsets_beyond_their_segment_move_no_position(connection: FakeConnection) -> None:
    """No CRC covers a base offset: one that is flipped on the disk would skip records."""
    append(connection, 0, 2)
    served = connection.topics["t"][0]

    def flipped(content: bytes) -> bytes:
        changed = bytearray(content)
        stamp(changed, 1000, 0)
        return bytes(changed)

    served.damage = flipped
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    with pytest.raises(CorruptRecord, match="offsets 1000 to 1001 where 0 to 1 can be"):
        consumer.poll(100)
    assert consumer.position("t", 0) == 0
    served.damage = bytes
    consumer.seek("t", 0, 0)
    assert [record.offset for record in consumer.poll(100)] == [0, 1]


def test_a_batch_whose_offsets_reach_into_the_next_ones_is_not_handed_out(
    connection: FakeConnection,
) -> None:
    """No CRC covers a base offset, and nobody knows which of the two batches is wrong."""
    for _ in range(4):
        append(connection, 0, 3)
    size = len(batch(3))

    def shifted(content: bytes) -> bytes:
        """The second batch begins at offset 4."""
        changed = bytearray(content)
        position = size - (4 * size - len(content))
        stamp(changed, 4, 0, position)
        return bytes(changed)

    connection.topics["t"][0].damage = shifted
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    assert [record.offset for record in consumer.poll(100)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="offsets 6 to 8 where 7"):
            consumer.poll(100)
        assert consumer.position("t", 0) == 3


@pytest.mark.parametrize(
    "error",
    [
        NotLeader("t-1", "restarting"),
        RequestTimedOut("t-1", 1),
        StorageError("/disk/t-1", "failed fsync"),
    ],
)
def test_a_partition_that_stays_away_is_named_in_the_end_and_the_others_go_on(
    connection: FakeConnection, error: RaylogError
) -> None:
    consumer = connection.consumer("t", from_="earliest")
    connection.topics["t"][1].fault = error
    began_s, read = connection.now_s, 0

    def read_on() -> None:
        nonlocal read
        while True:
            append(connection, 0, 1)
            read += offsets(consumer.poll(100)) == [(0, read)]
            connection.pass_time(1)

    with pytest.raises(type(error)):
        read_on()
    assert PATIENCE_S <= connection.now_s - began_s < PATIENCE_S + 4
    assert read >= PATIENCE_S - 4
    assert ("t", 1) in connection.forgotten
    connection.topics["t"][1].fault = None
    append(connection, 1, 1)
    connection.pass_time(2)
    assert (1, 0) in offsets(drain(consumer))


def test_the_patience_begins_again_with_every_answer(connection: FakeConnection) -> None:
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    served = connection.topics["t"][0]
    for number in range(4):
        served.fault = NotLeader("t-0", "restarting")
        assert consumer.poll((PATIENCE_S - 5) * 1000) == []
        served.fault = None
        append(connection, 0, 1)
        assert offsets(consumer.poll(3000)) == [(0, number)]


def test_what_cannot_pass_is_raised_at_once(connection: FakeConnection) -> None:
    consumer = connection.consumer("t", from_="earliest")
    connection.topics["t"][1].fault = LogMissing("/disk/t-1", "gone")
    began_s = connection.now_s
    with pytest.raises(LogMissing):
        drain(consumer)
    assert connection.now_s - began_s < 1


def test_an_error_without_a_name_may_pass_and_is_raised_if_it_lasts(
    connection: FakeConnection,
) -> None:
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    fault: Any = OSError("the object store is full")
    connection.topics["t"][0].fault = fault
    append(connection, 0, 2)
    assert consumer.poll(1000) == []
    with pytest.raises(OSError, match="object store"):
        consumer.poll(60_000)
    connection.topics["t"][0].fault = None
    assert len(consumer.poll(2000)) == 2


def test_a_segment_that_is_deleted_before_it_is_read_is_fetched_again(
    connection: FakeConnection,
) -> None:
    append(connection, 0, 2)
    served = connection.topics["t"][0]
    served.read_fault = SegmentDeleted("/disk/t-0/0.log")
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    began_s = connection.now_s
    assert consumer.poll(50) == []
    served.read_fault = None
    assert len(consumer.poll(2000)) == 2
    assert connection.now_s - began_s < 2
    assert connection.forgotten == [], "the partition is well"


def test_a_partition_with_too_many_waiting_is_asked_without_waiting(
    connection: FakeConnection,
) -> None:
    consumer = connection.consumer("t", from_="earliest", partitions=[0])
    served = connection.topics["t"][0]
    served.fault = TooManyPolls("t-0", 64)
    assert consumer.poll(200) == []
    served.fault = None
    append(connection, 0, 1)
    assert len(consumer.poll(2000)) == 1
    assert 0 in [request.max_wait_ms for request in connection.fetches]
    assert connection.forgotten == [], "the partition is well"


# -- assignments -----------------------------------------------------------------------------------


def test_a_consumer_that_is_closed_says_so(connection: FakeConnection) -> None:
    consumer = connection.consumer("t")
    consumer.close()
    consumer.close()
    calls: list[Callable[[], object]] = [
        consumer.poll,
        consumer.poll_arrow,
        consumer.poll_one,
        consumer.seek_to_end,
        lambda: next(iter(consumer)),
        lambda: consumer.seek("t", 0, 0),
        lambda: consumer.position("t", 0),
        lambda: consumer.assign([("t", 0)]),
        lambda: consumer.subscribe("t"),
    ]
    for call in calls:
        with pytest.raises(ConsumerClosed):
            call()


def test_a_consumer_without_partitions_says_so(connection: FakeConnection) -> None:
    consumer = connection.consumer()
    for call in (consumer.poll, consumer.poll_arrow, lambda: next(iter(consumer))):
        with pytest.raises(NothingAssigned):
            call()
    consumer.subscribe("^no such")
    assert consumer.poll(100) == [], "one may come"
    consumer.unsubscribe()
    with pytest.raises(NothingAssigned):
        consumer.poll()


def test_a_second_thread_gets_a_named_error(connection: FakeConnection) -> None:
    consumer = connection.consumer("t")
    told: list[BaseException] = []

    def intrude() -> None:
        for call in (consumer.poll, consumer.unsubscribe, lambda: consumer.seek("t", 0, 0)):
            try:
                call()
            except BaseException as error:
                told.append(error)

    wait = consumer._waiter.wait

    def wait_once(seconds: float) -> None:
        if not told:
            thread = threading.Thread(target=intrude)
            thread.start()
            thread.join()
        wait(seconds)

    consumer._waiter.wait = wait_once  # type: ignore[method-assign]
    assert consumer.poll(100) == []
    assert [type(error) for error in told] == [ConsumerBusy] * 3
    assert consumer.poll(10) == [], "and it serves on"


def test_a_wait_ends_when_another_thread_closes(connection: FakeConnection) -> None:
    append(connection, 0, 3)
    consumer = connection.consumer("t", from_="earliest")
    assert len(consumer.poll()) == 3
    wait, closing = consumer._waiter.wait, threading.Thread(target=consumer.close)
    wakes = threading.Event()
    consumer._waiter.wake = wakes.set  # type: ignore[method-assign]

    def wait_for_close(seconds: float) -> None:
        if closing.ident is None:
            closing.start()
            assert wakes.wait(PATIENCE_S)
        wait(seconds)

    consumer._waiter.wait = wait_for_close  # type: ignore[method-assign]
    with pytest.raises(ConsumerClosed):
        consumer.poll(3_600_000)
    closing.join(PATIENCE_S)
    assert not closing.is_alive()
    assert consumer.assignment == []
    consumer.close()


def test_a_consumer_that_is_closed_leaves_no_fetch_behind(connection: FakeConnection) -> None:
    consumer = connection.consumer("t", fetch_max_wait_ms=300_000)
    consumer.poll(10)
    assert connection.waiting == 2
    consumer.close()
    assert connection.waiting == 0


def test_none_is_made_where_rays_connection_is_the_parents(
    connection: FakeConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for a topic, it would ask again and again for as long as a request may take."""
    monkeypatch.setattr(clusters, "_is_forked", True)
    with pytest.raises(ForkedProcess):
        connection.consumer("t")


def test_a_child_that_closes_leaves_its_parents_fetches(connection: FakeConnection) -> None:
    consumer = connection.consumer("t")
    consumer.poll(10)
    consumer._access._process = -1
    consumer.close()
    assert connection.waiting == 2


def test_a_child_does_not_wait_for_a_thread_of_its_parent(connection: FakeConnection) -> None:
    consumer = connection.consumer("t")
    consumer._access._process = -1
    holding = threading.Thread(target=consumer._access._lock.acquire)
    holding.start()
    holding.join(PATIENCE_S)
    with pytest.raises(ForkedProcess):
        consumer.close()


def test_a_wait_ends_when_it_is_woken(connection: FakeConnection) -> None:
    consumer = connection.consumer("t")
    consumer.wakeup()
    with pytest.raises(ConsumerWokenUp):
        consumer.poll(10_000)
    assert consumer.poll(10) == []
    append(connection, 0, 1)
    consumer.wakeup()
    with pytest.raises(ConsumerWokenUp):
        consumer.poll(10_000)
    assert len(consumer.poll()) == 1


def test_partitions_come_and_go(connection: FakeConnection) -> None:
    connection.create("u", 1)
    for topic in ("t", "u"):
        connection.topics[topic][0].partition.append(batch(5))
    consumer = connection.consumer()
    consumer.assign([("t", 0)], from_={("t", 0): 2})
    assert [r.offset for r in consumer.poll(max_records=1)] == [2]
    consumer.incremental_assign([("u", 0)], from_="earliest")
    assert sorted((r.topic, r.offset) for r in drain(consumer)) == [
        *(("t", n) for n in (3, 4)),
        *(("u", n) for n in range(5)),
    ]
    consumer.incremental_unassign([("t", 0)])
    assert consumer.assignment == [("u", 0)]
    for wrong in ([("t", 2)], [("none", 0)]):
        with pytest.raises(UnknownTopicOrPartition):
            connection.consumer().assign(wrong)


def test_a_paused_partition_keeps_its_place(connection: FakeConnection) -> None:
    for number in (0, 1):
        append(connection, number, 4)
    consumer = connection.consumer("t", from_="earliest")
    for record in consumer:
        if record[1:3] == (0, 1):
            break
    consumer.pause(("t", 0))
    assert consumer.paused == [("t", 0)]
    assert offsets(drain(consumer)) == [(1, n) for n in range(4)]
    consumer.resume()
    assert offsets(drain(consumer)) == [(0, 2), (0, 3)]


def test_topics_by_a_pattern_also_those_that_come_later(connection: FakeConnection) -> None:
    append(connection, 0, 2)
    consumer = connection.consumer(metadata_max_age_ms=1000)
    consumer.subscribe(re.compile("^[tu]"), from_="latest")
    assert len(consumer.assignment) == 2
    connection.create("u1", 1)[0].partition.append(batch(3))
    connection.create("other", 1)
    assert [(r.topic, r.offset) for r in drain(consumer) or drain(consumer)] == [
        ("u1", n) for n in range(3)
    ]
    with pytest.raises(InvalidRequest, match="regular expression"):
        consumer.subscribe("^(")


def test_a_consumer_is_made_of_a_pattern_or_a_list_as_subscribe(connection: FakeConnection) -> None:
    connection.create("u", 1)
    make: Any = connection.consumer
    assert len(make("^[tu]").assignment) == 3
    assert len(make(["t", "u"]).assignment) == 3
    with pytest.raises(InvalidRequest, match="pattern stands alone"):
        make("^t", "u")
    with pytest.raises(InvalidRequest, match="must be names of topics"):
        make(["t"], ["u"])


@pytest.mark.parametrize("given", [[("t", 0)], "t", ("t",), ("t", "0"), 0])
@pytest.mark.parametrize("call", ["pause", "resume", "seek_to_beginning", "seek_to_end"])
def test_what_is_no_partition_is_refused_in_words(
    connection: FakeConnection, call: str, given: Any
) -> None:
    consumer = connection.consumer("t")
    with pytest.raises(InvalidRequest, match="topic, partition"):
        getattr(consumer, call)(given)


def test_what_are_no_partitions_is_refused_in_words(connection: FakeConnection) -> None:
    consumer: Any = connection.consumer("t")
    for call in (consumer.assign, consumer.beginning_offsets, consumer.end_offsets):
        with pytest.raises(InvalidRequest, match="topic, partition"):
            call(("t", 0))
    with pytest.raises(InvalidRequest, match="topic, partition"):
        consumer.offsets_for_times({0: 5})
    assert consumer.assignment == [("t", 0), ("t", 1)]


def test_a_partition_that_to_leaves_out_ends_at_its_end(connection: FakeConnection) -> None:
    for number in (0, 1):
        append(connection, number, 4)
    consumer = connection.consumer("t", from_="earliest", to={("t", 0): 2})
    assert sorted(offsets(list(consumer))) == [(0, 0), (0, 1), *((1, n) for n in range(4))]
    table = consumer.read_table("t", from_={("t", 0): 1}, to={("t", 0): 2})
    assert table.num_rows == 1 + 4


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_position_behind_the_end_that_is_there_now_is_reset(
    connection: FakeConnection, caplog: Any, isolation: str
) -> None:
    append(connection, 0, 4)
    place = ("t", 0)
    for reset, found in (("earliest", 4), ("latest", 0)):
        consumer = connection.consumer(auto_offset_reset=reset, isolation_level=isolation)
        consumer.assign([place], from_={place: 90}, to={place: "latest"})
        assert len(list(consumer)) == found
        assert consumer.position(*place) == 4
        assert "offset 90 is not there" in caplog.text
        caplog.clear()
    consumer = connection.consumer(auto_offset_reset="none", isolation_level=isolation)
    consumer.assign([place], from_={place: 90}, to={place: "latest"})
    with pytest.raises(OffsetOutOfRange):
        list(consumer)
    consumer.assign([place], from_={place: 4}, to={place: "latest"})
    assert list(consumer) == []
    consumer.assign([place], from_={place: 90}, to={place: 10})
    assert list(consumer) == [], "nothing is asked for"


@pytest.mark.parametrize("is_told", [True, False])
def test_partitions_that_are_added_are_read_from_their_beginning(
    connection: FakeConnection, is_told: bool
) -> None:
    consumer = connection.consumer("t", metadata_max_age_ms=50_000)
    bounded = connection.consumer("t", to="latest")
    chosen = connection.consumer("t", partitions=[0])
    added = type(connection.topics["t"][0])()
    connection.topics["t"].append(added)
    added.partition.append(batch(2))
    if is_told:
        partitions_added("fake", "t", 3)
    assert consumer.poll(0) == []
    if not is_told:
        connection.now_s += 51
    assert offsets(consumer.poll()) == [(2, 0), (2, 1)]
    assert consumer.position("t", 2) == 2
    for other in (bounded, chosen):
        other.poll(1)
        assert len(other.assignment) < 3


def test_a_topic_that_is_not_there(connection: FakeConnection) -> None:
    for make in (
        lambda: connection.consumer("none"),
        lambda: connection.consumer("none", partitions=[0]),
        lambda: connection.consumer("t", partitions=[7]),
    ):
        with pytest.raises(UnknownTopicOrPartition):
            make()


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ({"auto_offset_rest": "latest"}, "did you mean auto.offset.reset"),
        ({"fetch.min.byte": 1}, "did you mean fetch.min.bytes"),
        ({"on_commit": print}, "commit_async returns a future"),
        ({"error_cb": print}, "a call raises its error"),
        ({"stats_cb": print}, "raylog status"),
        ({"api_version": (2, 0)}, "understand each other"),
        ({"group.instance.id": "g"}, "needs a group.id"),
        ({"auto.commit.interval.ms": 5}, "needs a group.id"),
        ({"max.poll.interval.ms": 5}, "needs a group.id"),
        ({"bootstrap.servers": "here:9092"}, "raylog.connect(address)"),
        ({"allow.auto.create.topics": True}, "broker.create_topic"),
        ({"fetch.wait.max.ms": 5}, "it is called fetch.max.wait.ms"),
        ({"security.protocol": "SSL"}, "Ray's own network"),
        ({"max_poll_records": 5, "max.poll.records": 6}, "is given twice, in both spellings"),
        ({"auto.offset.reset": "smallest"}, "earliest, latest, none"),
        ({"max.poll.bytes": 0}, "1 or more"),
        ({"max.poll.records": True}, "1 or more"),
        ({"fetch.max.wait.ms": -1}, "0 or more"),
        ({"isolation.level": "serializable"}, "read_uncommitted, read_committed"),
        ({"bogus": 1}, "there are"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(
    connection: FakeConnection, setting: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(list(setting)[-1])) as at:
        connection.consumer("t", **setting)
    assert why in str(at.value)


@pytest.mark.parametrize("place", ["yesterday", -5, 1.5, True, {("t", 0): "x"}, {"t": 5}, b"t"])
def test_a_place_that_is_none_is_refused(connection: FakeConnection, place: Any) -> None:
    for argument in ("from_", "to"):
        with pytest.raises(InvalidRequest, match=argument):
            connection.consumer("t", **{argument: place})


def test_ranges_by_time_and_by_offset(connection: FakeConnection) -> None:
    append(connection, 0, 10, step_ms=1000)
    consumer = connection.consumer(
        "t", partitions=[0], from_=T0 + 2000, to=datetime.fromtimestamp(T0 / 1000 + 5, UTC)
    )
    assert [r.offset for r in consumer] == [2, 3, 4]
    assert consumer.is_at_end
    assert consumer.poll() == [], "at its end, which is_at_end says"
    table = consumer.read_table(
        "t", from_={("t", 0): 7, ("t", 1): 0}, to={("t", 0): 9, ("t", 1): 0}
    )
    assert table.column("offset").to_pylist() == [7, 8]
    assert connection.consumer().read_table("t", to="earliest").num_rows == 0


def test_a_range_is_exactly_the_range_or_raises(connection: FakeConnection) -> None:
    append(connection, 0, 50, value=b"x" * 90)

    found: list[int] = []

    def read(start: int, end: int) -> list[int]:
        found.clear()
        batches = read_range(
            connection,  # type: ignore[arg-type]
            "t",
            0,
            start,
            end,
            max_bytes=1000,
            _waiter=ManualWaiter(connection),
        )
        for each in batches:
            found.extend(each.column("offset").to_pylist())
        return found

    assert read(12, 43) == list(range(12, 43))
    assert read(40, 50) == list(range(40, 50))
    assert read(7, 7) == []
    for start, end in ((40, 99), (50, 60), (51, 60)):  # the log may have lost its end
        with pytest.raises(OffsetOutOfRange, match=r"holds \[0, 50\)"):
            read(start, end)
        assert found == list(range(start, 50)), "first comes what is there"


def committed_range(connection: FakeConnection, end: int, found: list[int]) -> None:
    """The offsets of the committed records of t-0 before ``end``."""
    batches = read_range(
        connection,  # type: ignore[arg-type]
        "t",
        0,
        0,
        end,
        isolation=READ_COMMITTED,
        _waiter=ManualWaiter(connection),
    )
    for each in batches:
        found.extend(each.column("offset").to_pylist())


def test_a_table_that_waits_for_an_open_transaction_says_so(
    connection: FakeConnection,
) -> None:
    append_transactions(connection)
    log = connection.topics["t"][0].partition.log
    told: list[str] = []

    class Ending(logging.Handler):
        """Ends the transaction when it is told of it."""

        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())
            with log.locks.end:
                log.append(marker(is_abort=False, producer=8), origin="coordinator")

    ending = Ending()
    consumer_module.logger.addHandler(ending)
    try:
        consumer = connection.consumer(**{"isolation.level": "read_committed"})
        table = consumer.read_table("t", to={("t", 0): 6}, partitions=[0])
    finally:
        consumer_module.logger.removeHandler(ending)
    assert table["offset"].to_pylist() == [2, 3, 5]
    assert len(told) == 1
    assert told[0].startswith("t-0: the read waits at offset 5 for what comes before 6: ")


def test_a_range_of_committed_records_leaves_out_what_is_aborted(
    connection: FakeConnection,
) -> None:
    append_transactions(connection)
    for end, expected in ((1, []), (2, []), (3, [2]), (5, [2, 3])):
        found: list[int] = []
        began_s = connection.now_s
        committed_range(connection, end, found)
        assert found == expected
        assert connection.now_s == began_s, "all of it is decided"


def test_a_range_waits_for_an_open_transaction_and_not_for_ever(
    connection: FakeConnection,
) -> None:
    append_transactions(connection)
    began_s, found = connection.now_s, list[int]()
    with pytest.raises(RangeUndecided) as undecided:
        committed_range(connection, 6, found)
    assert found == [2, 3], "first comes what is decided"
    waited_ms = int(UNDECIDED_WAIT_S * 1000)
    assert undecided.value.args == ("t-0", 5, 6, waited_ms)
    assert connection.now_s - began_s == pytest.approx(UNDECIDED_WAIT_S, abs=1)

    log = connection.topics["t"][0].partition.log
    with log.locks.end:
        log.append(marker(is_abort=False, producer=8), origin="coordinator")
    found = []
    committed_range(connection, 6, found)
    assert found == [2, 3, 5]


def test_a_range_of_what_is_much_larger_when_it_is_decompressed(
    connection: FakeConnection,
) -> None:
    compressed(connection, 40, 30)
    batches = read_range(
        connection,  # type: ignore[arg-type]
        "t",
        0,
        0,
        1200,
        _waiter=ManualWaiter(connection),
    )
    assert sum(each.num_rows for each in batches if each.num_rows <= 17) == 1200


def test_a_consumer_cannot_be_pickled(connection: FakeConnection) -> None:
    with pytest.raises(TypeError, match="pass the broker"):
        pickle.dumps(connection.consumer("t"))


# -- what changes below an iteration ---------------------------------------------------------------


def test_a_topic_made_again_within_an_iteration_is_read_from_its_beginning_once(
    connection: FakeConnection,
) -> None:
    for number in (0, 1):
        append(connection, number, 20)
    consumer = connection.consumer("t", from_="earliest", metadata_max_age_ms=1000)
    iteration = iter(consumer)
    found = [next(iteration) for _ in range(3)]
    for served in connection.create("t", 2):
        served.partition.append(batch(30))
    connection.now_s += 2
    for _ in range(2):  # questions hear of the other topic, too
        consumer.end_offsets([("t", 0)])
    found += [next(iteration) for _ in range(17)]
    assert offsets(found) == [(0, n) for n in range(20)], "what was fetched before"
    again = [next(iteration) for _ in range(60)]
    assert sorted(offsets(again)) == [(p, n) for p in (0, 1) for n in range(30)]
    assert consumer.poll(0) == []


def test_a_topic_of_a_pattern_that_is_deleted_is_left_without_an_error(
    connection: FakeConnection,
) -> None:
    append(connection, 0, 3)
    connection.create("u")[0].partition.append(batch(3))
    consumer = connection.consumer(metadata_max_age_ms=1000)
    consumer.subscribe(re.compile("^[tu]$"), from_="earliest")
    iteration = iter(consumer)
    assert next(iteration).topic == "t"
    del connection.topics["t"]
    connection.now_s += 2
    for _ in range(2):
        consumer.end_offsets([("u", 0)])
    assert consumer.assignment == [("u", 0)]
    assert [(r.topic, r.offset) for r in drain(consumer)] == [("u", n) for n in range(3)]


def test_partitions_that_cannot_be_added_leave_the_others_where_they_are(
    connection: FakeConnection,
) -> None:
    append(connection, 0, 20)
    consumer = connection.consumer("t", from_="earliest")
    assert len(consumer.poll(max_records=5)) == 5
    with pytest.raises(UnknownTopicOrPartition):
        consumer.incremental_assign([("nope", 0)])
    assert consumer.assignment == [("t", 0), ("t", 1)]
    assert [record.offset for record in consumer.poll()] == list(range(5, 20))


def test_without_a_reset_a_topic_made_again_is_not_read_at_the_offset_of_before(
    connection: FakeConnection,
) -> None:
    append(connection, 0, 10)
    consumer = connection.consumer(
        "t", from_="earliest", auto_offset_reset="none", metadata_max_age_ms=1000
    )
    old_id = connection.ids["t"]
    assert len(consumer.poll()) == 10
    connection.create("t", 2)
    append(connection, 0, 30)
    connection.now_s += 2
    for _ in range(4):
        with pytest.raises(UnknownTopicId, match=old_id):
            consumer.poll()
    consumer.seek("t", 0, 0)
    consumer.seek("t", 1, 0)
    assert [record.offset for record in consumer.poll()] == list(range(30))
