"""``raylog status``: the broker on one screen."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Address,
    Bytes,
    Format,
    Namespace,
    Output,
    connected,
    note_silent,
    note_stopped,
    show,
    show_json,
    tell,
)
from raylog.storage.errors import RaylogError
from raylog.storage.names import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from raylog.actors.messages import LogDirStatus, PartitionStatus
    from raylog.cluster.broker import Broker
    from raylog.cluster.health.facts import AwayPartition, Facts, SilentPartition

COLUMNS = (
    "partition",
    "log start",
    "log end",
    "flushed to",
    "bytes",
    "segments",
    "epoch",
    "pid",
    "folder",
)
GROUPS_TIMEOUT_S = 3.0
NOBODY = "nobody listens yet"
# What only a LogActor knows of its partition.
_OFFSETS_TO_EPOCH = (None,) * 6


def status(
    output: Format = TABLE, address: Address = None, namespace: Namespace = NAMESPACE
) -> None:
    """Show the broker and its partitions, also those that do not serve, and why.

    Problems go to standard error; `raylog health` explains them. The command answers within seconds
    even if actors hang.
    """
    from raylog.cluster.health.findings import findings
    from raylog.cluster.health.gathering import gather_facts

    broker = connected(address, namespace)
    facts = gather_facts(namespace, tell=note_silent)
    partitions = sorted(facts.partitions, key=_by_topic_and_number)
    if output is Output.json:
        show_json(_document(broker, facts, partitions))
        return
    if sys.stdout.isatty():
        for name, value in _overview(broker, facts):
            typer.echo(f"{typer.style(f'{name:<12}', bold=True)}{value}")
        typer.echo()
    rows = [_row(partition) for partition in partitions]
    rows += [_silent_row(partition) for partition in facts.without_answer()]
    rows += [_away_row(partition) for partition in facts.away()]
    show(COLUMNS, sorted(rows, key=_by_topic_and_number))
    note_stopped(facts.node_list)
    tell(findings(facts))


def _overview(broker: "Broker", facts: "Facts") -> list[tuple[str, str]]:
    """The lines above the table."""
    from raylog.cluster.controller.node_states import servers_told
    from raylog.cluster.health.recovery import in_words

    described = list(facts.described())
    online = [log_dir for log_dir in facts.log_dirs if log_dir.is_online]
    loading = sum(log_dir.to_load - log_dir.loaded for log_dir in online)
    well = sum(problem is None for problem in facts.nodes.values())
    return [
        ("cluster", f"{facts.cluster_id or 'not known'}, namespace {broker.namespace}"),
        ("Ray", broker.address),
        *(
            ("Kafka", servers)
            for servers in servers_told(facts.node_list) or ["nobody listens yet"]
        ),
        ("nodes", f"{well} of {len(facts.nodes)} take part"),
        ("log dirs", f"{len(online)} of {len(facts.log_dirs)} online{_least_room(online)}"),
        ("topics", str(len(facts.topics))),
        *(("groups", groups) for groups in _groups_in_words(broker, facts)),
        (
            "partitions",
            f"{_serving(facts)} of {len(described)} serve"
            + (f", {loading} yet to open" if loading else ""),
        ),
        *(
            ("recovering", f"{entry.partition}: {in_words(entry.progress)}")
            for entry in facts.recovering
        ),
        (
            "records",
            Bytes(sum(partition.size_bytes for partition in facts.partitions)).for_people(),
        ),
    ]


def _groups(broker: "Broker", facts: "Facts") -> list[dict[str, object]] | None:
    """Each group and how far it is behind; None where its coordinator does not answer."""
    from raylog.cluster.client.groups import Groups

    if CONSUMER_OFFSETS not in {topic.name for topic in facts.topics}:
        return []
    ends = {each.partition: each.offsets.log_end_offset for each in facts.partitions}
    groups = Groups(broker.client_connection(), timeout_s=GROUPS_TIMEOUT_S)
    try:
        return [
            {
                "group": one.group,
                "state": one.state,
                "lag": sum(
                    max(ends[str(each)] - at.offset, 0)
                    for each, at in groups.committed(one.group).items()
                    if str(each) in ends
                ),
            }
            for one in groups.list_groups()
        ]
    except RaylogError:
        return None


def _groups_in_words(broker: "Broker", facts: "Facts") -> list[str]:
    """A line, or none where there is no group."""
    groups = _groups(broker, facts)
    if groups is None:
        return ["their coordinator does not answer"]
    if not groups:
        return []
    lag = sum(int(str(one["lag"])) for one in groups)
    return [f"{len(groups)}, together {lag} offsets behind"]


def _least_room(log_dirs: "list[LogDirStatus]") -> str:
    """The free space of the fullest disk."""
    if not log_dirs:
        return ""
    fullest = min(log_dirs, key=lambda log_dir: log_dir.usable_bytes / max(log_dir.total_bytes, 1))
    free = Bytes(fullest.usable_bytes).for_people()
    return (
        f", {free} ({fullest.usable_bytes / max(fullest.total_bytes, 1):.0%}) free on the fullest "
        "disk"
    )


def _serving(facts: "Facts") -> int:
    online = {partition.partition for partition in facts.partitions if not partition.is_offline}
    return sum(name in online for name, _ in facts.described())


def _document(
    broker: "Broker", facts: "Facts", partitions: "list[PartitionStatus]"
) -> dict[str, object]:
    from raylog.cluster.controller.node_states import bootstrap_servers, servers_by_listener
    from raylog.cluster.health.findings import findings

    return {
        "cluster_id": facts.cluster_id,
        "namespace": broker.namespace,
        "ray_address": broker.address,
        "bootstrap_servers": bootstrap_servers(facts.node_list),
        "listeners": servers_by_listener(facts.node_list),
        "nodes": [
            {"node_id": node_id, "problem": problem} for node_id, problem in facts.nodes.items()
        ],
        "log_dirs": facts.log_dirs,
        "topics": len(facts.topics),
        "groups": _groups(broker, facts),
        "partitions_serving": _serving(facts),
        "partitions_wanted": len(list(facts.described())),
        "recovering": facts.recovering,
        "partitions": partitions,
        "silent_partitions": sorted(facts.without_answer(), key=_by_topic_and_number),
        "away_partitions": sorted(facts.away(), key=_by_topic_and_number),
        "findings": findings(facts),
    }


def _by_topic_and_number(row: Sequence[object]) -> tuple[str, int]:
    """The place of a row that begins with the partition's name."""
    topic, _, number = str(row[0]).rpartition("-")
    return topic, int(number)


def _row(partition: "PartitionStatus") -> tuple[object, ...]:
    return (
        partition.partition,
        partition.offsets.log_start_offset,
        partition.offsets.log_end_offset,
        partition.offsets.recovery_point,
        Bytes(partition.size_bytes),
        partition.segments,
        partition.leader_epoch,
        partition.pid,
        partition.folder + (" OFFLINE" if partition.is_offline else ""),
    )


def _silent_row(silent: "SilentPartition") -> tuple[object, ...]:
    """What is known of a partition without its LogActor."""
    folder = f"{silent.folder} " if silent.folder else ""
    return (silent.partition, *_OFFSETS_TO_EPOCH, silent.pid, f"{folder}DOES NOT ANSWER")


def _away_row(away: "AwayPartition") -> tuple[object, ...]:
    """The place of a partition that does not serve, and why."""
    folder = f"{away.folder} " if away.folder else ""
    return (away.partition, *_OFFSETS_TO_EPOCH, None, f"{folder}AWAY: {away.why}")
