"""The log dirs of a node as its machine knows them, and who has which name in each.

A partition's folder has the partition's name. So of all topics that ever had a partition of this
name, only one can have its log in a dir; who comes next waits, or lies in another dir. A name
counts as taken from the moment when its folder is ordered to be made until it is known to be gone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from raylog.actors.control import DirReport, LogId
from raylog.actors.node.dir_epochs import DirEpochs
from raylog.storage.errors import InvalidLogDir, LogDirOffline, RaylogError
from raylog.storage.names import TopicPartition

# A dir with less is chosen for a new log only where no other has more: a segment's first batches
# and its indexes take some megabytes.
ROOM_BYTES = 16 << 20
# Why a dir takes no orders that is online.
BEHIND = "it has not taken the Controller's epoch yet; its disk may hang"
CLOSING = "an operator takes it offline; its logs are being closed"
# Why a dir is offline that may come back by itself.
READING_BACK = "its logs are being read back from the disk"
# Follows why a dir is offline that was to be closed in order.
NOT_IN_ORDER = " (not all in order: the logs that were not are recovered when it is used again)"


@dataclass(slots=True, kw_only=True)
class Place:
    """A log dir."""

    report: DirReport
    # partition -> topic id; None where the folder does not say
    names: dict[TopicPartition, str | None] = field(default_factory=dict)
    copies: set[LogId] = field(default_factory=set)
    # first openings: those in flight, and the logs that wait for their turn
    opening: set[LogId] = field(default_factory=set)
    waiting: dict[LogId, None] = field(default_factory=dict)
    is_to_be_read: bool = False  # ordered, and not in flight yet
    is_to_unlock: bool = False  # it went offline, and actors may still write to it
    leaving: str = ""  # why it is offline once its logs are closed; empty where it shall not be

    @property
    def is_online(self) -> bool:
        return self.report.state == "online"

    @property
    def is_open(self) -> bool:
        """Whether something new may be begun in it."""
        return self.is_online and not self.leaving

    @property
    def has_room(self) -> bool:
        return self.report.usable_bytes < 0 or self.report.usable_bytes >= ROOM_BYTES

    @property
    def count(self) -> int:
        return len(self.names) + len(self.copies)

    def is_free_for(self, log: LogId) -> bool:
        """Whether no other log has, or will have, the name of this log here."""
        if self.names.get(log.partition, log.topic_id) != log.topic_id:
            return False
        return all(other == log or other.partition != log.partition for other in self.copies)


class Places:
    """See the module's head."""

    def __init__(self) -> None:
        self.epochs = DirEpochs()
        self._by_id: dict[str, Place] = {}
        self._unread: tuple[DirReport, ...] = ()
        self._to_close: list[str] = []

    def add(self, dirs: Iterable[DirReport]) -> None:
        """Take the dirs as they were read just now; nothing is known to lie in them yet."""
        for dir in dirs:
            self._unread = tuple(other for other in self._unread if other.path != dir.path)
            if dir.directory_id is None:
                self._unread = (*self._unread, dir)
                continue
            self._by_id[dir.directory_id] = Place(report=dir)
            self.epochs.forget(dir.directory_id)

    def __getitem__(self, directory_id: str) -> Place:
        return self._by_id[directory_id]

    def get(self, directory_id: str | None) -> Place | None:
        return None if directory_id is None else self._by_id.get(directory_id)

    def is_online(self, directory_id: str | None) -> bool:
        place = self.get(directory_id)
        return place is not None and place.is_online

    def is_open(self, directory_id: str | None) -> bool:
        place = self.get(directory_id)
        return place is not None and place.is_open

    def is_leaving(self, directory_id: str | None) -> bool:
        """Whether its logs are being closed, to take it out of use in order."""
        return self.is_online(directory_id) and not self.is_open(directory_id)

    def takes_orders(self, directory_id: str | None) -> bool:
        """Whether something may be done in a dir that was ordered: see ``dir_epochs.py``."""
        if directory_id is None or not self.is_open(directory_id):
            return False
        return self.epochs.takes_orders(directory_id)

    def is_behind(self, directory_id: str | None) -> bool:
        """Whether it is open, and takes no orders."""
        return self.is_open(directory_id) and not self.takes_orders(directory_id)

    def open(self) -> list[str]:
        return [directory_id for directory_id, place in self._by_id.items() if place.is_open]

    def items(self) -> Iterable[tuple[str, Place]]:
        return self._by_id.items()

    def set_offline(self, directory_id: str, why: str) -> None:
        place = self._by_id[directory_id]
        place.report = replace(
            place.report,
            state="offline",
            why=why,
            usable_bytes=-1,
            is_read_back=False,
            is_taken_offline=False,
        )
        place.copies.clear()
        place.leaving = ""
        place.is_to_unlock = True
        self.epochs.forget(directory_id)
        self._to_close.append(directory_id)

    def set_unread(self, directory_id: str, why: str) -> None:
        """Its logs could not be read back: it is offline as before, for this reason."""
        place = self._by_id[directory_id]
        if not place.is_online:
            place.report = replace(place.report, why=why, is_taken_offline=False)

    def set_leaving(self, directory_id: str, why: str) -> None:
        """Nothing new is begun there; what was read back says nothing of its next use."""
        place = self._by_id[directory_id]
        place.leaving = why
        place.report = replace(place.report, is_read_back=False)

    def set_retired(self, directory_id: str, why: str) -> None:
        """It is offline, and closed and unlocked already."""
        self.set_offline(directory_id, why)
        self._by_id[directory_id].is_to_unlock = False
        self._to_close.remove(directory_id)
        self.set_taken_offline(directory_id, why)

    def set_taken_offline(self, directory_id: str, why: str) -> None:
        """It is offline, and an operator wants that."""
        place = self._by_id[directory_id]
        place.report = replace(place.report, why=why, is_taken_offline=True)

    def take_to_close(self) -> list[str]:
        """The dirs that went offline since the last call."""
        to_close, self._to_close = self._to_close, []
        return to_close

    def measure(self, usable_bytes: Mapping[str, int]) -> None:
        for directory_id, usable in usable_bytes.items():
            place = self._by_id.get(directory_id)
            if place is not None:
                place.report = replace(place.report, usable_bytes=usable)

    def reports(self) -> tuple[DirReport, ...]:
        known = [self._report(directory_id) for directory_id in self._by_id]
        return (*known, *self._unread)

    def _report(self, directory_id: str) -> DirReport:
        report = self._by_id[directory_id].report
        if self.is_leaving(directory_id):
            return replace(report, why=CLOSING)
        if self.is_behind(directory_id) or self.epochs.is_late(directory_id):
            return replace(report, why=BEHIND)
        return report

    def problem(self, directory_id: str) -> RaylogError:
        """Why a dir that is not online cannot be used."""
        place = self.get(directory_id)
        if place is None:
            return InvalidLogDir(directory_id, "this node has no such log dir")
        return LogDirOffline(place.report.path, place.leaving or place.report.why)

    def blamed(self, path: str) -> str | None:
        """The dir in which a file or folder lies."""
        for directory_id, place in self._by_id.items():
            if f"{path}/".startswith(f"{place.report.path}/"):
                return directory_id
        return None

    def choose(self, log: LogId, but: set[str]) -> str | None:
        """The dir for a new log: the one with the fewest logs, if possible with room.

        ``but``: dirs that have been tried. None: no dir can take it now.
        """
        free = [
            directory_id
            for directory_id in self.open()
            if directory_id not in but
            and self.takes_orders(directory_id)
            and self._by_id[directory_id].is_free_for(log)
        ]

        def cost(directory_id: str) -> tuple[bool, int]:
            place = self._by_id[directory_id]
            return not place.has_room, place.count

        return min(free, key=cost, default=None)
