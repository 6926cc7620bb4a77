"""Where a Controller begins: over the newest copy of the metadata, on whichever node that lies.

Every life of a Controller looks at the log dirs of all nodes (``surveying.py``), and ``copies.py``
decides which copy counts. Whoever starts a broker looks first, so that the Controller is put on the
node that has it. Where Ray has started the Controller on another node, because the first one is
lost or has come back late, the copy is brought here before it is opened::

    survey of all nodes --> choose --> on this node:   open it
                                  \\--> on another one: read it there, put it here, open it

**The lost Controller.** Before anything is read, the copies in reach promise to take no record
of it any more. Its last records are seen then, or they do not count. What it did alone is not seen.
So Ray's head is asked whether it may have left a copy out (``witness.py``). Where that does not
answer, a copy counts that promised so soon after it had heard of the lost one that that one cannot
have left it out: it is *fenced*. What Ray's head knows counts more than that, and more than an
orderly stop at the end of a copy: a later Controller may have gone on without this one.

A Controller that Ray has replaced may wake while it begins. So Ray is asked after the promises,
too: only whom it still takes for the Controller goes on with them. A promise to anybody who tried
before this Controller, and of whom there is no record, was in vain then (``following.py``). Ray is
asked before them as well, since promises hold up the Controller that has replaced this one. It
is asked once more when the metadata is open, before a record of this Controller is in it
(``starting.py``).

**A backup in its place.** A Controller that begins again in its process, since a write has failed,
knows how much counted. A person may have put a backup in the place of the disk that failed. What
lacks anything of that is not taken for the newest metadata (OlderMetadata). A new process knows
nothing of before. So the LogManagers of other nodes are asked what their copies have, also where
the last Controller was on this node: a Controller has every record before any copy gets it.

**One copy only.** Metadata that does not say who keeps copies lies in one place. So it is moved,
not copied: what it was read from is set aside there, as soon as it is on the disk here. Otherwise
an older state of it could be taken for all there is.

A log dir that another process has locked is looked at again for a moment: that process may be at
its end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from raylog.actors.control import MetadataKept
from raylog.actors.errors import NoLogDirs, NotLeader, OlderMetadata, RequestTimedOut
from raylog.actors.metadata_snapshot import MetadataSnapshot, from_bytes
from raylog.actors.node.metadata_copy import values_of
from raylog.actors.partition.locking import lock_patiently
from raylog.cluster.controller.copies import Copy, Home, SurveyedDir, choose, found_at
from raylog.cluster.controller.following import CopyStatus
from raylog.cluster.controller.observed import SUSPECT_MS
from raylog.cluster.controller.putting import put_copy
from raylog.cluster.controller.witness import (
    Mark,
    is_last,
    is_left_out,
    is_settled,
    later,
    of_cluster,
)
from raylog.storage.clock import Clock
from raylog.storage.errors import InvalidConfig, InvalidLogDir, LogMissing, RaylogError
from raylog.storage.files import FileSystem
from raylog.storage.records.batch import read_header
from raylog.storage.state.controller_epoch import NO_EPOCH
from raylog.storage.state.properties import random_id

# A Controller leaves a copy out when it has not heard of it for ``SUSPECT_MS``. A second less, for
# clocks of which one is faster.
FENCED_MS = SUSPECT_MS - 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What was found on the nodes. ``own``: Ray's id of the node that asks.

    ``dirs``: of all nodes that have answered. ``errors``: by Ray's id of a node, why it has not.
    """

    own: str
    dirs: tuple[SurveyedDir, ...]
    errors: dict[str, RaylogError]


class CopyFiles(Protocol):
    """The files of the copies."""

    def batches(self, entry: SurveyedDir) -> Sequence[bytes]:
        """The record batches of a copy. Raises LogLocked where a Controller writes it."""

    def snapshot_file(self, entry: SurveyedDir) -> bytes:
        """The file of the snapshot behind which a copy goes on; empty for none.

        Raises as ``batches``. Asked only of a node that has said that its copy has one.
        """


class Reach(CopyFiles, Protocol):
    """The way to the log dirs of all nodes. Each method waits, and raises why it failed."""

    def has_managers(self) -> bool:
        """Whether a LogManager runs on any node."""

    def statuses(self) -> Sequence[MetadataKept]:
        """What the copies of the LogManagers have; those that do not answer are left out."""

    def others_statuses(self) -> Sequence[MetadataKept]:
        """The same of the other nodes, and only a moment is waited for those that hang."""

    def promises(self, epoch: int) -> Sequence[MetadataKept]:
        """As ``statuses``, and each has promised this epoch, or says why not."""

    def promises_of_unattended(self, epoch: int) -> Sequence[MetadataKept]:
        """Of the copies on nodes without a LogManager: as of ``promise_for``.

        Those of which it cannot be had are left out.
        """

    def is_controller(self) -> bool:
        """Whether Ray still takes this process for the Controller. Raises what Ray raises."""

    def marks(self) -> Sequence[Mark]:
        """What Ray's head remembers of the Controllers before; none where it does not answer."""

    def release(self, node_id: str) -> None:
        """Have the LogManager of a node, if there is one, leave its copy alone for a moment."""

    def survey(self, *, tries_locks: bool, only_own: bool = False) -> Survey:
        """Look at all of them. ``tries_locks``: as of ``Surveyor.survey``.

        ``only_own``: at those of the own node, which takes no process on the others.
        """

    def set_aside(self, entry: SurveyedDir) -> None:
        """Rename the folder of a copy; fine if it is gone. Raises LogLocked as ``batches``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyContent:
    """A copy as it was read. ``begin``: the snapshot of what comes before the ``batches``."""

    begin: MetadataSnapshot | None
    batches: tuple[bytes, ...]

    @property
    def first(self) -> int:
        """The number of the first record of the batches."""
        return 0 if self.begin is None else self.begin.point.end

    def values(self) -> Iterator[bytes]:
        """Of the records behind the snapshot."""
        for batch in self.batches:
            yield from values_of(batch)


def content_of(reach: CopyFiles, entry: SurveyedDir) -> CopyContent:
    """Read a copy. Raises LogLocked where a Controller writes it."""
    assert entry.copy is not None, "it was found"
    content = reach.snapshot_file(entry) if entry.copy.first else b""
    begin = from_bytes(content, str(entry)) if content else None
    first = 0 if begin is None else begin.point.end
    batches = [batch for batch in reach.batches(entry) if read_header(batch).base_offset >= first]
    return CopyContent(begin=begin, batches=tuple(batches))


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What counted of the metadata when the last life of this process ended.

    ``epoch``: of its Controller. ``end``: how many records.
    """

    epoch: int = NO_EPOCH
    end: int = 0

    def lacks_any(self, found: Copy) -> bool:
        """Whether a copy is from before that."""
        return found.end < self.end and found.controller_epoch <= self.epoch


def known_by(copies: Sequence[CopyStatus], before: Known) -> Known:
    """``copies``: as a Controller had them last, its own first. ``before``: of the life before.

    A life that has not heard its copies yet knows no more than that one did.
    """
    end = min((copy.end for copy in copies if copy.is_in_sync), default=0)
    if not end:
        return before
    epoch = copies[0].epoch
    return Known(epoch=epoch, end=max(end, before.end) if epoch == before.epoch else end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a person has said. ``may_begin``: whether a cluster may begin where none was.

    That is so at the first start of a broker, and never for a Controller that Ray starts again.
    ``new_cluster``, ``older_metadata``: as of ``choose``. ``known``: of a life before in this
    process.
    """

    may_begin: bool = False
    new_cluster: bool = False
    older_metadata: bool = False
    known: Known = Known()


def find_home(reach: Reach, wanted: Wanted) -> tuple[Home, Survey]:
    """Where the metadata is, and what else was found. Nothing is changed.

    Raises as ``choose`` does; OlderMetadata also where it lacks what is known; NoLogDirs;
    LogMissing; RequestTimedOut where no metadata was found,
    but a node has not answered, which may have it.
    """
    return _find(reach, wanted, {}, reach.marks())


def begin_home(reach: Reach, fs: FileSystem, clock: Clock, wanted: Wanted) -> Home:
    """Find the metadata for a Controller that begins here, and have it on this node.

    The copies in reach take no record of the Controller before any more. Raises as ``find_home``
    and ``bring_home`` do; NotLeader where Ray has started another Controller.
    """
    marks = reach.marks()
    home = None if wanted.may_begin else _own_again(reach, marks, wanted.known)
    if home is None:
        home, survey = _find(reach, wanted, _fence(reach, marks), marks)
        home = bring_home(reach, fs, clock, home, survey)
    reach.release(home.node_id)
    return home


def _own_again(reach: Reach, marks: Sequence[Mark], known: Known) -> Home | None:
    """Where the last Controller was on this node, and Ray knows of no later one; else None.

    Then nobody else can have more, unless a backup lies here; and no other node is looked at.
    """
    survey = reach.survey(tries_locks=False, only_own=True)
    dirs = tuple(_judged(entry, {}, marks) for entry in survey.dirs)
    has_last = any(
        entry.is_last and entry.copy is not None and entry.copy.controller_dir == entry.directory_id
        for entry in dirs
    )
    if not has_last:
        return None
    try:
        home = choose(dirs, survey.own, new_id="")
        found = found_at(home, dirs)
        _check_known(found, known)
    except RaylogError:  # the other nodes may have what is needed
        return None
    assert found.copy is not None, "it was chosen"
    return None if _have_more(reach.others_statuses(), found.copy) else home


def _have_more(others: Sequence[MetadataKept], own: Copy) -> bool:
    """Whether a copy elsewhere has more than what lies where its Controller was."""
    age = own.controller_epoch, own.end
    return any((kept.controller_epoch, kept.end) > age for kept in others)


def _fence(reach: Reach, marks: Sequence[Mark]) -> dict[str, MetadataKept]:
    """Have all copies in reach promise an epoch that is higher than all of theirs, by dir.

    A node that was started again has no LogManager before a Controller begins. What its copy
    promises counts only beside what Ray knows of the Controllers before.
    """
    seen = [max(kept.promised, kept.controller_epoch) for kept in reach.statuses()]
    if not seen and not marks:
        return {}
    epoch = max(seen, default=NO_EPOCH) + 1
    _check_is_controller(reach)
    promises = list(reach.promises(epoch))
    if marks:
        promises += reach.promises_of_unattended(epoch)
    _check_is_controller(reach)
    return {
        kept.directory_id: kept for kept in promises if kept.promised >= epoch and not kept.problem
    }


def _check_is_controller(reach: Reach) -> None:
    """Raise NotLeader where Ray has started another Controller, or has not begun this one yet."""
    if not reach.is_controller():
        raise NotLeader("the broker", "Ray does not take this process for its Controller now")


def _find(
    reach: Reach,
    wanted: Wanted,
    promised: Mapping[str, MetadataKept],
    marks: Sequence[Mark],
) -> tuple[Home, Survey]:
    home, survey = lock_patiently(lambda: _look(reach, wanted, promised, marks))
    if home.new_cluster and not wanted.may_begin:
        raise LogMissing(home.log_dir, "the metadata is missing")
    return home, survey


def _look(
    reach: Reach,
    wanted: Wanted,
    promised: Mapping[str, MetadataKept],
    marks: Sequence[Mark],
) -> tuple[Home, Survey]:
    survey = reach.survey(tries_locks=wanted.may_begin)
    dirs = tuple(_judged(entry, promised, marks) for entry in survey.dirs)
    survey = replace(survey, dirs=dirs)
    _check_answers(survey)
    home = choose(
        survey.dirs,
        survey.own,
        new_id=random_id(),
        new_cluster=wanted.new_cluster,
        older_metadata=wanted.older_metadata,
    )
    if not home.new_cluster:
        _check_known(found_at(home, survey.dirs), wanted.known)
    return home, survey


def _check_known(entry: SurveyedDir, known: Known) -> None:
    """Raise OlderMetadata where this process has had more."""
    assert entry.copy is not None, "it was chosen"
    if known.lacks_any(entry.copy):
        had = f"this Controller had {known.end} records of epoch {known.epoch}"
        seen = f"{had}, and {entry.copy.end} are there"
        raise OlderMetadata(str(entry), entry.copy.controller_epoch, seen)


def _judged(
    entry: SurveyedDir, promised: Mapping[str, MetadataKept], marks: Sequence[Mark]
) -> SurveyedDir:
    entry = remembered(entry, marks)
    kept = promised.get(entry.directory_id or "")
    if kept is None:
        return entry
    most = max(kept.promised, entry.promised_epoch)
    entry = replace(entry, promised_epoch=most)
    found = entry.copy
    if found is None:
        return entry
    marks = of_cluster(marks, found.cluster_id)
    is_fresh = 0 <= kept.idle_ms <= FENCED_MS
    # The clock of a machine that stood still says that it has heard the Controller just now.
    is_fenced = is_fresh and not is_left_out(marks, found.copies_at)
    settled = is_settled(marks, found.controller_epoch, found.copies_at)
    return replace(entry, is_fenced=is_fenced, is_settled=settled)


def remembered(entry: SurveyedDir, marks: Sequence[Mark]) -> SurveyedDir:
    """A log dir with what Ray's head remembers of the Controllers that were there."""
    found = entry.copy
    if found is None:
        return entry
    marks = of_cluster(marks, found.cluster_id)
    since = later(marks, found.controller_epoch)
    return replace(
        entry,
        is_last=is_last(marks, found.controller_epoch),
        is_begun_over=bool(since),
        is_left_out=is_left_out(since, found.copies_at),
    )


def _check_answers(survey: Survey) -> None:
    """Raise why nothing can be decided by what was found."""
    # Who is silent may have the metadata, and so may a node whose log dirs are named wrongly.
    doubts = RequestTimedOut, InvalidConfig
    unseen = [error for error in survey.errors.values() if isinstance(error, doubts)]
    if unseen and not any(entry.copy is not None and entry.copy.end for entry in survey.dirs):
        raise unseen[0]
    # The other errors are of nodes without log dirs, which cannot have the metadata.
    own = survey.errors.get(survey.own)
    if own is not None and not any(entry.has_metadata for entry in survey.dirs):
        raise own
    if not survey.dirs:
        raise NoLogDirs("no node has a log dir")


def bring_home(reach: Reach, fs: FileSystem, clock: Clock, home: Home, survey: Survey) -> Home:
    """Have the metadata on the node that asks; returns where it is there.

    Raises NoLogDirs where this node has no log dir for it; LogLocked where another Controller
    writes it still, or a process uses the older copy here; LogMissing where it changes while it is
    read; StorageError.
    """
    if home.node_id == survey.own:
        return home
    source = found_at(home, survey.dirs)
    assert source.copy is not None, "it was chosen"
    content = content_of(reach, source)
    end = content.first + sum(1 for _ in content.values())
    if end != source.copy.end:
        why = f"it had {source.copy.end} records when it was found, and has {end} now"
        raise LogMissing(str(source), why)
    reach.release(survey.own)
    log_dir = _put(fs, clock, survey, source, content)
    if source.copy.in_sync is None:
        reach.set_aside(source)
    return replace(home, node_id=survey.own, log_dir=log_dir)


def _put(
    fs: FileSystem, clock: Clock, survey: Survey, source: SurveyedDir, content: CopyContent
) -> str:
    """Put it into the best log dir of the own node that can be one; returns which."""
    why: object = survey.errors.get(survey.own) or "none of its log dirs can be used"
    assert source.copy is not None, "it was chosen"
    for target in _targets(survey, source):
        old = target.copy
        try:
            put_copy(
                fs,
                clock,
                target.path,
                content.batches,
                is_outdated=old is not None and not old.was_given_up_for(source.copy),
                begin=content.begin,
            )
            return target.path
        except InvalidLogDir as error:
            why = error
    raise NoLogDirs(
        f"Ray has started the Controller on a node that has no log dir for the metadata ({why}); "
        "`raylog stop` and `raylog start` put it on the node that has the newest copy"
    )


def _targets(survey: Survey, source: SurveyedDir) -> list[SurveyedDir]:
    """Where it may go on the own node, the best first.

    Where a copy is already; into another log dir of the cluster; into one of no cluster, which may
    be the empty mount point of a disk that is lost; where damaged metadata is.
    """
    own = [entry for entry in survey.dirs if entry.node_id == survey.own]
    assert source.copy is not None, "it was chosen"
    cluster_id = source.copy.cluster_id
    usable = [entry for entry in own if entry.copy is None and not entry.problem]
    return [
        *(entry for entry in own if entry.copy is not None),
        *(entry for entry in usable if entry.cluster_id == cluster_id),
        *(entry for entry in usable if entry.cluster_id is None),
        *(
            entry
            for entry in own
            if entry.problem and entry.has_metadata and entry.cluster_id == cluster_id
        ),
    ]
