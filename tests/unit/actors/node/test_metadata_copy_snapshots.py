"""Snapshots in the copy of the metadata on a node's disk: kept, gone on behind, and every crash."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from raylog.actors.control import MetadataKept, MetadataPush
from raylog.actors.levels import CHAINED_LEVEL
from raylog.actors.metadata_history import ERA_EPOCHS
from raylog.actors.metadata_snapshot import snapshot_ids, to_bytes
from raylog.actors.node.metadata_copy import (
    NEW_SUFFIX,
    MetadataCopy,
    all_batches,
    open_metadata,
    values_of,
)
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import LevelRecord
from raylog.storage.names import base_offsets
from raylog.storage.testing.clock import T0, ManualClock
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives
from tests.harness.metadata_pushes import CLUSTER, NEWER_LEVELS, Pushing, began, topic

LOG_DIR = "/disk/log"
FOLDER = "/disk/log/__cluster_metadata-0"
LEVEL = LevelRecord(level=CHAINED_LEVEL, release="0.2.0")
HISTORY = Pushing(
    LEVEL, began(1), topic("a"), topic("b"), (topic("c"), topic("d")), began(2), topic("e")
)
END = HISTORY.history.end


@pytest.fixture
def fs() -> MemoryFileSystem:
    return disk()


def disk() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir(LOG_DIR)
    made.sync_dir("/disk")
    made.sync_dir("/")
    return made


def copy_in(fs: MemoryFileSystem) -> MetadataCopy:
    return MetadataCopy(
        fs,
        ManualClock(),
        LOG_DIR,
        cluster_id=CLUSTER,
        node="b",
        life="life",
        directory_id="dir-b",
    )


def has(kept: MetadataKept, history: Pushing, end: int | None = None) -> bool:
    """Whether it has these records, and no others."""
    known = history.history
    wanted = known.end if end is None else end
    return (kept.end, kept.digest) == (wanted, known.digest_at(wanted)) and not kept.problem


def snapshots(fs: MemoryFileSystem) -> list[int]:
    return [which.end for which in snapshot_ids(fs.list_dir(FOLDER))]


def is_whole(fs: MemoryFileSystem) -> bool:
    """Whether a Controller that begins over the folder as it lies has everything."""
    log = MetadataLog(fs, ManualClock(), LOG_DIR, levels=NEWER_LEVELS)
    try:
        topics = {entry.name for entry in log.desired.topics.values()}
        return log.end == END and topics == {"a", "b", "c", "d", "e"}
    finally:
        log.close()


def test_a_copy_that_lacks_records_goes_on_behind_the_snapshot(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push(end=3, epoch=1))
    kept = copy.take(HISTORY.push_snapshot(5))
    assert has(kept, HISTORY)
    assert (kept.snapshot_end, kept.promised, kept.epochs) == (5, 2, HISTORY.history.epochs)
    assert kept.number > 0
    copy.release()
    assert base_offsets(fs.list_dir(FOLDER)) == [5]
    assert [name for name in fs.list_dir(LOG_DIR) if name.endswith("-delete")]
    assert has(copy.status(), HISTORY)
    copy.release()
    assert is_whole(fs)


def test_a_new_copy_begins_behind_the_snapshot(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    assert has(copy.take(HISTORY.push_snapshot(5)), HISTORY)
    copy.release()
    assert is_whole(fs)


def test_a_copy_that_has_the_records_keeps_the_snapshot_and_its_own_log(
    fs: MemoryFileSystem,
) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push())
    for of in (4, 5, 7):
        kept = copy.take(HISTORY.push_snapshot(of, base=END))
        assert has(kept, HISTORY)
        assert kept.snapshot_end == of
    copy.take(HISTORY.push_snapshot(4, base=END))  # an older one, late
    copy.release()
    assert snapshots(fs) == [7, 5]
    assert is_whole(fs)
    assert has(copy_in(fs).status(), HISTORY)


def test_a_copy_removes_what_two_snapshots_have_made_needless(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    going_on = Pushing(LEVEL, began(1))
    for number in range(6):
        going_on.add(topic(f"t{number}"))
        end = going_on.history.end
        copy.take(going_on.push(end - 1 if number else 0))
        assert has(copy.take(going_on.push_snapshot(end, base=end)), going_on)
    copy.release()
    end = going_on.history.end
    assert snapshots(fs) == [end, end - 1]
    assert min(base_offsets(fs.list_dir(FOLDER))) == end - 1
    assert has(copy_in(fs).status(), going_on)


def test_a_push_from_the_first_record_on_does_not_agree_with_a_copy_behind_a_snapshot(
    fs: MemoryFileSystem,
) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push_snapshot(5))
    kept = copy.take(HISTORY.push(0))
    assert has(kept, HISTORY)
    assert kept.number == 0


def test_a_controller_of_a_lower_epoch_replaces_nothing(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push(end=3, epoch=1))
    copy.promise(9)
    kept = copy.take(HISTORY.push_snapshot(5))
    assert has(kept, HISTORY, 3)
    assert (kept.number, kept.promised, kept.snapshot_end) == (0, 9, 0)


def test_the_tail_of_a_lost_controller_goes_with_what_the_snapshot_replaces(
    fs: MemoryFileSystem,
) -> None:
    lost = Pushing(LEVEL, began(1), topic("a"), topic("lost"), topic("too"), topic("all"))
    copy = copy_in(fs)
    copy.take(lost.push())
    assert has(copy.take(HISTORY.push_snapshot(5)), HISTORY)
    copy.release()
    assert is_whole(fs)


# As HISTORY before record 5.
LOST = Pushing(LEVEL, began(1), topic("a"), topic("b"), topic("lost"), topic("too"))


def keeps_lost(copy: MetadataCopy, *snapshots: int) -> None:
    """The copy of a Controller that is lost, which has kept these snapshots while it was open."""
    copy.take(LOST.push())
    for of in snapshots:
        copy.take(LOST.push_snapshot(of, base=LOST.history.end))


def test_the_tail_of_a_lost_controller_is_cut_behind_the_snapshots_that_are_kept(
    fs: MemoryFileSystem,
) -> None:
    copy = copy_in(fs)
    keeps_lost(copy, 3, 5)
    assert has(copy.take(HISTORY.push(5)), HISTORY)
    assert snapshots(fs) == [5, 3]
    assert has(copy.take(HISTORY.push(END)), HISTORY)
    copy.release()
    assert is_whole(fs)


def damage(fs: MemoryFileSystem, end: int) -> None:
    (which,) = [found for found in snapshot_ids(fs.list_dir(FOLDER)) if found.end == end]
    path = f"{FOLDER}/{which.file_name}"
    fs.write_file(path, fs.read_file(path)[:-1])


def test_a_damaged_snapshot_of_a_lost_controller_is_cut_with_its_records() -> None:
    """Else the log would seem to have lost them."""

    def keeps_damaged(copy: MetadataCopy, fs: MemoryFileSystem) -> None:
        keeps_lost(copy, 4, 6)
        copy.release()
        damage(fs, 6)

    push = HISTORY.push(5, end=6)
    for fs, kept in crashes(keeps_damaged, lambda copy: copy.take(push)):
        copy = copy_in(fs)
        after = copy.status()
        assert not after.problem
        assert has(after, HISTORY, after.end) or has(after, LOST)
        assert kept is None or after.end == 7
        assert has(copy.take(HISTORY.push(5)), HISTORY)
        copy.release()
        assert snapshots(fs) == [4]
        assert is_whole(fs)


def test_a_damaged_snapshot_is_mended_by_the_same_one_of_the_controller(
    fs: MemoryFileSystem,
) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push())
    for of in (4, 5):
        copy.take(HISTORY.push_snapshot(of, base=END))
    copy.release()
    damage(fs, 5)
    assert copy.status().snapshot_end == 4
    copy.take(HISTORY.push_snapshot(5, base=END))
    copy.release()
    assert copy.status().snapshot_end == 5


@pytest.mark.parametrize("is_opened_again", [False, True])
@pytest.mark.parametrize(
    "whole", [HISTORY.push(0), HISTORY.push_snapshot(5), HISTORY.push_snapshot(7)]
)
def test_a_snapshot_of_a_lost_controller_is_not_cut_and_the_copy_is_made_anew(
    fs: MemoryFileSystem, whole: MetadataPush, *, is_opened_again: bool
) -> None:
    copy = copy_in(fs)
    keeps_lost(copy, 4, 6)
    if is_opened_again:
        copy.release()
    refused = copy.take(HISTORY.push(5))
    assert (refused.number, refused.end) == (0, LOST.history.end)
    assert has(copy.take(whole), HISTORY)
    assert has(copy.take(whole), HISTORY), "the same again, late"
    copy.release()
    assert is_whole(fs)


def test_after_any_crash_while_a_copy_is_made_anew_it_is_the_old_one_none_or_it() -> None:
    push = HISTORY.push(0)
    for fs, kept in crashes(lambda copy, _: keeps_lost(copy, 4, 6), lambda copy: copy.take(push)):
        copy = copy_in(fs)
        after = copy.status()
        assert has(after, HISTORY, after.end) or has(after, LOST)
        assert kept is None or has(after, HISTORY)
        assert has(copy.take(push), HISTORY)
        copy.release()
        assert is_whole(fs)


def test_what_differs_in_one_epoch_is_never_replaced(fs: MemoryFileSystem) -> None:
    other = Pushing(LEVEL, began(1), topic("a"), began(2), *map(topic, "uvwxyz"))
    copy = copy_in(fs)
    copy.take(other.push())
    kept = copy.take(HISTORY.push_snapshot(8))
    assert (kept.end, kept.number) == (other.history.end, 0)
    assert has(copy.status(), other)


def test_a_snapshot_that_cannot_be_read_is_a_problem_and_changes_nothing(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push(end=3, epoch=1))
    push = HISTORY.push_snapshot(5)
    damaged = copy.take(replace(push, snapshot=push.snapshot[:-1]))
    assert "its first record batch is damaged" in damaged.problem
    with monkeypatch.context() as newer:
        newer.setattr("raylog.actors.metadata_snapshot.VERSION", 2)
        of_newer = to_bytes(HISTORY.snapshot(5), T0)
    assert "version 2; install that raylog" in copy.take(replace(push, snapshot=of_newer)).problem
    foreign = Pushing(LEVEL, began(1), topic("a"), cluster_id="another-cluster-of-them")
    assert copy.take(replace(push, snapshot=foreign.push_snapshot(3).snapshot)).problem
    assert has(copy.status(), HISTORY, 3)


WAYS: list[tuple[Survives, Survives]] = [
    ("flushed", "flushed"),
    ("torn", "torn"),
    ("all", "all"),
    ("flushed", "all"),
]


def crashes(
    prepare: Callable[[MetadataCopy, MemoryFileSystem], object],
    work: Callable[[MetadataCopy], MetadataKept],
) -> list[tuple[MemoryFileSystem, MetadataKept | None]]:
    """What is found after a crash before each operation of ``work``, and its answer if it came."""
    found: list[tuple[MemoryFileSystem, MetadataKept | None]] = []
    kept: MetadataKept | None = None
    step = 0
    while kept is None:
        fs = disk()
        copy = copy_in(fs)
        prepare(copy, fs)
        fs.stop_at(fs.operations + step)
        try:
            kept = work(copy)
        except Stopped:
            pass
        found += [(fs.crash(survives, names=names, seed=step), kept) for survives, names in WAYS]
        step += 1
    return found


def test_after_any_crash_a_copy_that_begins_behind_a_snapshot_is_the_old_one_none_or_it() -> None:
    push = HISTORY.push_snapshot(5)
    found = crashes(
        lambda copy, _: copy.take(HISTORY.push(end=3, epoch=1)), lambda copy: copy.take(push)
    )
    assert len(found) > 80
    for fs, kept in found:
        copy = copy_in(fs)
        after = copy.status()
        assert not after.problem
        assert after.end in (0, 3, *range(5, END + 1))
        assert has(after, HISTORY, after.end)
        assert kept is None or has(after, HISTORY)
        assert after.end == 0 or after.promised in (1, 2)
        assert after.end in (0, 3) or after.promised == 2
        assert has(copy.take(push), HISTORY)
        copy.release()
        assert is_whole(fs)


def test_after_any_crash_a_copy_that_was_given_up_for_a_snapshot_is_whole_in_one_place() -> None:
    lost = Pushing(LEVEL, began(1), topic("a"), topic("lost"), topic("too"), topic("many"))
    restored = Pushing(LEVEL, began(1), topic("a"), began(ERA_EPOCHS), topic("b"), topic("c"))
    push = restored.push_snapshot(6)
    found = crashes(lambda copy, _: copy.take(lost.push()), lambda copy: copy.take(push))
    assert len(found) > 40
    for fs, kept in found:
        whole = [name for name in folders(fs) if end_in(fs, name, lost) == lost.history.end]
        assert len(whole) == 1
        assert kept is None or whole[0].endswith("-stray")
        copy = copy_in(fs)
        assert not copy.status().problem
        assert has(copy.take(push), restored)
        copy.release()
        (aside,) = [name for name in folders(fs) if name.endswith("-stray")]
        assert end_in(fs, aside, lost) == lost.history.end


def folders(fs: MemoryFileSystem) -> list[str]:
    """Those of metadata, but what a crash has left of one that was being made."""
    names = [name for name in fs.list_dir(LOG_DIR) if name.startswith("__cluster_metadata-0")]
    return [name for name in names if not name.endswith(NEW_SUFFIX)]


def end_in(fs: MemoryFileSystem, name: str, history: Pushing) -> int:
    """So many records of this history are in a folder, which stays as it is; -1: it has others."""
    log = open_metadata(fs.crash(), ManualClock(), f"{LOG_DIR}/{name}")
    try:
        batches = all_batches(log, log.log_start_offset)
        values = [value for batch in batches for value in values_of(batch)]
        is_of_it = values == history.values[: len(values)]
        return log.log_end_offset if is_of_it and log.log_start_offset == 0 else -1
    finally:
        log.release()


def test_after_any_crash_while_a_snapshot_is_kept_every_record_is_there() -> None:
    def prepare(copy: MetadataCopy, _: MemoryFileSystem) -> None:
        copy.take(HISTORY.push())
        copy.take(HISTORY.push_snapshot(4, base=END))
        copy.take(HISTORY.push_snapshot(5, base=END))

    push = HISTORY.push_snapshot(7, base=END)
    for fs, kept in crashes(prepare, lambda copy: copy.take(push)):
        copy = copy_in(fs)
        after = copy.status()
        assert has(after, HISTORY)
        assert after.snapshot_end in ((7,) if kept else (5, 7))
        assert has(copy.take(push), HISTORY)
        copy.release()
        assert snapshots(fs)[:2] == [7, 5]  # what is left goes with the next one
        assert is_whole(fs)
