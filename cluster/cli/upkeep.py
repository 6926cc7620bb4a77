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
    show(COMPACTION_COLUMNS, [_row(one) for one in found])


def _row(one: "CompactionStatus") -> tuple[object, ...]:
    last = one.last_round
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
    overdue = Seconds(one.overdue_ms / 1000) if one.overdue_ms else None
    return (
        one.partition,
        f"{one.dirty_ratio:.0%}",
        one.first_dirty_offset,
        one.bound,
        overdue,
        _state(one),
        *did,
    )


def _state(one: "CompactionStatus") -> str:
    if one.uncleanable is not None:
        return f"UNCLEANABLE: {one.uncleanable}"
    if one.is_running:
        return f"running, {Bytes(one.done_bytes).for_people()} done"
    return "waits" if one.problem is None else f"failed, tried again: {one.problem}"


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
            one.partition,
            Ago(one.when_ms),
            Seconds(one.seconds),
            one.segments,
            Bytes(one.size_bytes),
            one.total_segments,
            Bytes(one.total_bytes),
            one.problem,
        )
        for one in found
    ]
    show(RETENTION_COLUMNS, rows)
