"""What is wrong with a broker, why, and what to do: a pure function from facts to findings.

``gathering.py`` collects the facts (``Facts``) with a time limit, so they are complete within
seconds even if an actor hangs. They also name the actors that did not answer. Partitions with the
same problem make one finding: a failed disk with a thousand partitions is one problem.
"""

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from raylog.actors.messages import AsideFile, LogDirStatus
from raylog.cluster.controller.describe import (
    BEING_CREATED,
    BEING_OPENED,
    CONFIG_OF,
    DAMAGED_SNAPSHOT,
    IS_STOPPED,
    LOOK_AGAIN,
    MANAGER_ENDS,
    MANAGER_LEARNS,
    MANAGER_STARTS,
    METADATA,
    METADATA_COPIES,
    METADATA_RESERVE,
    METADATA_SNAPSHOT,
    OLDER_METADATA,
    ONLINE_AGAIN,
    SEE_LOG_DIR,
    SILENT,
    UPKEEP_OF,
)
from raylog.cluster.controller.leaving_dirs import TAKEN_OFFLINE
from raylog.cluster.controller.reserve import RESERVE_BYTES
from raylog.cluster.controller.spread import short_key
from raylog.cluster.health.facts import ERROR, INFO, WARNING, Facts, Finding, named
from raylog.cluster.health.recovery import damaged, gaps, mended, recovering, set_aside
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.shell import command
from raylog.storage.state.checkpoints import (
    CLEANER_OFFSETS,
    CORRUPT_SUFFIX,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)

# The share of a disk that is free.
NEARLY_FULL, FULL = 0.1, 0.02
# Upkeep is late if it is this much overdue after so many missed rounds: a round may take long.
LATE_MS = 600_000
MISSED_ROUNDS = 2
# What to do about a partition that is away, where its error does not say more.
REPAIR = "repair the cause; the partition then opens by itself"
# By the damaged checkpoint file: the severity, what it means, and what to do.
DAMAGES = {
    RECOVERY_POINTS: (
        WARNING,
        "nothing is lost; the logs of this log dir are checked from their beginning",
        "Nothing needs to be restored.",
    ),
    HIGH_WATERMARKS: (WARNING, "nothing is lost", "Nothing needs to be restored."),
    LOG_START_OFFSETS: (
        ERROR,
        "its whole lines are used. In partitions whose line was damaged, records that "
        "`raylog topic trim` has removed can be readable again",
        "Compare the file with the log start offsets in `raylog status`, and run `raylog topic "
        "trim` again where one is too low.",
    ),
    CLEANER_OFFSETS: (
        WARNING,
        "its whole lines are used. Partitions whose line was damaged are compacted from their "
        "beginning, and recovery takes no gap in them for a loss until they are",
        "Nothing needs to be restored.",
    ),
}


# A node closes its logs in seconds.
CLOSING_PATIENCE_MS = 120_000


def findings(facts: Facts) -> list[Finding]:
    """All problems, errors first; empty if there is none."""
    rules = (
        _controller,
        _metadata,
        _nodes,
        _closing,
        _older_configs,
        _log_dirs,
        _topics,
        _partitions,
        recovering,
        set_aside,
        damaged,
        gaps,
        _upkeep,
        _slow_kernels,
    )
    found = [finding for rule in rules for finding in rule(facts)]
    return sorted(found, key=lambda finding: (finding.severity != ERROR, finding.subject))


def notes(facts: Facts) -> list[Finding]:
    """What is worth knowing, and no problem."""
    found = (
        *_operated(facts),
        *_taken_offline(facts),
        *mended(facts),
        *_shared_dirs(facts),
        *_one_copy(facts),
        *_unfinished_metadata(facts),
    )
    return sorted(found, key=lambda finding: finding.what)


def _one_copy(facts: Facts) -> Iterator[Finding]:
    """On a cluster of one node the metadata is on one disk, as everything is."""
    if len(facts.nodes) == 1:
        yield Finding(
            severity=INFO,
            subject="metadata",
            what=(
                "there is one copy of the cluster's metadata, since the cluster has one node: back "
                "it up with the log dirs"
            ),
            todo="nothing",
        )


def _operated(facts: Facts) -> Iterator[Finding]:
    """What an operator has ordered of a node, and what ends it."""
    for node in facts.node_list:
        name = short_key(node.node)
        if node.state in ("stopping", "stopped"):
            yield Finding(
                severity=INFO,
                subject=f"node {name}",
                what=(
                    f"it is {node.state}, as it was ordered. Its {node.wanted} partitions cannot "
                    "be used until it is started"
                ),
                todo=f"when its maintenance is over: `raylog node start {name}`",
            )
        elif node.state == "draining":
            yield Finding(
                severity=INFO,
                subject=f"node {name}",
                what="it gets no new partition, as it was ordered; what it has serves",
                todo=f"to end that: `raylog node drain --undo {name}`",
            )


def _shared_dirs(facts: Facts) -> Iterator[Finding]:
    """Log dirs that raylog found with the permissions that they have, and left so."""
    for log_dir in facts.log_dirs:
        if log_dir.is_private:
            continue
        yield Finding(
            severity=INFO,
            subject=f"log dir {log_dir.path} of node {facts.node_name(log_dir.node_id)}",
            what=(
                "other users of that machine have permissions on it, so they may be able to read "
                "records. What raylog makes in it is its own user's alone; what was there before "
                "may not be"
            ),
            todo=(
                f"`chmod 700 {shlex.quote(log_dir.path)}` on that machine, while the broker runs. "
                "If others shall have permissions on it: nothing"
            ),
        )


def _controller(facts: Facts) -> Iterator[Finding]:
    if facts.controller_problem is not None:
        yield Finding(
            severity=ERROR,
            subject="controller",
            what=(
                f"the Controller does not answer: {facts.controller_problem}. Partitions that "
                "serve continue to serve. No partition can be created, moved or reopened, and the "
                "state of partitions that are away is unknown"
            ),
            todo=(
                "wait: Ray restarts the Controller. If this finding stays, check that the node "
                "where the broker was started is up, and read the Controller's log "
                "(docs/OPERATIONS.md, Logs). If its process hangs there (`ps aux | grep "
                "ray::Controller`), end it (`kill -9 PID`): Ray starts it again, and no record is "
                "lost"
            ),
        )


def _metadata(facts: Facts) -> Iterator[Finding]:
    """What the Controller says of itself."""
    why = facts.problems.get(METADATA)
    if why is not None:
        yield Finding(
            severity=ERROR,
            subject="metadata",
            what=(
                f"a write of the cluster's metadata failed: {why}. Partitions that serve continue "
                "to serve. No topic can be created, changed or deleted"
            ),
            todo=(
                "wait: the Controller begins again by itself, at the latest after a minute, and "
                "reads the metadata back from the disk. If this finding stays or returns, repair "
                "the disk that has __cluster_metadata-0, or stop the broker and move that log dir "
                "to another disk"
            ),
        )
    shortage = facts.problems.get(METADATA_RESERVE)
    if shortage is not None:
        yield Finding(
            severity=ERROR,
            subject=METADATA_RESERVE,
            what=(
                "the reserve of room for the cluster's metadata is given up, or could not be made: "
                f"{shortage}. While its disk is full, no topic can be created or extended"
            ),
            todo=(
                "make room on this disk: remove files that are not raylog's, move partitions to "
                "another log dir (`raylog partition move`), delete topics (`raylog topic delete`), "
                "or lower retention.ms or retention.bytes of its largest "
                "topics (`raylog config set`). The Controller makes the reserve again within "
                f"seconds when {2 * RESERVE_BYTES >> 20} MB are free"
            ),
        )
    yield from _metadata_snapshots(facts)
    older = facts.problems.get(OLDER_METADATA)
    if older is not None:
        yield Finding(
            severity=ERROR,
            subject="metadata",
            what=(
                f"{older}. Partitions that serve continue to serve, and nothing is removed. No "
                "topic can be created, changed or deleted"
            ),
            todo=(
                "raylog stop; then put the newer metadata back and start the broker, or start it "
                "once with --older-metadata (docs/OPERATIONS.md, Backup)"
            ),
        )
    copies = facts.problems.get(METADATA_COPIES)
    if copies is not None:
        yield Finding(
            severity=WARNING,
            subject="metadata",
            what=(
                f"{copies}. If its disk is lost, all topics are: nobody knows any more which "
                "folders belong to which partition"
            ),
            todo=(
                "bring the nodes that are named here back, or repair the cause: a copy is made and "
                "brought up to date by itself"
            ),
        )
    for subject, problem in facts.problems.items():
        if not subject.startswith(UPKEEP_OF):
            continue
        yield Finding(
            severity=WARNING,
            subject=f"upkeep of node {facts.node_name(subject.removeprefix(UPKEEP_OF))}",
            what=f"{problem}. What it would compact or remove on this node stays",
            todo=(
                "wait: its LogManager starts them again. If this finding stays, read the "
                "LogManager's log (docs/OPERATIONS.md, Logs)"
            ),
        )


def _metadata_snapshots(facts: Facts) -> Iterator[Finding]:
    why = facts.problems.get(METADATA_SNAPSHOT)
    if why is not None:
        yield Finding(
            severity=WARNING,
            subject=METADATA_SNAPSHOT,
            what=(
                f"the last snapshot of the cluster's metadata was not made: {why}. Nothing is "
                "lost. The metadata log grows until one is made, and a start reads all of it"
            ),
            todo=("make room on this disk, or repair it. The Controller tries again each minute"),
        )
    damaged = facts.problems.get(DAMAGED_SNAPSHOT)
    if damaged is not None:
        yield Finding(
            severity=WARNING,
            subject=METADATA_SNAPSHOT,
            what=(
                f"a snapshot of the cluster's metadata is damaged: {damaged}. Nothing is lost: the "
                "Controller goes on from the one before it and the log, and makes another one"
            ),
            todo=(
                "check this disk (the kernel's log, smartctl), and replace it if it fails. Leave "
                "the files in __cluster_metadata-0 as they are: the damaged one is removed when "
                "two more snapshots are made"
            ),
        )


def _older_configs(facts: Facts) -> Iterator[Finding]:
    for subject, why in facts.problems.items():
        if not subject.startswith(CONFIG_OF):
            continue
        yield Finding(
            severity=WARNING,
            subject=f"node {facts.node_name(subject.removeprefix(CONFIG_OF))}",
            what=f"it obeys an older config of the broker: {why}",
            todo=(
                "wait: nodes are replaced one after the other. If this finding stays, repair what "
                "it waits for; or run `raylog node stop` and `raylog node start` for this node, "
                "which also gives it the present config"
            ),
        )


def _closing(facts: Facts) -> Iterator[Finding]:
    """Nodes that close their logs, and take long for it."""
    for node in facts.node_list:
        if node.closing_ms > CLOSING_PATIENCE_MS:
            yield Finding(
                severity=WARNING,
                subject=f"node {short_key(node.node)}",
                what=(
                    f"it was ordered to stop, and has been closing its logs for "
                    f"{node.closing_ms // 1000} s: a LogActor may hang"
                ),
                todo=(
                    "check whether its disks hang (dmesg on that machine), or wait: what is not "
                    "closed after 9 minutes is ended, and recovered at the next start"
                ),
            )


def _nodes(facts: Facts) -> Iterator[Finding]:
    stopped = facts.stopped_nodes()
    for node_id, problem in facts.nodes.items():
        if problem is None or IS_STOPPED in problem:
            continue
        if SILENT in problem:
            yield Finding(
                severity=ERROR,
                subject=f"node {facts.node_name(node_id)}",
                what=(
                    f"{problem}. Its partitions continue to serve. It gets no new partitions, and "
                    "retention and compaction stand still on it"
                ),
                todo=(
                    "wait if the node is under load. If this finding stays, check whether its "
                    "disks hang (dmesg on that machine), and read its LogManager's log"
                ),
            )
        elif problem == MANAGER_ENDS:
            yield Finding(
                severity=WARNING,
                subject=f"node {facts.node_name(node_id)}",
                what=f"{problem}. Its partitions cannot be used until then",
                todo="wait; `raylog node list` says for what",
            )
        elif problem in (MANAGER_STARTS, MANAGER_LEARNS):
            yield Finding(
                severity=WARNING,
                subject=f"node {facts.node_name(node_id)}",
                what=f"{problem}. Partitions that it serves continue to serve",
                todo="wait: this takes seconds. If this finding stays, read its LogManager's log",
            )
        else:
            yield Finding(
                severity=WARNING,
                subject=f"node {facts.node_name(node_id)}",
                what=f"the node takes no part in the broker: {problem}",
                todo=_take_part(problem),
            )
    for node_id, why in facts.silent_nodes.items():
        if any(node.node == node_id for node in stopped):
            continue
        yield Finding(
            severity=ERROR,
            subject=f"node {facts.node_name(node_id)}",
            what=(
                f"its LogManager does not answer: {why}. Its partitions continue to serve, but no "
                "partition is opened, no checkpoint is written, and retention and compaction stand "
                "still"
            ),
            todo=(
                "wait: Ray restarts a LogManager that died. If this finding stays, check whether "
                "its disks hang (dmesg on that machine), and read its log"
            ),
        )


def _take_part(problem: str) -> str:
    """How a node takes part: as its error says, if it says so."""
    if "; " in problem and "`raylog health`" not in problem:
        return "do what it says; the broker checks the node again by itself"
    return (
        "mount its disks, or set RAYLOG_LOG_DIRS to its log dirs before its `ray start`; the "
        "broker checks the node again by itself. A node without log dirs needs nothing"
    )


def _used_again(log_dir: LogDirStatus) -> str:
    """How a log dir that is offline is used again."""
    return (
        ONLINE_AGAIN.format(directory_id=log_dir.directory_id)
        if log_dir.directory_id
        else LOOK_AGAIN.format(path=shlex.quote(log_dir.path))
    )


def _log_dir_todo(log_dir: LogDirStatus) -> str:
    return log_dir.todo or _used_again(log_dir)


def _suspect_dir(log_dir: LogDirStatus, subject: str) -> Finding:
    return Finding(
        severity=WARNING,
        subject=subject,
        what=(
            f"suspect: {log_dir.problem}. What is ordered of its partitions waits, and it gets no "
            "new ones; other log dirs serve"
        ),
        todo=(
            "wait: it goes on by itself as soon as its disk answers. If this finding stays, check "
            "whether the disk hangs or is full (dmesg and df on that machine)"
        ),
    )


def _is_taken_offline(problem: str | None) -> bool:
    """Whether an operator has taken a log dir out of use: nothing is wrong with it."""
    return problem is not None and TAKEN_OFFLINE in problem


def _taken_offline(facts: Facts) -> Iterator[Finding]:
    """The log dirs that an operator has taken out of use, and what ends it."""
    for log_dir in facts.log_dirs:
        if _is_taken_offline(log_dir.problem):
            yield Finding(
                severity=INFO,
                subject=f"log dir {log_dir.path} of node {facts.node_name(log_dir.node_id)}",
                what=f"offline: {log_dir.problem}. Its partitions cannot be used until it is back",
                todo=_log_dir_todo(log_dir),
            )


def _log_dirs(facts: Facts) -> Iterator[Finding]:
    for log_dir in facts.log_dirs:
        if _is_taken_offline(log_dir.problem):
            continue
        subject = f"log dir {log_dir.path} of node {facts.node_name(log_dir.node_id)}"
        if not log_dir.is_online:
            yield Finding(
                severity=ERROR,
                subject=subject,
                what=(
                    f"offline: {log_dir.problem}. Its partitions cannot be used; other log dirs "
                    "serve"
                ),
                todo=_log_dir_todo(log_dir),
            )
        elif log_dir.usable_bytes < NEARLY_FULL * log_dir.total_bytes:
            is_full = log_dir.usable_bytes < FULL * log_dir.total_bytes
            yield Finding(
                severity=ERROR if is_full else WARNING,
                subject=subject,
                what=f"{log_dir.usable_bytes / log_dir.total_bytes:.1%} of its disk is free"
                + (": appends fail, or will fail soon" if is_full else ""),
                todo=_MAKE_ROOM,
            )
        if log_dir.is_online and log_dir.problem is not None:
            yield _suspect_dir(log_dir, subject)
        if log_dir.loaded + _refused_in(log_dir, facts) < log_dir.to_load:
            yield Finding(
                severity=WARNING,
                subject=subject,
                what=f"it has opened {log_dir.loaded} of {log_dir.to_load} partitions",
                todo="wait: logs that were not closed in order are read and checked first",
            )
        for name in log_dir.damaged_files:
            yield _damaged_file(log_dir, name, subject)
        if log_dir.strays:
            yield _strays(log_dir, subject)
        asides = [aside for aside in log_dir.metadata_asides if not aside.is_unfinished]
        if asides:
            yield _metadata_asides(log_dir, asides, subject)


def _refused_in(log_dir: LogDirStatus, facts: Facts) -> int:
    """How many partitions of a log dir are not opened, since their topic's config does not let."""
    return sum(
        partition.directory_id == log_dir.directory_id and partition.node_id is None
        for topic in facts.topics
        if topic.problem is not None
        for partition in topic.partitions
    )


_MAKE_ROOM = (
    "move partitions to another log dir (`raylog partition move`), or lower retention.ms or "
    "retention.bytes of its largest topics (`raylog config set`), which deletes their oldest "
    "records"
)


def _damaged_file(log_dir: LogDirStatus, name: str, subject: str) -> Finding:
    path = f"{log_dir.path}/{name}{CORRUPT_SUFFIX}"
    severity, means, todo = DAMAGES[name]
    return Finding(
        severity=severity,
        subject=subject,
        what=f"{name} was damaged, and is kept as {path}: {means}",
        todo=f"{todo} Check the disk (dmesg on that machine). Then remove {path}",
    )


def _strays(log_dir: LogDirStatus, subject: str) -> Finding:
    return Finding(
        severity=WARNING,
        subject=subject,
        what=(
            f"folders that belong to no partition of the broker: {named(log_dir.strays)}. They "
            "were set aside, or are copies that `raylog log repair` made; they take room, and "
            "nobody reads or removes them"
        ),
        todo=(
            "if a partition lacks its records, `raylog topic adopt` takes its folder in again "
            "(docs/OPERATIONS.md, Folders that were set aside). Only if nobody needs the records "
            "any more, remove the folder"
        ),
    )


def _metadata_asides(log_dir: LogDirStatus, asides: Sequence[AsideFile], subject: str) -> Finding:
    folder = os.path.join(log_dir.path, str(METADATA_PARTITION))
    sizes = [f"{aside.name} ({aside.size_bytes} bytes)" for aside in asides]
    return Finding(
        severity=WARNING,
        subject=subject,
        what=(
            "bytes that may be a change of the cluster were taken out of __cluster_metadata-0, and "
            f"are kept there: {named(sizes)}"
        ),
        todo=(
            "find out which change it was, and make it again if it is missing "
            "(docs/OPERATIONS.md, Damaged metadata). Check the disk (dmesg on that machine). Then "
            f"stop the broker, and remove each file: `{command('log', 'aside', 'drop', folder)} "
            f"{asides[0].name}`"
        ),
    )


def _unfinished_metadata(facts: Facts) -> Iterator[Finding]:
    """Writes of the metadata that a crash interrupted: nobody was told of them."""
    for log_dir in facts.log_dirs:
        asides = [aside for aside in log_dir.metadata_asides if aside.is_unfinished]
        if asides:
            size_bytes = sum(aside.size_bytes for aside in asides)
            yield Finding(
                severity=INFO,
                subject=f"log dir {log_dir.path} of node {facts.node_name(log_dir.node_id)}",
                what=(
                    f"{len(asides)} files with the beginning of a write of the metadata, "
                    f"{size_bytes} bytes, are kept in __cluster_metadata-0; a crash interrupted "
                    "it, and it was not acknowledged"
                ),
                todo=(
                    "nothing. If you want to remove them: `raylog log aside drop` while the "
                    "broker is stopped"
                ),
            )


def _topics(facts: Facts) -> Iterator[Finding]:
    for topic in facts.topics:
        if topic.problem is not None:
            yield Finding(
                severity=ERROR,
                subject=f"topic {topic.name}",
                what=(
                    f"{topic.problem}. No partition of it is opened, and clients are refused. One "
                    "that serves already does so with the config of before. Nothing is removed or "
                    "compacted"
                ),
                todo=f"{topic.todo}. Its partitions open then by themselves",
            )


def _partitions(facts: Facts) -> Iterator[Finding]:
    of_topics = {topic.problem for topic in facts.topics}  # the topics' findings name them
    away = {
        name: described
        for name, described in facts.described()
        if described.problem is not None and described.problem not in of_topics
    }
    stopped = {
        name
        for name in away
        if IS_STOPPED in (away[name].problem or "") or _is_taken_offline(away[name].problem)
    }
    recovering = {entry.partition for entry in facts.recovering}
    opening = [
        name
        for name, described in away.items()
        if described.problem in (BEING_OPENED, BEING_CREATED) and name not in recovering
    ]
    if opening:
        yield Finding(
            severity=WARNING,
            subject=named(opening),
            what=BEING_OPENED,
            todo="wait: a log that was not closed in order is read and checked first",
        )
    # Of these the advice is in a finding of their own.
    dirs = {
        _log_dir_todo(log_dir): SEE_LOG_DIR.replace("this log dir", f"log dir {log_dir.path}")
        for log_dir in facts.log_dirs
        if not log_dir.is_online
    }
    reasons = {
        name: (described.problem or "", dirs.get(described.todo or "", described.todo or REPAIR))
        for name, described in away.items()
        if described.problem not in (BEING_OPENED, BEING_CREATED) and name not in stopped
    }
    for (reason, todo), names in _grouped(reasons):
        yield Finding(
            severity=ERROR,
            subject=named(names),
            what=f"away: {reason}",
            todo=f"{todo}. Until then clients wait, and fail when their timeouts end",
        )
    silent = {one.partition: one for one in facts.without_answer()}
    places = {name: (one.why, one.node or "") for name, one in silent.items()}
    for (reason, node), names in _grouped(places):
        yield Finding(
            severity=ERROR,
            subject=named(names),
            what=f"no answer: {reason}{_processes(node, [silent[name].pid for name in names])}",
            todo=(
                "wait: Ray restarts a process that died within seconds, and the process recovers "
                "its log first. If this finding stays, check whether the disk hangs (dmesg on that "
                "machine), and read the broker's logs"
            ),
        )
    offline = sorted(
        status.partition
        for status in facts.partitions
        if status.is_offline and status.partition not in stopped
    )
    if offline:
        yield Finding(
            severity=ERROR,
            subject=named(offline),
            what="offline: a write or an fsync on its disk failed, and raylog does not retry that",
            todo=(
                "wait: its LogManager opens it again, which recovers its log. Where the disk has "
                "failed, its log dir goes offline within seconds, and health says of that what to "
                "do. If this finding stays alone, read the LogManager's log"
            ),
        )


def _processes(node: str, pids: Sequence[int | None]) -> str:
    """Where the processes are that do not answer; empty where nobody knows.

    ``pids``: in the order of their partitions.
    """
    if not node:
        return ""
    if all(pid is None for pid in pids):
        return f" (node {node})"
    return f" (node {node}, pid {named('not known' if pid is None else str(pid) for pid in pids)})"


def _grouped(
    reasons: Mapping[str, tuple[str, ...]],
) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Each reason with its partitions.

    Reasons that differ only in the partition's name are one reason.
    """
    shared = Counter(reasons.values())
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, reason in reasons.items():
        # A reason of several may name one of them, as an example of what is in a log dir.
        is_own = shared[reason] == 1
        groups[tuple(text.replace(name, "\0") if is_own else text for text in reason)].append(name)
    for reason, names in groups.items():
        yield tuple(text.replace("\0", names[0]) for text in reason), names


def _upkeep(facts: Facts) -> Iterator[Finding]:
    for name, why in facts.silent_upkeep.items():
        kind, _, node_id = name.partition(":")
        yield Finding(
            severity=WARNING,
            subject=f"{kind.lower()} of node {facts.node_name(node_id)}",
            what=f"its actor does not answer: {why}. Old segments stay until it works again",
            todo="wait: Ray restarts the actor. If this finding stays, read the broker's logs",
        )
    for compaction in facts.compaction:
        if compaction.uncleanable is not None:
            yield Finding(
                severity=WARNING,
                subject=compaction.partition,
                what=f"it cannot be compacted and keeps growing: {compaction.uncleanable}",
                todo=(
                    "repair the cause, then run `raylog stop` and `raylog start`; compaction then "
                    "tries again"
                ),
            )
        elif compaction.problem is not None:
            yield Finding(
                severity=WARNING,
                subject=compaction.partition,
                what=f"its last compaction failed: {compaction.problem}",
                todo="wait: compaction retries by itself; see `raylog compaction`",
            )
        elif compaction.overdue_ms > LATE_MS:
            yield Finding(
                severity=WARNING,
                subject=compaction.partition,
                what=(
                    "its compaction exceeds max.compaction.lag.ms by "
                    f"{compaction.overdue_ms // 60_000} minutes"
                ),
                todo=(
                    "raise log.cleaner.threads or log.cleaner.io.max.bytes.per.second; see `raylog "
                    "compaction`"
                ),
            )
    for retention in facts.retention:
        if retention.problem is not None:
            yield Finding(
                severity=WARNING,
                subject=retention.partition,
                what=f"its last round of retention failed: {retention.problem}",
                todo=("wait: retention retries by itself. If this finding stays, repair the cause"),
            )
    yield from _late_retention(facts)


def _late_retention(facts: Facts) -> Iterator[Finding]:
    allowed_ms = MISSED_ROUNDS * facts.retention_interval_ms + LATE_MS
    late = [
        retention
        for retention in facts.retention
        if 0 < retention.when_ms < facts.now_ms - allowed_ms
    ]
    if late and facts.retention_interval_ms:
        minutes = (facts.now_ms - min(retention.when_ms for retention in late)) // 60_000
        yield Finding(
            severity=WARNING,
            subject=named(retention.partition for retention in late),
            what=(
                f"retention has not run for up to {minutes} minutes "
                f"(log.retention.check.interval.ms={facts.retention_interval_ms}): old segments "
                "stay and fill the disk"
            ),
            todo="check whether a disk hangs (dmesg on that machine), and read the broker's logs",
        )


def _slow_kernels(facts: Facts) -> Iterator[Finding]:
    slow = sorted(status.partition for status in facts.partitions if status.kernel != "compiled")
    if slow:
        yield Finding(
            severity=WARNING,
            subject=named(slow),
            what="it runs without the compiled kernel, about 30 times slower",
            todo=(
                "install a C compiler on its node and install raylog again, or unset "
                "RAYLOG_PURE_PYTHON; then run `raylog stop` and `raylog start`"
            ),
        )
