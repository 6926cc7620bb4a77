"""Carries out the instructions that concern the upkeep actors: start them, have their rounds.

A round is about the logs that the machine names and that still obey the config version which it
says is confirmed. The upkeep actor has the round in its own threads, and this does not wait for it.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from raylog.actors.control import LogId
from raylog.actors.events import warn
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.events import Event, Served, UpkeepKind, UpkeepSeen
from raylog.actors.node.instructions import RunUpkeep, StartUpkeep, TakeConfig
from raylog.actors.node.workers import Job, Workers
from raylog.actors.node_messages import UpkeepLog, UpkeepOrder
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)


class UpkeepActors(Protocol):
    """The upkeep actors of this node. Raises RaylogError."""

    def start(self, kind: UpkeepKind) -> None:
        """Start the actor, or find it running."""

    def obey(self, config: BrokerConfig) -> None:
        """Have those that are started from now on obey this config, and end those that do not."""

    def round(self, kind: UpkeepKind, order: UpkeepOrder) -> None:
        """Have a round begun; waits for no answer."""

    def running(self) -> tuple[UpkeepKind, ...]:
        """The kinds of which an actor runs."""

    def kill(self) -> None:
        """End all of them."""


class UpkeepHands:
    """See the module's head."""

    def __init__(
        self,
        actors: UpkeepActors,
        *,
        node: str,
        life: str,
        served: Callable[[], Sequence[Served]],
        controller_epoch: Callable[[], int],
        folder: Callable[[str, TopicPartition], str],
        tell: Callable[[Event], object],
    ) -> None:
        """``folder``: the path, by directory id and partition."""
        self._actors = actors
        self._node = node
        self._life = life
        self._served = served
        self._controller_epoch = controller_epoch
        self._folder = folder
        self._tell = tell
        self._number = 0
        self._workers = Workers("upkeep-hands", 1)

    def carry_out(self, instruction: StartUpkeep | RunUpkeep | TakeConfig) -> None:
        """Begin to; returns at once."""
        if isinstance(instruction, TakeConfig):
            self._run("compaction", partial(self._actors.obey, instruction.config))
        elif isinstance(instruction, StartUpkeep):
            self._run(instruction.kind, partial(self._actors.start, instruction.kind))
        else:
            self._run(instruction.kind, partial(self._have_round, instruction))

    def look(self) -> None:
        """Tell which of them run. Raises RaylogError where nobody knows."""
        self._tell(UpkeepSeen(kinds=self._actors.running()))

    def _run(self, kind: UpkeepKind, job: Job) -> None:
        self._workers.run(partial(self._try, kind, job))

    def _try(self, kind: UpkeepKind, job: Job) -> None:
        try:
            job()
        except RaylogError as error:  # the machine says it again, at the next round or look
            warn(logger, "upkeep-not-reached", kind=kind, why=error)

    def _have_round(self, instruction: RunUpkeep) -> None:
        served = {log.log: log for log in self._served()}
        logs: list[UpkeepLog] = []
        others = set(instruction.others)
        for log, version in instruction.confirmed.items():
            present = served.get(log)
            if present is not None and present.config_version == version:
                logs.append(self._upkeep_log(log, present))
            else:
                others.add(log)
        self._number += 1
        order = UpkeepOrder(
            node=self._node,
            life=self._life,
            number=self._number,
            controller_epoch=self._controller_epoch(),
            logs=tuple(logs),
            others=frozenset(others),
        )
        self._actors.round(instruction.kind, order)

    def _upkeep_log(self, log: LogId, served: Served) -> UpkeepLog:
        return UpkeepLog(
            log=log,
            directory_id=served.directory_id,
            folder=self._folder(served.directory_id, log.partition),
            config=served.config,
            config_version=served.config_version,
        )
