"""What one life of a LogManager does on its disks: its real code, at moments of the simulation.

The rest is what a disk and a process can do to it: a dir that hangs ends nothing, a process that
dies stops in the middle of its work, and the truth is compared with what is about to be done.
"""

import sys
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from raylog.actors.control import LogId
from raylog.actors.node import instructions as do
from raylog.actors.node.dir_openings import PATIENCE_S
from raylog.actors.node.disk_work import DiskInstruction, DiskWork
from raylog.actors.node.events import DirsRead
from raylog.actors.node.metadata_copy import MetadataCopy
from raylog.storage.errors import RaylogError
from raylog.storage.log_dir import LOCK_FILE, METADATA_PARTITION
from raylog.storage.names import TopicPartition
from raylog.storage.testing.clock import T0
from raylog.storage.testing.memory import Stopped
from tests.simulation.actors import SimActor
from tests.simulation.clockwork import Clockwork
from tests.simulation.disks import CLUSTER_ID, DOOMED, LOG, STRAY, SimDir
from tests.simulation.invariants import expect

if TYPE_CHECKING:
    from tests.simulation.nodes import SimNode
    from tests.simulation.world import World

DELETE_DELAY_MS = 10_000
COPY_RATE = 1e12
# A process that is killed in the middle of its work has done up to so many operations of it.
MOST_OPERATIONS = 16


class SimTime:
    """The simulation's time as a clock, and as a timer whose sleeps take no time."""

    def __init__(self, clockwork: Clockwork) -> None:
        self._clockwork, self._slept_s = clockwork, 0.0

    def now_ms(self) -> int:
        return T0 + self._clockwork.now_ms

    def now_s(self) -> float:
        return self._clockwork.now_ms / 1000 + self._slept_s

    def sleep(self, seconds: float) -> None:
        self._slept_s += seconds


class NodeDisks:
    """The log dirs of a node while one life of its LogManager has them."""

    def __init__(self, world: "World", node: "SimNode") -> None:
        self._world, self._node = world, node
        self._disks = node.disks  # after a loss of power the node has others
        self._time = time = SimTime(world.clockwork)
        self._copy: MetadataCopy | None = None
        self._copy_dir = ""
        self.work = DiskWork(
            self._disks,
            time,
            cluster_id=CLUSTER_ID,
            node_number=node.dirs[0].number,
            delete_delay_ms=DELETE_DELAY_MS,
            copy_rate=COPY_RATE,
            now_s=time.now_s,
            sleep=time.sleep,
            beside=self._open_beside,
        )
        self.is_over = False  # the process has ended: nothing more is done

    @property
    def _random(self) -> Random:
        return self._world.clockwork.chance

    @property
    def are_off(self) -> bool:
        """Whether the machine has lost its power since."""
        return self._node.disks is not self._disks

    def dirs(self) -> list[SimDir]:
        """The dirs in use."""
        ids = set(self.work.online())
        return [dir for dir in self._node.dirs if dir.directory_id in ids]

    def answering(self) -> list[SimDir]:
        """Those of them that do not hang."""
        return [dir for dir in self.dirs() if not self._is_hanging(dir)]

    def _is_hanging(self, dir: SimDir) -> bool:
        return dir.hangs_until_ms > self._world.clockwork.now_ms

    def is_waiting(self, waited_ms: int) -> bool:
        """Whether the process waits with its beginning for a dir that hangs, after so long."""
        hanging = [self._is_hanging(dir) for dir in self._node.dirs]
        return all(hanging) or (any(hanging) and waited_ms < PATIENCE_S * 1000)

    def _open_beside(
        self, jobs: Mapping[str, Callable[[], None]], is_enough: Callable[[], bool]
    ) -> None:
        """Open the dirs, each when it does not hang."""
        for dir in self._node.dirs:
            self._open_when_it_answers(dir, jobs[dir.path])

    def _open_when_it_answers(self, dir: SimDir, job: Callable[[], None]) -> None:
        if self.is_over:
            return
        if self._is_hanging(dir):
            delay_ms = dir.hangs_until_ms - self._world.clockwork.now_ms
            self._world.clockwork.after(delay_ms, lambda: self._open_when_it_answers(dir, job))
            return
        job()

    def check_dirs(self) -> None:
        """What was fsynced is there after any loss of power, and no dir has another identity."""
        ids = {dir.directory_id for dir in self._node.dirs}
        for directory_id in self.work.online():
            expect(directory_id in ids, f"a log dir has got another id, {directory_id}")
        for dir in self.dirs():
            epoch = self._disks.controller_epoch(dir)
            expect(epoch >= dir.epoch, f"{dir.path} has lost epoch {dir.epoch}: it has {epoch}")

    def close_all(self) -> None:
        """The process ends: its locks are free."""
        self.is_over = True
        self.release_copy()
        for directory_id in self.work.online():
            self.work.close_dir(directory_id)
        self.work.let_go()

    def close_dir(self, directory_id: str) -> None:
        """Write nothing more to it."""
        is_open = directory_id in self.work.online()
        expect(is_open, "a log dir is closed that is not open")
        self.work.close_dir(directory_id)

    def unlock_dir(self, directory_id: str) -> None:
        """Give its lock up."""
        is_open = directory_id in self.work.online()
        expect(not is_open, "a log dir is unlocked that was not closed")
        self.work.unlock_dir(directory_id)

    # -- the copy of the metadata ------------------------------------------------------------------

    def metadata_copy(self, life: str) -> MetadataCopy | None:
        """The copy, in the dir that has one, or else in the first one; None where a disk hangs."""
        online = self.work.online()
        if self._copy_dir not in online:
            self.release_copy()
            folders = [where for where in online if self._disks.is_dir(self._copy_folder(where))]
            if not online:
                return None
            self._copy_dir = (folders or online)[0]
            self._copy = self.work.metadata_copy(
                self._copy_dir, node=self._node.key, life=life, steady=self._time
            )
            if not self._is_hanging(self._node.dir(self._copy_dir)):
                self._world.truth.check_survived(self._copy.status())
        is_hanging = self._is_hanging(self._node.dir(self._copy_dir))
        return None if is_hanging else self._copy

    def _copy_folder(self, directory_id: str) -> str:
        return self.work.folder(directory_id, METADATA_PARTITION)

    def release_copy(self) -> None:
        """Close it: its dir is offline, or its process has ended."""
        if self._copy is not None:
            self._copy.release()
        self._copy, self._copy_dir = None, ""

    # -- instructions ------------------------------------------------------------------------------

    def waits_until_ms(self, work: do.Work) -> int | None:
        """When something can end at the earliest that a dir holds up; None: nothing does."""
        until_ms = max((dir.hangs_until_ms for dir in self.used(work)), default=-1)
        return until_ms if until_ms > self._world.clockwork.now_ms else None

    def used(self, work: do.Work) -> list[SimDir]:
        """The dirs in which it does something."""
        ids = getattr(work, "directory_id", ""), getattr(work, "target_id", "")
        return [dir for dir in self._node.dirs if dir.directory_id in ids]

    def carry_out(self, work: DiskInstruction) -> DirsRead | None:
        """What is told before its end. Raises RaylogError."""
        writer = self._check(work)
        if isinstance(work, do.RetireDir):
            self.work.withdraw(work.directory_id)
            if self._copy_dir == work.directory_id:
                self.release_copy()
        found = self.work.carry_out(work)
        expect(writer is None, f"{work} under its writer")
        if isinstance(work, do.RetireDir):
            self._world.truth.retired(work.directory_id, self._world.clockwork.now_ms)
        if isinstance(work, do.Adopt):
            self._check_adopted(work)
        if isinstance(work, do.WriteEpoch):
            dir = self._node.dir(work.directory_id)
            dir.epoch = max(dir.epoch, work.controller_epoch)
        if found is None:
            return None
        assert isinstance(work, do.ReadDir)
        self._node.dir(work.directory_id).read_ms = self._world.clockwork.now_ms
        self.check_dirs()
        return DirsRead(
            dirs=found.dirs, folders=found.folders, controller_epoch=found.controller_epoch
        )

    def stop_within(self, work: DiskInstruction) -> None:
        """The process dies: of this, some operations are done."""
        if self.waits_until_ms(work) is not None:
            return
        disks = self._disks
        disks.stop_at(disks.operations + self._random.randint(0, MOST_OPERATIONS))
        try:
            self._check(work)
            self.work.carry_out(work)
        except (RaylogError, Stopped):
            pass
        finally:
            disks.stop_at(sys.maxsize)
            if isinstance(work, do.RetireDir):  # no matter how far: a lock ends with its process
                disks.unlock(f"{self._node.dir(work.directory_id).path}/{LOCK_FILE}")

    # -- the truth ---------------------------------------------------------------------------------

    def _check(self, work: DiskInstruction) -> SimActor | None:
        """Compare what is about to be done with what it would be done to.

        Returns the actor that has the lock of a folder that is to be renamed.
        """
        match work:
            case do.ReadDir(directory_id=where):
                is_closed = where not in self.work.online()
                expect(is_closed, "a log dir is read back that was not closed")
            case do.RetireDir(directory_id=where, clean=clean):
                self._check_retired(self._node.dir(where), clean)
            case do.Doom(log=log, directory_id=where):
                return self._check_renamed(log, log.topic_id, where, DOOMED)
            case do.PutAside(partition=partition, topic_id=topic_id, directory_id=where):
                log = LogId(partition=partition, topic_id=topic_id or "")
                return self._check_renamed(log, topic_id, where, STRAY)
            case do.WriteIdentity(log=log, directory_id=where):
                folder = self._disks.find(self._node.dir(where), log.partition)
                is_its = folder is None or folder.topic_id == log.topic_id
                expect(is_its, f"{log}: a folder is about to get another topic's id")
            case do.Copy(log=log, directory_id=where, is_last=True):
                path = f"{self._node.dir(where).path}/{log.partition}"
                is_free = self._world.ray.owner(path) is None
                expect(is_free, "the last round of a copy beside its writer")
        return None

    def _check_renamed(
        self, log: LogId, topic_id: str | None, where: str, kind: str
    ) -> SimActor | None:
        dir = self._node.dir(where)
        folder = self._disks.find(dir, log.partition)
        if where not in self.work.online() or folder is None:
            return None
        is_meant = folder.topic_id == topic_id if kind == DOOMED else folder.read_id == topic_id
        if not is_meant:
            return None
        self._world.ray.await_end(folder.path)
        owner = self._world.ray.owner(folder.path)
        if owner is None:
            self._world.truth.renamed(dir, folder, kind)
        return owner

    def _check_retired(self, dir: SimDir, clean: frozenset[TopicPartition]) -> None:
        """Nobody writes there any more, and what counts as closed in order was."""
        self._world.truth.situations["a dir is taken out of use in order"] += 1
        for folder in self._disks.folders(dir):
            is_free = self._world.ray.owner(folder.path) is None
            expect(is_free, f"{dir.path} is taken out of use under a writer")
            if folder.kind == LOG and folder.partition in clean:
                expect(folder.is_clean, f"{folder.path} counts as closed in order, and was not")

    def _check_adopted(self, work: do.Adopt) -> None:
        folder = self._disks.find(self._node.dir(work.directory_id), work.log.partition)
        is_whole = folder is not None and folder.topic_id == work.log.topic_id
        expect(is_whole, f"{work.log}: its copy is not there")
        expect(folder is not None and folder.is_clean, f"{work.log}: its copy is not whole")
