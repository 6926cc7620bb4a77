"""The metadata's reserve: it takes real room, is given up in pieces, and made where room is."""

import os
from pathlib import Path

import pytest

from raylog.cluster.controller.reserve import (
    METADATA_RESERVE,
    PIECE_BYTES,
    RESERVE_BYTES,
    Reserve,
)
from raylog.storage.errors import DiskFull, StorageError
from raylog.storage.files import RealFileSystem
from raylog.storage.testing.memory import MemoryFileSystem

PATH = f"/disk/{METADATA_RESERVE}"


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir("/disk")
    made.sync_dir("/")
    return made


def test_it_has_its_room_on_the_disk(tmp_path: Path) -> None:
    reserve = Reserve(RealFileSystem(), str(tmp_path))
    reserve.make()
    assert os.stat(reserve.path).st_blocks * 512 >= RESERVE_BYTES
    assert reserve.give_up_piece()
    kept = os.stat(reserve.path)
    assert kept.st_size == RESERVE_BYTES - PIECE_BYTES
    assert kept.st_blocks * 512 < RESERVE_BYTES
    reserve.make()
    assert os.stat(reserve.path).st_blocks * 512 >= RESERVE_BYTES
    assert os.listdir(tmp_path) == [METADATA_RESERVE]


def test_it_survives_a_loss_of_power_and_is_not_made_twice(fs: MemoryFileSystem) -> None:
    Reserve(fs, "/disk").make()
    crashed = fs.crash("flushed", names="flushed")
    assert Reserve(crashed, "/disk").size_bytes == RESERVE_BYTES
    Reserve(crashed, "/disk").make()
    assert crashed.operations == 0


def test_it_is_given_up_piece_by_piece_until_nothing_is_left(fs: MemoryFileSystem) -> None:
    reserve = Reserve(fs, "/disk")
    assert not reserve.give_up_piece()
    reserve.make()
    pieces = 0
    while reserve.give_up_piece():
        pieces += 1
        assert reserve.size_bytes == RESERVE_BYTES - pieces * PIECE_BYTES
    assert pieces == RESERVE_BYTES // PIECE_BYTES
    assert not fs.exists(PATH)
    assert not fs.crash("flushed", names="flushed").exists(PATH), "its room is free on the disk"


def test_it_takes_no_room_where_there_is_little(fs: MemoryFileSystem) -> None:
    reserve = Reserve(fs, "/disk")
    fs.size_bytes = 2 * RESERVE_BYTES - 1
    with pytest.raises(DiskFull, match=METADATA_RESERVE):
        reserve.make()
    assert not fs.exists(PATH)
    fs.size_bytes = 2 * RESERVE_BYTES
    reserve.make()
    assert reserve.size_bytes == RESERVE_BYTES


def test_where_others_were_faster_it_gives_back_what_it_took(fs: MemoryFileSystem) -> None:
    reserve = Reserve(fs, "/disk")
    reserve.make()
    reserve.give_up_piece()
    reserve.give_up_piece()
    fs.fail_at(fs.operations + 1, DiskFull)
    with pytest.raises(DiskFull):
        reserve.make()
    assert f"append {PATH}" in fs.log[-3:], "it took a piece, and not the second one"
    assert reserve.size_bytes == RESERVE_BYTES - 2 * PIECE_BYTES


def test_on_a_disk_that_fails_there_is_none(fs: MemoryFileSystem) -> None:
    reserve = Reserve(fs, "/disk")
    reserve.make()
    with fs.failing(lambda path: StorageError(path, "EIO")):
        assert not reserve.give_up_piece()
    assert reserve.give_up_piece()
