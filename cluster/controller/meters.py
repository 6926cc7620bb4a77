"""The metrics of a Controller: what no node can tell, since it may be away. Pure."""

from collections import Counter

from raylog.actors.errors import OlderMetadata
from raylog.cluster.controller.describe import (
    BEING_CREATED,
    BEING_OPENED,
    Snapshot,
    missing_upkeep,
    problem_of,
)


def numbers(snapshot: Snapshot) -> dict[str, float]:
    """By the names of ``actors/metrics.py``."""
    partitions = _partitions(snapshot)
    failure = snapshot.failure
    is_older = isinstance(failure, OlderMetadata)
    nodes = snapshot.observed.values()
    return {
        "raylog_controller_epoch": snapshot.desired.controller_epoch,
        "raylog_partitions_away": partitions["away"],
        "raylog_partitions_opening": partitions["opening"],
        "raylog_nodes_silent": sum(seen.is_suspect(snapshot.now_ms) for seen in nodes),
        "raylog_nodes_without_upkeep": len(missing_upkeep(snapshot)),
        "raylog_log_dirs_suspect": _suspect_dirs(snapshot),
        "raylog_metadata_failed": float(failure is not None and not is_older),
        "raylog_metadata_older": float(is_older),
        "raylog_metadata_reserve_missing": float(snapshot.reserve_problem is not None),
    }


def _partitions(snapshot: Snapshot) -> Counter[str]:
    """How many of the topics' partitions are away, and how many are being opened."""
    found: Counter[str] = Counter()
    for record in snapshot.desired.partitions.values():
        if record.state == "removing":
            continue
        problem = problem_of(snapshot, record)
        if problem is None:
            continue
        found["opening" if problem in (BEING_CREATED, BEING_OPENED) else "away"] += 1
    return found


def _suspect_dirs(snapshot: Snapshot) -> int:
    """Log dirs that are online and take no orders: their disks may hang."""
    reports = [seen.report for seen in snapshot.observed.values() if seen.report is not None]
    dirs = [entry for report in reports for entry in report.dirs]
    return sum(entry.state == "online" and not entry.takes_orders for entry in dirs)
