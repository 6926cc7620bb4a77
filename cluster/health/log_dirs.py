"""What is wrong with log dirs, and what an operator has ordered of them, as findings."""

import shlex
from collections.abc import Iterator

from raylog.actors.messages import LogDirStatus
from raylog.cluster.controller.describe import (
    LOOK_AGAIN,
    ONLINE_AGAIN,
    USED_AGAIN,
)
from raylog.cluster.health.facts import ERROR, INFO, WARNING, Facts, Finding
from raylog.cluster.health.metadata import metadata_asides
from raylog.cluster.naming import named
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.state.checkpoints import (
    CLEANER_OFFSETS,
    CORRUPT_SUFFIX,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)

# The share of a disk that is free.
NEARLY_FULL, FULL = 0.1, 0.02
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
_MAKE_ROOM = (
    "move partitions to another log dir (`raylog partition move`), or lower retention.ms or "
    "retention.bytes of its largest topics (`raylog config set`), which deletes their oldest "
    "records"
)


def shared_dirs(facts: Facts) -> Iterator[Finding]:
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


def used_again(log_dir: LogDirStatus) -> str:
    """How a log dir that is offline is used again."""
    if log_dir.is_taken_offline:
        return USED_AGAIN.format(argument=log_dir.directory_id)
    return (
        ONLINE_AGAIN.format(argument=log_dir.directory_id)
        if log_dir.directory_id
        else LOOK_AGAIN.format(path=shlex.quote(log_dir.path))
    )


def log_dir_todo(log_dir: LogDirStatus) -> str:
    return log_dir.todo or used_again(log_dir)


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


def taken_offline(facts: Facts) -> Iterator[Finding]:
    """The log dirs that an operator has taken out of use, and what ends it."""
    for log_dir in facts.log_dirs:
        if log_dir.is_taken_offline:
            yield Finding(
                severity=INFO,
                subject=f"log dir {log_dir.path} of node {facts.node_name(log_dir.node_id)}",
                what=f"offline: {log_dir.problem}. Its partitions cannot be used until it is back",
                todo=log_dir_todo(log_dir),
            )


def log_dirs(facts: Facts) -> Iterator[Finding]:
    for log_dir in facts.log_dirs:
        if log_dir.is_taken_offline:
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
                todo=log_dir_todo(log_dir),
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
        if log_dir.loaded < log_dir.to_load:
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
            yield metadata_asides(log_dir, asides, subject)


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
    copies = [name for name in log_dir.strays if name.startswith(f"{METADATA_PARTITION}.")]
    of_metadata = (
        f" A folder {METADATA_PARTITION}... is an old copy of the metadata, which nothing takes in "
        "again: remove it once the cluster has all of its topics."
        if copies
        else ""
    )
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
            "any more, remove the folder." + of_metadata
        ),
    )
