"""Where a Controller begins, by what lies on the nodes' disks and what the LogManagers say."""

import os
import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from raylog.actors.control import MetadataKept
from raylog.actors.errors import (
    MetadataIncomplete,
    NoLogDirs,
    NotLeader,
    OlderMetadata,
    RequestTimedOut,
)
from raylog.actors.metadata_history import ERA_EPOCHS, EpochStart
from raylog.actors.metadata_start import find_start
from raylog.actors.node.metadata_copy import values_of
from raylog.cluster.controller.copies import SurveyedDir
from raylog.cluster.controller.following import CopyStatus
from raylog.cluster.controller.home import (
    FENCED_MS,
    Known,
    Survey,
    Wanted,
    begin_home,
    find_home,
    known_by,
)
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.observed import SUSPECT_MS
from raylog.cluster.controller.promising import promise_for
from raylog.cluster.controller.records import (
    ControllerRecord,
    CopiesRecord,
    Record,
    StoppedRecord,
    TopicRecord,
)
from raylog.cluster.controller.surveying import Surveyor, batches_of
from raylog.cluster.controller.witness import Mark
from raylog.storage.errors import DiskFull, InvalidConfig, LogLocked, LogMissing, RaylogError
from raylog.storage.files import Lock
from raylog.storage.state.controller_epoch import read_controller_epoch, write_controller_epoch
from raylog.storage.state.properties import MetaProperties, id_text, write_meta
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem
from tests.harness.metadata_snapshots import save_snapshot

METADATA = "__cluster_metadata-0"


def directory_of(node: str) -> str:
    return id_text(uuid.UUID(int=ord(node) << 64))


class Nodes:
    """Nodes with a log dir each, all of them in one memory, and the LogManagers that are up.

    ``more``: other log dirs of the own node.
    """

    def __init__(self, *nodes: str, own: str = "a") -> None:
        self.fs = MemoryFileSystem()
        self.own = own
        self.errors: dict[str, RaylogError] = {}
        self.managers: dict[str, MetadataKept] = {}
        self.promised: list[int] = []
        self.is_replaced, self.is_replaced_behind_promises = False, False
        self.left: list[Mark] = []
        self.looked_at: list[str] = []
        self.locks: dict[str, Lock] = {}  # of copies that LogManagers have open
        self.more: list[str] = []
        self.nodes = list(nodes)
        for node in nodes:
            self.fs.make_dir(f"/{node}")

    def join(self, *nodes: str) -> None:
        for node in nodes:
            write_meta(self.fs, f"/{node}", MetaProperties("cluster-1", 1, directory_of(node)))

    def writes(self, node: str, *records: Record) -> None:
        self.join(node)
        log = MetadataLog(self.fs, ManualClock(), f"/{node}", new_cluster="cluster-1")
        if records:
            log.append(records)
        log.close()

    def copies(self, source: str, *targets: str) -> None:
        for target in targets:
            self.join(target)
            self.fs.make_dir(f"/{target}/{METADATA}")
            for name in self.fs.list_dir(f"/{source}/{METADATA}"):
                content = self.fs.read_file(f"/{source}/{METADATA}/{name}")
                self.fs.write_file(f"/{target}/{METADATA}/{name}", content)

    def has_manager(
        self, node: str, *, promised: int = -1, idle_ms: int = -1, problem: str = ""
    ) -> None:
        self.managers[node] = MetadataKept(
            node=node,
            life="1",
            directory_id=directory_of(node),
            end=len(self.records(node)),
            epochs=(EpochStart(self.epoch(node), 1),),
            promised=promised,
            idle_ms=idle_ms,
            problem=problem,
        )

    def epoch(self, node: str) -> int:
        (entry,) = Surveyor(self.fs).survey(node, [f"/{node}"])
        return 0 if entry.copy is None else entry.copy.controller_epoch

    def keeps_open(self, node: str) -> None:
        """The LogManager has its copy open."""
        self.locks[node] = self.fs.lock(f"/{node}/{METADATA}")

    def is_lost(self, node: str) -> None:
        self.nodes.remove(node)
        self.managers.pop(node, None)

    def names(self, node: str) -> list[str]:
        """What lies in its log dir, without the ids in names."""
        found = [name for name in self.fs.list_dir(f"/{node}") if name.startswith(METADATA)]
        return sorted(METADATA + re.sub(r".*\..*-", "-", name[len(METADATA) :]) for name in found)

    def begin(self, *, known: Known | None = None, **wanted: bool) -> str:
        """The log dir where a Controller begins."""
        asked = Wanted(**wanted, known=known or Known())
        home = begin_home(self, self.fs, ManualClock(), asked)
        assert home.node_id == f"ray-{self.own}"
        return home.log_dir

    def records(self, node: str) -> list[bytes]:
        batches = batches_of(self.fs, f"/{node}/{METADATA}")
        return [value for batch in batches for value in values_of(batch)]

    # -- the way to them ---------------------------------------------------------------------------

    def has_managers(self) -> bool:
        return bool(self.managers)

    def statuses(self) -> Sequence[MetadataKept]:
        return list(self.managers.values())

    def others_statuses(self) -> Sequence[MetadataKept]:
        return [kept for node, kept in self.managers.items() if node != self.own]

    def promises(self, epoch: int) -> Sequence[MetadataKept]:
        self.promised.append(epoch)
        self.is_replaced |= self.is_replaced_behind_promises
        return [replace(kept, promised=epoch) for kept in self.managers.values()]

    def promises_of_unattended(self, epoch: int) -> Sequence[MetadataKept]:
        promises: list[MetadataKept] = []
        for node in self.nodes:
            if node not in self.managers and node not in self.errors:
                with suppress(RaylogError):
                    promises += promise_for(self.fs, node, f"/{node}", epoch)
        return promises

    def is_controller(self) -> bool:
        return not self.is_replaced

    def marks(self) -> Sequence[Mark]:
        return self.left

    def release(self, node_id: str) -> None:
        lock = self.locks.pop(node_id.removeprefix("ray-"), None)
        if lock is not None:
            lock.release()

    def survey(self, *, tries_locks: bool, only_own: bool = False) -> Survey:
        self.looked_at.append("own" if only_own else "all")
        nodes = [self.own] if only_own else self.nodes
        dirs = [entry for node in nodes for entry in self._look(node, tries_locks)]
        errors = {f"ray-{node}": error for node, error in self.errors.items()}
        return Survey(own=f"ray-{self.own}", dirs=tuple(dirs), errors=errors)

    def _look(self, node: str, tries_locks: bool) -> Iterable[SurveyedDir]:
        if node in self.errors:
            return []
        paths = [f"/{node}", *(self.more if node == self.own else ())]
        surveyor = Surveyor(self.fs)
        return surveyor.survey(f"ray-{node}", paths, node=node, tries_locks=tries_locks)

    def batches(self, entry: SurveyedDir) -> Sequence[bytes]:
        self.release(entry.node_id)
        lock = self.fs.lock(os.path.join(entry.path, METADATA))
        lock.release()
        return [bytes(batch) for batch in batches_of(self.fs, f"{entry.path}/{METADATA}")]

    def snapshot_file(self, entry: SurveyedDir) -> bytes:
        folder = f"{entry.path}/{METADATA}"
        begin = find_start(self.fs, folder)
        return b"" if begin is None else self.fs.read_file(f"{folder}/{begin.id.file_name}")

    def set_aside(self, entry: SurveyedDir) -> None:
        folder = os.path.join(entry.path, METADATA)
        self.fs.rename(folder, f"{folder}.{'0' * 32}-stray")


def controller(node: str, epoch: int) -> ControllerRecord:
    return ControllerRecord(epoch=epoch, node=node, directory=directory_of(node))


def in_sync(*nodes: str) -> CopiesRecord:
    return CopiesRecord(nodes=nodes, directories=tuple(map(directory_of, nodes)))


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=f"id-{name}", config={}, version=0)


def test_the_node_that_has_the_metadata_is_found() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("b", 1))
    home, _ = find_home(nodes, Wanted(may_begin=True))
    assert (home.node_id, home.log_dir) == ("ray-b", "/b")
    assert nodes.promised == []


def test_where_no_disk_belongs_to_a_cluster_the_own_node_is_found() -> None:
    home, _ = find_home(Nodes("b", "a", own="b"), Wanted(may_begin=True))
    assert home.node_id == "ray-b"
    assert home.new_cluster


def test_a_controller_that_ray_starts_again_begins_no_cluster() -> None:
    nodes = Nodes("a")
    with pytest.raises(LogMissing):
        nodes.begin()
    assert nodes.names("a") == []
    assert nodes.begin(may_begin=True) == "/a"


def test_a_silent_node_does_not_matter_where_the_metadata_was_found() -> None:
    nodes = Nodes("a", "s")
    nodes.writes("a", controller("a", 1))
    nodes.errors["s"] = RequestTimedOut("looking at the log dirs of node s", 1)
    assert nodes.begin() == "/a"


def test_where_the_metadata_was_not_found_a_silent_node_may_have_it() -> None:
    nodes = Nodes("a", "s")
    nodes.errors["s"] = RequestTimedOut("looking at the log dirs of node s", 1)
    with pytest.raises(RequestTimedOut, match="looking at the log dirs of node s"):
        nodes.begin(may_begin=True)


def test_where_the_metadata_was_not_found_a_node_whose_log_dirs_are_named_wrongly_may_have_it() -> (
    None
):
    nodes = Nodes("a", "x")
    nodes.errors["x"] = InvalidConfig("RAYLOG_LOG_DIRS", "data", "must be absolute")
    with pytest.raises(InvalidConfig, match="RAYLOG_LOG_DIRS"):
        nodes.begin(may_begin=True)
    nodes.writes("a", controller("a", 1))
    assert nodes.begin() == "/a"


def test_a_node_without_log_dirs_does_not_matter_but_where_it_is_the_own_one() -> None:
    nodes = Nodes("a", "x")
    nodes.errors["x"] = NoLogDirs("log.dirs is not set")
    assert nodes.begin(may_begin=True) == "/a"
    nodes.own = "x"
    with pytest.raises(NoLogDirs, match=r"log\.dirs is not set"):
        nodes.begin(may_begin=True)


def test_older_metadata_is_refused_also_to_a_controller_that_is_back() -> None:
    nodes = Nodes("a")
    nodes.writes("a", controller("a", 1))
    write_controller_epoch(nodes.fs, "/a", 4)
    for may_begin in (False, True):
        with pytest.raises(OlderMetadata, match="/a"):
            nodes.begin(may_begin=may_begin)
    home, _ = find_home(nodes, Wanted(older_metadata=True))
    assert (home.least_epoch, home.accepts_older) == (4, True)


def test_a_log_dir_that_is_used_begins_no_cluster_and_keeps_no_controller_that_is_back() -> None:
    nodes = Nodes("a")
    lock = nodes.fs.lock("/a/.lock")
    nodes.fs.write_file("/a/.lock", b"")
    with pytest.raises(LogMissing):
        nodes.begin()
    lock.release()


# -- the metadata comes to the Controller ----------------------------------------------------------


def test_the_newest_copy_is_brought_here_when_it_lies_on_another_node() -> None:
    """The older one here waits to be deleted; that one stays, since the log says who keeps any."""
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("b", 1), in_sync("b", "a"))
    nodes.copies("b", "a")
    nodes.writes("b", controller("b", 2))
    assert nodes.begin() == "/a"
    assert nodes.records("a") == nodes.records("b")
    assert nodes.names("a") == [METADATA, METADATA + "-delete"]
    assert nodes.names("b") == [METADATA]
    log = MetadataLog(nodes.fs, ManualClock(), "/a")
    assert log.desired.controller_epoch == 2
    log.close()


def test_a_copy_here_that_a_person_has_given_up_is_kept_beside_the_one_that_is_brought() -> None:
    """It went on alone, and what it has may have counted."""
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.writes("a", controller("a", 2), topic("lost"))
    lost = nodes.records("a")
    nodes.writes("b", controller("b", ERA_EPOCHS), in_sync("b"))
    assert nodes.begin() == "/a"
    assert nodes.records("a") == nodes.records("b") != lost
    assert nodes.names("a") == [METADATA, METADATA + "-stray"]
    (aside,) = [name for name in nodes.fs.list_dir("/a") if name.endswith("-stray")]
    batches = batches_of(nodes.fs, f"/a/{aside}")
    assert [value for batch in batches for value in values_of(batch)] == lost


def test_a_copy_here_that_only_lacks_what_a_person_goes_on_with_may_go() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.writes("b", controller("b", ERA_EPOCHS), in_sync("b"))
    assert nodes.begin() == "/a"
    assert nodes.names("a") == [METADATA, METADATA + "-delete"]


def test_the_tail_of_a_lost_controller_here_may_go() -> None:
    """It never counted: nobody else had it, and the next Controller began without it."""
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.writes("a", topic("never-counted"))
    nodes.writes("b", controller("b", 2), in_sync("b"))
    assert nodes.begin() == "/a"
    assert nodes.records("a") == nodes.records("b")
    assert nodes.names("a") == [METADATA, METADATA + "-delete"]


def test_the_only_copy_is_moved_and_not_copied() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("b", 1))
    expected = nodes.records("b")
    assert nodes.begin() == "/a"
    assert nodes.records("a") == expected
    assert nodes.names("b") == [METADATA + "-stray"]


def test_a_copy_that_begins_behind_a_snapshot_is_brought_here_with_it() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("b", 1), in_sync("b"), topic("s"))
    save_snapshot(nodes.fs, "/b")
    nodes.writes("b", topic("t"))
    save_snapshot(nodes.fs, "/b")
    nodes.writes("b", topic("u"))
    (there,) = Surveyor(nodes.fs).survey("b", ["/b"])
    assert there.copy is not None
    assert there.copy.first > 0
    assert nodes.begin() == "/a"
    (here,) = Surveyor(nodes.fs).survey("a", ["/a"])
    assert here.copy == there.copy
    log = MetadataLog(nodes.fs, ManualClock(), "/a")
    assert log.end == there.copy.end
    assert {topic.name for topic in log.desired.topics.values()} == {"s", "t", "u"}
    log.close()


def test_a_damaged_copy_here_is_kept_beside_the_one_that_is_brought() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("b", 1), in_sync("b"))
    nodes.copies("b", "a")
    nodes.writes("b", controller("b", 2))
    log = f"/a/{METADATA}/00000000000000000000.log"
    nodes.fs.write_file(log, b"x" * 40 + nodes.fs.read_file(log))
    assert nodes.begin() == "/a"
    assert nodes.names("a") == [METADATA, METADATA + "-stray"]
    assert nodes.epoch("a") == 2


def damages_last_batch(nodes: Nodes, node: str) -> bytes:
    path = f"/{node}/{METADATA}/00000000000000000000.log"
    content = bytearray(nodes.fs.read_file(path))
    content[-1] ^= 1
    nodes.fs.write_file(path, content)
    return bytes(content)


@pytest.mark.parametrize("own", ["a", "b"])
def test_a_damaged_last_batch_does_not_matter_where_another_copy_in_sync_is_whole(own: str) -> None:
    """After a loss of power everywhere, when Ray knows nothing; a was the Controller's."""
    nodes = Nodes("a", "b", own=own)
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.writes("a", topic("t"))
    nodes.copies("a", "b")
    damaged = damages_last_batch(nodes, "b")
    whole = nodes.records("a")
    home, _ = find_home(nodes, Wanted(may_begin=True))
    assert home.node_id == "ray-a"
    nodes.begin()
    assert nodes.records(own) == whole
    if own == "b":  # it is level again, and what was there is kept
        assert nodes.names("b") == [METADATA, f"{METADATA}-stray"]
        (kept,) = [name for name in nodes.fs.list_dir("/b") if name.endswith("-stray")]
        assert nodes.fs.read_file(f"/b/{kept}/00000000000000000000.log") == damaged


def test_the_damaged_last_batch_of_the_last_controller_may_be_what_only_it_had() -> None:
    """It may have left the others out by that, and so have committed what came just before."""
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.writes("a", topic("t"))
    nodes.copies("a", "b")
    damages_last_batch(nodes, "a")
    with pytest.raises(MetadataIncomplete, match="in its last batch"):
        nodes.begin()


def test_a_copy_that_lacks_what_comes_before_a_damaged_last_batch_is_not_enough() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.writes("b", controller("b", 2))
    nodes.writes("b", in_sync("b"))
    damages_last_batch(nodes, "b")
    with pytest.raises(MetadataIncomplete, match="in its last batch"):
        nodes.begin()


def test_a_copy_that_was_cut_off_is_made_anew() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("b", 1))
    nodes.fs.make_dir(f"/a/{METADATA}.new")
    nodes.fs.write_file(f"/a/{METADATA}.new/00000000000000000000.log", b"half")
    assert nodes.begin() == "/a"
    assert nodes.epoch("a") == 1


def test_a_copy_that_another_controller_still_writes_is_left_where_it_is() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("b", 1))
    lock = nodes.fs.lock(f"/b/{METADATA}")
    with pytest.raises(LogLocked):
        nodes.begin()
    assert nodes.names("a") == []
    lock.release()
    assert nodes.begin() == "/a"


def test_copies_that_log_managers_keep_open_are_no_hindrance() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("b", 1), in_sync("b", "a"))
    nodes.copies("b", "a")
    nodes.writes("b", controller("b", 2))
    for node in ("a", "b"):
        nodes.has_manager(node)
        nodes.keeps_open(node)
    assert nodes.begin() == "/a"
    log = MetadataLog(nodes.fs, ManualClock(), "/a")
    log.close()


def test_a_node_without_a_log_dir_for_it_cannot_have_the_controller() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("b", 1))
    nodes.errors["a"] = NoLogDirs("log.dirs is not set")
    with pytest.raises(NoLogDirs, match=r"log\.dirs is not set.*`raylog stop` and"):
        nodes.begin()
    del nodes.errors["a"]
    nodes.fs.remove_dir("/a")
    nodes.fs.write_file("/a", b"a file")
    with pytest.raises(NoLogDirs, match=r"/a.*`raylog stop` and"):
        nodes.begin()
    assert nodes.names("b") == [METADATA], "it stays where it is"


def lose_the_log_dir_of_the_metadata() -> Nodes:
    """The own node has another log dir of the cluster, and a second node has a copy."""
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.has_manager("b", idle_ms=0)
    for name in (METADATA, "meta.properties"):
        nodes.fs.rename(f"/a/{name}", f"/gone-{name}")
    nodes.fs.make_dir("/a2")
    write_meta(nodes.fs, "/a2", MetaProperties("cluster-1", 1, directory_of("z")))
    nodes.more = ["/a2"]
    return nodes


def test_the_copy_is_brought_into_a_log_dir_of_the_cluster_and_not_into_an_empty_mount_point() -> (
    None
):
    nodes = lose_the_log_dir_of_the_metadata()
    assert nodes.begin() == "/a2"
    assert nodes.names("a2") == [METADATA]
    assert nodes.fs.list_dir("/a") == []


def test_no_folder_is_made_for_the_copy_where_a_log_dir_has_gone() -> None:
    nodes = lose_the_log_dir_of_the_metadata()
    nodes.fs.remove_dir("/a")
    assert nodes.begin() == "/a2"
    assert not nodes.fs.exists("/a")


@pytest.mark.parametrize("is_of_cluster", [True, False])
def test_where_a_log_dir_can_be_none_the_copy_is_brought_into_the_next_one(
    is_of_cluster: bool,
) -> None:
    nodes = lose_the_log_dir_of_the_metadata()
    nodes.fs.remove_dir("/a")
    nodes.fs.write_file("/a", b"a disk was here")
    if not is_of_cluster:
        nodes.fs.remove("/a2/meta.properties")
    assert nodes.begin() == "/a2"
    assert nodes.names("a2") == [METADATA]


# -- the lost Controller ---------------------------------------------------------------------------


def test_all_copies_promise_a_higher_epoch_than_any_has_seen_before_they_are_read() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 3), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.has_manager("a")
    nodes.has_manager("b", promised=7)
    home = begin_home(nodes, nodes.fs, ManualClock(), Wanted())
    assert nodes.promised == [8]
    assert home.least_epoch == 8


def test_a_controller_that_ray_has_replaced_leaves_the_copies_alone() -> None:
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 3), in_sync("a", "b"))
    nodes.has_manager("a")
    nodes.is_replaced = True
    with pytest.raises(NotLeader):
        nodes.begin()
    assert nodes.promised == []


def test_a_controller_that_ray_replaces_before_the_copies_promise_goes_on_with_no_promise() -> None:
    """The next one may have begun in between, and takes these promises for ones in vain."""
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 3), in_sync("a", "b"))
    nodes.has_manager("a")
    nodes.is_replaced_behind_promises = True
    with pytest.raises(NotLeader):
        nodes.begin()
    assert nodes.promised == [4]
    assert nodes.names("b") == []


@pytest.mark.parametrize(("idle_ms", "goes_on"), [(0, True), (FENCED_MS, True), (-1, False)])
def test_a_copy_that_heard_the_lost_controller_of_late_goes_on_without_it(
    idle_ms: int, goes_on: bool
) -> None:
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.is_lost("a")
    nodes.has_manager("b", idle_ms=idle_ms)
    if goes_on:
        assert nodes.begin() == "/b"
    else:
        with pytest.raises(MetadataIncomplete, match="node a "):
            nodes.begin()


def test_a_copy_with_a_problem_is_not_enough_though_it_has_promised() -> None:
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.is_lost("a")
    nodes.has_manager("b", idle_ms=0, problem="EIO")
    with pytest.raises(MetadataIncomplete, match="node a "):
        nodes.begin()


def test_the_log_manager_of_the_node_lets_its_copy_go_before_the_controller_opens_it() -> None:
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    for node in "ab":
        nodes.has_manager(node)
        nodes.keeps_open(node)
    nodes.left = [Mark(epoch=0)]
    assert nodes.begin() == "/a"
    assert list(nodes.locks) == ["b"]


@pytest.mark.parametrize(("batches_read", "now"), [(1, 2), (3, 5)])
def test_a_copy_that_changes_while_it_is_read_is_not_brought_home(
    monkeypatch: pytest.MonkeyPatch, batches_read: int, now: int
) -> None:
    """It had 3 records when it was found. One less: it was cut, or another one was put there."""
    nodes = Nodes("a", "b")
    nodes.join("a")
    nodes.writes("b", controller("b", 1))
    (batches,) = [nodes.batches(entry) for entry in nodes._look("b", tries_locks=False)]
    read = [*batches, *batches][:batches_read]
    monkeypatch.setattr(nodes, "batches", lambda entry: read)
    with pytest.raises(LogMissing, match=f"it had 3 records.*has {now} now"):
        nodes.begin()
    assert nodes.names("a") == []


def test_a_copy_that_has_not_heard_the_lost_controller_for_long_may_have_been_left_out() -> None:
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.is_lost("a")
    nodes.has_manager("b", idle_ms=FENCED_MS + 1)
    with pytest.raises(MetadataIncomplete, match="--from b"):
        nodes.begin()


def test_a_copy_that_heard_the_lost_controller_almost_too_long_ago_is_not_fenced() -> None:
    """The Controller leaves a copy out after SUSPECT_MS by its own clock, which may be faster."""
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.is_lost("a")
    nodes.has_manager("b", idle_ms=SUSPECT_MS - 500)
    with pytest.raises(MetadataIncomplete, match="node a "):
        nodes.begin()


@pytest.mark.parametrize(
    ("marks", "goes_on"),
    [
        ([Mark(epoch=0)], True),
        ([Mark(epoch=0, asked_at=3)], True),
        ([Mark(epoch=0, asked_at=4)], False),
        ([Mark(epoch=0), Mark(epoch=0, asked_at=4)], False),
        ([Mark(epoch=2)], False),
        ([Mark(epoch=0, cluster_id="another")], False),
        ([], False),
    ],
)
def test_a_copy_that_ray_knows_was_not_left_out_goes_on_however_long_that_takes(
    marks: list[Mark], goes_on: bool
) -> None:
    """Its record of who is in sync is number 3. Of three copies one is enough."""
    nodes = Nodes("a", "b", "c", own="b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b", "c"))
    nodes.copies("a", "b")
    nodes.is_lost("a")
    nodes.is_lost("c")
    nodes.has_manager("b", idle_ms=FENCED_MS + 1)
    nodes.left = marks
    if goes_on:
        assert nodes.begin() == "/b"
    else:
        with pytest.raises(MetadataIncomplete, match="node a; node c "):
            nodes.begin()


@pytest.mark.parametrize(
    ("marks", "goes_on"),
    [
        ([Mark(epoch=0, asked_at=5)], True),  # of the life that was stopped
        ([Mark(epoch=1)], True),
        ([Mark(epoch=1, asked_at=6)], False),
        ([Mark(epoch=2, asked_at=6)], False),
        ([Mark(epoch=0), Mark(epoch=1, asked_at=6)], False),
        ([Mark(epoch=1, asked_at=6, cluster_id="another")], True),
        ([], True),  # Ray was started again
    ],
)
def test_a_stopped_copy_goes_on_unless_ray_knows_that_it_was_left_out_since(
    marks: list[Mark], goes_on: bool
) -> None:
    """After the stop a Controller began on a, while the LogManager of b hung; then a is lost."""
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"), StoppedRecord())
    nodes.copies("a", "b")
    nodes.is_lost("a")
    nodes.left = marks
    if goes_on:
        assert find_home(nodes, Wanted(may_begin=True))[0].log_dir == "/b"
        assert nodes.begin() == "/b"
        return
    with pytest.raises(MetadataIncomplete, match="node a "):
        find_home(nodes, Wanted(may_begin=True))
    nodes.has_manager("b", idle_ms=FENCED_MS + 1)
    with pytest.raises(MetadataIncomplete, match="node a "):
        nodes.begin()


@pytest.mark.parametrize(
    ("marks", "goes_on"),
    [([Mark(epoch=0)], True), ([Mark(epoch=0, asked_at=4)], False), ([], False)],
)
def test_a_copy_on_a_node_that_was_started_again_goes_on_too(
    marks: list[Mark], goes_on: bool
) -> None:
    """It has no LogManager: only a Controller starts one, and none can begin without it."""
    nodes = Nodes("a", "b", "c", own="c")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.join("c")
    nodes.is_lost("a")
    nodes.left = marks
    if goes_on:
        assert nodes.begin() == "/c"
        assert read_controller_epoch(nodes.fs, f"/b/{METADATA}") == 2, "it obeys nobody before"
    else:
        with pytest.raises(MetadataIncomplete, match="node a "):
            nodes.begin()


def test_a_controller_that_cannot_begin_at_first_does_so_when_its_disk_has_room_again() -> None:
    """Meanwhile the other node was started again, so that nobody has heard the last one of late."""
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("a", 1))
    nodes.copies("b", "a")
    nodes.writes("b", controller("a", 2), in_sync("a", "b"))  # a backup lies on the other one
    nodes.has_manager("a")
    nodes.has_manager("b", idle_ms=0)
    nodes.left = [Mark(epoch=1)]
    nodes.fs.size_bytes = 1
    with pytest.raises(DiskFull):
        nodes.begin()
    nodes.fs.size_bytes = None
    del nodes.managers["b"]
    assert nodes.begin() == "/a"
    assert nodes.records("a") == nodes.records("b")


def test_a_copy_that_somebody_has_open_promises_nothing_to_others() -> None:
    nodes = Nodes("a")
    nodes.writes("a", controller("a", 1))
    nodes.keeps_open("a")
    with pytest.raises(LogLocked):
        promise_for(nodes.fs, "a", "/a", 5)
    nodes.release("ray-a")
    assert [kept.promised for kept in promise_for(nodes.fs, "a", "/a", 5)] == [5]
    assert [kept.promised for kept in promise_for(nodes.fs, "a", "/a", 0)] == [5], "never less"
    assert promise_for(nodes.fs, "b", "/nowhere", 5) == []


def test_a_fence_counts_less_than_what_ray_knows() -> None:
    """The clock of a machine that stood still has not counted the time in which it was left out."""
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.is_lost("a")
    nodes.has_manager("b", idle_ms=0)
    nodes.left = [Mark(epoch=0, asked_at=4)]
    with pytest.raises(MetadataIncomplete, match="node a "):
        nodes.begin()
    nodes.left = [Mark(epoch=0, asked_at=3)]
    assert nodes.begin() == "/b"


def test_a_copy_that_has_not_promised_is_not_enough_whatever_ray_knows() -> None:
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.is_lost("a")
    nodes.left = [Mark(epoch=0)]
    nodes.keeps_open("b")
    with pytest.raises(MetadataIncomplete):
        nodes.begin()


@pytest.mark.parametrize(("epoch", "goes_on"), [(0, True), (1, False)])
def test_a_controller_that_ends_while_a_copy_is_away_goes_on_if_ray_knows_of_none_since(
    epoch: int, goes_on: bool
) -> None:
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.is_lost("b")
    nodes.left = [Mark(epoch=epoch, asked_at=9)]
    if goes_on:
        assert nodes.begin() == "/a"
    else:
        with pytest.raises(MetadataIncomplete, match="node b "):
            nodes.begin()


def test_where_the_last_controller_was_here_no_other_node_is_looked_at() -> None:
    """It takes a process on each of them."""
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.has_manager("b")
    nodes.left = [Mark(epoch=0)]
    assert nodes.begin() == "/a"
    assert nodes.looked_at == ["own"]
    assert nodes.promised == []


def test_where_the_last_controller_was_elsewhere_all_nodes_are_looked_at() -> None:
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.left = [Mark(epoch=0)]
    assert nodes.begin() == "/b"
    assert nodes.looked_at == ["own", "all"]


def test_a_backup_where_the_last_controller_was_not_is_not_taken_for_its_metadata() -> None:
    """Node a has the newest metadata, and no LogManager runs that could say so."""
    nodes = Nodes("a", "b", own="b")
    nodes.writes("a", controller("a", 1))
    nodes.copies("a", "b")
    nodes.writes("a", topic("later"))
    expected = nodes.records("a")
    nodes.left = [Mark(epoch=0)]
    assert nodes.begin() == "/b"
    assert nodes.records("b") == expected


# -- a backup that was put in the place of the metadata while the broker runs ----------------------


def follows(node: str, end: int, *, epoch: int = 1, is_in_sync: bool = True) -> CopyStatus:
    return CopyStatus(node=node, end=end, epoch=epoch, is_in_sync=is_in_sync)


def test_what_counts_is_known_to_the_next_life_of_the_process() -> None:
    """What a copy in sync lacks was told to nobody; a copy that is not does not matter."""
    copies = (follows("a", 9), follows("b", 7), follows("c", 2, is_in_sync=False))
    assert known_by(copies, Known()) == Known(epoch=1, end=7)


@pytest.mark.parametrize(
    ("copies", "known"),
    [
        ((), Known(epoch=1, end=8)),
        ((follows("a", 9), follows("b", 0)), Known(epoch=1, end=8)),
        ((follows("a", 9), follows("b", 7)), Known(epoch=1, end=8)),
        ((follows("a", 9), follows("b", 9)), Known(epoch=1, end=9)),
        ((follows("a", 3, epoch=2),), Known(epoch=2, end=3)),
    ],
)
def test_a_life_knows_what_the_one_before_knew(
    copies: tuple[CopyStatus, ...], known: Known
) -> None:
    assert known_by(copies, Known(epoch=1, end=8)) == known


def test_a_controller_that_begins_again_over_a_backup_goes_on_with_the_newer_copy_elsewhere() -> (
    None
):
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("a", 1), in_sync("a", "b"))
    nodes.copies("b", "a")  # the backup
    nodes.writes("b", topic("later"))
    nodes.has_manager("b", idle_ms=0)
    nodes.left = [Mark(epoch=0)]
    known = Known(epoch=1, end=len(nodes.records("b")))
    assert nodes.begin(known=known) == "/a"
    assert nodes.records("a") == nodes.records("b")


def test_a_new_process_over_a_backup_of_the_same_life_goes_on_with_the_newer_copy_elsewhere() -> (
    None
):
    """It knows nothing of before, and Ray knows of no later Controller: the other copy does."""
    nodes = Nodes("a", "b")
    nodes.writes("b", controller("a", 1), in_sync("a", "b"))
    nodes.copies("b", "a")  # the backup
    nodes.writes("b", topic("later"))
    nodes.has_manager("b", idle_ms=0)
    nodes.left = [Mark(epoch=0)]
    assert nodes.begin() == "/a"
    assert nodes.records("a") == nodes.records("b")
    assert nodes.looked_at == ["own", "all"]


def test_a_copy_that_lacks_the_end_is_no_reason_to_look_at_the_other_nodes() -> None:
    """The last records of the lost Controller were pushed to nobody, or not to this copy."""
    nodes = Nodes("a", "b")
    nodes.writes("a", controller("a", 1), in_sync("a", "b"))
    nodes.copies("a", "b")
    nodes.writes("a", topic("later"))
    nodes.has_manager("b", idle_ms=0)
    nodes.left = [Mark(epoch=0)]
    assert nodes.begin() == "/a"
    assert nodes.looked_at == ["own"]


def test_a_controller_that_begins_again_over_a_backup_refuses_where_nobody_has_more() -> None:
    nodes = Nodes("a")
    nodes.writes("a", controller("a", 1))
    nodes.left = [Mark(epoch=0)]
    end = len(nodes.records("a"))
    with pytest.raises(OlderMetadata, match=f"had {end + 1} records"):
        nodes.begin(known=Known(epoch=1, end=end + 1))
    assert nodes.begin(known=Known(epoch=1, end=end)) == "/a"


def test_metadata_of_a_higher_epoch_is_not_older_however_short_it_is() -> None:
    """A person has had the cluster go on from another copy."""
    nodes = Nodes("a")
    nodes.writes("a", controller("a", 3), in_sync("a"))
    assert nodes.begin(known=Known(epoch=2, end=100)) == "/a"
