"""Bytes that recovery took out of a log, kept beside it until somebody decides.

::

    00000000000000000042.log.aside-0    a whole segment that had to leave the log: it was renamed
    00000000000000000042.log.aside-1    what was cut off a segment's end: copied before the cut

Recovery ends a log before the first batch that is not good. What lies behind may hold records, so
it is never removed: it gets a name that no opening, retention or compaction touches, here or in
Kafka's broker (with one exception: Kafka, when it finishes a compaction's swap, removes every file
whose base offset the swap replaces). A move to another log dir takes it along. It is kept once: a
recovery that is stopped between copy and cut finds the copy when it comes again.

Who decides is a person: ``raylog log aside list | restore | drop``.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from crc32c import crc32c

from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    AsideRefused,
    CorruptIndex,
    CorruptRecord,
    DiskFull,
    NoRoom,
    NoRoomToSetAside,
)
from raylog.storage.files import File, FileSystem
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    aside_file,
    aside_number,
    base_offsets,
    offset_of,
    segment_file,
)
from raylog.storage.records.batch import BatchHeader, check_crc, read_header
from raylog.storage.records.layout import (
    AT_LENGTH,
    AT_MAGIC,
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MIN_MESSAGE_LENGTH,
)
from raylog.storage.records.legacy import as_records
from raylog.storage.recovery import Batches
from raylog.storage.segment import Segment
from raylog.storage.shell import command
from raylog.storage.state.checkpoints import LEADER_EPOCHS, read_epochs, write_epochs

# How much is read, compared or copied at once.
PIECE_BYTES = 1 << 20
# What may be read in search of batches behind damage: so many times the file, and this beside it.
# Bytes that look like many long batches would otherwise cost the square of the file.
SEARCH_FACTOR = 16
SEARCH_BYTES = 64 << 20
# What a look at a place that is no batch costs at least, in bytes of such reading.
LOOK_BYTES = 4096


class Aside(NamedTuple):
    """One file that was set aside, and the good batches in it."""

    name: str
    base_offset: int  # of the segment that it was, or was cut from
    size_bytes: int
    first_offset: int  # of the first good batch, -1 if there is none
    end_offset: int  # behind the last good batch, -1 if there is none
    batches: int  # good ones
    good_bytes: int  # of the good batches together
    unsearched_bytes: int = 0  # at its end, where the search was given up: it may hold more


class Search:
    """How far good batches were looked for in a file."""

    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = SEARCH_FACTOR * size_bytes + SEARCH_BYTES
        self.given_up_at = -1

    def may_read(self, size_bytes: int, position: int) -> bool:
        """Whether a place that looks like a batch may be read; if not, the search ends there."""
        self._left_bytes -= max(size_bytes, LOOK_BYTES)
        if self._left_bytes >= 0:
            return True
        self.given_up_at = position
        return False


# -- what recovery does ----------------------------------------------------------------------------


def set_aside_segment(fs: FileSystem, folder: str, base_offset: int) -> str:
    """Rename a segment's ``.log``; returns the new name. The caller syncs the folder."""
    name = _free_name(fs, folder, base_offset)
    source = segment_file(base_offset, LOG_SUFFIX)
    fs.rename(os.path.join(folder, source), os.path.join(folder, name))
    return name


def set_aside_tail(fs: FileSystem, folder: str, base_offset: int, log: File, position: int) -> str:
    """Keep a copy of a file's bytes from ``position`` on; returns its name.

    It is on the disk when this returns. If the newest aside of this segment has the same bytes it
    is that copy. Raises NoRoomToSetAside with nothing changed.
    """
    newest = _newest(fs, folder, base_offset)
    if newest is not None and _is_copy(fs, os.path.join(folder, newest), log, position):
        fs.sync_dir(folder)
        return newest
    size_bytes = log.size - position
    usable_bytes = fs.room(folder).usable_bytes
    if size_bytes > usable_bytes:
        raise NoRoomToSetAside(folder, size_bytes, usable_bytes)
    name = _free_name(fs, folder, base_offset)
    target = os.path.join(folder, name)
    try:
        _copy(fs, log, position, log.size, target + ".tmp")
    except DiskFull as error:
        fs.remove(target + ".tmp")
        raise NoRoomToSetAside(folder, size_bytes, fs.room(folder).usable_bytes) from error
    fs.rename(target + ".tmp", target)
    fs.sync_dir(folder)
    return name


def is_zero(log: File, position: int = 0) -> bool:
    """Whether a file has only zero bytes from ``position`` on, as preallocated room has."""
    while position < log.size:
        content = log.read(PIECE_BYTES, position)
        if content.count(0) < len(content):
            return False
        position += len(content)
    return True


def _numbers(fs: FileSystem, folder: str, base_offset: int) -> list[int]:
    names = [name for name in fs.list_dir(folder) if offset_of(name) == base_offset]
    return sorted(number for name in names if (number := aside_number(name)) is not None)


def _free_name(fs: FileSystem, folder: str, base_offset: int) -> str:
    numbers = _numbers(fs, folder, base_offset)
    return aside_file(base_offset, numbers[-1] + 1 if numbers else 0)


def _newest(fs: FileSystem, folder: str, base_offset: int) -> str | None:
    numbers = _numbers(fs, folder, base_offset)
    return aside_file(base_offset, numbers[-1]) if numbers else None


def _is_copy(fs: FileSystem, path: str, log: File, position: int) -> bool:
    """Whether a file has exactly the bytes of ``log`` from ``position`` on."""
    copy = fs.open(path)
    try:
        if copy.size != log.size - position:
            return False
        for at in range(0, copy.size, PIECE_BYTES):
            if copy.read(PIECE_BYTES, at) != log.read(PIECE_BYTES, position + at):
                return False
        return True
    finally:
        copy.close()


def _copy(fs: FileSystem, source: File, start: int, end: int, path: str) -> None:
    """Write a part of a file into a new one, on the disk when this returns."""
    target = fs.open(path, create=True)
    try:
        target.truncate(0)
        while start < end:
            content = source.read(min(PIECE_BYTES, end - start), start)
            target.append([content])
            start += len(content)
        target.flush()
    finally:
        target.close()


# -- what is in an aside ---------------------------------------------------------------------------


def look_into(fs: FileSystem, folder: str, name: str, *, up_to: int = MAX_LONG) -> Aside:
    """What an aside holds; all of it is read. ``up_to``: as ``end_offset`` of ``good_batches``."""
    base_offset = offset_of(name)
    assert base_offset is not None
    file = fs.open(os.path.join(folder, name))
    first_offset = end_offset = -1
    batches = good_bytes = 0
    search = Search(file.size)
    try:
        for position, header in good_batches(file, base_offset, search, end_offset=up_to):
            if not batches:
                first_offset = _first_offset(file, position, header)
            end_offset = header.next_offset
            batches += 1
            good_bytes += header.size_bytes
        size_bytes = file.size
    finally:
        file.close()
    return Aside(
        name=name,
        base_offset=base_offset,
        size_bytes=size_bytes,
        first_offset=first_offset,
        end_offset=end_offset,
        batches=batches,
        good_bytes=good_bytes,
        unsearched_bytes=size_bytes - search.given_up_at if search.given_up_at >= 0 else 0,
    )


def _first_offset(file: File, position: int, header: BatchHeader) -> int:
    """The offset of a batch's first record.

    The header of a compressed set of versions 0 and 1 has only the last one's.
    """
    if header.magic == MAGIC:
        return header.base_offset
    content = file.read(header.size_bytes, position)
    try:
        records = as_records(content, 0, header, 0, check=False)
    except CorruptRecord:
        return header.base_offset
    return header.base_offset if records is None else records.base_offset


def good_batches(
    file: File, base_offset: int, search: Search | None = None, *, end_offset: int = MAX_LONG
) -> Iterator[tuple[int, BatchHeader]]:
    """The batches with a right CRC and rising offsets; what is not good between them is skipped.

    A damaged length, a header that is lost, or an offset that was raised does not hide what is
    behind: the next good batch is looked for at every byte. ``search``: tells afterwards whether
    that was given up. ``end_offset``: no batch that reaches beyond it is good.
    """
    search = search or Search(file.size)
    highest = min(_highest_offset(base_offset), end_offset - 1)
    position = good_end = 0
    next_offset = base_offset
    while position < file.size:
        header = _header_at(file, position)
        if header is None:
            found = _find_good(file, good_end + 1, next_offset, highest, search)
            if found is None:
                return
            position, header = found
        if _is_good(file, position, header, next_offset, highest):
            if not _is_raised(file, position, header, next_offset):
                yield position, header
                next_offset = header.next_offset
            good_end = position + header.size_bytes
        position += header.size_bytes


def _header_at(file: File, position: int) -> BatchHeader | None:
    """The header of a batch that ends within the file, None if there is none."""
    try:
        header = read_header(file.read(HEADER_SIZE, position))
    except CorruptRecord:
        return None
    return header if position + header.size_bytes <= file.size else None


def _find_good(
    file: File, start: int, next_offset: int, highest: int, search: Search
) -> tuple[int, BatchHeader] | None:
    """The first good batch that begins at ``start`` or behind, wherever that is."""
    at = start
    while at + AT_MAGIC < file.size:
        piece = file.read(PIECE_BYTES + AT_MAGIC, at)
        for found in _likely_starts(piece, file.size - at, next_offset, highest):
            position = at + found
            header = _header_at(file, position)
            if not search.may_read(0 if header is None else header.size_bytes, position):
                return None
            if header is None:
                continue
            if _is_good(file, position, header, next_offset, highest):
                return position, header
        at += PIECE_BYTES
    return None


def _is_good(
    file: File, position: int, header: BatchHeader, next_offset: int, highest: int
) -> bool:
    """Whether a batch has offsets that can follow in this segment, and a right CRC.

    No CRC covers the base offset.
    """
    is_in_place = next_offset <= header.base_offset <= header.last_offset <= highest
    return is_in_place and _has_right_crc(file, position, header)


def _is_raised(file: File, position: int, header: BatchHeader, next_offset: int) -> bool:
    """Whether a batch's base offset is too high: the two batches behind it go on below it."""
    position += header.size_bytes
    second = _header_at(file, position)
    if second is None or not next_offset <= second.base_offset < header.next_offset:
        return False
    third = _header_at(file, position + second.size_bytes)
    return third is not None and third.base_offset == second.next_offset


def _highest_offset(base_offset: int) -> int:
    """The last offset that a segment can hold."""
    return min(base_offset + MAX_INT, MAX_LONG)


def _likely_starts(piece: bytes, left_bytes: int, lowest: int, highest: int) -> Iterator[int]:
    """Where in ``piece`` a batch of any version may begin, by offset, length and magic.

    ``left_bytes``: from the piece's begin to the end of the file.
    """
    count = len(piece) - AT_MAGIC
    if count <= 0:
        return
    offsets = np.ndarray(count, ">i8", piece, 0, (1,))
    lengths = np.ndarray(count, ">i4", piece, AT_LENGTH, (1,))
    magics = np.ndarray(count, "u1", piece, AT_MAGIC, (1,))
    room = left_bytes - LOG_OVERHEAD - np.arange(count)
    is_likely = (
        (offsets >= lowest)
        & (offsets <= highest)
        & (lengths >= MIN_MESSAGE_LENGTH)
        & (lengths <= room)
        & (magics <= MAGIC)
    )
    yield from map(int, np.flatnonzero(is_likely))


def _has_right_crc(file: File, position: int, header: BatchHeader) -> bool:
    end = position + header.size_bytes
    if header.magic != MAGIC:
        try:
            check_crc(file.read(header.size_bytes, position), 0, header)
        except CorruptRecord:
            return False
        return True
    crc = 0
    for at in range(position + CRC_START, end, PIECE_BYTES):
        crc = crc32c(file.read(min(PIECE_BYTES, end - at), at), crc)
    return crc == header.crc


# -- what a person does ----------------------------------------------------------------------------


def list_asides(fs: FileSystem, folder: str) -> list[Aside]:
    """The files that were set aside in a partition's folder, by base offset. Reads all of them."""
    return [look_into(fs, folder, name) for name in aside_names(fs, folder)]


def find_misplaced(fs: FileSystem, folder: str, aside: Aside) -> tuple[int, str] | None:
    """The first good batch of an aside that its segment could not hold, by its base offset.

    And the name of the file that tells it: the segment that follows begins before the batch ends.
    """
    following, name = _following(fs, folder, aside)
    if aside.end_offset <= following:
        return None
    file = fs.open(os.path.join(folder, aside.name))
    try:
        batches = good_batches(file, aside.base_offset)
        first = next(header for _, header in batches if header.next_offset > following)
    finally:
        file.close()
    return first.base_offset, name


def _following(fs: FileSystem, folder: str, aside: Aside) -> tuple[int, str]:
    """Where the segment behind an aside's begins, and its name, in the log or set aside itself."""
    following = [(MAX_LONG, "")]
    for name in fs.list_dir(folder):
        offset = offset_of(name)
        if offset is None or offset <= aside.base_offset:
            continue
        if name.endswith(LOG_SUFFIX) or aside_number(name) is not None:
            following.append((offset, name))
    return min(following)


def is_in_log(fs: FileSystem, folder: str, aside: Aside) -> bool:
    """Whether the log has the good batches of an aside: they were restored, or came from a copy.

    Its first and its last one are looked for by their offsets and leader epoch: compaction may have
    changed what is in them.
    """
    if not aside.batches:
        return False
    file = fs.open(os.path.join(folder, aside.name))
    try:
        batches = good_batches(file, aside.base_offset)
        _, first = next(batches)
        if not _has_batch(fs, folder, first):
            return False
        last = first
        for _, header in batches:
            last = header
        return _has_batch(fs, folder, last)
    finally:
        file.close()


def _has_batch(fs: FileSystem, folder: str, wanted: BatchHeader) -> bool:
    """Whether the log has this batch."""
    bases = base_offsets(fs.list_dir(folder))
    base_offset = max((base for base in bases if base <= wanted.base_offset), default=None)
    if base_offset is None:
        return False
    segment = Segment(fs, folder, base_offset, LogConfig())
    try:
        found = segment.find_batch(wanted.base_offset)
    except (CorruptIndex, CorruptRecord):
        return False
    finally:
        segment.close()
    return found is not None and _identity(found[1]) == _identity(wanted)


def _identity(header: BatchHeader) -> tuple[int, int, int, int]:
    """What tells a batch from others with its offsets: its epoch; in old versions, its CRC."""
    crc = 0 if header.magic == MAGIC else header.crc
    return header.base_offset, header.last_offset, header.leader_epoch, crc


def aside_names(fs: FileSystem, folder: str) -> list[str]:
    """The names of the files that were set aside, by base offset and number."""
    names = [name for name in fs.list_dir(folder) if aside_number(name) is not None]
    return sorted(names, key=lambda name: (offset_of(name), aside_number(name)))


def restore_aside(fs: FileSystem, folder: str, name: str, *, allow_gap: bool = False) -> Aside:
    """Put the good batches of an aside back behind the log's end, as a segment of its own.

    An aside that has other bytes, too, stays; any other is gone afterwards. The log must be closed,
    and be opened as after a crash. ``allow_gap``: offsets may be missing before the aside.

    Raises AsideRefused with nothing changed: there is no such aside, it has no good batch, the log
    has records at its offsets or of a newer leader epoch, offsets would be missing, its first batch
    does not fit before the segment that follows, or the log is damaged itself. Others that do not
    fit are left out. Raises NoRoom, with no record changed, where the copy finds no room.
    """
    aside = find_aside(fs, folder, name)
    path = os.path.join(folder, name)
    if not aside.batches:
        raise AsideRefused(path, "it has no batch that is good")
    if is_in_log(fs, folder, aside):
        raise AsideRefused(path, "the log has its good batches already")
    misplaced = find_misplaced(fs, folder, aside)
    end_offset, _ = _following(fs, folder, aside)
    aside = look_into(fs, folder, name, up_to=end_offset)
    if misplaced is not None and not aside.batches:
        offset, following = misplaced
        raise AsideRefused(
            path,
            f"its batch of offset {offset} does not fit before {following}, which follows: the "
            "batch's base offset is damaged, or the log has grown since; its records can only be "
            "produced again, from a copy",
        )
    end = _end_of_log(fs, folder)
    if aside.first_offset < end:
        raise AsideRefused(
            path,
            f"it begins at offset {aside.first_offset}, but the log has other records up to {end}",
        )
    newest = _last_epoch(fs, folder, end)
    if 0 <= _first_epoch(fs, path, aside) < newest:
        raise AsideRefused(
            path,
            f"other records, of leader epoch {newest}, were appended to the log since; its records "
            "can only be produced again, from a copy",
        )
    if aside.first_offset > end and not allow_gap:
        raise AsideRefused(
            path,
            f"it begins at offset {aside.first_offset}, but the log ends at {end}: offsets would "
            "be missing; restore what was between first, or give --allow-gap",
        )
    if aside.end_offset - end > MAX_INT:
        raise AsideRefused(path, f"it is too far from the log's end, {end}, for one segment")
    _move_empty_epochs(fs, folder, end, aside.end_offset)
    target = os.path.join(folder, segment_file(end, LOG_SUFFIX))
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
        # of an empty segment that is replaced: opening makes those again that are missing
        fs.remove(os.path.join(folder, segment_file(end, suffix)))
    if aside.good_bytes == aside.size_bytes:
        fs.rename(path, target)
    else:
        _copy_good(fs, folder, path, target, aside, end_offset)
    fs.sync_dir(folder)
    return aside


def _first_epoch(fs: FileSystem, path: str, aside: Aside) -> int:
    """The leader epoch of an aside's first good batch."""
    file = fs.open(path)
    try:
        return next(good_batches(file, aside.base_offset))[1].leader_epoch
    finally:
        file.close()


def _last_epoch(fs: FileSystem, folder: str, end: int) -> int:
    """The leader epoch of the last record of a log that ends at ``end``, -1 if it has none."""
    epochs = read_epochs(fs, os.path.join(folder, LEADER_EPOCHS))
    return max((epoch for epoch, start in epochs if start < end), default=-1)


def _move_empty_epochs(fs: FileSystem, folder: str, end: int, new_end: int) -> None:
    """Have leader epochs without a record begin behind what is put back.

    A start begins one at the log's end. Else the next aside would be taken for older than records
    of that epoch, of which there are none. Opening corrects the file by the batches.
    """
    path = os.path.join(folder, LEADER_EPOCHS)
    epochs = read_epochs(fs, path)
    if any(start >= end for _, start in epochs):
        moved = [(epoch, start if start < end else new_end) for epoch, start in epochs]
        write_epochs(fs, path, moved)


def _copy_good(
    fs: FileSystem, folder: str, path: str, target: str, aside: Aside, end_offset: int
) -> None:
    """Write the good batches of an aside into a new file; ``end_offset`` as of ``good_batches``."""
    try:
        _write_good(fs, path, target + ".tmp", aside, end_offset)
    except DiskFull as error:
        fs.remove(target + ".tmp")
        raise NoRoom(folder, aside.good_bytes, fs.room(folder).usable_bytes) from error
    fs.rename(target + ".tmp", target)


def _write_good(fs: FileSystem, path: str, target: str, aside: Aside, end_offset: int) -> None:
    source, copy = fs.open(path), fs.open(target, create=True)
    try:
        copy.truncate(0)
        for position, header in good_batches(source, aside.base_offset, end_offset=end_offset):
            copy.append([source.read(header.size_bytes, position)])
        copy.flush()
    finally:
        source.close()
        copy.close()


def drop_aside(fs: FileSystem, folder: str, name: str) -> Aside:
    """Remove an aside for good; returns what it was. Raises AsideRefused if there is none."""
    aside = find_aside(fs, folder, name)
    fs.remove(os.path.join(folder, name))
    fs.sync_dir(folder)
    return aside


def find_aside(fs: FileSystem, folder: str, name: str) -> Aside:
    """What an aside holds. Raises AsideRefused if there is none of this name."""
    if name not in aside_names(fs, folder):
        raise AsideRefused(os.path.join(folder, name), "there is no such file set aside")
    return look_into(fs, folder, name)


def _end_of_log(fs: FileSystem, folder: str) -> int:
    """Where a closed log ends. Raises AsideRefused if it must be recovered first."""
    bases = base_offsets(fs.list_dir(folder))
    if not bases:
        raise AsideRefused(folder, "the partition's folder has no .log file")
    segment = Segment(fs, folder, max(bases), LogConfig())
    try:
        batches = Batches(segment, verify=True)
        batches.read()
        if not batches.is_whole:
            repair = command("log", "repair", folder)
            raise AsideRefused(segment.path, f"the log is damaged itself; first: {repair}")
        return batches.next_offset
    finally:
        segment.close()
