"""What was done to the broker and what it answered: operations, and the files that keep them.

Every worker process writes a file of its own, a stream of msgpack lists ``[kind, field, ...]``;
arrays of int64 travel as their bytes. A request is written **before** it begins (its fate unknown,
:data:`NEVER` completed) and again when it has ended; the last word about it counts. So a worker
that is killed leaves no record that nobody sent, and no change that nobody asked for. Times are
nanoseconds of the machine's monotonic clock, which all processes share.

A record is known by an id that is given once in a run. Ids of tombstones (records without a value)
are negative.

What an operator sets is a register: a config's value, a partition's log dir, the number of
partitions. It is set by name (:data:`PARTITIONS`, :func:`config_of`, :func:`place_of`), and its
value is text.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self, get_args

import msgpack
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

OK, FAIL, INFO = "ok", "fail", "info"  # done; definitely not done; nobody knows
NEVER = 2**63 - 1
NO_KEY = -1
OPEN, COMMIT, ABORT = "open", "commit", "abort"
GAINED, GIVEN_UP, LOST = "gained", "given up", "lost"
# What may happen to a topic's records.
KEEP, DELETE, COMPACT, BOTH = "keep", "delete", "compact", "compact,delete"


class Partition(NamedTuple):
    """One partition of one life of a topic: a topic that is made again under its name has another
    id."""

    topic: str
    topic_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Send(NamedTuple):
    """Records for one partition that a producer sent in this order. ``offsets`` where it is OK.

    A producer's name is that of its worker and a number in it (``w1.7``). What follows a second dot
    tells its batches apart that were sent without a Producer.
    """

    producer: str
    partition: Partition
    invoked: int
    completed: int
    outcome: str
    values: Ints
    keys: Ints
    offsets: Ints


class Poll(NamedTuple):
    """What a consumer got from one partition. A consumer that seeks, or is assigned anew, gets
    another name."""

    consumer: str
    partition: Partition
    invoked: int
    completed: int
    offsets: Ints
    values: Ints
    keys: Ints
    is_final: bool = False  # one of the read from start to end when all is over


class Ended(NamedTuple):
    """The last position of a consumer that was told to read to the end."""

    consumer: str
    partition: Partition
    position: int


class Bounds(NamedTuple):
    """A partition's log when all is over."""

    partition: Partition
    log_start_offset: int
    log_end_offset: int


class TopicChange(NamedTuple):
    """``change``: create or delete. ``topic_id`` is empty where a creation's answer was lost."""

    change: str
    topic: str
    topic_id: str
    invoked: int
    completed: int
    outcome: str
    policy: str


class Alive(NamedTuple):
    """A topic that the broker lists when all is over."""

    topic: str
    topic_id: str
    partitions: int


class EndOffset(NamedTuple):
    """A log's end as somebody was told it: by a look-up, or by reading to the "latest" offset."""

    asker: str
    partition: Partition
    invoked: int
    completed: int
    end_offset: int


class Batches(NamedTuple):
    """The batches of a partition that lie on its disk when all is over, but those of no producer
    id."""

    partition: Partition
    offsets: Ints  # the base offset of each
    producer_ids: Ints


class DeleteRecords(NamedTuple):
    """A request that all records below ``before`` be gone."""

    partition: Partition
    before: int
    invoked: int
    completed: int
    outcome: str


class Setting(NamedTuple):
    """An operator set something of a topic. INFO also where it was refused: the next one tells."""

    topic: str
    topic_id: str
    what: str
    value: str
    invoked: int
    completed: int
    outcome: str


class SettingAtEnd(NamedTuple):
    """What the broker says of a topic when all is over."""

    topic: str
    topic_id: str
    what: str
    value: str


class ProducerId(NamedTuple):
    """The Controller gave an id to somebody, who is known by a producer's name."""

    asker: str
    producer_id: int
    at: int


class Restore(NamedTuple):
    """The cluster's metadata was put back to what it was at ``as_of``.

    What was acknowledged since then, up to ``completed``, may be undone: topics, settings, places.
    No record that is served before and after is lost by it, and no producer id is given again.
    """

    as_of: int
    invoked: int
    completed: int


class NodeOrder(NamedTuple):
    """One attempt of an operator's command about a node: INFO where the broker could not say that
    it has taken effect; then another attempt follows. ``node``: its name, the same in all its
    lives."""

    order: str  # STOP, START, DRAIN or UNDRAIN
    node: str
    invoked: int
    completed: int
    outcome: str


class LogDir(NamedTuple):
    """Which node has a log dir."""

    directory_id: str
    node: str


class NodeAtEnd(NamedTuple):
    """A node's state when all is over, as ``raylog node list`` shows it."""

    node: str
    state: str


class Fault(NamedTuple):
    """What the nemesis did."""

    kind: str
    target: str
    at: int


class Surprise(NamedTuple):
    """An exception that no caller should ever see."""

    process: str
    at: int
    what: str


class GroupRead(NamedTuple):
    """What a member of a group got from one partition."""

    member: str
    partition: Partition
    invoked: int
    completed: int
    offsets: Ints


class GroupCommit(NamedTuple):
    """A member committed where it stands in one partition."""

    member: str
    partition: Partition
    offset: int
    invoked: int
    completed: int
    outcome: str


class Ownership(NamedTuple):
    """A member was given a partition by a generation of its group, or gave it up, or lost it."""

    member: str
    partition: Partition
    generation: int
    change: str  # GAINED, GIVEN_UP or LOST
    at: int


class GroupAtEnd(NamedTuple):
    """Where the group stands when all is over."""

    partition: Partition
    offset: int


class Transaction(NamedTuple):
    """What the writer of transactions has decided of one so far; the last word about it counts.

    ``number``: rises, also from a writer to the next one. ``values``: all that was sent in it.
    """

    number: int
    decision: str  # OPEN, COMMIT or ABORT
    outcome: str
    values: Ints
    at: int


class CommittedRead(NamedTuple):
    """What a reader of committed records got; ``is_final``: of who has read all in the end."""

    partition: Partition
    values: Ints
    is_final: bool = False


class StableAtEnd(NamedTuple):
    """How far readers of committed records see when all is over, and where the log ends."""

    partition: Partition
    last_stable_offset: int
    log_end_offset: int


class TransactionAtEnd(NamedTuple):
    """The last transaction whose offsets count when all is over: each commits its own number."""

    number: int


OfGroup = GroupRead | GroupCommit | Ownership | GroupAtEnd
OfPartition = Send | Poll | Ended | Bounds | EndOffset | DeleteRecords | Batches | OfGroup


class MetadataAtEnd(NamedTuple):
    """A node's copy of the metadata when the broker has stopped in order.

    ``end``: how many records it has. ``digest``: of all of them. ``epoch``: of its last Controller.
    """

    node: str
    epoch: int
    end: int
    digest: str


OfTransactions = Transaction | CommittedRead | StableAtEnd | TransactionAtEnd
OfNode = NodeOrder | LogDir | NodeAtEnd | MetadataAtEnd
OfCluster = (
    TopicChange
    | Alive
    | Setting
    | SettingAtEnd
    | ProducerId
    | Restore
    | OfNode
    | OfTransactions
    | Fault
    | Surprise
)
Op = OfPartition | OfCluster
KINDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Op)}

PARTITIONS = "partitions"
# The commands about a node: `raylog node stop`, `start`, `drain` and `drain --undo`.
STOP, START, DRAIN, UNDRAIN = "stop", "start", "drain", "undrain"
# The fault by which a node is there again, under another id.
RETURN = "return"
LOG_DIR_OF = "log dir of"


def config_of(key: str) -> str:
    """What a setting of a topic's config is called."""
    return f"config {key}"


def place_of(partition: int) -> str:
    """What a partition's log dir is called, as a setting."""
    return f"{LOG_DIR_OF} {partition}"


def placed_partition(what: str) -> int | None:
    """Of which partition a setting is the log dir; None if it is something else."""
    head, _, number = what.rpartition(" ")
    return int(number) if head == LOG_DIR_OF else None


def ints(values: Iterable[int] = ()) -> Ints:
    return np.fromiter(values, np.int64)


class Writer:
    """Appends operations to one file; each is with the kernel when ``write`` returns."""

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO = path.open("ab", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, op: Op) -> None:
        plain = [field.tobytes() if isinstance(field, np.ndarray) else field for field in op]
        self._file.write(msgpack.packb([type(op).__name__, *plain]))


def read(folder: Path) -> Iterator[Op]:
    """All operations of a run, file by file. A file may end in the middle of one: its writer was
    killed."""
    for path in sorted(folder.glob("*.history")):
        with path.open("rb") as file:
            for kind, *fields in msgpack.Unpacker(file):
                yield KINDS[kind](*map(_field, fields))


def _field(plain: object) -> object:
    if isinstance(plain, bytes):
        return np.frombuffer(plain, np.int64)
    return Partition(*plain) if isinstance(plain, list) else plain
