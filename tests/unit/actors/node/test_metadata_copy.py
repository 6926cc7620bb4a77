"""The copy of the metadata on a node's disk: what it takes, what it promises, and every crash."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from raylog.actors.control import VERSION, MetadataKept, MetadataPush
from raylog.actors.errors import UnsupportedVersion
from raylog.actors.metadata_history import ERA_EPOCHS
from raylog.actors.node.metadata_copy import (
    NEW_SUFFIX,
    REOPEN_MS,
    MetadataCopy,
    all_batches,
    open_metadata,
    values_of,
)
from raylog.cluster.controller.copies import choose
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.surveying import Surveyor
from raylog.storage.errors import DiskFull, LogLocked, StorageError
from raylog.storage.names import LOG_SUFFIX, segment_file
from raylog.storage.state.controller_epoch import read_controller_epoch
from raylog.storage.state.properties import random_id
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem, Stopped, Survives
from tests.harness.metadata_pushes import CLUSTER, Pushing, began, topic

LOG_DIR = "/disk/log"
METADATA = "__cluster_metadata-0"
FOLDER = f"{LOG_DIR}/{METADATA}"
SEGMENT = f"{FOLDER}/{segment_file(0, LOG_SUFFIX)}"
# Decisions of one Controller, the second of them of two records.
HISTORY = Pushing(began(1), (topic("t"), topic("u")), topic("v"))


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir(LOG_DIR)
    made.sync_dir("/disk")
    made.sync_dir("/")
    return made


def copy_in(fs: MemoryFileSystem, clock: ManualClock | None = None) -> MetadataCopy:
    return MetadataCopy(
        fs,
        clock or ManualClock(),
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
    return (kept.end, kept.digest) == (wanted, known.digest_at(wanted))


def read_back(fs: MemoryFileSystem) -> list[bytes]:
    """The records that a Controller finds which begins over the folder as it lies."""
    (found,) = Surveyor(fs).survey("node-b", [LOG_DIR])
    home = choose([found], "node-b", new_id=random_id())
    log = MetadataLog(fs, ManualClock(), home.log_dir)
    try:
        return list(log.values())
    finally:
        log.close()


# -- what it takes ---------------------------------------------------------------------------------


def test_a_look_at_a_node_without_a_copy_makes_none(fs: MemoryFileSystem) -> None:
    kept = copy_in(fs).status()
    assert (kept.end, kept.digest, kept.epochs, kept.promised) == (0, b"", (), -1)
    assert (kept.node, kept.life, kept.directory_id) == ("b", "life", "dir-b")
    assert (kept.problem, kept.idle_ms) == ("", -1)
    assert copy_in(fs).read(0, 1 << 20) == ()
    assert not fs.exists(FOLDER)


def test_it_has_what_was_pushed_and_a_controller_can_begin_over_it(fs: MemoryFileSystem) -> None:
    clock = ManualClock()
    copy = copy_in(fs, clock)
    kept = copy.take(HISTORY.push(0, 2))
    assert has(kept, HISTORY, 2), kept
    assert (kept.promised, kept.controller_epoch) == (1, 1)
    kept = copy.take(HISTORY.push(2))
    assert has(kept, HISTORY), kept
    assert copy.status() == replace(kept, number=0)
    copy.release()
    assert read_back(fs) == HISTORY.values


def test_it_knows_which_of_its_answers_the_controller_has_got(fs: MemoryFileSystem) -> None:
    clock = ManualClock()
    copy = copy_in(fs, clock)
    first = copy.take(HISTORY.push())
    assert (first.number, first.idle_ms) == (1, -1), "nobody knows whether it arrives"
    clock.advance(700)
    second = copy.take(replace(HISTORY.push(), life="life", heard=1))
    assert (second.number, second.idle_ms) == (2, 700)
    clock.advance(100)
    copy.take(replace(HISTORY.push(), life="before", heard=2))  # of another life
    clock.advance(100)
    lost = copy.take(replace(HISTORY.push(), life="life", heard=1))
    assert (lost.number, lost.idle_ms) == (4, 900)
    assert copy.promise(2).idle_ms == 900
    assert copy.take(replace(HISTORY.push(), life="life", heard=4)).number == 0, "it is refused"
    assert copy.status().idle_ms == 900
    newer = Pushing(*HISTORY.decisions[1:], began(2))
    assert copy.take(newer.push(5)).idle_ms == -1, "of another Controller nothing is known"


def test_its_batches_are_those_of_the_controller(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push())
    sizes = [len(batch) for batch in copy.read(0, 1 << 20)]
    assert sizes == [len(batch) for batch in HISTORY.batches()]
    assert [len(batch) for batch in copy.read(2, 1)] == sizes[2:3]
    assert copy.read(HISTORY.history.end, 1) == ()


def test_a_push_from_further_on_is_answered_with_what_it_has(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    assert copy.take(HISTORY.push(2)).end == 0
    copy.take(HISTORY.push(0, 2))
    kept = copy.take(HISTORY.push(4))
    assert has(kept, HISTORY, 2)
    assert not kept.problem


def test_a_push_that_comes_twice_or_late_changes_nothing(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    first = HISTORY.push(0, 2)
    copy.take(first)
    copy.take(HISTORY.push(2))
    before = fs.operations
    for late in (first, HISTORY.push(), HISTORY.push(2), HISTORY.push(4)):
        kept = copy.take(late)
        assert has(kept, HISTORY), kept
        assert not kept.problem
    assert fs.operations == before


def test_a_digest_that_is_not_its_own_is_not_gone_on_from(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push(0, 4))
    lying = replace(HISTORY.push(4), digest=b"12345678")
    kept = copy.take(lying)
    assert has(kept, HISTORY, 4)
    assert has(copy.status(), HISTORY, 4)


def test_another_cluster_is_refused(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    kept = copy.take(Pushing(began(1), cluster_id="another").push())
    assert "belongs to cluster" in kept.problem
    assert not fs.exists(FOLDER)
    other = Pushing(began(9), cluster_id="another")
    copy.take(replace(other.push(), cluster_id=CLUSTER))  # its records, under our id
    copy.release()
    assert "belongs to cluster another" in copy.status().problem


def test_a_push_of_a_newer_raylog_is_refused_by_name(fs: MemoryFileSystem) -> None:
    with pytest.raises(UnsupportedVersion, match=f"up to version {VERSION}, not {VERSION + 1}"):
        copy_in(fs).take(replace(HISTORY.push(), version=VERSION + 1))
    assert not fs.exists(FOLDER)


# -- promises --------------------------------------------------------------------------------------


def test_a_promise_lasts_and_keeps_a_lower_epoch_out(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push(0, 4))
    assert copy.promise(7).promised == 7
    assert copy.promise(3).promised == 7
    kept = copy.take(HISTORY.push(4))  # of epoch 1
    assert has(kept, HISTORY, 4)
    assert kept.promised == 7
    copy.release()
    assert copy.status().promised == 7
    assert read_controller_epoch(fs, FOLDER) == 7
    newer = Pushing(*HISTORY.decisions[1:], began(7))
    assert has(copy.take(newer.push(4)), newer)


def test_a_node_without_a_copy_promises_nothing_and_makes_none(fs: MemoryFileSystem) -> None:
    kept = copy_in(fs).promise(4)
    assert (kept.promised, kept.problem) == (-1, "")
    assert not fs.exists(FOLDER)


def test_a_controller_of_a_lower_epoch_than_its_records_is_refused(fs: MemoryFileSystem) -> None:
    newer = Pushing(began(1), began(5), topic("t"))
    copy = copy_in(fs)
    copy.take(newer.push())
    fs.remove(f"{FOLDER}/controller-epoch")  # an operator's copy of the folder may lack it
    copy.release()
    late = Pushing(began(1), topic("late"))
    assert has(copy.take(late.push(0)), newer)


def test_a_promise_that_the_disk_did_not_take_does_not_count(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push())
    with fs.failing(lambda path: StorageError(path, "I/O error"), under=FOLDER):
        kept = copy.promise(8)
    assert "I/O error" in kept.problem
    assert kept.promised == -1


# -- tails of Controllers that were replaced -------------------------------------------------------


def test_the_tail_of_a_lost_controller_is_cut_and_the_new_one_followed(
    fs: MemoryFileSystem,
) -> None:
    lost = Pushing(began(1), topic("t"), began(2), (topic("lost"), topic("too")))
    newer = Pushing(began(1), topic("t"), began(3), topic("new"))
    copy = copy_in(fs)
    copy.take(lost.push())
    kept = copy.take(newer.push(3))
    assert has(kept, newer), kept
    copy.release()
    assert read_back(fs) == newer.values


def test_what_differs_in_one_epoch_is_never_cut(fs: MemoryFileSystem) -> None:
    one = Pushing(began(1), topic("t"), topic("u"))
    other = Pushing(began(1), topic("t"), topic("w"), topic("x"))
    copy = copy_in(fs)
    copy.take(one.push())
    kept = copy.take(other.push(3))
    assert "record 3 is another one than that of the Controller" in kept.problem
    assert has(kept, one)


def test_a_cut_in_the_middle_of_a_decision_takes_all_of_it(fs: MemoryFileSystem) -> None:
    """No copy has such batches of its own, but somebody may have put the records together anew."""
    lost = Pushing(began(1), (topic("t"), topic("lost")))
    newer = Pushing(began(1), topic("t"), began(2))
    copy = copy_in(fs)
    copy.take(lost.push())
    kept = copy.take(newer.push(3))
    assert has(kept, newer, 2)
    assert has(copy.take(newer.push(2)), newer)


@pytest.mark.parametrize("beginning", [3, 0])
def test_what_a_person_has_given_up_is_set_aside_whole_and_never_cut(
    fs: MemoryFileSystem, beginning: int
) -> None:
    lost = Pushing(began(1), topic("t"), topic("lost"), topic("too"))
    restored = Pushing(began(1), topic("t"), began(ERA_EPOCHS), topic("new"))
    copy = copy_in(fs)
    copy.take(lost.push())
    copy.promise(7)
    kept = copy.take(restored.push(beginning))
    if beginning:
        assert (kept.end, kept.promised) == (0, ERA_EPOCHS)
    assert has(copy.take(restored.push()), restored)
    (aside,) = [name for name in fs.list_dir(LOG_DIR) if name.endswith("-stray")]
    assert values_in(fs, aside) == lost.values
    copy.release()
    assert read_back(fs) == restored.values


def test_a_copy_that_is_only_behind_what_was_restored_goes_on_with_its_records(
    fs: MemoryFileSystem,
) -> None:
    restored = Pushing(began(1), topic("t"), began(ERA_EPOCHS), topic("new"))
    copy = copy_in(fs)
    copy.take(restored.push(end=3))
    assert has(copy.take(restored.push(3)), restored)
    assert not [name for name in fs.list_dir(LOG_DIR) if name.endswith("-stray")]


def test_a_push_whose_first_batch_begins_before_its_base_brings_no_record_twice(
    fs: MemoryFileSystem,
) -> None:
    """So it was where a cluster had begun anew, in one batch what the copy has in two."""
    one, other = Pushing(topic("t"), topic("lost"), began(1)), Pushing((topic("t"), began(2)))
    other.decisions = [tuple(record for batch in other.decisions for record in batch)]
    copy = copy_in(fs)
    copy.take(one.push())
    push = replace(other.push(2), batches=other.batches(0))
    kept = copy.take(push)
    assert has(kept, other), kept
    copy.release()
    assert read_back(fs) == other.values


# -- disks -----------------------------------------------------------------------------------------


def crashes(
    prepare: Callable[[MetadataCopy], object], work: Callable[[MetadataCopy], MetadataKept]
) -> list[tuple[MemoryFileSystem, MetadataKept | None]]:
    """What is found after a crash before each operation of ``work``, and its answer if it came."""
    found: list[tuple[MemoryFileSystem, MetadataKept | None]] = []
    kept: MetadataKept | None = None
    step = 0
    while kept is None:
        fs = MemoryFileSystem()
        fs.make_dir(LOG_DIR)
        fs.sync_dir("/disk")
        fs.sync_dir("/")
        copy = copy_in(fs)
        prepare(copy)
        fs.stop_at(fs.operations + step)
        try:
            kept = work(copy)
        except Stopped:
            pass
        ways: list[tuple[Survives, Survives]]
        ways = [("flushed", "flushed"), ("torn", "torn"), ("all", "all"), ("flushed", "all")]
        for survives, names in ways:
            found.append((fs.crash(survives, names=names, seed=step), kept))
        step += 1
    return found


def test_after_any_crash_of_a_first_push_it_is_nothing_or_a_beginning_and_goes_on() -> None:
    for fs, kept in crashes(lambda copy: None, lambda copy: copy.take(HISTORY.push())):
        copy = copy_in(fs)
        after = copy.status()
        assert not after.problem
        assert has(after, HISTORY, after.end)
        assert after.end in (0, 1, 2, 4, 5), "what was decided together is there together"
        assert kept is None or after.end == kept.end
        assert has(copy.take(HISTORY.push(after.end)), HISTORY)


def test_after_any_crash_while_a_tail_is_cut_what_was_acknowledged_is_there() -> None:
    lost = Pushing(began(1), topic("t"), began(2), (topic("lost"), topic("too")))
    newer = Pushing(began(1), topic("t"), began(3), topic("new"))
    found = crashes(lambda copy: copy.take(lost.push()), lambda copy: copy.take(newer.push(3)))
    assert len(found) > 12
    for fs, kept in found:
        copy = copy_in(fs)
        after = copy.status()
        assert not after.problem
        is_lost, is_new = has(after, lost, after.end), has(after, newer, after.end)
        assert is_lost or is_new
        assert after.end >= 3, "both Controllers have the first three"
        assert kept is None or has(after, newer)
        assert after.promised in (2, 3)
        assert has(copy.take(newer.push(3)), newer)


@pytest.mark.parametrize("beginning", [3, 0])
def test_after_any_crash_while_a_copy_is_set_aside_it_is_whole_in_one_place_and_the_node_goes_on(
    beginning: int,
) -> None:
    lost = Pushing(began(1), topic("t"), topic("lost"), topic("too"))
    restored = Pushing(began(1), topic("t"), began(ERA_EPOCHS), topic("new"))
    found = crashes(
        lambda copy: copy.take(lost.push()), lambda copy: copy.take(restored.push(beginning))
    )
    assert len(found) > 40
    places = set()
    for fs, kept in found:
        (place,) = [name for name in folders(fs) if values_in(fs, name) == lost.values]
        is_aside = place.endswith("-stray")
        assert is_aside or place == METADATA
        places.add(is_aside)
        assert is_aside or kept is None, "it was answered that it is gone"
        copy = copy_in(fs)
        after = copy.status()
        assert not after.problem
        copy.take(restored.push(beginning))
        assert has(copy.take(restored.push()), restored)
        copy.release()
        assert read_back(fs) == restored.values
        (aside,) = [name for name in folders(fs) if name.endswith("-stray")]
        assert values_in(fs, aside) == lost.values
    assert places == {False, True}


def folders(fs: MemoryFileSystem) -> list[str]:
    """Those of metadata, but what a crash has left of one that was being made."""
    names = [name for name in fs.list_dir(LOG_DIR) if name.startswith(METADATA)]
    return [name for name in names if not name.endswith(NEW_SUFFIX)]


def values_in(fs: MemoryFileSystem, name: str) -> list[bytes]:
    """The records in a folder, which stays as it is."""
    log = open_metadata(fs.crash(), ManualClock(), f"{LOG_DIR}/{name}")
    try:
        return [value for batch in all_batches(log) for value in values_of(batch)]
    finally:
        log.release()


def test_after_any_crash_a_promise_that_was_answered_is_kept() -> None:
    for fs, kept in crashes(lambda copy: copy.take(HISTORY.push()), lambda copy: copy.promise(6)):
        after = copy_in(fs).status()
        assert not after.problem
        assert after.promised in ((6,) if kept else (1, 6))
        assert has(after, HISTORY)


def test_a_failed_fsync_is_not_acknowledged_and_is_read_back_from_the_disk(
    fs: MemoryFileSystem,
) -> None:
    clock = ManualClock()
    copy = copy_in(fs, clock)
    copy.take(HISTORY.push(0, 4))
    with fs.failing(lambda path: StorageError(path, "I/O error"), verb="flush"):
        kept = copy.take(HISTORY.push(4))
    assert "I/O error" in kept.problem
    assert kept.end == 0, "nobody knows"
    assert "I/O error" in copy.take(HISTORY.push(4)).problem, "it is not tried at once"
    clock.advance(REOPEN_MS)
    kept = copy.status()
    assert has(kept, HISTORY, 4)
    assert has(copy.take(HISTORY.push(4)), HISTORY)


def test_a_full_disk_is_a_problem_while_it_is_full(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push(0, 2))
    with fs.failing(DiskFull, verb="append"):
        kept = copy.take(HISTORY.push(2))
        assert "no space left" in kept.problem
        assert has(kept, HISTORY, 2)
    assert has(copy.take(HISTORY.push(2)), HISTORY)


def test_a_damaged_copy_says_so_and_nothing_is_taken_or_removed(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push())
    copy.release()
    content = bytearray(fs.read_file(SEGMENT))
    content[len(content) // 2] ^= 0xFF
    fs.write_file(SEGMENT, bytes(content))
    for kept in (copy.status(), copy.take(HISTORY.push()), copy.promise(9)):
        assert "damaged" in kept.problem
    assert fs.read_file(SEGMENT) == content


def test_a_folder_that_a_controller_uses_is_left_alone_until_it_is_free(
    fs: MemoryFileSystem,
) -> None:
    copy = copy_in(fs)
    copy.take(HISTORY.push())
    copy.release()
    log = MetadataLog(fs, ManualClock(), LOG_DIR)
    assert "locked" in copy.status().problem
    log.close()
    assert has(copy.status(), HISTORY)
    with pytest.raises(LogLocked):
        MetadataLog(fs, ManualClock(), LOG_DIR)


def test_what_is_no_push_of_metadata_is_refused(fs: MemoryFileSystem) -> None:
    copy = copy_in(fs)
    push = HISTORY.push()
    broken = MetadataPush(
        cluster_id=CLUSTER,
        controller_epoch=1,
        base=0,
        digest=b"",
        batches=(push.batches[0], push.batches[1][:-1] + b"?"),
    )
    kept = copy.take(broken)
    assert kept.problem
    assert has(kept, HISTORY, 0) or has(kept, HISTORY, 1)
    assert has(copy.take(push), HISTORY)
