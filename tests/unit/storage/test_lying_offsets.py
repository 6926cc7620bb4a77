"""A batch whose base offset lies: no CRC covers it, so its neighbours and its segment tell.

Wherever a reader begins, it gets the records that were written, or CorruptRecord; never others, and
never fewer.
"""

import pytest

from raylog.storage.errors import CorruptRecord
from raylog.storage.limits import MAX_LONG
from raylog.storage.log import Log
from raylog.storage.readable import LOG_END
from raylog.storage.records.batch import stamp
from raylog.storage.records.decode import decode_records
from raylog.storage.records.scan import next_offset
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, batch_of_size

SIZE, RECORDS, BATCHES, SEGMENTS = 1000, 10, 6, 3
PER_SEGMENT = RECORDS * BATCHES
END = PER_SEGMENT * SEGMENTS
SECOND = f"{PER_SEGMENT:020d}.log"
# Index entries at every batch but the first, at every third, and none.
INTERVALS = (0, 2500, 10**6)


def damaged(disk: Disk, number: int, base_offset: int, interval: int) -> Log:
    """Three segments; batch ``number`` of the second says another base offset."""
    log = disk.open(index_interval_bytes=interval)
    for n in range(BATCHES * SEGMENTS):
        if n and n % BATCHES == 0:
            log.roll()
        log.append(batch_of_size(SIZE, RECORDS, T0 + n))
    with log.locks.old, log.locks.flush, log.locks.end:
        log.close()

    def lie(content: bytes) -> bytes:
        changed = bytearray(content)
        stamp(changed, base_offset, 0, number * SIZE)
        return bytes(changed)

    disk.damage(SECOND, lie)
    return disk.open(index_interval_bytes=interval)


def consumed(log: Log, offset: int, max_bytes: int) -> int:
    """Read to the end, as a consumer does; returns where that was refused, or the log's end."""
    while True:
        try:
            found = log.read(offset, max_bytes)
            if not found.size_bytes:
                return offset
            content = found.read()
            behind = next_offset(content, offset, found.end_offset)
        except CorruptRecord:
            return offset
        records = decode_records(content, start_offset=offset)
        assert [record.offset for record in records] == [*range(offset, behind)]
        assert [record.timestamp - T0 for record in records] == [
            n // RECORDS for n in range(offset, behind)
        ]
        offset = behind


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("number", [0, 2, BATCHES - 1])
@pytest.mark.parametrize(
    "base_offset",
    [
        0,
        PER_SEGMENT - RECORDS,
        PER_SEGMENT - 1,
        2 * PER_SEGMENT - RECORDS + 1,
        2 * PER_SEGMENT - 1,
        2 * PER_SEGMENT,
        END - RECORDS,
        END + 7,
        MAX_LONG - 3,
        -5,
    ],
)
def test_a_batch_outside_of_its_segment_is_never_served(
    disk: Disk, base_offset: int, number: int, interval: int
) -> None:
    log = damaged(disk, number, base_offset, interval)
    its_first = PER_SEGMENT + number * RECORDS
    for max_bytes in (0, SIZE, 2 * SIZE + 1, 10**6):
        for offset in range(its_first + RECORDS):
            refused = consumed(log, offset, max_bytes)
            assert offset <= refused < its_first + RECORDS
        assert consumed(log, 2 * PER_SEGMENT, max_bytes) == END


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("shift", [-25, -10, -9, -1, 1, 9, 10, 15])
def test_offsets_that_do_not_rise_within_a_read_are_refused(
    disk: Disk, shift: int, interval: int
) -> None:
    log = damaged(disk, 3, PER_SEGMENT + 3 * RECORDS + shift, interval)
    for offset in range(PER_SEGMENT, PER_SEGMENT + 3 * RECORDS):
        assert consumed(log, offset, 10**6) < PER_SEGMENT + 4 * RECORDS


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("shift", [-9, -5, -1])
def test_the_last_offset_of_a_batch_is_not_answered_with_the_next_batch(
    disk: Disk, shift: int, interval: int
) -> None:
    log = damaged(disk, 3, PER_SEGMENT + 3 * RECORDS + shift, interval)
    last = PER_SEGMENT + 4 * RECORDS - 1
    for max_bytes in (0, 10**6):
        assert consumed(log, last, max_bytes) == last


@pytest.mark.parametrize("base_offset", [9, 13])
def test_an_index_entry_leads_to_no_batch_that_reaches_out_of_its_segment(
    disk: Disk, base_offset: int
) -> None:
    """Where batches are large, the one of the entry behind an offset is tried first."""
    log = disk.open(index_interval_bytes=0)
    log.append(batch_of_size(SIZE, 10))
    log.roll()
    for records in (1, 1, 100):
        log.append(batch_of_size(9000, records))
    log.roll()
    log.close()

    def lie(content: bytes) -> bytes:
        changed = bytearray(content)
        stamp(changed, base_offset, 0, 2 * 9000)
        return bytes(changed)

    disk.damage(f"{10:020d}.log", lie)
    log = disk.open(index_interval_bytes=0)
    for offset in (12, 90, 111):
        with pytest.raises(CorruptRecord):
            log.read(offset, 0)


@pytest.mark.parametrize("interval", INTERVALS)
def test_a_lookup_by_time_does_not_answer_with_an_offset_of_another_segment(
    disk: Disk, interval: int
) -> None:
    log = damaged(disk, 2, 2 * PER_SEGMENT + RECORDS, interval)
    with pytest.raises(CorruptRecord):
        log.offset_for_timestamp(T0 + BATCHES + 2)


def test_a_lookup_by_time_reads_nothing_above_its_bound(disk: Disk) -> None:
    """What lies there may be on its way out."""
    log = disk.open(flush_messages=1)
    for number in range(3):
        log.append(batch_of_size(SIZE, RECORDS, T0 + number))
        log.roll()
        if number == 0:
            log.flush()
    log.segments[2].log.truncate(0)
    log.segments[2].log.append([b"no batch" * 20])
    assert log.high_watermark == RECORDS
    assert log.offset_for_timestamp(T0 + 2) is None


def test_a_fetch_that_leads_nowhere_is_refused() -> None:
    """A reader would ask for ever. Half a batch at its end leads nowhere, either."""
    first, second = (batch_of_size(SIZE, RECORDS) for _ in range(2))
    stamp(first, 20, 0)
    stamp(second, 30, 0)
    for content in (bytes(first), bytes(first + second)[:-1]):
        assert next_offset(content, 29) == 30
        with pytest.raises(CorruptRecord, match="no whole batch behind it"):
            next_offset(content, 30)


def test_a_read_says_below_which_offset_its_batches_lie(disk: Disk) -> None:
    log = disk.open()
    log.append(batch_of_size(SIZE, RECORDS))
    log.roll()
    log.append(batch_of_size(SIZE, RECORDS))
    log.append(batch_of_size(SIZE, RECORDS))
    assert log.read(3, 10**6).end_offset == RECORDS
    assert log.read(RECORDS, 0).end_offset == 3 * RECORDS
    assert log.read(RECORDS, 10**6, LOG_END).end_offset == 3 * RECORDS
    assert log.read(3 * RECORDS, 10**6).end_offset == -1
