"""What actors and their callers send each other: results of requests, and facts.

Their errors are in ``errors.py``.

Results are plain tuples of ints, strings and one buffer: cheap to pickle, and the buffer travels
out of band.
"""

from typing import Any, NamedTuple, Self

from raylog.storage.log_dir import CheckpointedOffsets
from raylog.storage.report import Kind, Mended, Progress
from raylog.storage.state.epochs import EpochEnd
from raylog.storage.wire import message


class AppendResult(NamedTuple):
    """Where a batch went; for a batch sent twice, where it went the first time."""

    base_offset: int
    last_offset: int
    log_append_time: int  # ms, -1 unless the topic stamps records itself
    log_start_offset: int
    leader_epoch: int
    is_duplicate: bool


class FetchResult(NamedTuple):
    """Whole record batches.

    The first batch may begin before the offset that was asked for: decoders skip what is below it.
    """

    # A one-dimensional uint8 numpy array: zero-copy out of Ray's object store; None at the end.
    records: object | None
    high_watermark: int
    log_start_offset: int
    end_offset: int  # behind all offsets of the batches, see ``LogRead``; -1 without any
    last_stable_offset: int = -1
    # For readers of committed records, else None: (producer id, first offset) of what was aborted.
    aborted: tuple[tuple[int, int], ...] | None = None
    leader_epoch: int = -1  # no batch of this log has a higher one
    # Where this log parts from what the reader has: see ``LogRead``. There are no records then.
    diverging: EpochEnd | None = None


@message
class DataAddress(NamedTuple):
    """Where a LogActor listens for raylog's own clients on other machines.

    ``token``: a secret, which lets a client in (``plane/inner.py``); empty where anybody may.
    """

    host: str
    port: int
    token: str

    def __repr__(self) -> str:
        return f"DataAddress({self.host}:{self.port})"  # a log must not show the token


@message
class PartitionOffsets(NamedTuple):
    """The offsets of a partition's log, as its LogActor has them now."""

    log_start_offset: int
    recovery_point: int
    high_watermark: int
    log_end_offset: int

    def checkpointed(self) -> CheckpointedOffsets:
        """Those of them that the checkpoint files keep."""
        return CheckpointedOffsets(self.recovery_point, self.log_start_offset, self.high_watermark)


@message
class MendedTotal(NamedTuple):
    """How much opening a log did of one kind."""

    kind: Kind
    files: int
    size_bytes: int


@message
class AsideFile(NamedTuple):
    """A file that recovery took out of a log, and that lies beside it."""

    name: str
    size_bytes: int
    first_offset: int = -1  # of the good batches; -1 if there is none, or nobody has looked
    end_offset: int = -1  # behind the last of them
    # whether it is the beginning of one batch, of which the rest was never written
    is_unfinished: bool = False
    # whether the log has its good batches again
    is_in_log: bool = False


@message
class OpeningReport(NamedTuple):
    """What opening a log did to its files; see ``partition/opening.py``."""

    records: tuple[Mended, ...] = ()  # what was set aside or lost, the first of many
    totals: tuple[MendedTotal, ...] = ()  # of everything, by kind
    asides: tuple[AsideFile, ...] = ()  # all in the folder, of earlier openings, too


@message
class Recovering(NamedTuple):
    """A partition that is being opened, and how far its recovery has come."""

    partition: str
    progress: Progress


@message
class PartitionStatus(NamedTuple):
    """What ``raylog status`` shows of a partition."""

    partition: str
    folder: str
    pid: int
    kernel: str
    leader_epoch: int
    offsets: PartitionOffsets
    size_bytes: int
    segments: int
    is_offline: bool
    report: OpeningReport = OpeningReport()


@message
class ActorProcess(NamedTuple):
    """Where the process of an actor is, which may hang. ``node_id``: Ray's."""

    node_id: str
    pid: int


@message
class RemovedSegments(NamedTuple):
    """What a round of retention took out of a log."""

    segments: int
    size_bytes: int
    seconds: float


@message
class RetentionStatus(NamedTuple):
    """Retention of one partition: the last round, and all since its actor was started."""

    partition: str
    node_id: str
    segments: int
    size_bytes: int
    seconds: float
    when_ms: int
    total_segments: int
    total_bytes: int
    problem: str | None  # why the last round failed


@message
class CompactionRound(NamedTuple):
    """A round of compaction that ended well."""

    when_ms: int  # its end
    seconds: float
    end_offset: int  # the next first dirty offset
    bytes_before: int
    bytes_after: int
    records_read: int
    records_dropped: int
    map_utilization: float  # 0 to 1


@message
class CompactionStatus(NamedTuple):
    """Compaction of one partition, as of the last look."""

    partition: str
    node_id: str
    dirty_ratio: float  # of what could be compacted now
    first_dirty_offset: int
    bound: int  # a round ends before it
    overdue_ms: int  # beyond max.compaction.lag.ms
    is_running: bool
    done_bytes: int  # that the running round has read and written
    uncleanable: str | None  # why it is not compacted until its CompactionActor is started again
    problem: str | None  # why the last look or round failed
    last_round: CompactionRound | None


@message
class LogDirStatus(NamedTuple):
    """A log dir of a node."""

    node_id: str
    path: str
    directory_id: str  # empty where it could not even be read
    is_online: bool
    problem: str | None  # why it is offline; or, of one that is online, why it takes no orders now
    partitions: int
    size_bytes: int  # of the partitions' files
    total_bytes: int  # of the file system
    usable_bytes: int
    loaded: int  # progress of the start; over when it has come to ``to_load``
    to_load: int  # without those that nobody is to open
    damaged_files: tuple[str, ...] = ()  # checkpoints of which a damaged one is kept as .corrupt
    strays: tuple[str, ...] = ()  # the names of folders that belong to no topic; they are kept
    todo: str = ""  # what to do about the problem; empty where the disk has failed
    is_private: bool = True  # nobody but its owner has permissions on it, as far as is known
    metadata_asides: tuple[
        AsideFile, ...
    ] = ()  # what recovery took out of its __cluster_metadata-0
    is_taken_offline: bool = False  # offline since an operator wants that: nothing is wrong with it

    @classmethod
    def offline(
        cls, node_id: str, path: str, directory_id: str | None, why: str, todo: str = ""
    ) -> Self:
        return cls(
            node_id=node_id,
            path=path,
            directory_id=directory_id or "",
            is_online=False,
            problem=why,
            partitions=0,
            size_bytes=0,
            total_bytes=0,
            usable_bytes=0,
            loaded=0,
            to_load=0,
            todo=todo,
        )


@message
class UserDescription(NamedTuple):
    """Who may come in by SASL. ``mechanisms``: those for which his password is known."""

    name: str
    mechanisms: tuple[str, ...]


@message
class ConfigEntry(NamedTuple):
    """One config key: its value, and who set it: "topic", "broker" or "default"."""

    name: str
    value: Any
    source: str
