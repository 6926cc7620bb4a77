"""Prints the result of a run."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tests.soak.checker import KINDS, check_history
from tests.soak.facts import OUTCOMES, History, gather
from tests.soak.findings import Finding
from tests.soak.history import ABORT, COMMIT, INFO, NEVER, OK, read
from tests.soak.obeying import silences

if TYPE_CHECKING:
    from tests.soak.run import Outcome

MB = 1 << 20


def report(folder: Path, outcome: "Outcome | None") -> int:
    """Check the history and print it all; 1 if anything was found. ``outcome`` is None for an old
    history."""
    console = Console(highlight=False, width=120)
    history = gather(read(folder))
    findings = check_history(history)
    problems = outcome.problems if outcome else []
    console.print(_operations(history))
    console.print(_administration(history))
    console.print(_faults(history, outcome))
    console.print(_findings(Counter(dict.fromkeys(KINDS, 0)), findings))
    for line in (_transactions(history), *_longest(history), *_starts(history)):
        console.print(line)
    if outcome:
        peaks = ", ".join(
            f"{kind} {size / MB:.0f} MB" for kind, size in sorted(outcome.peak_bytes.items())
        )
        console.print(f"peak memory (private): {peaks}")
        console.print(
            f"waited {len(outcome.healed_s)} times until all partitions served, for at most "
            f"{max(outcome.healed_s, default=0):.1f} s"
        )
        if outcome.restarted_s:
            console.print(
                f"the broker ran again after {len(outcome.restarted_s)} losses of the head, within "
                f"{max(outcome.restarted_s):.1f} s"
            )
    for finding in findings:
        console.print(f"FOUND {finding}", markup=False)
    for surprise in history.surprises:
        console.print(f"SURPRISE {surprise.process}: {surprise.what}", markup=False)
    for problem in problems:
        console.print(f"PROBLEM {problem}", markup=False)
    is_well = not (findings or problems or history.surprises)
    console.print("no problem was found" if is_well else f"see {folder}")
    return 0 if is_well else 1


def _operations(history: History) -> Table:
    table = Table(
        "records",
        "ok",
        "refused",
        "unknown",
        "reads",
        title="operations by topic",
        title_justify="left",
    )
    by_topic: dict[str, Counter[str]] = {}
    for facts in history.partitions.values():
        name = facts.partition.topic
        counts = by_topic.setdefault("churn-*" if name.startswith("churn-") else name, Counter())
        for outcome, code in OUTCOMES.items():
            counts[outcome] += int((facts.sent.outcome == code).sum())
        counts["reads"] += sum(len(poll.offsets) for poll in facts.polls)
    total: Counter[str] = Counter()
    for name, counts in sorted(by_topic.items()):
        total.update(counts)
        table.add_row(name, *(f"{counts[column]:,}" for column in ("ok", "fail", "info", "reads")))
    table.add_row("all", *(f"{total[column]:,}" for column in ("ok", "fail", "info", "reads")))
    changes = Counter(change.change for change in history.topics if change.outcome == OK)
    table.caption = f"topics created {changes['create']}, deleted {changes['delete']}"
    return table


def _administration(history: History) -> Table:
    """What an operator did besides, and what was asked of the cluster."""
    table = Table("operation", "ok", "unknown", title="operator", title_justify="left")
    counts: Counter[tuple[str, str]] = Counter()
    for setting in history.settings:
        counts[setting.what.rstrip("0123456789 "), setting.outcome] += 1
    for order in history.orders:
        counts[f"node {order.order}", order.outcome] += 1
    partitions = history.partitions.values()
    for facts in partitions:
        for deletion in facts.deletions:
            counts["records deleted", deletion.outcome] += 1
    for what in sorted({what for what, _ in counts}):
        table.add_row(what, str(counts[what, OK]), str(counts[what, INFO]))
    asked = sum(len(facts.end_offsets) for facts in partitions)
    table.caption = f"producer ids {len(history.producer_ids)}, ends asked for {asked}"
    return table


def _faults(history: History, outcome: "Outcome | None") -> Table:
    table = Table("fault", "injected", "no target", title="faults", title_justify="left")
    struck = Counter(fault.kind for fault in history.faults)
    missed = outcome.missed if outcome else {}
    for kind in sorted({*struck, *missed}):
        table.add_row(kind, str(struck[kind]), str(missed.get(kind, 0)))
    return table


def _findings(counts: Counter[str], findings: list[Finding]) -> Table:
    for finding in findings:
        counts[finding.kind] += finding.records
    table = Table("finding", "records", title="checker", title_justify="left")
    for kind, count in counts.items():
        table.add_row(kind, str(count))
    return table


def _transactions(history: History) -> str:
    ended = Counter((one.decision, one.outcome) for one in history.transactions.values())
    open_count = ended.total() - ended[COMMIT, OK] - ended[ABORT, OK]
    return (
        f"transactions: {ended[COMMIT, OK]} committed, {ended[ABORT, OK]} aborted, {open_count} "
        "whose writer was killed, or fenced"
    )


def _longest(history: History) -> Iterator[str]:
    """The longest that a partition let a producer wait: its time without an answer, at least."""
    waits: dict[str, tuple[float, str]] = {}
    for facts in history.partitions.values():
        if facts.bounds is None:
            continue  # a topic that was deleted, perhaps while records were on their way
        took = [
            (send.completed - send.invoked, send.producer)
            for send in facts.sends
            if send.completed != NEVER
        ]
        longest, producer = max(took, default=(0, ""))
        waits[str(facts.partition)] = (longest / 1e9, producer)
    worst = sorted(waits.items(), key=lambda item: -item[1][0])[:3]
    told = ", ".join(f"{name} {seconds:.1f} s" for name, (seconds, _) in worst)
    yield f"availability: longest times until a send was answered: {told}"


def _starts(history: History) -> Iterator[str]:
    """How long partitions were silent behind the starts of their nodes."""
    found = list(silences(history))
    if found:
        starts = len({start.completed for start, _, _ in found})
        longest = max(silent_s or 0.0 for _, _, silent_s in found)
        yield f"{starts} starts of stopped nodes: partitions silent for at most {longest:.1f} s"
