"""How each copy of the metadata stands, and from which one a cluster shall go on. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from raylog.actors.errors import InvalidRequest, MetadataIncomplete, MetadataInDoubt
from raylog.actors.metadata_history import ERA_EPOCHS, next_era
from raylog.cluster.controller.copies import (
    SurveyedDir,
    age_of,
    check_complete,
    check_not_newer,
    check_one_cluster,
    is_older,
    least_epoch,
)
from raylog.cluster.controller.spread import SHORT_KEY_CHARS, short_key
from raylog.storage.state.controller_epoch import NO_EPOCH

# The state of a copy of which nobody can say whether it or the newest one counts.
APART = "apart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A copy, or one that is missed. ``node``, ``path``: where; the path is empty where it is
    missed.

    ``state``: in a word, for people. ``is_in_sync``: whether every committed record must be in it;
    None where nobody can say. ``records``, ``behind``: how many it has, and how many of the newest
    copy's it lacks; -1 where it cannot be read. ``epoch``: of its last Controller. ``problem``: why
    it cannot be read. ``asides``, ``damaged_snapshots``: as of ``SurveyedDir``.
    """

    node: str
    path: str
    state: str
    is_in_sync: bool | None = False
    records: int = -1
    behind: int = -1
    epoch: int = NO_EPOCH
    topics: int = -1
    problem: str = ""
    asides: tuple[str, ...] = ()
    damaged_snapshots: tuple[str, ...] = ()


def standings(dirs: Sequence[SurveyedDir]) -> list[Standing]:
    """Every copy that was found, and those in sync that were not; the newest one first."""
    copies = sorted(_copies(dirs), key=age_of, reverse=True)
    unread = _unread(dirs)
    best = copies[0] if copies else None
    in_sync = _in_sync(copies, unread)
    must_have_all = True if best is None or _is_sure(best, copies, dirs) else None
    found = [_standing(entry, best, in_sync, must_have_all) for entry in copies]
    found += [
        Standing(
            node=entry.node or entry.node_id,
            path=entry.path,
            state="of a newer raylog" if entry.is_of_newer else "unreadable",
            is_in_sync=must_have_all if entry.directory_id in in_sync else False,
            problem=entry.problem,
            asides=entry.asides,
            damaged_snapshots=entry.damaged_snapshots,
        )
        for entry in unread
    ]
    known = {entry.directory_id for entry in (*copies, *unread)}
    found += [
        Standing(node=node, path="", state="missed", is_in_sync=must_have_all)
        for directory, node in in_sync.items()
        if directory not in known
    ]
    return found


def _in_sync(copies: Sequence[SurveyedDir], unread: Sequence[SurveyedDir]) -> dict[str, str]:
    """The copies that must have every committed record: directory id -> node.

    ``copies``: the newest first. Where nobody has written it down, and only one copy is known, it
    is that one.
    """
    if not copies or copies[0].copy is None:
        return {}
    best = copies[0]
    if copies[0].copy.in_sync is not None:
        return dict(copies[0].copy.in_sync)
    if unread or len(copies) > 1 or best.directory_id is None:
        return {}
    return {best.directory_id: best.node or best.node_id}


def _is_sure(best: SurveyedDir, copies: Iterable[SurveyedDir], dirs: Sequence[SurveyedDir]) -> bool:
    """Whether the newest copy that was found is known to be the cluster's.

    It is not where another one has gone on apart: one of them may have been made anew from folders,
    without what others have committed. Nor is one that a command has just made or chosen.
    """
    is_apart = any(_state(entry, best) == APART for entry in copies)
    return not is_apart and not _is_outranked(best, dirs) and not _is_by_hand(best)


def _is_by_hand(entry: SurveyedDir) -> bool:
    """Whether ``raylog metadata restore`` or ``rebuild`` has begun an era with it, and no
    Controller has begun since."""
    assert entry.copy is not None
    return entry.copy.controller_epoch > 0 and entry.copy.controller_epoch % ERA_EPOCHS == 0


def _is_outranked(best: SurveyedDir, dirs: Sequence[SurveyedDir]) -> bool:
    """Whether a Controller may have begun after the newest copy that was found.

    Who was in sync in its time is not known then: that copy can be a backup.
    """
    assert best.copy is not None
    return least_epoch(dirs, best.copy.cluster_id) > best.copy.controller_epoch


def _standing(
    entry: SurveyedDir,
    best: SurveyedDir | None,
    in_sync: dict[str, str],
    must_have_all: bool | None,
) -> Standing:
    """``must_have_all``: whether those in sync have every committed record; None: nobody knows."""
    assert entry.copy is not None
    assert best is not None
    assert best.copy is not None
    is_in_sync: bool | None = entry.directory_id in in_sync
    state = _state(entry, best)
    if state == APART:
        is_in_sync = None  # in another history it may be
    elif is_in_sync:
        # A backup may have been put in the place of the copy.
        is_in_sync = None if is_older(entry, best) else must_have_all
    shared = entry.copy.common_end(best.copy)
    return Standing(
        node=entry.node or entry.node_id,
        path=entry.path,
        state=state,
        is_in_sync=is_in_sync,
        records=entry.copy.end,
        behind=best.copy.end - shared,
        epoch=entry.copy.controller_epoch,
        topics=entry.copy.topics,
        asides=entry.asides,
        damaged_snapshots=entry.damaged_snapshots,
    )


def _state(entry: SurveyedDir, best: SurveyedDir) -> str:
    assert entry.copy is not None
    assert best.copy is not None
    if entry.copy.is_same(best.copy):
        return "newest"
    if best.copy.begins_with(entry.copy):
        return "behind"
    if entry.copy.is_past_of(best.copy):
        return "outdated"
    return APART


def _copies(dirs: Iterable[SurveyedDir]) -> list[SurveyedDir]:
    return [entry for entry in dirs if entry.copy is not None and entry.copy.end > 0]


def _unread(dirs: Iterable[SurveyedDir]) -> list[SurveyedDir]:
    return [entry for entry in dirs if entry.has_metadata and entry.copy is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """The cluster goes on from this copy. ``epoch``: higher than every one that anybody has seen,
    and than those of a copy that nobody has seen: of the next era (``metadata_history.py``).

    ``lacks``: what may be missing in it, a sentence each; none where nothing can be. ``parted``:
    copies that have gone on apart, before anybody had written down who keeps copies: they are to be
    set aside.
    """

    source: SurveyedDir
    epoch: int
    lacks: tuple[str, ...]
    parted: tuple[SurveyedDir, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether the cluster would not go on from it by itself."""
        return bool(self.lacks or self.parted)


def restoration(dirs: Sequence[SurveyedDir], source: str) -> Restoration:
    """What it means to go on from the copy at ``source``: a node or a path, as of ``_named``.

    Raises InvalidRequest where it names no readable copy, or copies of several nodes;
    NewerMetadata; SeveralClusters.
    """
    check_not_newer(dirs)
    copies = _copies(dirs)
    check_one_cluster(copies)
    named = _named(dirs, source)
    chosen = max(_copies(named), key=age_of, default=None)
    if chosen is None or chosen.copy is None:
        why = f"names no readable copy of the metadata; there are: {_places(copies) or 'none'}"
        raise InvalidRequest("--from", source, why)
    meant = _copies(named) + _unread(named)
    if len({entry.node_id for entry in meant}) > 1:
        listed = _places(meant)
        why = f"means copies on several nodes; name the node by more of its id, of these: {listed}"
        raise InvalidRequest("--from", source, why)
    if chosen.directory_id is None:
        why = "lies in a log dir without meta.properties; write it with `raylog log-dirs identify`"
        raise InvalidRequest("--from", source, why)
    others = [entry for entry in copies if entry is not chosen]
    parted = [entry for entry in others if not _is_past(entry, chosen)]
    lacks = [_lacking(entry, chosen) for entry in others if _has_more(entry, chosen)]
    lacks += _missed(chosen, dirs)
    if not lacks and _is_outranked(chosen, dirs):
        lacks = ["what a later Controller has changed, which a log dir has obeyed"]
    return Restoration(
        source=chosen,
        epoch=next_era(max(_epochs(dirs), default=NO_EPOCH)),
        lacks=tuple(lacks),
        parted=tuple(parted),
    )


def _named(dirs: Sequence[SurveyedDir], source: str) -> list[SurveyedDir]:
    """The log dirs that a person means: those of a node, or at a path.

    ``source``: a path, a node's label, or a node's id, or at least ``SHORT_KEY_CHARS`` of it: fewer
    can be the label of a node whose copy is lost, and the beginning of another one's id.
    """
    exact = [entry for entry in dirs if source in (entry.node, entry.node_id, entry.path)]
    if exact or len(source) < SHORT_KEY_CHARS:
        return exact
    return [
        entry
        for entry in dirs
        if entry.node_id.startswith(source) or _begins_key(entry.node, source)
    ]


def _begins_key(key: str, source: str) -> bool:
    """Whether a node has no label, so that its key is an id, and that begins so."""
    return short_key(key) != key and key.startswith(source)


def _places(entries: Iterable[SurveyedDir]) -> str:
    """Where copies are, for people: ids are whole where their beginnings are the same."""
    places = [(entry.node or entry.node_id, entry.path) for entry in entries]
    alike = Counter(short_key(key) for key in {key for key, _ in places})
    names = {key: short_key(key) if alike[short_key(key)] == 1 else key for key, _ in places}
    return ", ".join(f"{names[key]}:{path}" for key, path in places)


def _is_past(entry: SurveyedDir, chosen: SurveyedDir) -> bool:
    """Whether a copy is no doubt when the chosen one has a higher epoch than all others."""
    assert entry.copy is not None
    assert chosen.copy is not None
    shared = entry.copy.common_end(chosen.copy)
    return shared == entry.copy.end or 0 <= chosen.copy.ruled_from < shared


def _has_more(entry: SurveyedDir, chosen: SurveyedDir) -> bool:
    assert entry.copy is not None
    assert chosen.copy is not None
    return not entry.copy.is_past_of(chosen.copy)


def _lacking(entry: SurveyedDir, chosen: SurveyedDir) -> str:
    assert entry.copy is not None
    assert chosen.copy is not None
    more = entry.copy.end - entry.copy.common_end(chosen.copy)
    return f"{entry} has {more} records that it lacks"


def _missed(chosen: SurveyedDir, dirs: Sequence[SurveyedDir]) -> list[str]:
    unread = _unread(dirs)
    try:
        check_complete(chosen, _copies(dirs), unread)
    except MetadataIncomplete as error:
        return [f"what only {error.missed} may have"]
    except MetadataInDoubt:
        return [f"what is only in {entry}: {entry.problem}" for entry in unread]
    return []


def _epochs(dirs: Iterable[SurveyedDir]) -> Iterable[int]:
    for entry in dirs:
        yield entry.obeyed_epoch
        yield entry.promised_epoch
        if entry.copy is not None:
            yield entry.copy.controller_epoch
