"""What recovery does now, and what it has done, as findings: progress, asides, losses, repairs."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from raylog.actors.messages import AsideFile, MendedTotal, OpeningReport, PartitionStatus
from raylog.cluster.health.facts import INFO, WARNING, Facts, Finding
from raylog.cluster.naming import NAMED_AT_MOST, named
from raylog.storage.report import Kind, Mended, Progress
from raylog.storage.shell import command

_UNITS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
# What is no problem: the kind -> what it is, and whether anything was lost.
_HARMLESS: dict[Kind, str] = {
    "cut": "at a log's end were cut off; they were zero, and no batch",
    "rebuilt": "of indexes or other files were made again from the log; nothing is missing",
    "removed": "of leftovers were removed; they held no record of their own",
}

# What is said in the place of an entry's reason, which is about the place of the cut alone.
_REASONS: dict[Kind, str] = {"cut": "it begins with bytes that are no good batch"}


def recovering(facts: Facts) -> Iterator[Finding]:
    """How far the recoveries have come that take long."""
    serving = {status.partition for status in facts.partitions}
    for entry in facts.recovering:
        if entry.partition not in serving:
            yield Finding(
                severity=WARNING,
                subject=entry.partition,
                what=f"recovering: {in_words(entry.progress)}",
                todo="wait: a log that was not closed in order is read and checked first",
            )


def in_words(progress: Progress) -> str:
    """``3.2 of 10.0 GB, segment 4 of 12``."""
    size, unit = next(
        ((size, unit) for size, unit in _UNITS if progress.bytes_total >= size), (1, "bytes")
    )
    done, total = progress.bytes_done / size, progress.bytes_total / size
    digits = 0 if size == 1 else 1
    segment = min(progress.segments_done + 1, progress.segments_total)
    return f"{done:.{digits}f} of {total:.{digits}f} {unit}, segment {segment} of " + str(
        progress.segments_total
    )


def set_aside(facts: Facts) -> Iterator[Finding]:
    """The records that recovery took out of logs, until somebody restores or drops them.

    Losses that somebody has accepted are told until the partition is opened again.
    """
    for status in facts.partitions:
        asides = [aside for aside in status.report.asides if not aside.is_unfinished]
        if asides:
            yield _asides(status, asides)
        losses = [entry for entry in status.report.records if entry.kind == "lost"]
        if losses:
            yield Finding(
                severity=WARNING,
                subject=status.partition,
                what="records that were on the disk are lost, and the loss was accepted: "
                + "; ".join(_range(loss) for loss in losses),
                todo=(
                    "nothing. If they were at the log's end, new records get these offsets, and "
                    "consumers that were past the end get OffsetOutOfRange; else consumers skip "
                    "them. This line ends when the partition is opened without a loss"
                ),
            )


def damaged(facts: Facts) -> Iterator[Finding]:
    """Segments that could not be read to their end when a log was opened."""
    for status in facts.partitions:
        entries = [entry for entry in status.report.records if entry.kind == "damaged"]
        if entries:
            yield Finding(
                severity=WARNING,
                subject=status.partition,
                what="flushed records cannot be read: "
                + "; ".join(f"{entry.file}: {entry.why}" for entry in entries),
                todo=(
                    "stop the broker, restore the file from a copy, and start the broker. Until "
                    "then readers get CORRUPT_MESSAGE there, and can continue behind it. A batch "
                    "that a producer sends again may be written twice if it was there before"
                ),
            )


def gaps(facts: Facts) -> Iterator[Finding]:
    """Offsets that are missing, and nobody knows why, when a log was opened after a crash."""
    for status in facts.partitions:
        entries = [entry for entry in status.report.records if entry.kind == "gap"]
        if entries:
            yield Finding(
                severity=WARNING,
                subject=status.partition,
                what="offsets are missing where nothing was compacted: "
                + "; ".join(f"{_range(entry)} ({entry.file}: {entry.why})" for entry in entries),
                todo=(
                    "compare with a copy, if there is one, and restore the file while the broker "
                    "is stopped. A file that somebody renamed: stop the broker, and take "
                    "`.deleted` off the names of the segment's files. If the topic was compacted "
                    "before, or its producers miss nothing: nothing. Consumers skip these offsets"
                ),
            )


def _asides(status: PartitionStatus, asides: Sequence[AsideFile]) -> Finding:
    by_name = {entry.kept_as: entry for entry in status.report.records}
    told = [_aside(aside, by_name.get(aside.name)) for aside in asides[:NAMED_AT_MOST]]
    left = len(asides) - len(told)
    missing = [aside for aside in asides if not aside.is_in_log]
    listing = _aside_command("list", status.folder)
    if missing:
        what = "recovery took bytes out of the log that may hold records, and kept them: "
        restoring = _aside_command("restore", status.folder, missing[0].name)
        todo = (
            f"{listing} shows which records they hold. Then stop the broker, and put them back "
            f"with {restoring}. Only if nobody needs them any more, remove them for good with "
            + _aside_command("drop", status.folder, missing[0].name)
        )
    else:
        what = "files that recovery took out of the log are still kept: "
        todo = (
            f"{listing} shows what they hold. If nobody needs their other bytes, stop the broker, "
            "and remove them with " + _aside_command("drop", status.folder, asides[0].name)
        )
    return Finding(
        severity=WARNING,
        subject=status.partition,
        what=what + "; ".join(told) + (f"; and {left} more" if left else ""),
        todo=todo,
    )


def _aside_command(*arguments: str) -> str:
    return f"`{command('log', 'aside', *arguments)}`"


def _aside(aside: AsideFile, entry: Mended | None) -> str:
    """One file that was set aside; ``entry``: what the last opening said of it, if it made it."""
    if aside.is_in_log:
        return f"{aside.name} ({aside.size_bytes} bytes; its good batches are in the log again)"
    offsets = "" if aside.end_offset < 0 else ", " + _range(aside)
    why = "" if entry is None else f": {_REASONS.get(entry.kind, entry.why)}"
    return f"{aside.name} ({aside.size_bytes} bytes{offsets}){why}"


def _range(entry: AsideFile | Mended) -> str:
    return f"offsets {entry.first_offset} to {entry.end_offset - 1}"


def mended(facts: Facts) -> Iterator[Finding]:
    """What the present processes mended when they opened their logs, and lost no record by."""
    partitions: dict[Kind, list[str]] = defaultdict(list)
    files: dict[Kind, int] = defaultdict(int)
    sizes: dict[Kind, int] = defaultdict(int)
    for status in facts.partitions:
        for total in _harmless(status.report):
            partitions[total.kind].append(status.partition)
            files[total.kind] += total.files
            sizes[total.kind] += total.size_bytes
    for kind, names in partitions.items():
        yield Finding(
            severity=INFO,
            subject=named(names),
            what=f"{kind} when the log was opened: {files[kind]} files, {sizes[kind]} bytes "
            + _HARMLESS[kind],
            todo="nothing",
        )
    yield from _unfinished(facts)


def _unfinished(facts: Facts) -> Iterator[Finding]:
    """Writes that a crash interrupted: kept, but no record that anybody was told is written."""
    files = {
        status.partition: [aside for aside in status.report.asides if aside.is_unfinished]
        for status in facts.partitions
    }
    names = [partition for partition, asides in files.items() if asides]
    if names:
        asides = [aside for partition in names for aside in files[partition]]
        yield Finding(
            severity=INFO,
            subject=named(names),
            what=(
                f"{len(asides)} files with the beginning of a batch, "
                f"{sum(aside.size_bytes for aside in asides)} bytes, were kept when a write that "
                "a crash interrupted was cut off; they hold no whole batch"
            ),
            todo=(
                "nothing. If you want to remove them: `raylog log aside drop` while the broker is "
                "stopped"
            ),
        )


def _harmless(report: OpeningReport) -> Iterator[MendedTotal]:
    """The totals of what holds no record."""
    kept = [entry for entry in report.records if entry.kind == "cut"]
    for total in report.totals:
        if total.kind == "cut":
            rest_bytes = total.size_bytes - sum(entry.size_bytes for entry in kept)
            total = total._replace(files=total.files - len(kept), size_bytes=rest_bytes)
        if total.kind in _HARMLESS and total.files > 0:
            yield total
