"""What a person does with the copies of the metadata, on the disks of the nodes."""

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest

from raylog.actors.errors import InvalidRequest, NewerMetadata, RequestTimedOut
from raylog.actors.levels import LEVELS
from raylog.actors.messages import ActorProcess
from raylog.actors.metadata_history import DIGEST_BYTES, next_era
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.names import Node
from raylog.cluster import machines, metadata_work
from raylog.cluster.controller.copies import Copy, SurveyedDir, choose
from raylog.cluster.controller.home import Survey
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.rebuilding import rebuilt
from raylog.cluster.controller.records import (
    ClusterRecord,
    ControllerRecord,
    CopiesRecord,
    LevelRecord,
    TopicRecord,
    encode,
)
from raylog.cluster.controller.standings import restoration, standings
from raylog.cluster.controller.surveying import Surveyor
from raylog.cluster.controller.witness import Mark
from raylog.cluster.machines import RayMachines, ThisMachine, folders_in
from raylog.cluster.metadata_work import (
    MetadataWork,
    check_lost,
    go_on_from,
    take_in,
    write_rebuilt,
)
from raylog.storage.clock import SystemClock
from raylog.storage.errors import InvalidConfig, InvalidLogDir, LogLocked
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log
from raylog.storage.state.controller_epoch import read_controller_epoch, write_controller_epoch
from raylog.storage.state.properties import MetaProperties, random_id, write_meta

FS = RealFileSystem()
METADATA = "__cluster_metadata-0"


def member(path: Path) -> str:
    """A log dir of the cluster; its id."""
    path.mkdir()
    directory_id = random_id()
    write_meta(FS, str(path), MetaProperties("cluster-1", 1, directory_id))
    return directory_id


def survey(*paths: Path) -> Sequence[SurveyedDir]:
    return [
        entry
        for path in paths
        for entry in Surveyor(FS).survey(f"ray-{path.name}", [str(path)], node=path.name)
    ]


@pytest.mark.parametrize(
    "record",
    [
        encode(LevelRecord(level=LEVELS.newest + 1, release="9.0.0")),
        msgpack.packb({"kind": "voters", "v": 1}),
    ],
    ids=["level", "kind"],
)
def test_metadata_of_a_newer_raylog_is_neither_damaged_nor_replaced(
    tmp_path: Path, record: bytes
) -> None:
    newer, older = tmp_path / "newer", tmp_path / "older"
    for path in (newer, older):
        member(path)
        first = [
            encode(ClusterRecord(cluster_id="cluster-1")),
            encode(ControllerRecord(epoch=1, node="n")),
        ]
        write_rebuilt(str(path), [*first, *([record] if path is newer else [])])
    for dirs in (survey(newer), survey(newer, older)):
        refusals: list[Callable[[], object]] = [
            partial(choose, dirs, "ray-newer", new_id="new"),
            partial(choose, dirs, "ray-newer", new_id="new", new_cluster=True),
            partial(choose, dirs, "ray-newer", new_id="new", older_metadata=True),
            partial(check_lost, dirs),
            partial(restoration, dirs, str(older)),
        ]
        for refused in refusals:
            with pytest.raises(NewerMetadata, match="Do not repair, restore or rebuild"):
                refused()
        assert {"of a newer raylog"} <= {entry.state for entry in standings(dirs)}


def test_a_copy_that_lacked_something_counts_after_a_restore_and_needs_none_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "b"
    directory_id = member(path)
    log = MetadataLog(FS, SystemClock(), str(path), new_cluster="cluster-1")
    in_sync = CopiesRecord(nodes=("a", "b"), directories=("lost", directory_id))
    log.append([ControllerRecord(epoch=4, node="a", directory="lost"), in_sync])
    log.close()
    write_controller_epoch(FS, str(path), 6)
    before = restoration(survey(path), "b")
    assert before.is_needed
    go_on_from(str(path), before.epoch, "b")
    assert not restoration(survey(path), "b").is_needed
    home = choose(survey(path), "ray-b", new_id="new")
    assert (home.log_dir, home.new_cluster) == (str(path), "")
    log = MetadataLog(FS, SystemClock(), str(path))
    assert log.desired.controller_epoch == next_era(6)
    log.close()


def test_metadata_is_made_of_the_folders_and_what_could_not_be_read_is_kept(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    directory_id = member(path)
    topic_id = random_id()
    for name in ("t-0", "t-1"):
        create_log(FS, str(path / name), topic_id)
    (path / METADATA).mkdir()
    (path / METADATA / "00000000000000000005.log").write_bytes(b"damaged")
    (path / "notes.txt").write_text("no folder")
    (path / f"u-0.{'0' * 32}-stray").mkdir()
    found = folders_in(FS, Node("ray-a", "a"), str(path))
    assert (found.cluster_id, found.directory_id) == ("cluster-1", directory_id)
    assert {str(folder.partition): folder.topic_id for folder in found.folders} == {
        "t-0": topic_id,
        "t-1": topic_id,
    }
    made = rebuilt([found], "ray-a")
    write_rebuilt(made.target.path, [encode(record) for record in made.records])
    assert choose(survey(path), "ray-a", new_id="new").new_cluster == ""
    log = MetadataLog(FS, SystemClock(), str(path))
    assert [topic.topic_id for topic in log.desired.topics.values()] == [topic_id]
    log.close()
    strays = [name for name in os.listdir(path) if name.startswith(METADATA + ".")]
    assert [name.rpartition("-")[2] for name in strays] == ["stray"]


def test_a_log_dir_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    path = tmp_path / "a"
    member(path)
    (path / "meta.properties").write_text("nonsense")
    assert "meta.properties" in folders_in(FS, Node("ray-a"), str(path)).problem
    assert folders_in(FS, Node("ray-a"), str(tmp_path / "none")).folders == ()


def test_a_folder_that_was_set_aside_has_its_name_again_unless_the_log_dir_is_used(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    member(path)
    stray = f"t-0.{'0' * 32}-stray"
    create_log(FS, str(path / stray), random_id())
    assert stray in folders_in(FS, Node("ray-a", "a"), str(path)).strays
    lock = FS.lock(str(path / ".lock"))
    with pytest.raises(LogLocked):
        take_in(str(path), stray)
    lock.release()
    take_in(str(path), stray)
    assert (path / "t-0").is_dir()
    create_log(FS, str(path / stray), random_id())
    with pytest.raises(InvalidLogDir):
        take_in(str(path), stray)


def test_metadata_in_a_log_dir_that_a_broker_uses_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another Ray. LogManagers of this one have the lock, and leave the copy alone."""
    monkeypatch.setattr(metadata_work, "lock_patiently", lambda take: take())
    path = tmp_path / "a"
    directory_id = member(path)
    record = encode(ControllerRecord(epoch=1, node="a", directory=directory_id))
    lock = FS.lock(str(path / ".lock"))
    with pytest.raises(LogLocked):
        write_rebuilt(str(path), [record])
    assert not (path / METADATA).exists()
    write_rebuilt(str(path), [record], takes_lock=False)
    with pytest.raises(LogLocked):
        go_on_from(str(path), 2, "a")
    go_on_from(str(path), 3, "a", takes_lock=False)
    lock.release()
    go_on_from(str(path), 4, "a")
    FS.lock(str(path / ".lock")).release()
    assert [entry.copy.controller_epoch for entry in survey(path) if entry.copy] == [4]


class SilentController:
    """A Controller that hangs, and has the metadata open."""

    handle = None

    def cluster_id(self) -> "SilentController":
        return self

    def get(self, timeout_s: float) -> str:
        raise RequestTimedOut("the cluster id", round(timeout_s * 1000))


@pytest.mark.parametrize(
    ("process", "place"),
    [
        (ActorProcess(node_id="node-a", pid=4711), "process 4711 on node node-a"),
        (None, "Ray does not tell"),
    ],
)
def test_nobody_goes_on_with_other_metadata_while_a_controller_hangs(
    monkeypatch: pytest.MonkeyPatch, process: ActorProcess | None, place: str
) -> None:
    """When it wakes it would acknowledge changes in metadata that counts no more."""
    monkeypatch.setattr(machines, "find_controller", lambda _: SilentController())
    monkeypatch.setattr(machines, "process_of", lambda _: process)
    work = MetadataWork(RayMachines("ns", BrokerConfig.parse({"log.dirs": "/a"})))
    for change in (partial(work.restore, "a"), work.rebuild):
        with pytest.raises(InvalidRequest, match=f"does not answer.*{place}.*kill -9"):
            change()


class RefusingReach:
    """A node whose RAYLOG_LOG_DIRS is refused, beside one that has a copy."""

    def survey(self, *, tries_locks: bool, only_own: bool = False) -> Survey:
        copy = Copy(cluster_id="cluster-1", controller_epoch=1, digests=b"x" * DIGEST_BYTES)
        found = SurveyedDir(node_id="a", path="/a", node="a", has_metadata=True, copy=copy)
        refused = InvalidConfig("RAYLOG_LOG_DIRS", "x", "must be absolute")
        return Survey(own="a", dirs=(found,), errors={"b": refused})


class StoppedReach:
    """A node with a copy that ends with an orderly stop; ``left``: what Ray's head knows."""

    def __init__(self, left: list[Mark]) -> None:
        self._left = left

    def survey(self, *, tries_locks: bool, only_own: bool = False) -> Survey:
        copy = Copy(
            cluster_id="cluster-1",
            controller_epoch=1,
            digests=b"x" * 5 * DIGEST_BYTES,
            controller="b",
            controller_dir="B",
            in_sync={"A": "a", "B": "b"},
            copies_at=3,
            is_stopped=True,
        )
        found = SurveyedDir(
            node_id="a",
            path="/a",
            node="a",
            cluster_id="cluster-1",
            directory_id="A",
            has_metadata=True,
            copy=copy,
        )
        return Survey(own="a", dirs=(found,), errors={})

    def marks(self) -> list[Mark]:
        return self._left

    def has_managers(self) -> bool:
        return False

    def release(self, node_id: str) -> None: ...


@pytest.mark.parametrize(("left", "is_needed"), [([], False), ([Mark(epoch=1, asked_at=5)], True)])
def test_a_stopped_copy_that_was_left_out_since_is_restored_by_a_person(
    monkeypatch: pytest.MonkeyPatch, left: list[Mark], is_needed: bool
) -> None:
    """The Controller does not begin over it by itself."""
    written: list[Any] = []

    def run(work: Any, function: Any, node_id: str, arguments: tuple[Any, ...], what: str) -> Any:
        written.append(arguments[0])
        return {}

    monkeypatch.setattr(machines, "RayReach", lambda *_, **__: StoppedReach(left))
    monkeypatch.setattr(machines, "find_controller", lambda _: None)
    monkeypatch.setattr(RayMachines, "run", run)
    work = MetadataWork(RayMachines("ns", BrokerConfig.parse({"log.dirs": "/a"})))
    found = work.restore("a").found
    assert found.is_needed == is_needed
    assert written == (["/a", ["/a"]] if is_needed else []), "and the log dirs know of it"
    assert found.lacks == (("what only node b may have",) if is_needed else ())


def test_a_node_whose_log_dirs_are_refused_may_have_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "RayReach", lambda *_, **__: RefusingReach())
    work = MetadataWork(RayMachines("ns", BrokerConfig.parse({"log.dirs": "/a"})))
    with pytest.raises(InvalidConfig, match="RAYLOG_LOG_DIRS='x'"):
        work.status()


def lost_disk(tmp_path: Path) -> tuple[Path, Path, str, str]:
    """Two log dirs; the metadata in the first is from before topic t, of which t-1 was set aside.

    Also the stray folder's path, and the topic's id.
    """
    first, second = tmp_path / "d0", tmp_path / "d1"
    ids = [member(path) for path in (first, second)]
    log = MetadataLog(FS, SystemClock(), str(first), new_cluster="cluster-1")
    begin = ControllerRecord(epoch=1, node="n", directory=ids[0])
    log.append([begin, CopiesRecord(nodes=("n",), directories=(ids[0],))])
    log.close()
    topic_id = random_id()
    stray = second / f"t-1.{'0' * 32}-stray"
    create_log(FS, str(stray), topic_id)
    return first, second, str(stray), topic_id


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks Ray fails: the test's process is not connected."""

    def refuse(*_: object, **__: object) -> object:
        raise AssertionError("Ray was asked")

    for name in ("run_on_nodes", "alive_nodes", "own_node", "find_controller", "running_parts"):
        monkeypatch.setattr(machines, name, refuse)


@pytest.mark.usefixtures("no_ray")
def test_on_one_machine_the_copies_are_shown_and_a_folder_is_taken_in_without_a_ray(
    tmp_path: Path,
) -> None:
    first, second, stray, topic_id = lost_disk(tmp_path)
    work = MetadataWork(ThisMachine([str(first), str(second)]))
    (shown,) = work.status()
    assert (shown.path, shown.state, shown.topics) == (str(first), "newest", 0)
    with pytest.raises(InvalidRequest, match="--make-missing"):
        work.adopt([stray])
    taken_in = work.adopt([stray], make_missing=True)
    assert ([str(p) for p in taken_in.partitions], [str(p) for p in taken_in.made]) == (
        ["t-1"],
        ["t-0"],
    )
    assert (second / "t-1").is_dir()
    (shown,) = work.status()
    assert (shown.topics, shown.epoch) == (1, 2)
    # If this copy is lost now, an older one is not taken for the newest.
    assert [read_controller_epoch(FS, str(path)) for path in (first, second)] == [2, 2]
    log = MetadataLog(FS, SystemClock(), str(first))
    assert [topic.topic_id for topic in log.desired.topics.values()] == [topic_id]
    log.close()


@pytest.mark.usefixtures("no_ray")
def test_a_folder_that_was_taken_in_already_is_named_so(tmp_path: Path) -> None:
    first, second, stray, _ = lost_disk(tmp_path)
    work = MetadataWork(ThisMachine([str(first), str(second)]))
    work.adopt([stray], make_missing=True)
    with pytest.raises(InvalidRequest, match=f"was taken in already: {second}/t-1 is there"):
        work.adopt([stray], make_missing=True)
    with pytest.raises(InvalidRequest, match="was set aside in no log dir"):
        work.adopt([str(second / f"t-7.{'0' * 32}-stray")])


@pytest.mark.usefixtures("no_ray")
def test_on_one_machine_the_metadata_is_made_anew_and_restored_without_a_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_work, "lock_patiently", lambda take: take())
    path = tmp_path / "a"
    member(path)
    create_log(FS, str(path / "t-0"), random_id())
    work = MetadataWork(ThisMachine([str(path)]))
    lock = FS.lock(str(path / ".lock"))
    with pytest.raises(LogLocked):
        work.rebuild()
    lock.release()
    made = work.rebuild()
    assert (made.topics, made.partitions) == (1, 1)
    assert read_controller_epoch(FS, str(path)) == made.epoch
    assert not work.restore(str(path)).found.is_needed
    assert [entry.topics for entry in work.status()] == [1]


def test_work_on_a_disk_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "WORK_TIMEOUT_S", 0.0)
    machine, hangs = ThisMachine(["/a"]), threading.Event()

    def write() -> None:
        hangs.wait()

    with pytest.raises(RequestTimedOut, match="writing the metadata"):
        machine.run(write, machine.own().node_id, (), "writing the metadata")
    hangs.set()


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize("keep_configs", [False, True])
def test_after_a_restore_nothing_is_removed_under_a_config_that_may_be_older(
    tmp_path: Path, keep_configs: bool
) -> None:
    """A lost change may have been retention.ms=-1."""
    path = tmp_path / "b"
    directory_id = member(path)
    log = MetadataLog(FS, SystemClock(), str(path), new_cluster="cluster-1")
    config = {"retention.ms": 1000, "cleanup.policy": "compact", "segment.bytes": 1 << 20}
    log.append(
        [
            ControllerRecord(epoch=4, node="a", directory="lost"),
            CopiesRecord(nodes=("a", "b"), directories=("lost", directory_id)),
            TopicRecord(name="t", topic_id=random_id(), config=config, version=4 << 32),
        ]
    )
    log.close()
    work = MetadataWork(ThisMachine([str(path)]))
    restored = work.restore(str(path), keep_configs=keep_configs)
    assert restored.found.lacks
    log = MetadataLog(FS, SystemClock(), str(path))
    (topic,) = log.desired.topics.values()
    log.close()
    if keep_configs:
        assert (restored.before, topic.config) == ({}, config)
        return
    assert restored.before == {"t": {"retention.ms": 1000, "cleanup.policy": "compact"}}
    keeping = {"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": -1}
    assert topic.config == config | keeping
    assert topic.version == restored.found.epoch << 32, "no log has a higher one"
