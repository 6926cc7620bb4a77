"""Which copy of the metadata counts, and whether a cluster may begin where there is none. Pure.

A cluster has its metadata in one log dir of one node. Where several dirs have some, because a disk
was copied or restored, one may be only an older state of the other::

    1 2 3 4 5          1 2 3 4 5 6         of these two the second one counts

    1 2 3 4 5          1 2 3 6 7 8         these have gone on apart: nobody can say which one counts

**Copies that are kept.** The Controller has its LogManagers keep copies, and the log itself says
which of them have every committed record: those *in sync* by its last CopiesRecord, and that of the
Controller which wrote it. So where the newest copy was found it may begin there, if

===================================  ==============================================================
it ends with an orderly stop, and    everybody had all of it, and nobody has gone on since
Ray knows of no later Controller
that went on without it
all copies in sync were found        what was committed is in each of them: the newest has it
all but the lost Controller's were   it can have committed nothing without them, and they obey it
found, and are fenced                no more (``SurveyedDir.is_fenced``)
one in sync was found, and Ray       the same, for all that the lost Controller can have asked Ray
knows that it was not left out       (``witness.py``)
that of the lost Controller was      it has all that this one has committed
found, and Ray knows of no later one
===================================  ==============================================================

A Ray that was started again knows of no Controller before: then a stop is believed. Else the one
that is missed may have more (MetadataIncomplete). A Controller writes each record
before any copy gets it. So where its own log dir has less than another copy, a backup was put there
in the place of its copy, and that one is missed. Then a damaged copy beside the newest is no reason
to refuse, nor one in sync of which only the last batch is damaged. And one that has gone on apart
from it in a lower epoch was never committed: it is brought up to date. None of this holds for
metadata without any CopiesRecord, as an older raylog or a cluster of one node has written it: it
lies in one place, and every other copy was made by a person.

A log dir keeps the highest epoch of a Controller that it has obeyed, and obeys none before it is in
the metadata, fsynced. So where one has a higher epoch than the newest copy, a newer copy is
missing. Only ``older_metadata``, an explicit word of a person, lets the cluster go on from there.

A new cluster begins by itself only where nothing speaks of an older one. Everything else is a
doubt: a log dir with a cluster's id and the metadata nowhere, a disk that cannot be read. Then only
``new_cluster``, an explicit word of a person, lets one begin. In log dirs that another process has
locked none begins at all: the metadata is where that one has it. Metadata of a newer raylog, which
this one cannot read, lets no cluster begin or go on, whatever a person says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from raylog.actors.errors import (
    MetadataIncomplete,
    MetadataInDoubt,
    MetadataMissing,
    MetadataUnreadable,
    NewerMetadata,
    OlderMetadata,
    SeveralClusters,
)
from raylog.actors.metadata_history import (
    DIGEST_BYTES,
    EpochStart,
    common_end,
    era_of,
    next_era,
)
from raylog.cluster.controller.records import METADATA_LOG
from raylog.cluster.controller.spread import short_key
from raylog.storage.errors import LogLocked
from raylog.storage.state.controller_epoch import NO_EPOCH
from raylog.storage.wire import message


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The metadata as it lies in a log dir.

    ``topics``: how many it knows. ``digests``: of each record in order, ``DIGEST_BYTES`` each, of
    the records up to it. ``first``: how many records come before these, and are in its snapshot
    only; ``first_digest``: of all of them. ``epochs``: where each Controller began.
    ``controller``, ``controller_dir``: the key of the node of its last Controller, and the id of
    the log dir where that one had the metadata, empty where it does not say. ``in_sync``: by the id
    of its log dir, the key of the node of each copy that has every committed record; None where
    nobody has written it down. A node without a label has another key after each start of Ray, and
    its log dirs have the same ids. ``ruled_from``: how many records it has before it says for the
    first time who is in sync; -1 for never. ``is_stopped``: whether it ends with an orderly stop.
    ``copies_at``: the number of its last record of who is in sync; -1 for none.
    """

    cluster_id: str
    controller_epoch: int
    digests: bytes
    topics: int = 0
    controller: str = ""
    controller_dir: str = ""
    in_sync: Mapping[str, str] | None = None
    ruled_from: int = -1
    is_stopped: bool = False
    copies_at: int = -1
    first: int = 0
    first_digest: bytes = b""
    epochs: tuple[EpochStart, ...] = ()

    @property
    def end(self) -> int:
        """How many records it has, with those before its snapshot's end."""
        return self.first + len(self.digests) // DIGEST_BYTES

    def digest_at(self, end: int) -> bytes:
        """Of its first ``end`` records; empty where it does not know it."""
        if end == self.first:
            return self.first_digest
        place = max(0, end - self.first) * DIGEST_BYTES
        return self.digests[max(0, place - DIGEST_BYTES) : place]

    def is_same(self, other: "Copy") -> bool:
        """Whether both have the same records."""
        return self.end == other.end and self.begins_with(other)

    def begins_with(self, other: "Copy") -> bool:
        """Whether it has all records of another one, and went on from there."""
        if other.end > self.end:
            return False
        if other.end < self.first:  # it has no digest of them
            return self._parted_at(other) == other.end
        return self.digest_at(other.end) == other.digest_at(other.end)

    def is_past_of(self, newer: "Copy") -> bool:
        """Whether nothing of it counts but what a copy with a higher end or epoch has, too.

        What differs in a lower epoch was not committed, if who is in sync was known by then.
        """
        if newer.begins_with(self):
            return True
        is_ruled = 0 <= newer.ruled_from < self.common_end(newer)
        return is_ruled and self.controller_epoch < newer.controller_epoch

    def was_given_up_for(self, newer: "Copy") -> bool:
        """Whether records of it may have counted that a person has gone on without."""
        is_earlier = era_of(self.controller_epoch) < era_of(newer.controller_epoch)
        return is_earlier and not newer.begins_with(self)

    def common_end(self, other: "Copy") -> int:
        """How many records at their beginning are the same."""
        low, high = max(self.first, other.first), min(self.end, other.end)
        if low > high or self.digest_at(low) != other.digest_at(low):
            return min(low, self._parted_at(other))
        while low < high:
            middle = (low + high + 1) // 2
            # Each digest is of all records up to it.
            if self.digest_at(middle) == other.digest_at(middle):
                low = middle
            else:
                high = middle - 1
        return low

    def _parted_at(self, other: "Copy") -> int:
        """The same, by where their Controllers began: right unless two have had one epoch."""
        return common_end(self.epochs, self.end, other.epochs, other.end)


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedDir:
    """What lies in a log dir. ``node_id``: Ray's; ``node``: the node's key.

    ``cluster_id``, ``directory_id``: as its ``meta.properties`` has them. ``has_metadata``: whether
    there is a folder of the metadata, readable or not. ``problem``: why the dir or the metadata
    could not be read; empty where it could. ``is_of_newer``: the metadata is whole, and only a
    newer raylog knows its records. ``obeyed_epoch``: the highest of a Controller that it
    has obeyed; -1 for none, and where that cannot be read. ``is_locked``: whether another process
    uses it; False where nobody has tried. ``real_path``: without symbolic links; empty where that
    is not known.

    ``promised_epoch``: the lowest epoch of a Controller from which the copy takes anything; -1 for
    any. ``is_fenced``: it has promised that to the Controller that begins now, so soon after it had
    heard the one before that that one cannot have gone on without it. ``is_settled``: it has
    promised that, and Ray knows that the one before has not gone on without it (``witness.py``).
    ``is_last``: Ray knows that no Controller has begun over it since its last one.
    ``is_begun_over``: Ray knows that one has. ``is_left_out``: and that this one may have gone on
    without it, though it was in sync. ``asides``: the names of the files that recovery has taken
    out of the metadata, and kept. ``whole_part``: what comes before the last batch, where only that
    is damaged; ``copy`` is None then. ``damaged_snapshots``: those that the copy is read without,
    each with what is wrong with it. ``is_missing``: the log dir is no folder, as far as is known.
    """

    node_id: str
    path: str
    node: str = ""
    cluster_id: str | None = None
    directory_id: str | None = None
    has_metadata: bool = False
    copy: Copy | None = None
    problem: str = ""
    is_of_newer: bool = False
    obeyed_epoch: int = NO_EPOCH
    is_locked: bool = False
    promised_epoch: int = NO_EPOCH
    is_fenced: bool = False
    is_settled: bool = False
    is_last: bool = False
    is_begun_over: bool = False
    is_left_out: bool = False
    real_path: str = ""
    asides: tuple[str, ...] = ()
    whole_part: Copy | None = None
    damaged_snapshots: tuple[str, ...] = ()
    is_missing: bool = False

    def __str__(self) -> str:
        return f"{self.path} of node {self.node_id[:8]}"


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where the metadata is. ``new_cluster``: the id of the cluster that begins there, or empty.

    ``least_epoch``: the highest epoch of a Controller that a log dir of the cluster has obeyed, or
    a copy has promised to obey; the first of the next era where a cluster begins anew.
    ``is_older_accepted``: whether the metadata counts though one may be higher than it knows.
    """

    node_id: str
    log_dir: str
    new_cluster: str = ""
    least_epoch: int = NO_EPOCH
    is_older_accepted: bool = False

    @property
    def accepts_older(self) -> bool:
        """Whether a log dir may have obeyed a Controller that the metadata does not know."""
        return self.is_older_accepted or bool(self.new_cluster)


def choose(
    dirs: Sequence[SurveyedDir],
    own: str,
    *,
    new_id: str,
    new_cluster: bool = False,
    older_metadata: bool = False,
) -> Home:
    """Where the Controller starts.

    ``dirs``: of all nodes, each node's in their order. ``own``: the id of the node that asks; a new
    cluster begins in its first log dir. ``new_id``: a new cluster's id. ``new_cluster``: whether
    one may begin where there is any doubt. ``older_metadata``: whether the newest copy counts where
    there was a newer one.

    Raises NewerMetadata; SeveralClusters; MetadataInDoubt where copies have gone on apart, or one
    of several cannot be read; MetadataIncomplete; OlderMetadata. Where no copy was found:
    MetadataUnreadable; LogLocked where another process uses a log dir; MetadataMissing where there
    may be some that nobody has found.
    """
    own_first = sorted(dirs, key=lambda entry: entry.node_id != own)
    check_not_newer(own_first)
    # Without a record it is what a first start has left that was cut off.
    copies = [entry for entry in own_first if entry.copy is not None and entry.copy.end > 0]
    unread = [entry for entry in own_first if entry.has_metadata and entry.copy is None]
    check_one_cluster(copies)
    if copies:
        best = _best(copies)
        check_complete(best, copies, unread)
        if not older_metadata:
            _check_newest(best, own_first)
        return Home(
            node_id=best.node_id,
            log_dir=best.path,
            least_epoch=least_epoch(own_first, best.copy.cluster_id if best.copy else ""),
            is_older_accepted=older_metadata,
        )
    if not new_cluster:
        _check_readable(unread)
    _check_unlocked(own_first)
    if not new_cluster:
        _check_nothing_missing(own_first)
    return _new_home(own_first, own, new_id)


def found_at(home: Home, dirs: Iterable[SurveyedDir]) -> SurveyedDir:
    """What was found where the metadata is."""
    place = home.node_id, home.log_dir
    return next(entry for entry in dirs if (entry.node_id, entry.path) == place)


def check_not_newer(dirs: Iterable[SurveyedDir]) -> None:
    """Raise NewerMetadata where there is metadata that only a newer raylog can read.

    That one counts, whatever older copies there are.
    """
    for entry in dirs:
        if entry.is_of_newer:
            raise NewerMetadata(str(entry), entry.problem)


def check_one_cluster(copies: Iterable[SurveyedDir]) -> None:
    """Raise SeveralClusters where they are of more than one cluster."""
    clusters = {entry.copy.cluster_id: entry for entry in copies if entry.copy is not None}
    if len(clusters) > 1:
        listed = "; ".join(f"{cluster} in {entry}" for cluster, entry in sorted(clusters.items()))
        raise SeveralClusters(listed)


def _best(copies: Sequence[SurveyedDir]) -> SurveyedDir:
    """The dir with the newest copy, where the others are only older states of it."""
    best = max(copies, key=age_of)
    assert best.copy is not None
    for other in copies:
        assert other.copy is not None
        if not other.copy.is_past_of(best.copy):
            both = [entry for entry in copies if entry in (best, other)]
            raise MetadataInDoubt(_listed(both), "each has records that the other has not")
    return best


def check_complete(
    best: SurveyedDir, copies: Sequence[SurveyedDir], unread: Sequence[SurveyedDir]
) -> None:
    """Raise MetadataIncomplete where another copy may have committed records that the best lacks.

    Raises MetadataInDoubt where nobody has written down which copies there are, and one of them
    cannot be read.
    """
    assert best.copy is not None
    if best.copy.in_sync is None:
        if unread:
            raise MetadataInDoubt(_listed([*copies, *unread]), "not all of them can be read")
        return
    last = best.copy
    replaced = _replaced(best, copies)
    there = [entry for entry in copies if entry not in replaced]
    spared = [entry for entry in unread if _lacks_nothing_but(entry, last)]
    missed = _needed(last).keys() - {entry.directory_id for entry in (*there, *spared)}
    is_complete = (
        not missed
        or _is_complete_by_stop(last, copies)
        or _is_complete_by_fence(last, copies)
        or _is_complete_by_witness(last, copies)
        or _is_complete_by_last_controller(last, there)
    )
    if not is_complete:
        in_place = {entry.directory_id: entry for entry in (*replaced, *unread)}
        listed = "; ".join(
            _missed(node, in_place.get(key)) for key, node in _needed(last).items() if key in missed
        )
        raise MetadataIncomplete(f"{best}: {_described(best)}", listed, best.node or best.path)


def _needed(last: Copy) -> dict[str, str]:
    """The copies in sync and that of the last Controller: log dir -> node."""
    needed = dict(last.in_sync or {})
    if last.controller_dir:
        needed[last.controller_dir] = last.controller
    return needed


def _own(last: Copy) -> set[str]:
    """Those of them that are on the last Controller's node."""
    return {key for key, node in _needed(last).items() if node == last.controller}


def _latest(last: Copy, copies: Iterable[SurveyedDir]) -> list[SurveyedDir]:
    """The copies that have a record of the last Controller."""
    epoch = last.controller_epoch
    return [entry for entry in copies if entry.copy and entry.copy.controller_epoch == epoch]


def _replaced(best: SurveyedDir, copies: Iterable[SurveyedDir]) -> list[SurveyedDir]:
    """Backups that were put where the last Controller had its metadata."""
    assert best.copy is not None
    # The first Controller of a cluster begins before its log dir has an id.
    own = {best.copy.controller_dir} if best.copy.controller_dir else _own(best.copy)
    return [entry for entry in copies if entry.directory_id in own and is_older(entry, best)]


def _is_complete_by_stop(last: Copy, copies: Iterable[SurveyedDir]) -> bool:
    """Whether it ends with an orderly stop behind which nothing can have been committed.

    A Controller that has begun over it commits nothing without those in sync that it keeps.
    """
    if not last.is_stopped:
        return False
    in_sync = last.in_sync or {}
    return any(
        not entry.is_begun_over or (entry.directory_id in in_sync and not entry.is_left_out)
        for entry in _latest(last, copies)
        if entry.copy is not None and entry.copy.is_stopped
    )


def _is_complete_by_fence(last: Copy, copies: Iterable[SurveyedDir]) -> bool:
    """Whether the last Controller can have committed nothing without the copies found."""
    fenced = {entry.directory_id for entry in _latest(last, copies) if entry.is_fenced}
    others = _needed(last).keys() - _own(last)
    return bool(others) and others <= fenced


def _is_complete_by_witness(last: Copy, copies: Iterable[SurveyedDir]) -> bool:
    """Whether Ray knows that it has left out none of them."""
    others = _needed(last).keys() - _own(last)
    return any(entry.directory_id in others and entry.is_settled for entry in _latest(last, copies))


def _is_complete_by_last_controller(last: Copy, there: Iterable[SurveyedDir]) -> bool:
    """Whether its own metadata is there, and Ray knows of no later Controller."""
    own = _own(last)
    return any(entry.directory_id in own and entry.is_last for entry in _latest(last, there))


def _lacks_nothing_but(unread: SurveyedDir, best: Copy) -> bool:
    """Whether a copy cannot have had a committed record that the best one lacks.

    So it is where only its last batch is damaged, and the best copy has all before that. The first
    batch of a Controller is its epoch, and only by a later one does it leave a copy out. So no
    single batch is committed without the others, but of the Controller that was there.
    """
    part = unread.whole_part
    if part is None or unread.directory_id == best.controller_dir:
        return False
    return part.cluster_id == best.cluster_id and best.begins_with(part)


def is_older(own: SurveyedDir, best: SurveyedDir) -> bool:
    """Whether an older state of the metadata lies where the last Controller had its own.

    What any copy has of this Controller, its own one had before.
    """
    assert own.copy is not None
    assert best.copy is not None
    return not own.copy.begins_with(best.copy)


def _missed(node: str, there: SurveyedDir | None) -> str:
    """What is missed, for people. ``there``: what lies in its place, if anything does."""
    if there is None:
        return f"node {short_key(node)}"
    if there.copy is None:
        return _listed([there])
    return f"the newer metadata that was in {there} (an older state of it lies there now)"


def _check_newest(best: SurveyedDir, dirs: Iterable[SurveyedDir]) -> None:
    """Raise OlderMetadata where a log dir has obeyed a Controller that the copy does not know."""
    assert best.copy is not None
    epoch = best.copy.controller_epoch
    newer = [
        f"epoch {entry.obeyed_epoch} is known to {entry}"
        for entry in dirs
        if entry.cluster_id == best.copy.cluster_id and entry.obeyed_epoch > epoch
    ]
    if newer:
        raise OlderMetadata(str(best), epoch, "; ".join(newer))


def least_epoch(dirs: Iterable[SurveyedDir], cluster_id: str) -> int:
    """The highest epoch that a log dir of the cluster has obeyed, or a copy has promised."""
    epochs = [
        max(entry.obeyed_epoch, entry.promised_epoch)
        for entry in dirs
        if entry.cluster_id == cluster_id
    ]
    return max(epochs, default=NO_EPOCH)


def age_of(entry: SurveyedDir) -> tuple[int, int]:
    """The highest is the newest."""
    assert entry.copy is not None
    return entry.copy.controller_epoch, entry.copy.end


def _check_readable(unread: Sequence[SurveyedDir]) -> None:
    """Raise MetadataUnreadable where there is metadata that nobody can read."""
    if unread:
        why = f"the metadata cannot be read ({unread[0].problem})"
        raise MetadataUnreadable(f"{unread[0].path}/{METADATA_LOG}", why)


def _check_unlocked(dirs: Iterable[SurveyedDir]) -> None:
    """Raise LogLocked where a broker uses a log dir, or a tool works on it."""
    for entry in dirs:
        if entry.is_locked:
            raise LogLocked(str(entry))


def _check_nothing_missing(dirs: Iterable[SurveyedDir]) -> None:
    """Raise MetadataMissing unless it is sure that no cluster was here."""
    for entry in dirs:
        if entry.cluster_id is not None:
            why = (
                f"the log dir belongs to cluster {entry.cluster_id}, but no running node has the "
                "metadata of this cluster"
            )
            raise MetadataMissing(str(entry), why)
    for entry in dirs:
        if entry.problem:
            why = f"the log dir cannot be read ({entry.problem}), and may have the metadata"
            raise MetadataMissing(str(entry), why)


def _new_home(dirs: Sequence[SurveyedDir], own: str, new_id: str) -> Home:
    """The first log dir of the node that asks, with the id that the other log dirs have already."""
    assert dirs, "every node has a log dir"
    first = dirs[0]
    assert first.node_id == own, "the node that asks was looked at"
    known = {entry.cluster_id for entry in dirs if entry.cluster_id is not None}
    cluster_id, epoch = new_id, NO_EPOCH
    if len(known) == 1:  # a copy of its lost metadata may come back
        cluster_id = known.pop()
        epoch = next_era(least_epoch(dirs, cluster_id))
    return Home(node_id=own, log_dir=first.path, new_cluster=cluster_id, least_epoch=epoch)


def _listed(entries: Iterable[SurveyedDir]) -> str:
    return "; ".join(f"{entry}: {_described(entry)}" for entry in entries)


def _described(entry: SurveyedDir) -> str:
    if entry.copy is None:
        return f"unreadable, {entry.problem}"
    found = entry.copy
    return f"{found.topics} topics, {found.end} records, Controller epoch {found.controller_epoch}"
