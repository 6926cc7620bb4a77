"""``raylog compaction`` and ``raylog retention``: what they did, what runs, what is due."""

from typing import TYPE_CHECKING

from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Address,
    Ago,
    Bytes,
    Format,
    Namespace,
    Output,
    Seconds,
    connected,
    show,
    show_json,
)

if TYPE_CHECKING:
    from raylog.actors.messages import CompactionStatus

COMPACTION_COLUMNS = (
    "partition",
    "dirty",
    "from",
    "to",
    "overdue",
    "state",
    "last round",
    "took",
    "before",
    "after",
    "records dropped",
)
RETENTION_COLUMNS = (
    "partition",
    "last round",
    "took",
    "segments",
    "bytes",
    "all segments",
    "all bytes",
    "problem",
)


def compaction(
    output: Format = TABLE, address: Address = None, namespace: Namespace = NAMESPACE
) -> None:
    """Show the compacted partitions.

    For each partition: its dirty ratio, what is due or running, and the result of the last round.
    """
    found = connected(address, namespace).compaction()
    if output is Output.json:
        show_json({"compaction": found})
        return
    show(COMPACTION_COLUMNS, [_row(status) for status in found])


def _row(status: "CompactionStatus") -> tuple[object, ...]:
    last = status.last_round
    did = (
        (None,) * 5
        if last is None
        else (
            Ago(last.when_ms),
            Seconds(last.seconds),
            Bytes(last.bytes_before),
            Bytes(last.bytes_after),
            last.records_dropped,
        )
    )
    overdue = Seconds(status.overdue_ms / 1000) if status.overdue_ms else None
    return (
        status.partition,
        f"{status.dirty_ratio:.0%}",
        status.first_dirty_offset,
        status.bound,
        overdue,
        _state(status),
        *did,
    )


def _state(status: "CompactionStatus") -> str:
    if status.uncleanable is not None:
        return f"UNCLEANABLE: {status.uncleanable}"
    if status.is_running:
        return f"running, {Bytes(status.done_bytes).for_people()} done"
    return "waits" if status.problem is None else f"failed, tried again: {status.problem}"


def retention(
    output: Format = TABLE, address: Address = None, namespace: Namespace = NAMESPACE
) -> None:
    """Show what retention deleted.

    For each partition: in its last round, and since the actor of its node started.
    """
    found = connected(address, namespace).retention()
    if output is Output.json:
        show_json({"retention": found})
        return
    rows = [
        (
            status.partition,
            Ago(status.when_ms),
            Seconds(status.seconds),
            status.segments,
            Bytes(status.size_bytes),
            status.total_segments,
            Bytes(status.total_bytes),
            status.problem,
        )
        for status in found
    ]
    show(RETENTION_COLUMNS, rows)
