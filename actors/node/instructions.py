"""What a LogManager's machine says: instructions, which the LogManager carries out.

Each with a ``token`` takes time: the shell answers it with one ``Finished`` event, whatever
happens, even if only because the actor that was asked was killed. All of them are idempotent: what
is so already is a success. The shell carries them out beside each other; what must not overlap,
the machine does not say at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raylog.actors.control import LogId, Report
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.events import UpkeepKind
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition

# -- of the node -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteEpoch:
    """Write the highest epoch of a Controller to a log dir, fsynced. A disk may take its time."""

    token: int
    controller_epoch: int
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDir:
    """Take a log dir into use again: lock it, and read its logs from the disk itself.

    What was found is a ``DirsRead``, before the ``Finished``. After an error it stays offline.
    """

    token: int
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseDir:
    """A log dir went offline: write nothing more to it. Its lock is kept.

    The kills of the actors that write to it were said before. ``ReadDir`` takes it into use again.
    """

    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockDir:
    """Give the lock of a log dir up that was closed: no actor of this node writes to it now."""

    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireDir:
    """Take a log dir out of use in order: its copy of the metadata, checkpoints, marker, lock.

    No actor of this node uses it any more. ``clean``: its logs that were closed in order, or that
    nobody has opened since that. After an error it is out of use, too, but not in order.
    """

    token: int
    directory_id: str
    clean: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport:
    """Make the report known to the Controller; of several the newest is enough."""

    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Answer a Controller whose orders were not obeyed: the node has seen a higher epoch."""

    controller_epoch: int


@dataclass(frozen=True, slots=True)
class EndNode:
    """End this LogManager in order and for good, and have its last words be a report. Said once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetLog:
    """Nothing is left of the log on this node, and nothing of it is in flight."""

    log: LogId


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """An event for the operator's log."""

    name: str
    fields: Mapping[str, Any]


# -- of a log's folder -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeFolder:
    """Make a new log's folder. After an error nothing is left of it."""

    token: int
    log: LogId
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doom:
    """Rename the log's folder to ``-delete``; it is removed later. Fine if it is gone."""

    token: int
    log: LogId
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PutAside:
    """Rename a folder to ``-stray``, and keep it. Fine if it is gone.

    ``topic_id``: None where the folder does not say.
    """

    token: int
    partition: TopicPartition
    topic_id: str | None
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteIdentity:
    """Write the ``partition.metadata`` of a folder that is served, which was damaged."""

    token: int
    log: LogId
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Copy the log to a ``-future`` folder of another log dir.

    Not ``is_last``: in rounds beside the actor that serves it, until little is left.
    ``is_last``: the log is closed; afterwards the copy is whole.
    """

    token: int
    log: LogId
    directory_id: str
    target_id: str
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpCopy:
    """Have the ``Copy`` with this token end soon, with an error; nothing if it has ended."""

    log: LogId
    copy_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt:
    """Give the whole copy in this log dir the log's own name, with checkpoints. Fine if it has."""

    token: int
    log: LogId
    directory_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropCopy:
    """Remove the ``-future`` folder in this log dir. Fine if it is gone."""

    token: int
    partition: TopicPartition
    topic_id: str | None
    directory_id: str


# -- of a LogActor ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLog:
    """Start the log's actor, or find it running, and have it serve this config or a newer one.

    ``is_clean``: an orderly stop left the log. ``is_first``: the folder lay there when the node
    started, and is opened for the first time. After an error no actor of the log lives.
    """

    token: int
    log: LogId
    directory_id: str
    config: LogConfig
    config_version: int
    is_clean: bool
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Configure:
    """Have the log's actor obey this config, unless it obeys a newer one."""

    token: int
    log: LogId
    config: LogConfig
    config_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndLog:
    """Close the log in order, and end its actor. After an error the actor may live.

    ``must_close``: the rest of it is copied next, and the copy counts as clean; or its log dir is
    taken out of use in order. So it is an error where no actor is there: that one closed nothing.
    """

    token: int
    log: LogId
    must_close: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KillActor:
    """End the partition's actor without another write. Finished when the process is gone.

    It does not wait for what is in flight for the log, which ends with an error by it.
    """

    token: int
    partition: TopicPartition


# -- upkeep ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StartUpkeep:
    """Start the upkeep actor of this kind, or find it running."""

    kind: UpkeepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUpkeep:
    """Have a round done for these logs, and no others.

    ``confirmed``: the config version that the Controller has confirmed. A log that obeys another
    by then is left out. ``others``: the logs of this kind that are left alone for now.
    """

    kind: UpkeepKind
    confirmed: Mapping[LogId, int]
    others: frozenset[LogId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeConfig:
    """Obey this config of the broker from now on."""

    config: BrokerConfig


# Each of these ends with a Finished.
Work = (
    WriteEpoch
    | ReadDir
    | RetireDir
    | MakeFolder
    | Doom
    | PutAside
    | WriteIdentity
    | Copy
    | Adopt
    | DropCopy
    | StartLog
    | Configure
    | EndLog
    | KillActor
)
Instruction = (
    Work
    | CloseDir
    | UnlockDir
    | SendReport
    | Refuse
    | EndNode
    | Note
    | ForgetLog
    | GiveUpCopy
    | StartUpkeep
    | RunUpkeep
    | TakeConfig
)
