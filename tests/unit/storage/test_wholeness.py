"""The metadata is refused where its last batch is damaged, and opened where it is torn."""

import itertools
import json

import pytest

from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.errors import LogMissing
from raylog.storage.loader import create_log, open_log
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import LOG_SUFFIX, segment_file
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import AT_LENGTH, AT_MAGIC, CRC_START, HEADER_SIZE
from raylog.storage.state.properties import random_id
from raylog.storage.testing.clock import T0
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.tools.repair import repair_folder
from raylog.storage.wholeness import LEAST_ZERO_BYTES, SECTOR_BYTES, check_whole

FOLDER = "/d/__cluster_metadata-0"
PATH = f"{FOLDER}/{segment_file(0, LOG_SUFFIX)}"


def a_batch(offset: int, size_bytes: int = 60) -> bytes:
    value = json.dumps({"key": "x" * size_bytes}).encode()
    return bytes(encode_records([(T0, None, value, ())], base_offset=offset))


FIRST, LAST = a_batch(0), a_batch(1)


def with_log(content: bytes) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_dir("/d")
    create_log(fs, FOLDER, random_id())
    fs.write_file(PATH, content)
    return fs


def test_a_flipped_bit_in_the_last_batch_is_damage_and_no_torn_write() -> None:
    """Of all that a CRC or the length tells; no CRC covers the base offset and the epoch."""
    told = [*range(AT_LENGTH, AT_LENGTH + 4), AT_MAGIC, *range(AT_MAGIC + 1, len(LAST))]
    for position, bit in itertools.product(told, range(8)):
        content = bytearray(FIRST + LAST)
        content[len(FIRST) + position] ^= 1 << bit
        fs = with_log(bytes(content))
        with pytest.raises(LogMissing, match=f"damaged at byte {len(FIRST)}, in its last batch"):
            check_whole(fs, FOLDER)


def test_a_write_that_ends_anywhere_is_torn() -> None:
    for size_bytes in range(len(LAST)):
        assert check_whole(with_log(FIRST + LAST[:size_bytes]), FOLDER) == 1, size_bytes
    assert check_whole(with_log(FIRST + LAST), FOLDER) == 2


@pytest.mark.parametrize("before_bytes", [0, 100, SECTOR_BYTES - 61, SECTOR_BYTES - 20, 400])
def test_a_write_of_which_any_sectors_were_not_written_is_torn(before_bytes: int) -> None:
    first = a_batch(0, 700 + before_bytes)
    whole = first + a_batch(1, 1400)
    sectors = range(len(first) // SECTOR_BYTES, -(-len(whole) // SECTOR_BYTES))
    lost = [those for n in range(1, 4) for those in itertools.combinations(sectors, n)]
    seen = 0
    for those in lost:
        content, most = bytearray(whole), 0
        for sector in those:
            # What was in the file before is on the disk.
            begin = max(len(first), sector * SECTOR_BYTES)
            end = min(len(whole), (sector + 1) * SECTOR_BYTES)
            content[begin:end] = bytes(end - begin)
            most = max(most, end - begin)
        if most < LEAST_ZERO_BYTES:
            continue
        seen += 1
        assert check_whole(with_log(bytes(content)), FOLDER) == 1, those
    assert seen > 5


def test_zeros_where_a_sector_does_not_end_are_damage() -> None:
    first, last = a_batch(0), a_batch(1, 2000)
    content = bytearray(first + last)
    content[1025:1536] = bytes(511)
    with pytest.raises(LogMissing, match="in its last batch"):
        check_whole(with_log(bytes(content)), FOLDER)


def test_a_torn_write_behind_a_damaged_batch_does_not_hide_the_damage() -> None:
    damaged = bytearray(LAST)
    damaged[HEADER_SIZE + 5] ^= 1
    for behind in (a_batch(2)[:80], bytes(2000)):
        with pytest.raises(LogMissing, match="in its last batch"):
            check_whole(with_log(FIRST + bytes(damaged) + behind), FOLDER)


def test_room_that_was_never_written_is_torn() -> None:
    for size_bytes in (1, HEADER_SIZE, 700, 5000):
        assert check_whole(with_log(FIRST + bytes(size_bytes)), FOLDER) == 1


def test_the_repair_ends_the_log_before_the_damage_and_keeps_the_batch() -> None:
    """What docs/OPERATIONS.md advises, Damaged metadata."""
    content = bytearray(FIRST + LAST)
    content[len(FIRST) + CRC_START + 50] ^= 1
    fs = with_log(bytes(content))
    repaired = repair_folder(fs, SystemClock(), FOLDER)
    assert repaired is not None
    assert repaired.end_offset == check_whole(fs, FOLDER) == 1
    assert fs.read_file(f"{repaired.copy}/{segment_file(0, LOG_SUFFIX)}") == bytes(content)
    (entry,) = repaired.of_kind("cut")
    assert fs.read_file(f"{FOLDER}/{entry.kept_as}") == bytes(content[len(FIRST) :])
    log = open_log(fs, SystemClock(), FOLDER, METADATA_PARTITION, LogConfig(retention_ms=-1))
    assert log.log_end_offset == 1
    log.close()
