"""Looking for the metadata: everything is seen, and nothing is changed."""

import threading
from dataclasses import replace

import pytest

from raylog.actors.errors import MetadataUnreadable, NewerMetadata
from raylog.cluster.controller.copies import choose
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import (
    ControllerRecord,
    CopiesRecord,
    NodeRecord,
    StoppedRecord,
    TopicRecord,
    TopicRemovedRecord,
)
from raylog.cluster.controller.standings import standings
from raylog.cluster.controller.surveying import SILENT, Looks, Surveyor
from raylog.storage.errors import LogMissing, StorageError
from raylog.storage.state.controller_epoch import write_controller_epoch
from raylog.storage.state.properties import CLEAN_SHUTDOWN, MetaProperties, random_id, write_meta
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import wait_for
from tests.harness.metadata_snapshots import save_snapshot
from tests.unit.actors.node.disks import HangingFileSystem

LOG = "/disk/__cluster_metadata-0/00000000000000000000.log"


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_dir("/disk")
    return made


def written(fs: MemoryFileSystem, *epochs: int) -> None:
    log = MetadataLog(fs, ManualClock(), "/disk", new_cluster="cluster-1")
    for epoch in epochs:
        node = NodeRecord(key=f"n{epoch}", kafka_id=epoch, port=0)
        log.append([ControllerRecord(epoch=epoch, node="a"), node])
    log.close()


def test_the_metadata_is_found_with_its_epoch_and_each_record_counts(fs: MemoryFileSystem) -> None:
    written(fs, 1)
    (before,) = Surveyor(fs).survey("n", ["/disk"])
    written(fs, 2)
    (after,) = Surveyor(fs).survey("n", ["/disk"])
    assert before.copy is not None
    assert after.copy is not None
    assert (before.copy.end, after.copy.end) == (4, 6)
    assert (after.copy.cluster_id, after.copy.controller_epoch) == ("cluster-1", 2)
    assert after.copy.begins_with(before.copy)
    assert not before.copy.begins_with(after.copy)


def test_copies_with_other_records_do_not_begin_with_each_other(fs: MemoryFileSystem) -> None:
    other = MemoryFileSystem()
    other.make_dir("/disk")
    written(fs, 1, 2)
    written(other, 1, 3)
    one, two = (
        Surveyor(fs).survey("n", ["/disk"])[0].copy,
        Surveyor(other).survey("n", ["/disk"])[0].copy,
    )
    assert one is not None
    assert two is not None
    assert not one.begins_with(two)
    assert not two.begins_with(one)


def test_a_torn_end_is_left_out_and_left_alone(fs: MemoryFileSystem) -> None:
    written(fs, 1)
    content = fs.read_file(LOG)
    fs.write_file(LOG, content + content[:30])
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert found.copy is not None
    assert found.copy.end == 4
    assert fs.read_file(LOG) == content + content[:30]


@pytest.mark.parametrize("cut_bytes", [0, 30])
def test_metadata_that_lost_its_end_after_an_orderly_stop_is_no_shorter_copy(
    fs: MemoryFileSystem, cut_bytes: int
) -> None:
    """Its rest would be taken for all there is: topics and configs would be gone, and records."""
    written(fs, 1)
    shorter_bytes = len(fs.read_file(LOG))
    written(fs, 2)
    fs.write_file(LOG, fs.read_file(LOG)[: shorter_bytes + cut_bytes])
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert found.copy is not None, "a crash may have done that"
    fs.write_file(f"/disk/{CLEAN_SHUTDOWN}", b"")
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert (found.has_metadata, found.copy) == (True, None)
    assert "it had 6 records when it was closed in order, and ends at offset 4" in found.problem
    with pytest.raises(MetadataUnreadable, match="closed in order"):
        MetadataLog(fs, ManualClock(), "/disk")


def test_metadata_with_good_records_behind_damage_is_no_shorter_copy(fs: MemoryFileSystem) -> None:
    written(fs, 1, 2)
    content = bytearray(fs.read_file(LOG))
    content[len(content) // 2] ^= 1
    fs.write_file(LOG, content)
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert found.has_metadata
    assert found.copy is None
    assert "is damaged at byte" in found.problem


def test_metadata_whose_last_batch_is_damaged_is_no_shorter_copy(fs: MemoryFileSystem) -> None:
    """It was written whole, so that a client may have been told of it."""
    written(fs, 1, 2)
    content = bytearray(fs.read_file(LOG))
    content[-1] ^= 1
    fs.write_file(LOG, content)
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert (found.has_metadata, found.copy) == (True, None)
    assert "in its last batch, which was written whole" in found.problem
    assert found.whole_part is not None
    assert (found.whole_part.end, found.whole_part.controller_epoch) == (4, 1)
    with pytest.raises(LogMissing, match="in its last batch"):
        MetadataLog(fs, ManualClock(), "/disk")
    assert fs.read_file(LOG) == content, "nothing is cut off"


def test_what_was_taken_out_of_a_copy_is_told(fs: MemoryFileSystem) -> None:
    written(fs, 1)
    fs.write_file(LOG, fs.read_file(LOG) + b"torn")
    written(fs, 2)
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert found.copy is not None
    assert (found.copy.end, found.asides) == (6, ("00000000000000000000.log.aside-0",))


def test_a_log_dir_says_whose_it_is_and_why_it_cannot_be_read(fs: MemoryFileSystem) -> None:
    fs.make_dir("/disk/a")
    fs.make_dir("/disk/b")
    write_meta(fs, "/disk/a", MetaProperties("cluster-1", 1, random_id()))
    fs.write_file("/disk/b/meta.properties", b"nonsense")
    member, damaged, missing = Surveyor(fs).survey("n", ["/disk/a", "/disk/b", "/disk/c"])
    assert (member.cluster_id, member.problem) == ("cluster-1", "")
    assert "meta.properties" in damaged.problem
    assert (missing.cluster_id, missing.has_metadata, missing.problem) == (None, False, "")
    assert not fs.exists("/disk/c")


def test_a_log_dir_that_is_no_folder_says_so(fs: MemoryFileSystem) -> None:
    there, missing = Surveyor(fs).survey("n", ["/disk", "/dsik"])
    assert (there.is_missing, missing.is_missing) == (False, True)


def test_a_log_dir_says_which_controller_it_has_obeyed(fs: MemoryFileSystem) -> None:
    """Where it cannot be read, its node says so, and not whoever looks for the metadata."""
    written(fs, 1)
    fs.make_dir("/disk/b")
    write_controller_epoch(fs, "/disk", 7)
    fs.write_file("/disk/b/controller-epoch", b"nonsense")
    holder, damaged = Surveyor(fs).survey("n", ["/disk", "/disk/b"])
    assert (holder.obeyed_epoch, holder.problem) == (7, "")
    assert holder.copy is not None
    assert (damaged.obeyed_epoch, damaged.problem) == (-1, "")
    fs.write_file("/disk/meta.properties", b"nonsense")
    (unreadable,) = Surveyor(fs).survey("n", ["/disk"])
    assert (unreadable.obeyed_epoch, unreadable.copy) == (7, None)


def test_a_log_dir_that_another_process_uses_is_seen_and_nothing_is_made(
    fs: MemoryFileSystem,
) -> None:
    for name in ("used", "left", "free"):
        fs.make_dir(f"/disk/{name}")
    fs.write_file("/disk/left/.lock", b"")  # by a process that was killed
    lock = fs.lock("/disk/used/.lock")
    paths = [f"/disk/{name}" for name in ("used", "left", "free", "missing")]
    found = Surveyor(fs).survey("n", paths, tries_locks=True)
    assert [entry.is_locked for entry in found] == [True, False, False, False]
    assert not any(entry.is_locked for entry in Surveyor(fs).survey("n", paths)), "nobody has tried"
    assert fs.list_dir("/disk/free") == []
    assert not fs.exists("/disk/missing")
    lock.release()
    assert not any(entry.is_locked for entry in Surveyor(fs).survey("n", paths, tries_locks=True))


def test_a_lock_that_cannot_be_tried_is_no_lock(fs: MemoryFileSystem) -> None:
    fs.write_file("/disk/.lock", b"")
    with fs.failing(lambda path: StorageError(path, "EROFS"), "lock"):
        (found,) = Surveyor(fs).survey("n", ["/disk"], tries_locks=True)
    assert not found.is_locked


def test_a_copy_says_how_many_topics_it_knows(fs: MemoryFileSystem) -> None:
    log = MetadataLog(fs, ManualClock(), "/disk", new_cluster="cluster-1")
    log.append([TopicRecord(name=name, topic_id=name, config={}) for name in "abc"])
    log.append([TopicRemovedRecord(topic_id="b")])
    log.close()
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert found.copy is not None
    assert found.copy.topics == 2


def test_metadata_that_cannot_be_read_is_there_all_the_same(fs: MemoryFileSystem) -> None:
    written(fs, 1)
    write_meta(fs, "/disk", MetaProperties("cluster-1", 1, random_id()))
    fs.fail_read_at(fs.reads + 1, lambda path: StorageError(path, "EIO"))  # behind meta.properties
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert found.has_metadata
    assert found.copy is None
    assert found.problem


@pytest.mark.parametrize(
    ("at", "cluster_id", "has_metadata", "epoch"),
    [
        ("/disk/controller-epoch", None, False, -1),
        ("/disk/__cluster_metadata-0", None, False, 7),
        ("/disk/meta.properties", None, True, 7),
        ("/disk/__cluster_metadata-0/00000000000000000000.log", "cluster-1", True, 7),
    ],
)
def test_a_dir_that_hangs_is_unreadable_and_holds_up_no_other(
    at: str, cluster_id: str | None, has_metadata: bool, epoch: int
) -> None:
    fs = HangingFileSystem()
    for path in ("/disk", "/other"):
        fs.make_dir(path)
    written(fs, 1)
    write_meta(fs, "/disk", MetaProperties("cluster-1", 1, random_id()))
    write_controller_epoch(fs, "/disk", 7)
    write_controller_epoch(fs, "/other", 8)

    def wait(looks: Looks) -> None:
        """Until the disk hangs, and the last dir is looked at, which does not."""
        wait_for(lambda: fs.has_begun.is_set() and looks[-1].done())

    surveyor = Surveyor(fs, wait)
    fs.hang(at)
    disk, other = surveyor.survey("n", ["/disk", "/other"])
    assert (disk.problem, disk.copy) == (SILENT, None)
    assert (disk.cluster_id, disk.has_metadata, disk.obeyed_epoch) == (
        cluster_id,
        has_metadata,
        epoch,
    )
    assert (other.problem, other.obeyed_epoch) == ("", 8)
    disk, other = surveyor.survey("n", ["/disk", "/other"])
    assert (disk.problem, other.problem) == (SILENT, "")
    wait_for(lambda: looking() == 1, what="nobody else looks at it")
    fs.let_go()
    wait_for(lambda: looking() == 0)
    (again,) = surveyor.survey("n", ["/disk"])
    assert (again.problem, again.obeyed_epoch) == ("", 7)
    assert again.copy is not None


def looking() -> int:
    return sum(thread.name == "survey" for thread in threading.enumerate())


def test_a_copy_says_where_its_last_controller_was_and_who_is_in_sync(
    fs: MemoryFileSystem,
) -> None:
    directory_id = random_id()
    write_meta(fs, "/disk", MetaProperties("cluster-1", 1, directory_id))
    log = MetadataLog(fs, ManualClock(), "/disk", new_cluster="cluster-1")
    assert log.directory_id == directory_id
    log.append([ControllerRecord(epoch=1, node="a")])
    (before,) = Surveyor(fs).survey("ray-b", ["/disk"], node="b")
    assert before.copy is not None
    assert (before.copy.in_sync, before.copy.ruled_from) == (None, -1)
    copies = CopiesRecord(nodes=("b", "c"), directories=(directory_id, "dir-c"))
    last = ControllerRecord(epoch=2, node="b", directory=directory_id)
    log.append([copies, last, copies, StoppedRecord()])
    log.close()
    (found,) = Surveyor(fs).survey("ray-b", ["/disk"], node="b")
    assert (found.node, found.directory_id) == ("b", directory_id)
    assert found.copy is not None
    assert (found.copy.controller, found.copy.controller_dir) == ("b", directory_id)
    assert found.copy.in_sync == {directory_id: "b", "dir-c": "c"}
    assert (found.copy.ruled_from, found.copy.is_stopped) == (3, True)


def test_a_copy_says_which_controllers_it_takes_nothing_of(fs: MemoryFileSystem) -> None:
    written(fs, 1)
    write_controller_epoch(fs, "/disk/__cluster_metadata-0", 5)
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert found.promised_epoch == 5


# -- snapshots -------------------------------------------------------------------------------------


def reopened(fs: MemoryFileSystem) -> MetadataLog:
    return MetadataLog(fs, ManualClock(), "/disk")


def write_node(fs: MemoryFileSystem) -> None:
    log = reopened(fs)
    log.append([NodeRecord(key="n", kafka_id=90, port=0)])
    log.close()


def test_a_copy_with_a_snapshot_is_seen_as_it_was_with_all_records(fs: MemoryFileSystem) -> None:
    written(fs, 1)
    log = reopened(fs)
    log.append([CopiesRecord(nodes=("a", "b"), directories=("dir-a", "dir-b"))])
    log.append([TopicRecord(name="t", topic_id="id", config={})])
    log.close()
    (whole,) = Surveyor(fs).survey("n", ["/disk"])
    save_snapshot(fs, "/disk")
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert found.copy is not None
    assert whole.copy is not None
    assert found.copy.first == found.copy.end == whole.copy.end
    assert found.copy.first_digest == whole.copy.digest_at(whole.copy.end)
    seen = replace(found.copy, first=0, first_digest=b"", digests=whole.copy.digests)
    assert seen == whole.copy
    assert found.copy.is_same(whole.copy)
    assert whole.copy.is_same(found.copy)


class TrimmedWhileRead(MemoryFileSystem):
    """Somebody saves snapshots before the n-th look at a file or a folder from now on."""

    when = -1

    def read_file(self, path: str) -> bytes:
        self._pass()
        return super().read_file(path)

    def list_dir(self, path: str) -> list[str]:
        self._pass()
        return super().list_dir(path)

    def _pass(self) -> None:
        if self.when == 0:
            self.when = -1
            for _ in range(3):
                write_node(self)
                save_snapshot(self, "/disk")
        elif self.when > 0:
            self.when -= 1


@pytest.mark.parametrize("when", range(16))
def test_a_log_whose_beginning_is_removed_while_it_is_read_is_read_again(when: int) -> None:
    fs = TrimmedWhileRead()
    fs.make_dir("/disk")
    written(fs, 1)
    save_snapshot(fs, "/disk")
    log = reopened(fs)
    log.append([TopicRecord(name="t", topic_id="id", config={})])
    log.close()
    fs.when = when
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert found.problem == ""
    assert found.copy is not None
    assert (found.copy.topics, found.copy.controller_epoch) == (1, 1)


def test_a_snapshot_of_a_newer_raylog_is_no_damage(
    fs: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(fs, 1)
    with monkeypatch.context() as newer:
        newer.setattr("raylog.actors.metadata_snapshot.VERSION", 2)
        save_snapshot(fs, "/disk")
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert (found.is_of_newer, found.copy) == (True, None)
    with pytest.raises(NewerMetadata):
        choose([found], "n", new_id="new", new_cluster=True)


def test_a_damaged_snapshot_that_is_needed_is_a_problem_of_the_log_dir(
    fs: MemoryFileSystem,
) -> None:
    written(fs, 1)
    for _ in range(2):
        save_snapshot(fs, "/disk")
        write_node(fs)
    save_snapshot(fs, "/disk")
    folder = "/disk/__cluster_metadata-0"
    for name in fs.list_dir(folder):
        if name.endswith(".checkpoint"):
            fs.write_file(f"{folder}/{name}", b"damaged")
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    assert found.has_metadata
    assert found.copy is None
    assert "in no snapshot that can be read" in found.problem
    with pytest.raises(MetadataUnreadable):
        choose([found], "n", new_id="new")


@pytest.mark.parametrize("which", [0, 1], ids=["the older one", "the newest"])
def test_a_damaged_snapshot_that_is_not_needed_is_told_beside_its_copy(
    fs: MemoryFileSystem, which: int
) -> None:
    written(fs, 1)
    for _ in range(2):
        write_node(fs)
        save_snapshot(fs, "/disk")
    (whole,) = Surveyor(fs).survey("n", ["/disk"])
    assert whole.damaged_snapshots == ()
    folder = "/disk/__cluster_metadata-0"
    names = sorted(name for name in fs.list_dir(folder) if name.endswith(".checkpoint"))
    fs.write_file(f"{folder}/{names[which]}", b"damaged")
    (found,) = Surveyor(fs).survey("n", ["/disk"])
    (told,) = found.damaged_snapshots
    assert told.startswith(f"{names[which]}: its first record batch is damaged")
    assert (found.problem, found.copy is not None) == ("", True)
    (standing,) = standings([found])
    assert standing.damaged_snapshots == (told,)
