"""Backups of the cluster's metadata by the script of docs/OPERATIONS.md, and where a Controller
begins when they are restored as the page says."""

import shutil
import threading
from pathlib import Path

import pytest

from raylog.actors.control import MetadataPush
from raylog.actors.errors import MetadataIncomplete, OlderMetadata
from raylog.actors.metadata_history import MetadataHistory
from raylog.actors.node.metadata_copy import MetadataCopy
from raylog.cluster.controller.copies import Home, SurveyedDir, choose
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import (
    ControllerRecord,
    CopiesRecord,
    Record,
    StoppedRecord,
    TopicRecord,
)
from raylog.cluster.controller.standings import restoration
from raylog.cluster.controller.surveying import Surveyor
from raylog.storage.clock import SystemClock
from raylog.storage.files import RealFileSystem
from raylog.storage.state.controller_epoch import write_controller_epoch
from raylog.storage.state.properties import MetaProperties, random_id, write_meta
from tests.harness.operations_page import back_up

CLUSTER = "cluster-1"
FS = RealFileSystem()
A_BATCH = 1 << 20


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=f"id-{name}", config={}, version=0)


class Disks:
    """Log dirs of nodes, each named after its node and a number: "a-0". The metadata is in "a-0",
    and where there is a node "b", its copy is in "b-0"."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.folder = folder
        self.paths = {name: folder / "data" / name for name in names}
        (folder / "data").mkdir()
        self.ids = {name: random_id() for name in names}
        for number, (name, path) in enumerate(self.paths.items()):
            path.mkdir()
            write_meta(FS, str(path), MetaProperties(CLUSTER, number, self.ids[name]))
        self.begin_controller(1)

    def begin_controller(self, epoch: int) -> None:
        """A Controller begins: its epoch is in the metadata, and then on every log dir."""
        holders = [name for name in ("a-0", "b-0") if name in self.paths]
        began: list[Record] = [
            ControllerRecord(epoch=epoch, node="a", directory=self.ids["a-0"]),
        ]
        if len(holders) > 1:
            ids = tuple(self.ids[name] for name in holders)
            began.append(CopiesRecord(nodes=("a", "b"), directories=ids))
        self.append(*began, epoch=epoch)
        for path in self.paths.values():
            write_controller_epoch(FS, str(path), epoch)

    def append(self, *records: Record, epoch: int = 1, is_pushed: bool = True) -> None:
        """``is_pushed``: the other node's copy gets them, too."""
        log = MetadataLog(FS, SystemClock(), str(self.paths["a-0"]), new_cluster=CLUSTER)
        log.append(records)
        batches = log.batches(0, log.end, A_BATCH)
        log.close()
        if is_pushed and "b-0" in self.paths:
            copy = self.copy_of_b()
            copy.take(
                MetadataPush(
                    cluster_id=CLUSTER,
                    life="life",
                    controller_epoch=epoch,
                    base=0,
                    digest=MetadataHistory().digest_at(0),
                    batches=batches,
                )
            )
            copy.release()

    def copy_of_b(self) -> MetadataCopy:
        return MetadataCopy(
            FS,
            SystemClock(),
            str(self.paths["b-0"]),
            cluster_id=CLUSTER,
            node="b",
            life="life",
            directory_id=self.ids["b-0"],
        )

    def back_up(self) -> Path:
        back_up(list(self.paths.values()), self.folder / "backup", self.folder)
        return self.folder / "backup"

    def restore(self, *names: str) -> None:
        for name in names:
            shutil.rmtree(self.paths[name])
            shutil.copytree(self.folder / "backup" / name, self.paths[name])

    def survey(self) -> list[SurveyedDir]:
        found: list[SurveyedDir] = []
        for node in sorted({name[0] for name in self.paths}):
            own = [str(path) for name, path in self.paths.items() if name[0] == node]
            found += Surveyor(FS).survey(node, own, node=node)
        return found

    def home(self, *, older_metadata: bool = False) -> Home:
        return choose(self.survey(), "a", new_id="new", older_metadata=older_metadata)

    def topics(self, name: str = "a-0") -> int:
        (found,) = [entry for entry in self.survey() if entry.path == str(self.paths[name])]
        assert found.copy is not None, found.problem
        return found.copy.topics


@pytest.fixture
def one_node(tmp_path: Path) -> Disks:
    return Disks(tmp_path, "a-0", "a-1")


@pytest.fixture
def two_nodes(tmp_path: Path) -> Disks:
    return Disks(tmp_path, "a-0", "b-0")


def test_metadata_that_is_written_while_it_is_copied_is_whole(
    one_node: Disks, tmp_path: Path
) -> None:
    log = MetadataLog(FS, SystemClock(), str(one_node.paths["a-0"]))
    is_over = threading.Event()
    count = [0]

    def create_topics() -> None:
        while not is_over.is_set():
            log.append([topic(f"t-{count[0]}")])
            count[0] += 1

    thread = threading.Thread(target=create_topics)
    thread.start()
    try:
        at_begin = count[0]
        one_node.back_up()
    finally:
        is_over.set()
        thread.join()
        log.close()
    one_node.restore("a-0")
    assert at_begin <= one_node.topics() <= count[0]


def test_a_copy_of_another_nodes_metadata_is_copied_with_what_it_has_promised(
    two_nodes: Disks,
) -> None:
    copy = two_nodes.copy_of_b()
    assert copy.promise(7).promised == 7
    copy.release()
    two_nodes.back_up()
    two_nodes.restore("b-0")
    (found,) = [entry for entry in two_nodes.survey() if entry.node == "b"]
    assert found.promised_epoch == 7
    assert found.copy is not None


# -- on one node -----------------------------------------------------------------------------------


def test_one_log_dir_without_metadata_begins_with_the_newest_metadata(one_node: Disks) -> None:
    one_node.back_up()
    one_node.append(topic("later"))
    one_node.begin_controller(2)
    one_node.restore("a-1")
    assert one_node.home().log_dir == str(one_node.paths["a-0"])
    assert one_node.topics() == 1


def test_older_metadata_is_refused_until_somebody_says_so(one_node: Disks) -> None:
    one_node.append(topic("before"))
    one_node.back_up()
    one_node.begin_controller(2)
    one_node.append(topic("later"))
    one_node.restore("a-0")
    with pytest.raises(OlderMetadata, match="--older-metadata") as raised:
        one_node.home()
    assert str(one_node.paths["a-0"]) in str(raised.value)
    assert str(one_node.paths["a-1"]) in raised.value.seen
    accepted = one_node.home(older_metadata=True)
    assert (accepted.log_dir, accepted.least_epoch) == (str(one_node.paths["a-0"]), 2)
    assert one_node.topics() == 1


def test_newer_metadata_in_the_place_of_the_older_is_not_refused(one_node: Disks) -> None:
    one_node.back_up()
    one_node.begin_controller(2)
    one_node.append(topic("later"))
    metadata = one_node.paths["a-0"] / "__cluster_metadata-0"
    newer = Path(shutil.copytree(metadata, one_node.folder / "newer"))
    one_node.restore("a-0")
    with pytest.raises(OlderMetadata):
        one_node.home()
    shutil.rmtree(metadata)
    newer.rename(metadata)
    assert one_node.home().log_dir == str(one_node.paths["a-0"])
    assert one_node.topics() == 1


def test_metadata_since_whose_copy_no_controller_began_is_not_refused(one_node: Disks) -> None:
    one_node.append(topic("before"))
    one_node.back_up()
    one_node.append(topic("later"))
    one_node.restore("a-0")
    assert one_node.home().log_dir == str(one_node.paths["a-0"])
    assert one_node.topics() == 1


def test_all_log_dirs_of_one_run_begin_without_a_question(one_node: Disks) -> None:
    one_node.append(topic("before"))
    one_node.back_up()
    one_node.begin_controller(2)
    one_node.append(topic("later"))
    one_node.restore("a-0", "a-1")
    assert one_node.home().log_dir == str(one_node.paths["a-0"])
    assert one_node.topics() == 1


# -- on two nodes ----------------------------------------------------------------------------------


@pytest.fixture(params=["a-0", "b-0"])
def lost(request: pytest.FixtureRequest) -> str:
    """The log dir that is restored: that of the Controller, or the other one."""
    return str(request.param)


def test_the_newest_copy_of_another_node_counts_after_an_orderly_stop(
    two_nodes: Disks, lost: str
) -> None:
    two_nodes.append(topic("before"))
    two_nodes.back_up()
    two_nodes.append(topic("later"), StoppedRecord())
    two_nodes.restore(lost)
    (other,) = {"a-0", "b-0"} - {lost}
    assert two_nodes.home().log_dir == str(two_nodes.paths[other])
    assert two_nodes.topics(other) == 2


def test_the_controllers_own_metadata_counts_without_an_orderly_stop(two_nodes: Disks) -> None:
    two_nodes.back_up()
    two_nodes.append(topic("later"))
    two_nodes.restore("b-0")
    assert two_nodes.home().log_dir == str(two_nodes.paths["a-0"])


def test_a_controller_that_was_lost_with_its_disk_may_have_gone_on_alone(two_nodes: Disks) -> None:
    """So it did here. A backup in its place does not hide that; then a person decides."""
    two_nodes.back_up()
    two_nodes.append(topic("later"))
    two_nodes.append(topic("alone"), is_pushed=False)
    two_nodes.restore("a-0")
    with pytest.raises(MetadataIncomplete, match="an older state of it lies there now") as raised:
        two_nodes.home()
    assert raised.value.source == "b"
    found = restoration(two_nodes.survey(), "b")
    assert found.is_needed
    assert found.source.path == str(two_nodes.paths["b-0"])


@pytest.mark.parametrize("is_changed", [False, True])
def test_all_log_dirs_begin_where_their_copies_are_the_same(
    two_nodes: Disks, is_changed: bool
) -> None:
    two_nodes.append(topic("before"))
    back_up([two_nodes.paths["a-0"]], two_nodes.folder / "backup", two_nodes.folder)
    if is_changed:
        two_nodes.append(topic("meanwhile"))
    back_up([two_nodes.paths["b-0"]], two_nodes.folder / "backup", two_nodes.folder)
    two_nodes.append(topic("later"))
    two_nodes.begin_controller(2)
    two_nodes.restore("a-0", "b-0")
    if not is_changed:
        assert two_nodes.home().log_dir == str(two_nodes.paths["a-0"])
        return
    with pytest.raises(MetadataIncomplete) as raised:
        two_nodes.home()
    assert raised.value.source == "b"
