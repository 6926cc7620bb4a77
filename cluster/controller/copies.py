"""Which copy of the metadata counts, and whether a cluster may begin where there is none. Pure.

A cluster has its metadata in one log dir of one node. Where several dirs have some, because a disk
was copied or restored, one may be only an older state of the other::

    1 2 3 4 5          1 2 3 4 5 6         of these two the second one counts

    1 2 3 4 5          1 2 3 6 7 8         these have gone on apart: nobody can say which one counts

A log dir keeps the highest epoch of a Controller that it has obeyed, and obeys none before it is in
the metadata, fsynced. So where one has a higher epoch than the newest copy, a newer copy is
missing. Only ``older_metadata``, an explicit word of a person, lets the cluster go on from there.

A new cluster begins by itself only where nothing speaks of an older one. Everything else is a
doubt: a log dir with a cluster's id and the metadata nowhere, a disk that cannot be read. Then only
``new_cluster``, an explicit word of a person, lets one begin. In log dirs that another process has
locked none begins at all: the metadata is where that one has it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from raylog.actors.errors import (
    MetadataInDoubt,
    MetadataMissing,
    MetadataUnreadable,
    OlderMetadata,
    SeveralClusters,
)
from raylog.cluster.controller.records import METADATA_LOG
from raylog.storage.errors import LogLocked
from raylog.storage.state.controller_epoch import NO_EPOCH

# Bytes of the digest of each record in ``Copy.digests``.
DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The metadata as it lies in a log dir.

    ``topics``: how many it knows. ``digests``: of each record in order, ``DIGEST_BYTES`` each, of
    the records up to it.
    """

    cluster_id: str
    controller_epoch: int
    digests: bytes
    topics: int = 0

    @property
    def end(self) -> int:
        """How many records it has."""
        return len(self.digests) // DIGEST_BYTES

    def begins_with(self, other: "Copy") -> bool:
        """Whether it has all records of another one, and went on from there."""
        return self.digests.startswith(other.digests)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedDir:
    """What lies in a log dir. ``node_id``: Ray's.

    ``cluster_id``: as its ``meta.properties`` has it. ``has_metadata``: whether there is a folder
    of the metadata, readable or not. ``problem``: why the dir or the metadata could not be read;
    empty where it could. ``obeyed_epoch``: the highest of a Controller that it has obeyed; -1 for
    none, and where that cannot be read. ``is_locked``: whether another process uses it; False where
    nobody has tried.
    """

    node_id: str
    path: str
    cluster_id: str | None = None
    has_metadata: bool = False
    copy: Copy | None = None
    problem: str = ""
    obeyed_epoch: int = NO_EPOCH
    is_locked: bool = False

    def __str__(self) -> str:
        return f"{self.path} of node {self.node_id[:8]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """Where the metadata is. ``new_cluster``: the id of the cluster that begins there, or empty.

    ``least_epoch``: the highest epoch of a Controller that a log dir of the cluster has obeyed.
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

    Raises SeveralClusters; MetadataInDoubt where copies have gone on apart, or one of several
    cannot be read; OlderMetadata. Where no copy was found: MetadataUnreadable; LogLocked where
    another process uses a log dir; MetadataMissing where there may be some that nobody has found.
    """
    own_first = sorted(dirs, key=lambda entry: entry.node_id != own)
    # Without a record it is what a first start has left that was cut off.
    copies = [entry for entry in own_first if entry.copy is not None and entry.copy.end > 0]
    unread = [entry for entry in own_first if entry.has_metadata and entry.copy is None]
    _check_one_cluster(copies)
    if copies:
        if unread:
            raise MetadataInDoubt(_listed([*copies, *unread]), "not all of them can be read")
        best = _best(copies)
        if not older_metadata:
            _check_newest(best, own_first)
        return Home(
            node_id=best.node_id,
            log_dir=best.path,
            least_epoch=_least_epoch(own_first, best.copy.cluster_id if best.copy else ""),
            is_older_accepted=older_metadata,
        )
    if not new_cluster:
        _check_readable(unread)
    _check_unlocked(own_first)
    if not new_cluster:
        _check_nothing_missing(own_first)
    return _new_home(own_first, own, new_id)


def _check_one_cluster(copies: Iterable[SurveyedDir]) -> None:
    clusters = {entry.copy.cluster_id: entry for entry in copies if entry.copy is not None}
    if len(clusters) > 1:
        listed = "; ".join(f"{cluster} in {entry}" for cluster, entry in sorted(clusters.items()))
        raise SeveralClusters(listed)


def _best(copies: Sequence[SurveyedDir]) -> SurveyedDir:
    """The dir with the newest copy, where the others are only older states of it."""
    for one, other in combinations(copies, 2):
        assert one.copy is not None
        assert other.copy is not None
        if not (one.copy.begins_with(other.copy) or other.copy.begins_with(one.copy)):
            why = "each has records that the other has not"
            raise MetadataInDoubt(_listed([one, other]), why)
    return max(copies, key=_end)  # what begins with another has no lower epoch, either


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


def _least_epoch(dirs: Iterable[SurveyedDir], cluster_id: str) -> int:
    """The highest epoch of a Controller that a log dir of the cluster has obeyed."""
    epochs = [entry.obeyed_epoch for entry in dirs if entry.cluster_id == cluster_id]
    return max(epochs, default=NO_EPOCH)


def _end(entry: SurveyedDir) -> int:
    assert entry.copy is not None
    return entry.copy.end


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
    cluster_id = known.pop() if len(known) == 1 else new_id
    return Home(
        node_id=own,
        log_dir=first.path,
        new_cluster=cluster_id,
        least_epoch=_least_epoch(dirs, cluster_id),
    )


def _listed(entries: Iterable[SurveyedDir]) -> str:
    return "; ".join(f"{entry}: {_described(entry)}" for entry in entries)


def _described(entry: SurveyedDir) -> str:
    if entry.copy is None:
        return f"unreadable, {entry.problem}"
    found = entry.copy
    return f"{found.topics} topics, {found.end} records, Controller epoch {found.controller_epoch}"
