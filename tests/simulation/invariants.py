"""What must hold in a simulated cluster, whatever fails: asked where it could break, and at ends.

The simulation sees everything: ``Truth`` folds the records that were really written.
"""

from collections import Counter
from collections.abc import Callable

from raylog.actors.control import LogId, MetadataKept, Move, Report, Serve
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import (
    BrokerConfigRecord,
    DirRecord,
    NodeRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from tests.simulation.actors import SimRay
from tests.simulation.disks import STRAY, SimDir, SimFolder

# Where a log lies of which no record says it.
ANYWHERE = ""


class Broken(AssertionError):
    """A promise was broken."""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Broken(what)


class Truth:
    """What was committed, what was answered, and what follows from both."""

    def __init__(self) -> None:
        self.desired = Desired()
        self.producer_ids: set[int] = set()
        # the config version below which nothing may be removed, by topic id: an alter was answered
        self.answered: dict[str, int] = {}
        # the config of each version, by topic id, also of what a restore of metadata takes back
        self._configs: dict[tuple[str, int], object] = {}
        self.operated_ms: dict[str, int] = {}  # when a node was drained, stopped or started last
        self.offline_since_ms: dict[str, int] = {}
        self._failed_ms: dict[str, int] = {}  # when the disks failed of dirs that are offline
        # folders that were committed to be removed, which a restore of metadata does not take back;
        # ANYWHERE for a log of which no record said where it lies
        self._given_up: set[tuple[LogId, str]] = set()
        # logs that were committed to be removed, whose folders must not become strays; after a
        # restore of metadata a log may have a second folder, of which nobody knows
        self._removing: set[LogId] = set()
        # where a move was to end that was given up: the log may lie there already
        self._moves_given_up: set[tuple[LogId, str]] = set()
        # logs of which a folder did not say for a while whose it is
        self.unnamed: set[LogId] = set()
        self._was_restored = False
        # the lives of LogManagers in order, by node, and those of them that were a fresh start
        self._lives: dict[str, list[str]] = {}
        self._fresh: set[str] = set()
        self._epochs: dict[str, int] = {}  # the highest that a life has reported
        self.reports: dict[str, Report] = {}  # the last one of each node
        # the copies of the metadata, by log dir: the end and digest that were acknowledged last
        self.copies: dict[str, MetadataKept] = {}
        self.situations: Counter[str] = Counter()

    def replay(self, records: list[Record]) -> None:
        """The metadata is what these records say: after a restore of an older copy."""
        self.desired = Desired()
        for record in records:
            self.desired.apply(record)
        self.offline_since_ms.clear()
        self._failed_ms.clear()
        self._was_restored = True
        # a restored cluster may have configs of before: what was answered is taken back
        self.answered = {
            topic_id: min(version, self.desired.config_version(topic_id))
            for topic_id, version in self.answered.items()
            if topic_id in self.desired.topics
        }

    def commit(self, record: Record, now_ms: int) -> None:
        if isinstance(record, PartitionRecord):
            self._note_given_up(record)
            if record.state == "removing":
                self._removing.add(record.log)
        if isinstance(record, NodeRecord) and record.state != self.desired.state_of(record.key):
            self.operated_ms[record.key] = now_ms
        self.desired.apply(record)
        if isinstance(record, TopicRecord):
            self._note_config(record)
        if isinstance(record, BrokerConfigRecord):
            for topic in self.desired.topics.values():
                self._note_config(topic)
        if isinstance(record, DirRecord):
            self._note_dir(record, now_ms)

    def _note_dir(self, record: DirRecord, now_ms: int) -> None:
        # What older metadata says of a dir, which was restored, its node cannot know at once.
        if record.state not in ("offline", "returning"):
            self.offline_since_ms.pop(record.directory_id, None)
        elif record.state == "returning" or not record.is_ordered:
            self.offline_since_ms.setdefault(record.directory_id, now_ms)
        # Where an operator wants it, the node may obey orders of before until it hears of that.

    def retired(self, directory_id: str, now_ms: int) -> None:
        """A node has closed a log dir that an operator wants to be offline."""
        if self.desired.dirs[directory_id].state == "offline":
            self.offline_since_ms.setdefault(directory_id, now_ms)

    def _note_config(self, record: TopicRecord) -> None:
        """A version says which config a log obeys, so it is never given to another config."""
        version, broker = self.desired.config_version(record.topic_id), self.desired.broker
        obeyed = record.config, None if broker is None else broker.config
        config = self._configs.setdefault((record.topic_id, version), obeyed)
        what = f"version {version} of {record.name} is {config} and {obeyed}"
        expect(config == obeyed, what)

    def _note_given_up(self, record: PartitionRecord) -> None:
        before = self.desired.partitions.get(record.log)
        if before is not None and before.directory is not None:
            self._given_up.add((record.log, before.directory))
        if record.state == "removing" and record.directory is None:
            self._given_up.add((record.log, ANYWHERE))
        if before is not None and before.target not in (None, record.directory, record.target):
            self._moves_given_up.add((record.log, before.target))
        is_wanted = record.directory is not None and record.state != "removing"
        # Orders of before a restore may still be on their way.
        if is_wanted and record.directory is not None and not self._was_restored:
            self._given_up.discard((record.log, record.directory))

    # -- asked where it could break ----------------------------------------------------------------

    def producer_id(self, producer_id: int) -> None:
        expect(producer_id not in self.producer_ids, f"producer id {producer_id} was given twice")
        self.producer_ids.add(producer_id)

    def renamed(self, dir: SimDir, folder: SimFolder, kind: str) -> None:
        """A folder is about to be doomed, or put aside."""
        self.situations[kind] += 1
        if folder.topic_id is None:
            return  # nobody has ever served it
        log = LogId(partition=folder.partition, topic_id=folder.topic_id)
        # A folder that nobody has ever opened is empty.
        is_removed = kind == STRAY and log in self._removing and log not in self.unnamed
        is_removed = is_removed and not self._was_restored and folder.lives > 0
        is_removed = is_removed and (log, dir.directory_id) not in self._moves_given_up
        expect(not is_removed, f"{log} was to be removed, and is kept as a stray")
        record = self.desired.partitions.get(log)
        if record is None or record.state == "removing" or folder.lives == 0:
            return
        places = {(log, dir.directory_id), (log, ANYWHERE)}
        is_given_up = not places.isdisjoint(self._given_up)
        expect(
            record.directory != dir.directory_id or is_given_up,
            f"{kind}: the wanted folder of {log} in {dir.directory_id} ({record.state})",
        )

    def segments_removed(self, log: LogId, dir: SimDir, version: int) -> None:
        """Retention or compaction removed records of a log that obeys this config version."""
        self.situations["segments removed"] += 1
        record = self.desired.partitions.get(log)
        if self._was_restored and (record is None or record.directory != dir.directory_id):
            return  # a second folder of the log, of which older metadata does not know
        if record is not None and record.state == "removing":
            return  # all of it goes, and no alter waits for it
        expect(
            version >= self.answered.get(log.topic_id, 0),
            f"{log}: records removed under config version {version}, "
            f"though {self.answered.get(log.topic_id)} was answered",
        )

    def opened(self, log: LogId, dir: SimDir) -> None:
        """A log is opened, by its LogManager's word."""
        since_ms = self.offline_since_ms.get(dir.directory_id)
        expect(
            since_ms is None or dir.read_ms >= since_ms,
            f"{log} is opened in {dir.directory_id}, which is offline by record",
        )

    def began(self, node: str, life: str, *, is_fresh: bool) -> None:
        """Another life of a node's LogManager."""
        self._lives.setdefault(node, []).append(life)
        if is_fresh:
            self._fresh.add(life)

    def dir_changed(self, record: DirRecord) -> None:
        """A log dir's record is written, and nobody has asked for it."""
        before = self.desired.dirs.get(record.directory_id)
        if before is None or before.state != "offline" or record.state == "offline":
            return
        lives = self._lives[record.node]
        since = lives[lives.index(before.life) + 1 :] if before.life in lives else lives
        self.situations["a dir returns after a fresh start"] += 1
        expect(
            not self._fresh.isdisjoint(since),
            f"{record.directory_id} is {record.state} again, and nobody wanted that",
        )

    def dir_recorded(self, record: DirRecord, dir: SimDir) -> None:
        """A log dir's record is written: what its page cache held when it failed is not used."""
        if record.state == "offline":
            self._failed_ms.setdefault(record.directory_id, dir.failed_ms)
        elif record.state == "online":
            failed_ms = self._failed_ms.pop(record.directory_id, -1)
            expect(dir.read_ms >= failed_ms, f"{dir.path} is used again, and was not read back")

    def reported(self, report: Report) -> None:
        """A LogManager reports: its Controller's epoch never goes back."""
        before = self._epochs.get(report.life, -1)
        expect(report.controller_epoch >= before, f"{report.node} obeys a lower epoch")
        self._epochs[report.life] = report.controller_epoch
        self.reports[report.node] = report

    def told(self, order: Serve | Move) -> None:
        """A Controller sends an order: what it follows from is on the disk."""
        topic = self.desired.topics.get(order.log.topic_id)
        latest = -1 if topic is None else self.desired.config_version(topic.topic_id)
        is_written = order.config_version <= latest
        record = self.desired.partitions.get(order.log)
        is_there = record is not None and record.directory == order.directory_id
        expect(is_written and is_there, f"{order} is told, and was not written")

    def copy_answered(self, kept: MetadataKept) -> None:
        """A copy says what is on its disk, maybe with why it could not take more."""
        if kept.directory_id and (kept.end or not kept.problem):
            self.copies[kept.directory_id] = kept

    def check_copy(
        self, directory_id: str, counted: int, is_same: Callable[[MetadataKept], bool]
    ) -> None:
        """So many records count: this copy, which is in sync, must have them."""
        self.situations["a record counts that a copy has"] += 1
        kept = self.copies.get(directory_id)
        end = 0 if kept is None else kept.end
        expect(end >= counted, f"{counted} records count, and {directory_id} has {end}")
        expect(kept is not None and is_same(kept), f"{directory_id} has other records")

    def check_survived(self, kept: MetadataKept) -> None:
        """What a copy had acknowledged is there after a loss of power."""
        before = self.copies.get(kept.directory_id)
        if before is None or kept.problem:
            return
        self.situations["a copy was read back after a loss of power"] += 1
        expect(kept.end >= before.end, f"{kept.directory_id} has lost records of the metadata")
        expect(kept.promised >= before.promised, f"{kept.directory_id} has lost a promise")

    # -- asked now and then ------------------------------------------------------------------------

    def validate(self, ray: SimRay) -> None:
        self.desired.validate()
        owners = [(actor.node, actor.path) for actor in ray.named.values() if actor.lock]
        expect(len(set(owners)) == len(owners), "two actors have one folder")
        for partition, actor in ray.named.items():
            expect(actor.log.partition == partition, "an actor serves another's name")
