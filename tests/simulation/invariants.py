"""What must hold in a simulated cluster, whatever fails: asked where it could break, and at ends.

The simulation sees everything: ``Truth`` folds the records that were really written.
"""

from collections import Counter

from raylog.actors.control import LogId
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import PartitionRecord, Record
from tests.simulation.actors import SimRay
from tests.simulation.disks import SimDir, SimFolder


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
        self.offline_since_ms: dict[str, int] = {}
        # folders that were committed to be removed, which a restore of metadata does not take back
        self._given_up: set[tuple[LogId, str]] = set()
        self.situations: Counter[str] = Counter()

    def replay(self, records: list[Record]) -> None:
        """The metadata is what these records say: after a restore of an older copy."""
        self.desired = Desired()
        for record in records:
            self.desired.apply(record)
        self.offline_since_ms.clear()
        # a restored cluster may have configs of before: what was answered is taken back
        self.answered = {
            topic_id: min(version, self.desired.topics[topic_id].version)
            for topic_id, version in self.answered.items()
            if topic_id in self.desired.topics
        }

    def commit(self, record: Record, now_ms: int) -> None:
        if isinstance(record, PartitionRecord):
            self._note_given_up(record)
        self.desired.apply(record)
        for directory_id, dir in self.desired.dirs.items():
            if dir.state in ("offline", "returning"):
                self.offline_since_ms.setdefault(directory_id, now_ms)
            else:
                self.offline_since_ms.pop(directory_id, None)

    def _note_given_up(self, record: PartitionRecord) -> None:
        before = self.desired.partitions.get(record.log)
        if before is not None and before.directory is not None:
            self._given_up.add((record.log, before.directory))
        if record.directory is not None and record.state != "removing":
            self._given_up.discard((record.log, record.directory))

    # -- asked where it could break ----------------------------------------------------------------

    def producer_id(self, producer_id: int) -> None:
        expect(producer_id not in self.producer_ids, f"producer id {producer_id} was given twice")
        self.producer_ids.add(producer_id)

    def renamed(self, dir: SimDir, folder: SimFolder, kind: str) -> None:
        """A folder is about to be doomed, or put aside."""
        log = LogId(partition=folder.partition, topic_id=folder.topic_id)
        self.situations[kind] += 1
        expect(folder.owner is None, f"{kind}: a folder under its writer: {log}")
        record = self.desired.partitions.get(log)
        if record is None or record.state == "removing" or folder.served_by == 0:
            return
        is_given_up = (log, dir.directory_id) in self._given_up
        expect(
            record.directory != dir.directory_id or is_given_up,
            f"{kind}: the wanted folder of {log} in {dir.directory_id} ({record.state})",
        )

    def segments_removed(self, log: LogId, version: int) -> None:
        """Retention or compaction removed records of a log that obeys this config version."""
        self.situations["segments removed"] += 1
        expect(
            version >= self.answered.get(log.topic_id, 0),
            f"{log}: records removed under config version {version}, "
            f"though {self.answered.get(log.topic_id)} was answered",
        )

    def opened(self, log: LogId, dir: SimDir, life_began_ms: int) -> None:
        """A LogManager opens a log."""
        since_ms = self.offline_since_ms.get(dir.directory_id)
        expect(
            since_ms is None or life_began_ms < since_ms,
            f"{log} is opened in {dir.directory_id}, which is offline by record",
        )

    # -- asked now and then ------------------------------------------------------------------------

    def validate(self, ray: SimRay) -> None:
        self.desired.validate()
        owners = [actor.folder for actor in ray.named.values() if actor.is_alive]
        expect(len({id(folder) for folder in owners}) == len(owners), "two actors have one folder")
        for partition, actor in ray.named.items():
            expect(actor.log.partition == partition, "an actor serves another's name")
