"""What an operator did must be so when all is over. Pure.

========  ==========================================================================================
vanished  a topic that was created and not deleted is gone, or is another one
undead    a topic that was deleted is there
undone    a topic's config, a partition's log dir or the number of partitions is not what was set
outdated  a node's copy of the metadata lacks what that of another node has, though all were in
          sync when the broker stopped
reissued  a producer id was given twice: to askers, or to producers whose batches lie on the disks
========  ==========================================================================================

**What may be set at the end.** The value of every request that was not over when the last
acknowledged one began, and of every request of unknown fate, however old: it may be done late.
Where none was acknowledged, any value. A restore of the metadata may undo what was acknowledged
between the copy and its own end. Producer ids may not be given again even then.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.soak.facts import History
from tests.soak.findings import Finding
from tests.soak.history import FAIL, INFO, OK, MetadataAtEnd, Setting, TopicChange


def topics(history: History) -> Iterator[Finding]:
    """``vanished`` and ``undead``."""
    changes = [
        change._replace(outcome=INFO) if history.may_be_undone(change) else change
        for change in history.topics
    ]
    begun = {
        change.topic_id
        for change in changes
        if change.change == "delete" and change.outcome != FAIL
    }
    deleted = {change.topic_id for change in changes if is_done(change, "delete")}
    for change in changes:
        if not change.topic_id or not is_done(change, "create"):
            continue
        alive = history.alive.get(change.topic)
        there = None if alive is None else alive.topic_id
        if change.topic_id in deleted and there == change.topic_id:
            yield Finding("undead", change.topic, 1, f"{change.topic_id} was deleted")
        if change.topic_id not in begun and there != change.topic_id:
            yield Finding(
                "vanished", change.topic, 1, f"{change.topic_id} was created; there is {there}"
            )


def is_done(change: TopicChange, kind: str) -> bool:
    return change.change == kind and change.outcome == OK


def undone(history: History) -> Iterator[Finding]:
    requests: dict[tuple[str, str], list[Setting]] = defaultdict(list)
    for setting in history.settings:
        requests[setting.topic_id, setting.what].append(setting)
    for found in history.settings_at_end:
        allowed = _allowed(history, requests[found.topic_id, found.what])
        if allowed is not None and found.value not in allowed:
            what = f"{found.what} is {found.value!r}, not {' or '.join(sorted(allowed))}"
            yield Finding("undone", found.topic, 1, what)


def _allowed(history: History, requests: list[Setting]) -> set[str] | None:
    """The values that may be there after these requests; None for any."""
    acknowledged = [one for one in requests if one.outcome == OK]
    lasting = [one for one in acknowledged if not history.may_be_undone(one)]
    if not lasting:
        return None
    last_began = max(one.invoked for one in lasting)
    unknown = {one.value for one in requests if one.outcome == INFO}
    return unknown | {one.value for one in acknowledged if one.completed >= last_began}


def outdated(history: History) -> Iterator[Finding]:
    """A node may have several copies, of which the newest counts."""
    newest: dict[str, MetadataAtEnd] = {}
    for copy in sorted(history.metadata_at_end, key=_age):
        newest[copy.node] = copy
    best = max(newest.values(), key=_age, default=None)
    for node, copy in newest.items():
        if best is not None and copy[1:] != best[1:]:
            what = f"{_described(copy)}; that of node {best.node} has {_described(best)}"
            yield Finding("outdated", f"metadata of node {node}", 1, what)


def _age(copy: MetadataAtEnd) -> tuple[int, int]:
    return copy.epoch, copy.end


def _described(copy: MetadataAtEnd) -> str:
    return f"{copy.end} records, epoch {copy.epoch}, digest {copy.digest}"


def reissued(history: History) -> Iterator[Finding]:
    """Among those who asked for one, and the producers whose batches lie on the disks."""
    holders: dict[int, list[str]] = defaultdict(list)
    for given in history.producer_ids:
        holders[given.producer_id].append(_producer(given.asker))
    used = {
        (producer_id, _producer(name))
        for facts in history.partitions.values()
        for producer_id, name in facts.holders()
    }
    for producer_id, name in sorted(used):
        if name not in holders[producer_id]:
            holders[producer_id].append(name)
    for producer_id, names in holders.items():
        if len(names) > 1:
            told = ", ".join(names)
            yield Finding("reissued", f"producer id {producer_id}", len(names), f"to {told}")


def _producer(name: str) -> str:
    """Without what tells its batches apart."""
    return ".".join(name.split(".")[:2])
