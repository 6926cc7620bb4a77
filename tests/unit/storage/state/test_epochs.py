"""Leader epochs: which began where."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from raylog.storage.errors import CorruptCheckpoint, DiskFull, OutOfResources, StorageError
from raylog.storage.state.epochs import LeaderEpochs
from raylog.storage.testing.memory import MemoryFileSystem

Entries = tuple[tuple[int, int], ...]


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    fs = MemoryFileSystem()
    made = LeaderEpochs(fs, "/")
    for entry in entries:
        made.assign(*entry)
    assert LeaderEpochs(fs.crash("flushed", names="flushed"), "/").entries == made.entries
    return made


def test_none_at_first() -> None:
    assert (epochs().latest, epochs().entries, epochs().epoch_at(0)) == (-1, (), -1)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (((0, 0), (1, 5)), ((0, 0), (1, 5))),
        (((0, 0), (0, 5)), ((0, 0),)),
        (((0, 5), (0, 3)), ((0, 3),)),
        (((0, 0), (1, 5), (2, 5)), ((0, 0), (2, 5))),
        (((0, 0), (3, 5), (2, 9)), ((0, 0), (2, 9))),
        (((0, 4), (1, 5), (2, 4)), ((2, 4),)),
        (((0, 0), (1, 0)), ((1, 0),)),
    ],
)
def test_a_new_epoch_drops_what_it_contradicts(given: Entries, kept: Entries) -> None:
    made = epochs(*given)
    assert made.entries == kept
    assert made.latest == kept[-1][0]


@pytest.mark.parametrize(("end", "kept"), [(10, 3), (9, 2), (6, 2), (5, 1), (1, 1), (0, 0)])
def test_a_cut_at_the_end_drops_the_epochs_that_begin_behind_it(end: int, kept: int) -> None:
    made = epochs((0, 0), (2, 5), (3, 9))
    made.truncate_from_end(end)
    assert made.entries == ((0, 0), (2, 5), (3, 9))[:kept]


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        (10, ((0, 0), (2, 5), (3, 9))),
        (9, ((0, 0), (2, 5), (3, 9))),
        (6, ((0, 0), (2, 5), (3, 6))),
        (5, ((0, 0), (3, 5))),
        (0, ((3, 0),)),
    ],
)
def test_the_newest_number_outlives_its_batches(end: int, kept: Entries) -> None:
    made = epochs((0, 0), (2, 5), (3, 9))
    made.end_at(end)
    assert (made.entries, made.next) == (kept, 4)


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        (0, ((1, 2), (2, 5))),
        (2, ((1, 2), (2, 5))),
        (4, ((1, 4), (2, 5))),
        (5, ((2, 5),)),
        (9, ((2, 9),)),
    ],
)
def test_a_moved_start_moves_the_epoch_that_holds_it(start: int, kept: Entries) -> None:
    made = epochs((1, 2), (2, 5))
    made.truncate_from_start(start)
    assert made.entries == kept


def test_the_epoch_of_an_offset() -> None:
    made = epochs((1, 2), (4, 5))
    assert [made.epoch_at(offset) for offset in (0, 1, 2, 4, 5, 99)] == [-1, -1, 1, 1, 4, 4]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (5, (5, 20)),
        (4, (3, 9)),  # never seen: the one before it, to where the next began
        (3, (3, 9)),
        (2, (2, 6)),
        (1, (1, 4)),  # below the first: the asked one comes back
        (6, (-1, -1)),
        (-1, (-1, -1)),
    ],
)
def test_end_offset_for_below_the_first_epoch_echoes_the_requested_one(
    epoch: int, answer: tuple[int, int]
) -> None:
    assert epochs((2, 4), (3, 6), (5, 9)).end_offset_for(epoch, log_end_offset=20) == answer


def test_without_epochs_no_epoch_has_an_end() -> None:
    assert {epochs().end_offset_for(epoch, 7) for epoch in (-1, 0, 3)} == {(-1, -1)}


def test_a_corrupt_file_is_named() -> None:
    fs = MemoryFileSystem()
    fs.write_file("/leader-epoch-checkpoint", b"nonsense")
    with pytest.raises(CorruptCheckpoint, match="leader-epoch-checkpoint"):
        LeaderEpochs(fs, "/")


def test_behind_the_last_epoch_comes_none() -> None:
    assert epochs((4, 0)).next == 5
    with pytest.raises(CorruptCheckpoint, match="2147483647 is the highest"):
        epochs((2**31 - 1, 0)).next  # noqa: B018


# -- a full disk -----------------------------------------------------------------------------------


def full(fs: MemoryFileSystem) -> AbstractContextManager[None]:
    return fs.failing(DiskFull, "append")


def out_of_descriptors(path: str) -> OutOfResources:
    return OutOfResources(path, "this process has no file descriptor left")


@pytest.mark.parametrize(
    ("fault", "verb", "is_written"),
    [
        (DiskFull, "append", False),
        (out_of_descriptors, "create", False),
        (out_of_descriptors, "sync_dir", True),
    ],
)
def test_a_change_that_finds_no_room_counts_and_is_saved_later(
    fault: Callable[[str], StorageError], verb: str, is_written: bool
) -> None:
    fs = MemoryFileSystem()
    made = LeaderEpochs(fs, "/")
    made.assign(0, 0)
    with fs.failing(fault, verb):
        made.assign(1, 5)
        assert (made.entries, made.is_stale) == (((0, 0), (1, 5)), True)
        with pytest.raises(type(fault("/"))):
            made.save()
    assert made.is_stale
    assert (LeaderEpochs(fs, "/").entries == made.entries) is is_written
    made.save()
    assert not made.is_stale
    assert LeaderEpochs(fs, "/").entries == ((0, 0), (1, 5))


@pytest.mark.parametrize("cut", ["truncate_from_start", "truncate_from_end"])
def test_what_a_full_disk_kept_from_being_cut_the_next_change_cuts(cut: str) -> None:
    fs = MemoryFileSystem()
    made = LeaderEpochs(fs, "/")
    for entry in ((0, 0), (2, 5), (3, 9)):
        made.assign(*entry)
    with full(fs):
        getattr(made, cut)(7)
    assert made.is_stale
    made.assign(4, 9)
    assert not made.is_stale
    assert LeaderEpochs(fs, "/").entries == made.entries
