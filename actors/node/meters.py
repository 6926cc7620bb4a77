"""The metrics of a node's log dirs."""

from collections.abc import Iterable

from raylog.actors.messages import LogDirStatus
from raylog.actors.metrics import Exporter


def export_dirs(
    exporter: Exporter, dirs: Iterable[LogDirStatus], partitions: int, offline: int
) -> None:
    """What a LogManager knows: its log dirs, how many partitions it serves, and how many are
    offline with a dir."""
    known = list(dirs)
    exporter.gauge("raylog_partitions", partitions)
    exporter.gauge("raylog_partitions_offline", offline)
    exporter.gauge(
        "raylog_partitions_to_load", sum(max(one.to_load - one.loaded, 0) for one in known)
    )
    exporter.gauge("raylog_log_dirs_offline", sum(not one.is_online for one in known))
    for one in known:
        if one.is_online:
            exporter.gauge("raylog_log_dir_usable_bytes", one.usable_bytes, log_dir=one.path)
            exporter.gauge("raylog_log_dir_size_bytes", one.size_bytes, log_dir=one.path)
