"""Copies of every state follow a Controller's log that begins behind a snapshot."""

import pytest

from raylog.actors.control import MetadataKept, Report
from raylog.actors.levels import CHAINED_LEVEL
from raylog.actors.metadata_history import ERA_EPOCHS
from raylog.actors.node.metadata_copy import MetadataCopy, open_metadata
from raylog.cluster.controller.events import SnapshotDamaged
from raylog.cluster.controller.following import HEARTBEAT_MS, RETRY_MS, Following
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.pushing import LACKS_SNAPSHOT, message_of
from raylog.cluster.controller.records import LevelRecord, Record
from raylog.cluster.controller.snapshots import snapshot_of
from raylog.storage.state.controller_epoch import NO_EPOCH
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.memory import MemoryFileSystem
from tests.harness.metadata_pushes import CLUSTER, NEWER_LEVELS, began, topic

LEVEL = LevelRecord(level=CHAINED_LEVEL, release="0.2.0")


class Play:
    """A Controller on node a with its log, and the copy of node b, each on a disk of its own."""

    def __init__(self) -> None:
        self.disk, self.other = MemoryFileSystem(), MemoryFileSystem()
        for fs in (self.disk, self.other):
            fs.make_dir("/disk/log")
        self.now_ms = 0
        self.sent = self.brought = 0
        self.damaged: list[SnapshotDamaged] = []
        self.copy = self._copy()
        self.begin(1, is_new=True)

    def _copy(self) -> MetadataCopy:
        return MetadataCopy(
            self.other,
            ManualClock(),
            "/disk/log",
            cluster_id=CLUSTER,
            node="b",
            life="life",
            directory_id="dir-b",
        )

    def begins_cluster_anew(self) -> None:
        """A person begins the cluster of the log dirs anew, where its metadata is lost."""
        self.log.close()
        self.disk = MemoryFileSystem()
        self.disk.make_dir("/disk/log")
        self.begin(ERA_EPOCHS + 1, is_new=True, least_epoch=ERA_EPOCHS)

    def begin(self, epoch: int, *, is_new: bool = False, least_epoch: int = NO_EPOCH) -> None:
        """A Controller begins over the log as it lies."""
        self.log = MetadataLog(
            self.disk,
            ManualClock(),
            "/disk/log",
            new_cluster=CLUSTER if is_new else "",
            least_epoch=least_epoch,
            levels=NEWER_LEVELS,
        )
        self.desired = self.log.desired
        self.following = Following()
        self.following.start("a", self.log.history(), {}, "dir-a", self.now_ms)
        self.following.see(["a", "b"])
        self.write(began(epoch))
        if is_new:
            self.write(LEVEL)

    def write(self, *records: Record) -> None:
        self.log.append(records)
        for record in records:
            self.desired.apply(record)
        self.following.wrote(records, self.now_ms)

    def write_topics(self, names: str) -> None:
        for name in names:
            self.write(topic(name))

    def save(self) -> None:
        self.log.save(snapshot_of(self.desired, self.following.history.point()))

    def follow(self) -> MetadataKept:
        """Push until the copy has everything and says so; returns its last answer."""
        report = Report(
            node="b",
            life="life",
            number=1,
            controller_epoch=1,
            dirs=(),
            logs=(),
            levels=NEWER_LEVELS,
        )
        observed = {"b": Observed(heard_ms=self.now_ms, report=report)}
        kept = None
        for _ in range(12):
            self.now_ms += HEARTBEAT_MS + RETRY_MS
            for push in self.following.pushes(observed, self.now_ms, level=CHAINED_LEVEL):
                message = message_of(push, CLUSTER, self.log, self.damaged.append)
                if message is None:
                    self.following.fail(push.token, "b", LACKS_SNAPSHOT, self.now_ms)
                    continue
                self.sent += 1
                self.brought += bool(message.snapshot)
                kept = self.copy.take(message)
                self.following.hear(push.token, "b", kept, self.now_ms)
                self.following.validate()
        assert kept is not None
        return kept

    def end_of_aside(self, name: str) -> int:
        """So many records has what the node of the copy has set aside."""
        log = open_metadata(self.other.crash(), ManualClock(), f"/disk/log/{name}")
        try:
            return log.log_end_offset
        finally:
            log.release()

    @property
    def is_level(self) -> bool:
        (_, status) = self.following.statuses()
        return status.end == self.following.history.end and not status.problem

    def copy_has_all(self) -> bool:
        """Whether a Controller that begins over the copy finds what this one has."""
        self.copy.release()
        log = MetadataLog(self.other, ManualClock(), "/disk/log", levels=NEWER_LEVELS)
        found = log.desired
        log.close()
        same = (found.topics, found.controller) == (self.desired.topics, self.desired.controller)
        return same and log.end == self.log.end


@pytest.fixture
def play() -> Play:
    return Play()


def trimmed(play: Play) -> None:
    """The Controller's log lacks its first records."""
    play.write_topics("ab")
    play.save()
    play.write_topics("cd")
    play.save()
    assert play.log.start > 0


def test_a_new_copy_gets_the_snapshot_and_what_follows(play: Play) -> None:
    trimmed(play)
    play.write_topics("ef")
    play.follow()
    assert play.is_level
    assert play.copy_has_all()


def test_a_copy_that_follows_gets_each_snapshot_once_and_keeps_its_records(play: Play) -> None:
    play.write_topics("a")
    play.follow()
    assert (play.is_level, play.brought) == (True, 0)
    trimmed(play)
    play.follow()
    brought = play.brought
    for _ in range(3):
        play.write_topics("xyz")
        kept = play.follow()
    assert play.brought == brought
    assert kept.snapshot_end == play.log.newest.end  # type: ignore[union-attr]
    play.save()
    play.follow()
    assert play.brought == brought + 1
    assert play.is_level
    assert play.copy_has_all()


@pytest.mark.parametrize("behind", range(12))
def test_a_copy_that_is_behind_by_any_number_of_records_catches_up(play: Play, behind: int) -> None:
    letters = "abcdefghijkl"
    for number, name in enumerate(letters):
        play.write_topics(name)
        if number == behind:
            play.follow()
        if number % 3 == 2:
            play.save()
    play.log.close()
    play.begin(2)  # it knows the digests only from its snapshot on
    play.write_topics("m")
    play.follow()
    assert play.is_level
    assert play.copy_has_all()


def test_the_tail_of_a_lost_controller_is_replaced_by_a_snapshot(play: Play) -> None:
    play.write_topics("ab")
    play.follow()
    before = play.disk.crash()
    play.write_topics("lost")
    play.follow()
    play.disk = before
    play.begin(2)
    trimmed(play)
    play.follow()
    assert play.is_level
    assert play.copy_has_all()


@pytest.mark.parametrize("is_old_trimmed", [False, True])
@pytest.mark.parametrize("is_new_trimmed", [False, True])
def test_a_copy_of_a_cluster_that_was_begun_anew_is_set_aside_and_gets_the_new_one(
    play: Play, *, is_old_trimmed: bool, is_new_trimmed: bool
) -> None:
    play.write_topics("xyz")
    play.follow()
    if is_old_trimmed:
        trimmed(play)
        play.follow()
    lost = play.log.end
    play.begins_cluster_anew()
    if is_new_trimmed:
        trimmed(play)
    play.write_topics("e")
    kept = play.follow()
    assert play.is_level
    assert kept.epochs[-1].epoch == ERA_EPOCHS + 1
    assert play.copy_has_all()
    (aside,) = [name for name in play.other.list_dir("/disk/log") if name.endswith("-stray")]
    assert play.end_of_aside(aside) == lost, "all that the lost Controllers wrote"


def test_copies_that_have_gone_on_apart_in_one_epoch_are_told_and_nothing_is_cut(
    play: Play,
) -> None:
    play.write_topics("ab")
    play.follow()
    before = play.disk.crash()
    play.write_topics("lost")
    end = play.follow().end
    play.disk = before
    play.begin(1)
    trimmed(play)
    kept = play.follow()
    (_, status) = play.following.statuses()
    assert kept.end == end
    assert "gone on apart" in status.problem or "another one" in status.problem
