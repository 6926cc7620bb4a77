"""Carries out the instructions that concern disks, each in a thread.

Each log dir has its threads: a disk that hangs holds up only itself. A copy to another dir takes
long, so copies have threads of their own, and so have the last rounds of copies: while one waits,
nobody serves its log.

==============================  ====================================
instruction                     threads
==============================  ====================================
ReadDir, RetireDir, CloseDir,   one of the dir: they keep their order
UnlockDir
Copy                            COPIES_AT_ONCE of the target
Copy, the last round            COPIES_AT_ONCE of the target
WriteEpoch                      one of the dir
every other                     WORKS_AT_ONCE of the dir
==============================  ====================================
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Protocol

from raylog.actors.control import LogId
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.dirs import Found
from raylog.actors.node.disk_work import DiskInstruction
from raylog.actors.node.events import DirsRead, Event, Finished
from raylog.actors.node.instructions import (
    CloseDir,
    Copy,
    GiveUpCopy,
    ReadDir,
    RetireDir,
    TakeConfig,
    UnlockDir,
    WriteEpoch,
)
from raylog.actors.node.workers import Pools, work_failed
from raylog.storage.errors import RaylogError

# Of one log dir; more than one, since some of them wait for the disk.
WORKS_AT_ONCE = 4
COPIES_AT_ONCE = 4


class DiskWorker(Protocol):
    """Who does the work; ``disk_work.py`` on real disks."""

    def carry_out(self, work: DiskInstruction) -> Found | None:
        """Return when it is done. Raises RaylogError."""

    def obey(self, config: BrokerConfig) -> None: ...

    def withdraw(self, directory_id: str) -> None: ...

    def close_dir(self, directory_id: str) -> None: ...

    def unlock_dir(self, directory_id: str) -> None: ...

    def give_up_copy(self, copy_token: int) -> None: ...

    def forget(self, log: LogId) -> None:
        """Waits for nothing."""


class DiskHands:
    """See the module's head."""

    def __init__(
        self,
        worker: DiskWorker,
        tell: Callable[[Event], object],
        leave_copy: Callable[[str], object],
    ) -> None:
        """``leave_copy``: close the copy of the metadata in a log dir; waits only for a while."""
        self._worker = worker
        self._tell = tell
        self._leave_copy = leave_copy
        self._works = Pools(WORKS_AT_ONCE)
        self._copies = Pools(COPIES_AT_ONCE)
        self._singles = Pools(1)

    def carry_out(self, work: DiskInstruction) -> None:
        """Have it done in a thread, and told with one ``Finished``."""
        job = partial(self._do, work)
        match work:
            case WriteEpoch():
                self._singles.run(("epoch", work.directory_id), job)
            case ReadDir() | RetireDir():
                self._singles.run(("dir", work.directory_id), job)
            case Copy():
                self._copies.run(("last" if work.is_last else "copy", work.target_id), job)
            case _:
                self._works.run(("disk", work.directory_id), job)

    def obey(self, instruction: TakeConfig) -> None:
        self._worker.obey(instruction.config)

    def close_dir(self, instruction: CloseDir) -> None:
        directory_id = instruction.directory_id
        self._run_single(("dir", directory_id), partial(self._worker.close_dir, directory_id))

    def unlock_dir(self, instruction: UnlockDir) -> None:
        directory_id = instruction.directory_id
        self._run_single(("dir", directory_id), partial(self._worker.unlock_dir, directory_id))

    def forget(self, log: LogId) -> None:
        self._worker.forget(log)

    def give_up_copy(self, instruction: GiveUpCopy) -> None:
        self._run_single("give-up", partial(self._worker.give_up_copy, instruction.copy_token))

    def _run_single(self, key: Hashable, job: Callable[[], object]) -> None:
        self._singles.run(key, job)

    def _do(self, work: DiskInstruction) -> None:
        try:
            if isinstance(work, RetireDir):
                self._worker.withdraw(work.directory_id)
                self._leave_copy(work.directory_id)
            result = self._worker.carry_out(work)
        except RaylogError as error:
            finished = Finished(token=work.token, error=error)
        except Exception as error:  # the machine waits for an answer, whatever happens
            finished = Finished(token=work.token, error=work_failed(type(work).__name__, error))
        else:
            if result is not None:
                self._tell_found(result)
            finished = Finished(token=work.token)
        self._tell(finished)

    def _tell_found(self, found: Found) -> None:
        self._tell(
            DirsRead(
                dirs=found.dirs, folders=found.folders, controller_epoch=found.controller_epoch
            )
        )
