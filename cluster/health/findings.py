"""What is wrong with a broker, why, and what to do: a pure function from facts to findings.

``gathering.py`` collects the facts (``Facts``) with a time limit, so they are complete within
seconds even if an actor hangs. They also name the actors that did not answer. Partitions with the
same problem make one finding: a failed disk with a thousand partitions is one problem. Rules for
log dirs, for the metadata and for what recovery did are in modules of their own.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set

from raylog.actors.messages import ActorProcess
from raylog.actors.runtime.names import CONTROLLER
from raylog.cluster.controller.describe import (
    BEING_CREATED,
    BEING_OPENED,
    BROKER_STOPS,
    CONFIG_OF,
    IS_STOPPED,
    MANAGER_ENDS,
    MANAGER_LEARNS,
    MANAGER_STARTS,
    SEE_LOG_DIR,
    SILENT,
    UPKEEP_OF,
    PartitionDescription,
)
from raylog.cluster.controller.spread import short_key
from raylog.cluster.health.facts import ERROR, INFO, WARNING, Facts, Finding
from raylog.cluster.health.log_dirs import (
    log_dir_todo,
    log_dirs,
    shared_dirs,
    taken_offline,
)
from raylog.cluster.health.metadata import metadata, one_copy, unfinished_metadata
from raylog.cluster.health.recovery import damaged, gaps, mended, recovering, set_aside
from raylog.cluster.naming import named

# Upkeep is late if it is this much overdue after so many missed rounds: a round may take long.
LATE_MS = 600_000
MISSED_ROUNDS = 2
# What to do about a partition that is away, where its error does not say more.
REPAIR = "repair the cause; the partition then opens by itself"
# A node closes its logs in seconds.
CLOSING_PATIENCE_MS = 120_000


def findings(facts: Facts) -> list[Finding]:
    """All problems, errors first; empty if there is none.

    Of a broker that is being stopped there is one: what has ended already is no problem.
    """
    if BROKER_STOPS in (facts.controller_problem or ""):
        return [
            Finding(
                severity=ERROR,
                subject="broker",
                what="it is being stopped, and not all of it has ended",
                todo="if no `raylog stop` runs, run it again: it stops the rest",
            )
        ]
    rules = (
        _controller,
        metadata,
        _missing_upkeep,
        _nodes,
        _closing,
        _older_configs,
        log_dirs,
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
        *taken_offline(facts),
        *mended(facts),
        *shared_dirs(facts),
        *one_copy(facts),
        *unfinished_metadata(facts),
    )
    return sorted(found, key=lambda finding: finding.what)


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


def _controller(facts: Facts) -> Iterator[Finding]:
    if facts.controller_problem is not None:
        process = facts.hanging_process(CONTROLLER)
        yield Finding(
            severity=ERROR,
            subject="controller",
            what=(
                f"the Controller does not answer: {facts.controller_problem}"
                f"{_process(facts, process)}. Partitions that "
                "serve continue to serve. No partition can be created, moved or reopened, and the "
                "state of partitions that are away is unknown"
            ),
            todo=_controller_todo(process),
        )


def _controller_todo(process: ActorProcess | None) -> str:
    """``process``: that of a Controller which answers nothing."""
    if process is None:
        return (
            "wait: Ray restarts the Controller. If this finding stays, check that the node where "
            "the broker was started is up, and read the Controller's log (docs/OPERATIONS.md, Logs)"
        )
    return (
        "wait: it may only be slow. If `raylog health` still names this process after a minute, "
        f"end it on its node (`kill -9 {process.pid}`): Ray starts the Controller again, and "
        "nothing is lost. Its log (docs/OPERATIONS.md, Logs) may say why it hangs"
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
                    f"{problem}{_process(facts, facts.hanging_manager(node_id))}. "
                    f"{_who_answers(facts, node_id)}. It gets no new partitions, and retention and "
                    "compaction stand still on it"
                ),
                todo=_manager_todo(facts.hanging_manager(node_id)),
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
        if any(node.node == node_id for node in facts.gone_nodes()):
            yield Finding(
                severity=ERROR,
                subject=f"node {facts.node_name(node_id)}",
                what=(
                    "it is not in the Ray cluster any more, and Ray tells of its actors yet. Its "
                    "partitions cannot be used"
                ),
                todo=(
                    "start its Ray again (`ray start`): raylog starts there by itself. If the "
                    "machine is lost for good, see docs/OPERATIONS.md, A partition that is lost"
                ),
            )
            continue
        yield Finding(
            severity=ERROR,
            subject=f"node {facts.node_name(node_id)}",
            what=(
                "its LogManager does not answer: "
                f"{why}{_process(facts, facts.hanging_manager(node_id))}. "
                f"{_who_answers(facts, node_id)}. No partition is opened there, no checkpoint is "
                "written, and retention and compaction stand still"
            ),
            todo=_manager_todo(facts.hanging_manager(node_id)),
        )


def _who_answers(facts: Facts, node_id: str) -> str:
    """Which partitions answer on a node whose LogManager is silent: the node may be dead."""
    answers = facts.answers_on(node_id)
    silent = [name for name, is_answered in answers.items() if not is_answered]
    if not answers:
        return "Nobody tells which of its partitions serve: the node may be dead"
    if not silent:
        return "All of its partitions answer, and continue to serve"
    if len(silent) == len(answers):
        return "None of its partitions answers: the node may be dead"
    return (
        f"{len(answers) - len(silent)} of its {len(answers)} partitions answer, and continue to "
        f"serve; no answer from {named(silent)}"
    )


def _manager_todo(process: ActorProcess | None) -> str:
    """``process``: that of a LogManager which answers nothing.

    One that waits for a disk would wait again: the next one would leave that disk's log dir out,
    and end the LogActors there.
    """
    todo = (
        "wait: Ray restarts a LogManager that died, and under load one is slow. If this finding "
        "stays, check whether the machine and its Ray run (start its node again if not), and "
        "whether its disks hang (dmesg on that machine), and read its log"
    )
    if process is None:
        return todo
    return (
        f"{todo}. Only if no disk hangs there, and `raylog health` still names this process after "
        f"a minute: end it on that machine (`kill -9 {process.pid}`). Ray starts the LogManager "
        "again, and nothing is lost"
    )


def _take_part(problem: str) -> str:
    """How a node takes part: as its error says, if it says so."""
    if "; " in problem and "`raylog health`" not in problem:
        return "do what it says; the broker checks the node again by itself"
    return (
        "mount its disks, or set RAYLOG_LOG_DIRS to its log dirs before its `ray start`; the "
        "broker checks the node again by itself. A node without log dirs needs nothing"
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
    out_of_use = {dir.directory_id for dir in facts.log_dirs if dir.is_taken_offline}
    stopped = {
        name
        for name in away
        if IS_STOPPED in (away[name].problem or "") or away[name].directory_id in out_of_use
    }
    yield from _opening(facts, away)
    yield from _away(facts, {name: away[name] for name in away if name not in stopped})
    yield from _without_answer(facts)
    yield from _offline(facts, stopped)


def _opening(facts: Facts, away: Mapping[str, PartitionDescription]) -> Iterator[Finding]:
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


def _away(facts: Facts, away: Mapping[str, PartitionDescription]) -> Iterator[Finding]:
    # Of these the advice is in a finding of their own.
    dirs = {
        log_dir_todo(log_dir): SEE_LOG_DIR.replace("this log dir", f"log dir {log_dir.path}")
        for log_dir in facts.log_dirs
        if not log_dir.is_online
    }
    reasons = {
        name: (described.problem or "", dirs.get(described.todo or "", described.todo or REPAIR))
        for name, described in away.items()
        if described.problem not in (BEING_OPENED, BEING_CREATED)
    }
    for (reason, todo), names in _grouped(reasons):
        yield Finding(
            severity=ERROR,
            subject=named(names),
            what=f"away: {reason}",
            todo=f"{todo}. Until then clients wait, and fail when their timeouts end",
        )


def _without_answer(facts: Facts) -> Iterator[Finding]:
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


def _offline(facts: Facts, stopped: Set[str]) -> Iterator[Finding]:
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


def _process(facts: Facts, process: ActorProcess | None) -> str:
    """Where a process is that does not answer; empty where nobody knows."""
    return "" if process is None else _processes(facts.node_name(process.node_id), [process.pid])


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
    gone = {node.node for node in facts.gone_nodes()}
    for name, why in facts.silent_upkeep.items():
        kind, _, node_id = name.partition(":")
        if node_id in gone:
            continue
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


def _missing_upkeep(facts: Facts) -> Iterator[Finding]:
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
