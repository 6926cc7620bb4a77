"""Reading a segment to its end, and making its indexes again."""

from collections.abc import Callable
from struct import pack

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.epoch_recovery import epoch_changes, last_epoch
from raylog.storage.errors import CorruptIndex, CorruptRecord
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.records.batch import stamp
from raylog.storage.records.scan import POSITION
from raylog.storage.recovery import (
    Batches,
    check_indexes,
    index_fault,
    last_batches,
    read_tail,
    rebuild_indexes,
)
from raylog.storage.segment import Segment
from raylog.storage.state.epochs import EpochChange
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import batch, batch_of_size, flip
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.writer import Piece as WriterPiece
from raylog.storage.writer import SegmentWriter
from tests.harness.small_logs import counted_reads

BASE = 40
LOG = "/00000000000000000040.log"
INDEXES = ("/00000000000000000040.index", "/00000000000000000040.timeindex")


class Box:
    """A segment of ten batches of 1000 bytes with ten records each, from offset 40 on."""

    def __init__(self, epochs: tuple[int, ...] = (0,) * 10, interval_bytes: int = 1500) -> None:
        self.fs = MemoryFileSystem()
        self.config = LogConfig(index_interval_bytes=interval_bytes)
        content = b""
        for number, epoch in enumerate(epochs):
            records = batch_of_size(1000, 10, T0 + number)
            stamp(records, BASE + 10 * number, epoch)
            content += bytes(records)
        self.content = content
        self.fs.write_file(LOG, content)
        rebuild_indexes(self.open())

    def open(self) -> Segment:
        return Segment(self.fs, "/", BASE, self.config)

    def holding(self, content: bytes) -> Segment:
        self.fs.write_file(LOG, content)
        return self.open()


@pytest.fixture
def box() -> Box:
    return Box()


def found(segment: Segment) -> tuple[int, int, bool]:
    """(bytes behind the last good batch, offset behind it, whether no offset is missing)."""
    batches = Batches(segment, verify=True)
    for _ in batches:
        pass
    return segment.size - batches.end, batches.next_offset, batches.is_dense


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        (lambda content: content, 10),
        (lambda content: content[:9999], 9),
        (lambda content: content[:9001], 9),
        (lambda content: content[:9000], 9),
        (lambda content: content + b"\0" * 500, 10),
        (lambda content: content + b"\xff" * 11, 10),
        (lambda content: content[:9000] + b"\0" * 1000, 9),
        (flip(9000 + 500), 9),
        (flip(9000 + 17), 9),
        (flip(9000 + 11), 9),
        (flip(9000 + 16, 1), 9),
        (flip(4000 + 30), 4),
        (lambda content: content + content[9000:], 10),
        (lambda content: b"", 0),
    ],
)
def test_the_good_batches_end_where_the_first_bad_one_begins(
    box: Box, change: Callable[[bytes], bytes], kept: int
) -> None:
    content = change(box.content)
    segment = box.holding(content)
    assert found(segment) == (len(content) - 1000 * kept, 40 + 10 * kept, True)
    batches = Batches(segment, verify=True)
    assert sum(len(piece.rows) for piece in batches) == kept
    assert batches.is_whole == (len(content) == 1000 * kept)
    if not batches.is_whole:
        with pytest.raises(CorruptRecord, match=f"position {1000 * kept}"):
            batches.check_whole()


@pytest.mark.parametrize("piece_bytes", [20, 61, 999, 1000, 1001, 3500])
def test_pieces_may_be_of_any_size(
    box: Box, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """Pieces smaller than a batch, and with batches over their ends."""
    monkeypatch.setattr("raylog.storage.recovery.PIECE_BYTES", piece_bytes)
    assert found(box.open()) == (0, 140, True)
    headers = [
        piece.header(position)
        for piece in Batches(box.open())
        for position in piece.rows[:, POSITION].tolist()
    ]
    assert [header.base_offset for header in headers] == list(range(40, 140, 10))
    check_indexes(box.open())
    for damaged, kept in (
        (flip(6500)(box.content), 6),
        (box.content[:2500], 2),
        (box.content + b"\0" * 40, 10),
    ):
        segment = box.holding(damaged)
        assert found(segment) == (len(damaged) - 1000 * kept, 40 + 10 * kept, True)


def test_no_read_is_larger_than_a_piece(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even of a batch that says it is."""
    monkeypatch.setattr("raylog.storage.recovery.PIECE_BYTES", 300)
    with counted_reads() as reads:
        assert found(box.open()) == (0, 140, True)
    assert max(size_bytes for _, _, size_bytes in reads) <= 300


@pytest.mark.parametrize("piece_bytes", [100, 5000])
def test_a_crc_is_looked_at_where_that_is_asked_for(box: Box, piece_bytes: int) -> None:
    segment = box.holding(flip(2500)(box.content))
    for verify, good in ((False, 10), (True, 2)):
        batches = Batches(segment, verify=verify, piece_bytes=piece_bytes)
        assert sum(len(piece.rows) for piece in batches) == good


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (flip(2500), "position 2000: the CRC is wrong"),
        (flip(9500), "position 9000: the CRC is wrong"),
        (lambda c: c[:9500], "position 9000: only 500 of 1000 bytes of a batch"),
        (flip(2006), "position 2000: offsets 316 to 325 where 60 must follow"),
        (flip(2007, 3), "position 2000: offsets 52 to 61 where 60 must follow"),
    ],
)
def test_what_is_wrong_with_the_first_bad_batch_is_told(
    box: Box, change: Callable[[bytes], bytes], why: str
) -> None:
    batches = Batches(box.holding(change(box.content)), verify=True, end_offset=BASE + 100)
    assert len([*batches]) == 1
    with pytest.raises(CorruptRecord, match=why):
        batches.check_whole()


def test_a_gap_between_batches_is_told(box: Box) -> None:
    segment = box.holding(box.content[:1000] + box.content[2000:])
    assert found(segment) == (0, 140, False)


def test_a_batch_that_reaches_into_the_next_segment_is_not_good(box: Box) -> None:
    batches = Batches(box.open(), verify=True, end_offset=135)
    assert sum(len(piece.rows) for piece in batches) == 9


# -- indexes ---------------------------------------------------------------------------------------


def test_a_rebuild_makes_the_entries_that_appends_made() -> None:
    fs, config = MemoryFileSystem(), LogConfig(index_interval_bytes=4096)
    segment = Segment(fs, "/", 0, config, create=True)
    writer = SegmentWriter(segment, T0)
    for number in range(20):
        records = batch_of_size(1000, 5, T0 + number)
        stamp(records, 5 * number, 0)
        piece = WriterPiece(
            stamp=bytes(records[:16]),
            body=records[16:],
            size_bytes=1000,
            last_offset=5 * number + 4,
            max_timestamp=T0 + number,
        )
        writer.append([piece])
    writer.finish()
    segment.flush()
    names = ("/00000000000000000000.index", "/00000000000000000000.timeindex")
    before = [fs.read_file(name) for name in names]
    assert len(before[0]) == 3 * 8
    for name in names:
        fs.remove(name)
    again = Segment(fs, "/", 0, config)
    rebuild_indexes(again)
    assert [fs.read_file(name) for name in names] == before
    assert again.max_timestamp == TimestampOffset(T0 + 19, 99)


@pytest.mark.parametrize("path", INDEXES)
def test_a_check_finds_every_flipped_bit(box: Box, path: str) -> None:
    check_indexes(box.open())
    content = box.fs.read_file(path)
    for position in range(len(content)):
        for bit in range(8):
            box.fs.write_file(path, flip(position, bit)(content))
            with pytest.raises(CorruptIndex):
                check_indexes(box.open())
    rebuild_indexes(box.open())
    assert box.fs.read_file(path) == content


def test_indexes_are_not_made_again_from_half_a_segment(box: Box) -> None:
    """They would hide what lies behind the damage."""
    segment = box.holding(flip(4000 + 9)(box.content))
    before = [box.fs.read_file(path) for path in INDEXES]
    with pytest.raises(CorruptRecord):
        rebuild_indexes(segment)
    assert [box.fs.read_file(path) for path in INDEXES] == before


@pytest.mark.parametrize("path", INDEXES)
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda content: content, None),
        (lambda content: content + b"x", "1 bytes too many"),
        (lambda content: content + b"\0" * 24, "not above"),
        (lambda content: b"\xff" * len(content), "negative"),
    ],
)
def test_the_bytes_of_an_index_file_tell_whether_it_is_one(
    box: Box, path: str, change: Callable[[bytes], bytes], fault: str | None
) -> None:
    box.fs.write_file(path, change(box.fs.read_file(path)))
    told = index_fault(box.fs, box.open())
    assert told is None if fault is None else told and fault in told
    box.fs.remove(path)
    assert index_fault(box.fs, box.open()) == "an index file is missing"


# -- after an orderly stop -------------------------------------------------------------------------


def test_an_entry_of_the_first_offset_and_of_time_0_is_no_fault(box: Box) -> None:
    box.fs.write_file(INDEXES[1], pack(">qi", 0, 0))
    assert index_fault(box.fs, box.open()) is None


def test_the_tail_is_read_from_the_last_index_entry_on(box: Box) -> None:
    segment = box.open()
    with counted_reads() as reads:
        assert read_tail(segment) == (140, 0)
    assert min(position for path, position, _ in reads if path == LOG) >= 8000
    assert segment.max_timestamp == TimestampOffset(T0 + 9, 139)


@pytest.mark.parametrize("path", INDEXES)
def test_the_last_entry_of_an_index_is_believed_only_after_a_look(box: Box, path: str) -> None:
    content = box.fs.read_file(path)
    last = len(content) - (8 if path == INDEXES[0] else 12)
    for position in range(last, len(content)):
        for bit in range(8):
            box.fs.write_file(path, flip(position, bit)(content))
            with pytest.raises(CorruptIndex):
                read_tail(box.open())


def test_the_last_batches_are_those_behind_the_last_index_entry(box: Box) -> None:
    segment = box.open()
    batches = last_batches(segment)
    assert (batches.next_offset, batches.is_whole) == (140, True)
    assert not segment.offset_index._held, "the index is given back"


def test_the_last_batches_are_all_where_the_last_index_entry_lies(box: Box) -> None:
    content = box.fs.read_file(INDEXES[0])
    for position in range(len(content) - 8, len(content)):
        box.fs.write_file(INDEXES[0], flip(position)(content))
        for log, end in ((box.content, 140), (box.content[:-1], 130)):
            batches = last_batches(box.holding(log))
            assert (batches.next_offset, batches.is_whole) == (end, end == 140)


def test_an_empty_segment_ends_where_it_begins_and_has_no_epoch(box: Box) -> None:
    for path in INDEXES:
        box.fs.write_file(path, b"")
    assert read_tail(box.holding(b"")) == (BASE, -1)


def test_a_time_index_without_entries_is_not_what_an_orderly_stop_leaves(box: Box) -> None:
    box.fs.write_file(INDEXES[1], b"")
    with pytest.raises(CorruptIndex, match="the time index has no entry"):
        read_tail(box.open())


def test_a_torn_tail_is_not_what_an_orderly_stop_leaves(box: Box) -> None:
    with pytest.raises(CorruptIndex):
        read_tail(box.holding(box.content[:-1]))
    for path in INDEXES:
        box.fs.write_file(path, b"")
    with pytest.raises(CorruptRecord):
        read_tail(box.holding(box.content[:-1]))


# -- leader epochs ---------------------------------------------------------------------------------


def test_every_change_of_the_leader_epoch_counts() -> None:
    box = Box((3, 3, 3, 7, 7, 5, 7, 9, 9, 9))
    segment = box.open()
    wanted = [EpochChange(3, 40, 0), EpochChange(7, 70, 70), EpochChange(9, 110, 110)]
    assert epoch_changes([segment]) == wanted
    assert epoch_changes([segment], [EpochChange(9, 200, 0), EpochChange(10, 210, 210)]) == [
        *wanted,
        EpochChange(10, 210, 210),
    ]
    assert last_epoch([segment]) == 9
    assert last_epoch([]) == -1


def test_the_last_epoch_is_that_of_the_last_batch() -> None:
    box = Box((3, 3, 3, 7, 7, 7, 7, 9, 9, 9), interval_bytes=1 << 20)
    assert last_epoch([box.open()]) == 9


def test_of_a_segment_of_one_epoch_only_the_first_batches_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raylog.storage.epoch_recovery.LOOKUP_BYTES", 2000)
    box = Box((3,) * 10)
    following = Segment(box.fs, "/", BASE + 100, box.config, create=True)
    records = batch(1)
    stamp(records, BASE + 100, 3)
    following.log.append([records])
    with counted_reads() as reads:
        assert epoch_changes([box.open(), following]) == [EpochChange(3, 40, 0)]
    assert [path for path, _, _ in reads].count(LOG) == 1


def test_the_epochs_of_large_batches_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raylog.storage.recovery.PIECE_BYTES", 100)
    box = Box((3,) * 5 + (7,) * 5)
    assert epoch_changes([box.open()]) == [EpochChange(3, 40, 0), EpochChange(7, 90, 90)]


def test_messages_of_old_versions_have_no_epoch(box: Box) -> None:
    assert epoch_changes([box.holding(bytes(batch(base_offset=40, leader_epoch=-1)))]) == []
