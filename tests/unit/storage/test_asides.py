"""What recovery takes out of a log is kept, once, told, and can be put back."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from raylog.storage.asides import (
    LOOK_BYTES,
    SEARCH_BYTES,
    Search,
    aside_names,
    drop_aside,
    find_misplaced,
    is_in_log,
    list_asides,
    restore_aside,
)
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    AsideRefused,
    DiskFull,
    LogShorterThanFlushed,
    NoRoom,
    NoRoomToSetAside,
)
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import open_log
from raylog.storage.mirror import Mirror
from raylog.storage.records.batch import stamp
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.recovery import check_indexes
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import (
    FOLDER,
    PARTITION,
    Disk,
    batch,
    batch_of_size,
    flip,
    offsets_of,
)
from raylog.storage.tools.repair import repair_folder
from raylog.storage.validation import COORDINATOR
from tests.harness.small_logs import FIRST, SECOND, SMALL, THIRD, content, fill

# -- set aside -------------------------------------------------------------------------------------


def test_a_cut_tail_is_kept_and_told(disk: Disk) -> None:
    fill(disk, 20)
    disk.damage(SECOND, flip(550))
    tail = disk.read(SECOND)[500:]
    log = disk.open(is_clean=False, **SMALL)
    assert offsets_of(log) == list(range(30))
    assert disk.read(SECOND + ".aside-0") == tail
    (cut,) = [mended for mended in log.mended if mended.kind == "cut"]
    assert cut == ("cut", SECOND, 500, 30, 40, "no good batch", SECOND + ".aside-0")
    (aside,) = list_asides(disk.fs, FOLDER)
    assert aside == (SECOND + ".aside-0", 20, 500, 32, 40, 4, 400, 0)


LOST_HEADERS = {
    "a length beyond the file": flip(500 + 9, 4),
    "a longer length": flip(500 + 11, 1),
    "a shorter length": flip(500 + 11, 3),
    "a magic": flip(500 + 16, 2),
    "zeros": lambda content: content[:500] + bytes(100) + content[600:],
    "bytes that are gone": lambda content: content[:500] + content[533:],
}


@pytest.mark.parametrize("damage", LOST_HEADERS)
def test_a_lost_header_does_not_hide_the_good_batches_behind(disk: Disk, damage: str) -> None:
    fill(disk, 20)
    disk.damage(SECOND, LOST_HEADERS[damage])
    log = disk.open(is_clean=False, **SMALL)
    log.close()
    (aside,) = list_asides(disk.fs, FOLDER)
    assert aside[3:7] == (32, 40, 4, 400)
    assert [m.end_offset for m in log.mended if m.kind == "cut"] == [40]
    restore_aside(disk.fs, FOLDER, aside.name, allow_gap=True)
    left = [*range(30), *range(32, 40)]
    assert offsets_of(disk.open(is_clean=False, **SMALL)) == left


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_behind_a_lost_header_are_found_too(
    disk: Disk, magic: int, codec: str
) -> None:
    """Each set has two messages; a compressed one has only its last offset in the header."""
    rows = [(T0, b"k", b"v"), (T0, b"k", b"w")]
    sets = [
        encode_legacy(rows, magic=magic, base_offset=first, compression_type=codec)
        for first in range(0, 12, 2)
    ]
    lengths = [len(messages) for messages in sets]
    damaged = bytearray(b"".join(sets))
    at = sum(lengths[:2])
    damaged[at + 8 : at + 17] = bytes(9)  # the length and the magic of the third
    disk.write(FIRST, bytes(damaged))
    for suffix in (".index", ".timeindex"):
        disk.fs.remove(disk.path(FIRST.replace(".log", suffix)))
    log = disk.open(is_clean=False)
    assert offsets_of(log) == [0, 1, 2, 3]
    log.close()
    (found,) = list_asides(disk.fs, FOLDER)
    # Without a codec each message is a batch, and the second one of the damaged set is good.
    lost = 6 if codec == "gzip" else 5
    assert (found.first_offset, found.end_offset) == (lost, 12)
    restore_aside(disk.fs, FOLDER, found.name, allow_gap=True)
    assert offsets_of(disk.open(is_clean=False)) == [0, 1, 2, 3, *range(lost, 12)]


def test_an_aside_of_another_log_is_not_in_this_one(disk: Disk) -> None:
    """The same offsets with newer records: their leader epoch tells them apart."""
    fill(disk, 20)
    disk.damage(SECOND, flip(550))
    log = disk.open(is_clean=False, **SMALL)
    (aside,) = list_asides(disk.fs, FOLDER)
    assert not is_in_log(disk.fs, FOLDER, aside)
    for _ in range(10):
        log.append(batch_of_size(100, 2), leader_epoch=1)
    assert offsets_of(log)[-1] == 49
    log.close()
    assert not is_in_log(disk.fs, FOLDER, aside)


def test_a_file_of_which_only_one_end_is_in_the_log_is_not_in_it(disk: Disk) -> None:
    fill(disk, 20)
    whole = disk.read(SECOND)
    for kept in (slice(100, None), slice(None, -100)):
        disk.write(SECOND + ".aside-0", whole)
        (aside,) = list_asides(disk.fs, FOLDER)
        assert is_in_log(disk.fs, FOLDER, aside)
        disk.write(SECOND, whole[kept])
        for suffix in (".index", ".timeindex"):
            disk.write(SECOND.replace(".log", suffix), b"")
        assert not is_in_log(disk.fs, FOLDER, aside)
        disk.write(SECOND, whole)


def test_batches_that_compaction_has_changed_are_in_the_log(disk: Disk) -> None:
    """Their offsets and their leader epoch stay; their records and CRC do not."""
    disk.write(FIRST, bytes(batch(3, value=b"old", leader_epoch=0)))
    disk.write(FIRST + ".aside-0", bytes(batch(3, value=b"new", leader_epoch=0)))
    (aside,) = list_asides(disk.fs, FOLDER)
    assert is_in_log(disk.fs, FOLDER, aside)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_are_told_apart_by_their_crc(disk: Disk, magic: int) -> None:
    """They have no leader epoch."""
    kept, other = (encode_legacy([(T0, b"k", value)], magic=magic) for value in (b"v", b"w"))
    disk.write(FIRST + ".aside-0", bytes(kept))
    (aside,) = list_asides(disk.fs, FOLDER)
    disk.write(FIRST, bytes(other))
    assert not is_in_log(disk.fs, FOLDER, aside)
    disk.write(FIRST, bytes(kept))
    assert is_in_log(disk.fs, FOLDER, aside)


@pytest.mark.parametrize("base_offset", [0, 19, 20 + 2**31, 2**62])
@pytest.mark.parametrize("begins_with", [b"", b"garbage"])
def test_a_batch_that_the_segment_could_not_hold_hides_no_other(
    disk: Disk, begins_with: bytes, base_offset: int
) -> None:
    """No CRC covers its base offset."""
    lying, good = (bytearray(batch_of_size(100, 2)) for _ in range(2))
    stamp(lying, base_offset, 0)
    stamp(good, 24, 0)
    disk.write(SECOND + ".aside-0", bytes(begins_with + lying + good))
    (aside,) = list_asides(disk.fs, FOLDER)
    assert aside[3:6] == (24, 26, 1)


@pytest.mark.parametrize("piece_bytes", [64, 100, 150])
def test_a_good_batch_is_found_wherever_the_pieces_of_the_search_end(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    """The last one, too, which ends with the file."""
    monkeypatch.setattr("raylog.storage.asides.PIECE_BYTES", piece_bytes)
    good = bytearray(batch_of_size(100, 2))
    stamp(good, 24, 0)
    for length in range(1, 200):
        disk.write(SECOND + ".aside-0", b"x" * length + bytes(good))
        (aside,) = list_asides(disk.fs, FOLDER)
        assert aside[3:7] == (24, 26, 1, 100)


def test_a_search_reads_so_much_and_no_more() -> None:
    """A look at a place that turns out to be nothing costs, too."""
    looks = SEARCH_BYTES // LOOK_BYTES
    for size_bytes in (0, LOOK_BYTES, 4 * LOOK_BYTES):
        search = Search(0)
        cost = max(size_bytes // LOOK_BYTES, 1)
        assert all(search.may_read(size_bytes, 7) for _ in range(looks // cost))
        assert search.given_up_at == -1
        assert not search.may_read(size_bytes, 8)
        assert search.given_up_at == 8


def test_a_batch_in_a_damaged_record_is_not_taken_for_one_of_the_log(disk: Disk) -> None:
    log = disk.open()
    log.append(batch(timestamp=T0))
    inner = bytearray(batch(timestamp=T0))
    inner[7] = 1  # the base offset; no CRC covers it
    size_bytes = log.segments[-1].size
    log.append(batch(timestamp=T0, value=bytes(inner)))
    log.append(batch(timestamp=T0))
    log.close()
    disk.damage(FIRST, flip(size_bytes + 62))
    disk.open(is_clean=False)
    (aside,) = list_asides(disk.fs, FOLDER)
    assert (aside.first_offset, aside.end_offset, aside.batches) == (2, 3, 1)


def test_records_of_an_older_epoch_do_not_come_behind_newer_ones(disk: Disk) -> None:
    """In the gap of the damaged batch is room for a record of who came since."""
    fill(disk, 20)
    disk.damage(SECOND, flip(550))
    log = disk.open(is_clean=False, **SMALL)
    log.append(batch(timestamp=T0), leader_epoch=1)
    log.close()
    before = content(disk)
    with pytest.raises(AsideRefused, match="of leader epoch 1, were appended to the log since"):
        restore_aside(disk.fs, FOLDER, SECOND + ".aside-0", allow_gap=True)
    assert content(disk) == before


def test_all_that_a_repair_has_set_aside_is_put_back_though_a_start_came_between(
    disk: Disk,
) -> None:
    """A start begins a leader epoch at the log's end, and has no record in it yet."""
    log = fill(disk, 30)
    log.epochs.assign(1, log.log_end_offset)
    log.close()
    whole = offsets_of(disk.open(is_clean=True, **SMALL))
    disk.damage(SECOND, flip(50))
    disk.clock.advance(1)
    repair_folder(disk.fs, disk.clock, FOLDER, drop_segments=True)
    asides = [aside.name for aside in list_asides(disk.fs, FOLDER) if aside.batches]
    assert len(asides) >= 2
    for name in asides:
        restore_aside(disk.fs, FOLDER, name, allow_gap=True)
    log = disk.open(is_clean=False, **SMALL)
    lost = sorted(set(whole) - set(offsets_of(log)))
    assert lost == list(range(lost[0], lost[0] + len(lost))), "only those of the damaged batch"
    assert len(lost) <= 10
    assert log.epochs.latest == 1


def test_a_restore_without_room_says_so_and_can_be_tried_again(disk: Disk) -> None:
    fill(disk, 20)
    disk.damage(SECOND, flip(550))
    disk.open(is_clean=False, **SMALL).close()
    name = SECOND + ".aside-0"
    before = content(disk)
    with (
        disk.fs.failing(DiskFull, "append"),
        pytest.raises(NoRoom, match="the copy needs 400 bytes"),
    ):
        restore_aside(disk.fs, FOLDER, name, allow_gap=True)
    assert content(disk) == before
    assert restore_aside(disk.fs, FOLDER, name, allow_gap=True).end_offset == 40


def test_bytes_that_look_like_many_batches_end_the_search_and_are_told(disk: Disk) -> None:
    """Each looks like a batch up to the end of the file: to read them all takes for ever."""
    fill(disk, 20)
    plausible = (25).to_bytes(8, "big") + (2_000_000).to_bytes(4, "big") + bytes(4) + b"\x02"
    many = plausible.ljust(61, b"\0") * 50_000
    disk.damage(SECOND, lambda content: content[:500] + b"x" + many + bytes(2_000_061))
    disk.open(is_clean=False, **SMALL).close()
    (kept,) = list_asides(disk.fs, FOLDER)
    assert kept.unsearched_bytes > 2_000_000


def test_zero_bytes_are_cut_and_not_kept(disk: Disk) -> None:
    fill(disk, 20)
    disk.damage(SECOND, lambda content: content + b"\0" * 5000)
    log = disk.open(is_clean=False, **SMALL)
    assert log.log_end_offset == 40
    assert aside_names(disk.fs, FOLDER) == []
    assert [m for m in log.mended if m.kind == "cut"] == [
        ("cut", SECOND, 5000, -1, -1, "zero bytes", "")
    ]


def test_segments_behind_a_loss_are_kept_and_told(disk: Disk) -> None:
    fill(disk)
    third = disk.read(THIRD)
    disk.damage(SECOND, lambda content: content[:500])
    log = disk.open(is_clean=False, **SMALL)
    assert offsets_of(log) == list(range(30))
    assert disk.read(THIRD + ".aside-0") == third
    assert disk.names(".log") == [FIRST, SECOND]
    told = {mended.file: mended for mended in log.mended}
    assert told[THIRD][:5] == ("set_aside", THIRD, 1000, 40, 60)
    assert told[THIRD].kept_as == THIRD + ".aside-0"
    assert told[THIRD.replace(".log", ".index")].kind == "removed"
    assert list_asides(disk.fs, FOLDER) == [(THIRD + ".aside-0", 40, 1000, 40, 60, 10, 1000, 0)]


def test_where_a_damaged_segment_ended_is_not_guessed(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, lambda content: content[:500])
    disk.damage(THIRD, lambda content: content[:950])
    told = {mended.file: mended for mended in disk.open(is_clean=False, **SMALL).mended}
    assert told[THIRD][:5] == ("set_aside", THIRD, 950, 40, -1)


@pytest.mark.parametrize("third", [None, b"\0" * 100], ids=["set aside", "removed"])
def test_what_left_the_log_is_not_held_open(tmp_path: Path, third: bytes | None) -> None:
    disk = Disk()
    fill(disk)
    disk.damage(SECOND, lambda content: content[:500])
    if third is not None:
        disk.write(THIRD, third)
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for name in disk.names():
        (folder / name).write_bytes(disk.read(name))
    fs = RealFileSystem()
    log = open_log(fs, disk.clock, str(folder), PARTITION, LogConfig(**SMALL), is_clean=False)
    assert log.log_end_offset == 30
    assert [path for path in open_paths() if THIRD in path] == []


def test_a_log_that_is_refused_is_not_held_open(tmp_path: Path) -> None:
    disk = Disk()
    fill(disk)
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for name in disk.names():
        (folder / name).write_bytes(disk.read(name))
    fs, config = RealFileSystem(), LogConfig(**SMALL)
    with pytest.raises(LogShorterThanFlushed) as refused:
        open_log(fs, disk.clock, str(folder), PARTITION, config, recovery_point=70)
    assert refused.tb is not None, "it holds what was opened"
    assert [path for path in open_paths() if str(folder) in path] == []


def open_paths() -> list[str]:
    """What this process has open, by path."""
    paths = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            paths.append(os.readlink(f"/proc/self/fd/{number}"))
    return paths


def test_a_segment_without_a_batch_is_removed(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, lambda content: content[:500])
    disk.write(THIRD, b"\0" * 100)
    log = disk.open(is_clean=False, **SMALL)
    assert log.log_end_offset == 30
    assert aside_names(disk.fs, FOLDER) == []
    assert THIRD in [mended.file for mended in log.mended if mended.kind == "removed"]


def test_a_log_that_ends_before_its_start_is_set_aside(disk: Disk) -> None:
    fill(disk)
    before = disk.read(FIRST)
    disk.damage(SECOND, lambda content: b"garbage")
    log = disk.open(is_clean=False, log_start_offset=50, **SMALL)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    names = [f"{base:020d}.log.aside-0" for base in (0, 20, 40)]
    assert aside_names(disk.fs, FOLDER) == names
    assert disk.read(names[0]) == before
    assert disk.read(names[1]) == b"garbage"


def test_nothing_is_kept_twice(disk: Disk) -> None:
    """A recovery that stopped between the copy and the cut."""
    fill(disk, 20)
    disk.damage(SECOND, flip(550))
    disk.write(SECOND + ".aside-0", b"of another day")
    disk.write(SECOND + ".aside-1", disk.read(SECOND)[500:])
    log = disk.open(is_clean=False, **SMALL)
    assert aside_names(disk.fs, FOLDER) == [SECOND + ".aside-0", SECOND + ".aside-1"]
    assert [m.kept_as for m in log.mended if m.kind == "cut"] == [SECOND + ".aside-1"]


def test_the_next_loss_of_a_segment_has_a_name_of_its_own(disk: Disk) -> None:
    fill(disk, 20)
    for number in range(12):
        disk.write(SECOND, disk.read(SECOND)[:500] + b"tail %d" % number)
        disk.open(is_clean=False, **SMALL).close()
    assert aside_names(disk.fs, FOLDER) == [f"{SECOND}.aside-{number}" for number in range(12)]


def test_without_room_the_log_stays_closed_and_nothing_is_changed(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, flip(550))
    before = content(disk)
    disk.fs.usable_bytes = 499
    with pytest.raises(NoRoomToSetAside, match="must set 500 bytes aside, but only 499 are free"):
        disk.open(is_clean=False, **SMALL)
    assert content(disk) == before
    disk.fs.usable_bytes = 500
    assert offsets_of(disk.open(is_clean=False, **SMALL)) == list(range(30))


def test_a_disk_that_gets_full_meanwhile_is_no_room_too(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, flip(550))
    before = {name: data for name, data in content(disk).items() if name.endswith(".log")}
    with disk.fs.failing(DiskFull, "append"), pytest.raises(NoRoomToSetAside):
        disk.open(is_clean=False, **SMALL)
    assert {name: disk.read(name) for name in disk.names(".log")} == before
    assert disk.names(".tmp") == []


def test_nobody_removes_an_aside_by_itself(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, flip(550))
    disk.open(is_clean=False, **SMALL).close()
    names = aside_names(disk.fs, FOLDER)
    assert len(names) == 2
    log = disk.open(retention_ms=1, file_delete_delay_ms=0, **SMALL)
    disk.clock.advance(10**10)
    log.append(batch(timestamp=T0))
    assert log.delete_old_segments()
    log.purge_deleted()
    log.truncate_fully(5)
    log.purge_deleted()
    log.close()
    disk.open(is_clean=False).close()
    assert aside_names(disk.fs, FOLDER) == names


def test_a_move_takes_asides_along(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, flip(550))
    disk.open(is_clean=False, **SMALL).close()
    Mirror(disk.fs, disk.clock, FOLDER, "/logs/copy").round(is_last=True)
    assert aside_names(disk.fs, "/logs/copy") == aside_names(disk.fs, FOLDER)


# -- what a person does ----------------------------------------------------------------------------


def test_a_segment_comes_back_where_it_continues_the_log(disk: Disk) -> None:
    fill(disk)
    whole = disk.read(SECOND)
    disk.damage(SECOND, lambda content: content[:500])
    disk.open(is_clean=False, **SMALL).close()
    with pytest.raises(AsideRefused, match="begins at offset 40, but the log ends at 30"):
        restore_aside(disk.fs, FOLDER, THIRD + ".aside-0")
    disk.write(SECOND, whole)  # from a copy
    assert restore_aside(disk.fs, FOLDER, THIRD + ".aside-0").batches == 10
    assert aside_names(disk.fs, FOLDER) == []
    for is_clean in (True, False):
        log = disk.open(is_clean=is_clean, **SMALL)
        assert offsets_of(log) == list(range(60))
        log.close()


def test_a_segment_comes_back_in_the_place_of_an_empty_one(disk: Disk) -> None:
    fill(disk)
    disk.fs.rename(disk.path(THIRD), disk.path(THIRD + ".aside-0"))
    for suffix in (".index", ".timeindex"):
        disk.fs.remove(disk.path(THIRD.replace(".log", suffix)))
    log = disk.open(**SMALL)
    log.roll()
    log.close()
    assert disk.names(".log") == [FIRST, SECOND, THIRD]
    restore_aside(disk.fs, FOLDER, THIRD + ".aside-0")
    log = disk.open(**SMALL)
    assert offsets_of(log) == list(range(60))
    check_indexes(log.segments[-1])
    assert len(log.segments[-1].offset_index) == 4


def test_a_tail_comes_back_where_its_first_batch_was_repaired(disk: Disk) -> None:
    fill(disk, 20)
    disk.damage(SECOND, flip(550))
    disk.open(is_clean=False, **SMALL).close()
    name = SECOND + ".aside-0"
    with pytest.raises(AsideRefused, match="begins at offset 32, but the log ends at 30"):
        restore_aside(disk.fs, FOLDER, name)
    disk.damage(name, flip(50))
    restore_aside(disk.fs, FOLDER, name)
    assert disk.names(".log") == [FIRST, SECOND, f"{30:020d}.log"]
    assert offsets_of(disk.open(is_clean=False, **SMALL)) == list(range(40))


def test_on_a_compacted_topic_offsets_may_be_missing_before_it(disk: Disk) -> None:
    fill(disk, 20)
    disk.damage(SECOND, flip(550))
    disk.open(is_clean=False, **SMALL).close()
    name = SECOND + ".aside-0"
    restore_aside(disk.fs, FOLDER, name, allow_gap=True)
    assert aside_names(disk.fs, FOLDER) == [name], "its other bytes may hold records"
    log = disk.open(is_clean=False, cleanup_policy="compact", **SMALL)
    assert offsets_of(log) == [*range(30), *range(32, 40)]
    with pytest.raises(AsideRefused, match="the log has its good batches already"):
        restore_aside(disk.fs, FOLDER, name, allow_gap=True)


def test_an_aside_that_the_log_has_moved_past_is_refused(disk: Disk) -> None:
    fill(disk, 20)
    disk.damage(SECOND, flip(550))
    log = disk.open(is_clean=False, **SMALL)
    log.append(batch(2, timestamp=T0))
    log.append(batch(2, timestamp=T0))
    log.close()
    with pytest.raises(AsideRefused, match="begins at offset 32, but the log has other records"):
        restore_aside(disk.fs, FOLDER, SECOND + ".aside-0")


def test_what_is_no_aside_is_refused(disk: Disk) -> None:
    fill(disk, 20)
    disk.write(SECOND + ".aside-0", b"no batch at all")
    for name in (SECOND + ".aside-1", SECOND, "../orders-0"):
        with pytest.raises(AsideRefused, match="there is no such file"):
            drop_aside(disk.fs, FOLDER, name)
    with pytest.raises(AsideRefused, match="no batch that is good"):
        restore_aside(disk.fs, FOLDER, SECOND + ".aside-0")
    assert drop_aside(disk.fs, FOLDER, SECOND + ".aside-0").size_bytes == 15
    assert list_asides(disk.fs, FOLDER) == []


def test_aborted_transactions_of_what_came_back_are_known(disk: Disk) -> None:
    log = disk.open()
    log.append(batch(2))
    log.roll()
    log.append(batch(2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True))
    marker = encode_marker(Marker(True, 0, T0), producer_id=7, producer_epoch=0)
    log.append(marker, origin=COORDINATOR)
    wanted = log.aborted()
    assert wanted
    log.close()
    disk.fs.rename(disk.path(f"{2:020d}.log"), disk.path(f"{2:020d}.log.aside-0"))
    for suffix in (".index", ".timeindex", ".txnindex"):
        disk.fs.remove(disk.path(f"{2:020d}{suffix}"))
    for name in disk.names(".snapshot"):
        disk.fs.remove(disk.path(name))
    restore_aside(disk.fs, FOLDER, f"{2:020d}.log.aside-0")
    for is_clean in (True, False):
        log = Disk(disk.fs.crash()).open(is_clean=is_clean)
        assert (log.log_end_offset, log.aborted()) == (5, wanted)


def test_a_loss_that_would_be_accepted_is_not_set_aside_before(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, flip(550))
    before = content(disk)
    with pytest.raises(LogShorterThanFlushed):
        disk.open(is_clean=False, recovery_point=39, **SMALL)
    assert content(disk) == before


# -- a base offset that was raised: no checksum covers it ------------------------------------------

RAISED = flip(900 + 5)  # the last batch of a segment: of the second one, 38 becomes 38 + 65536


def test_a_batch_that_its_segment_could_not_hold_does_not_come_back(disk: Disk) -> None:
    """The segment that follows tells: set aside itself, or in the log again."""
    fill(disk)
    disk.damage(SECOND, RAISED)
    disk.open(is_clean=False, **SMALL).close()
    tail, third = SECOND + ".aside-0", THIRD + ".aside-0"
    assert disk.names(".aside-0") == [tail, third]
    (raised, _) = list_asides(disk.fs, FOLDER)
    assert find_misplaced(disk.fs, FOLDER, raised) == (38 + 65536, third)
    for following in (third, f"{38:020d}.log"):
        with pytest.raises(AsideRefused, match=f"{tail}: .* 65574 .* {following}"):
            restore_aside(disk.fs, FOLDER, tail, allow_gap=True)
        if following == third:
            restore_aside(disk.fs, FOLDER, third, allow_gap=True)
    assert disk.names(".aside-0") == [tail]
    assert offsets_of(disk.open(is_clean=False, **SMALL)) == [*range(38), *range(40, 60)]


def test_the_batches_before_one_that_its_segment_could_not_hold_come_back(disk: Disk) -> None:
    fill(disk)
    disk.damage(SECOND, RAISED)
    disk.damage(SECOND, flip(540))
    disk.open(is_clean=False, **SMALL).close()
    tail, third = SECOND + ".aside-0", THIRD + ".aside-0"
    restored = restore_aside(disk.fs, FOLDER, tail, allow_gap=True)
    assert (restored.first_offset, restored.end_offset, restored.batches) == (32, 38, 3)
    restore_aside(disk.fs, FOLDER, third, allow_gap=True)
    assert disk.names(".aside-0") == [tail]
    left = [*range(30), *range(32, 38), *range(40, 60)]
    assert offsets_of(disk.open(is_clean=False, **SMALL)) == left


def test_no_batch_of_an_aside_without_a_neighbour_is_misplaced(disk: Disk) -> None:
    fill(disk)
    disk.damage(THIRD, flip(540))
    disk.open(is_clean=False, **SMALL).close()
    (aside,) = list_asides(disk.fs, FOLDER)
    assert find_misplaced(disk.fs, FOLDER, aside) is None
