"""What is wrong with the metadata, its copies and its snapshots, as findings."""

import os
from collections.abc import Iterator, Sequence

from raylog.actors.messages import AsideFile, LogDirStatus
from raylog.actors.metadata_snapshot import DAMAGED_TODO
from raylog.cluster.controller.describe import (
    DAMAGED_SNAPSHOT,
    FAILED_COPIES,
    METADATA,
    METADATA_COPIES,
    METADATA_RESERVE,
    METADATA_SNAPSHOT,
    OLDER_METADATA,
)
from raylog.cluster.controller.reserve import RESERVE_BYTES
from raylog.cluster.health.facts import ERROR, INFO, WARNING, Facts, Finding
from raylog.cluster.naming import named
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.shell import command


def one_copy(facts: Facts) -> Iterator[Finding]:
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


def metadata(facts: Facts) -> Iterator[Finding]:
    """What the Controller says of its log."""
    for rule in (_failed_write, _reserve, _snapshots, _older, _copies, _failed_copies):
        yield from rule(facts)


def _failed_write(facts: Facts) -> Iterator[Finding]:
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


def _reserve(facts: Facts) -> Iterator[Finding]:
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


def _older(facts: Facts) -> Iterator[Finding]:
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


def _copies(facts: Facts) -> Iterator[Finding]:
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


def _failed_copies(facts: Facts) -> Iterator[Finding]:
    failed = facts.problems.get(FAILED_COPIES)
    if failed is not None:
        yield Finding(
            severity=WARNING,
            subject="metadata",
            what=(
                f"a node's copy of the cluster's metadata is not in sync: {failed}. The cluster "
                "goes on without it, and one disk less may fail"
            ),
            todo=(
                "repair the cause: the copy is brought up to date by itself. If it is damaged, or "
                "has gone on apart, stop that node (`raylog node stop`), move its folder "
                "__cluster_metadata-0 away, keep it, and start the node (`raylog node start`): it "
                "makes another copy"
            ),
        )


def _snapshots(facts: Facts) -> Iterator[Finding]:
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
            todo=DAMAGED_TODO,
        )


def metadata_asides(log_dir: LogDirStatus, asides: Sequence[AsideFile], subject: str) -> Finding:
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


def unfinished_metadata(facts: Facts) -> Iterator[Finding]:
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
