"""The metrics of a node's log dirs."""

from collections.abc import Iterable

from raylog.actors.messages import LogDirStatus
from raylog.actors.metrics import Exporter


def export_dirs(
    exporter: Exporter, dirs: Iterable[LogDirStatus], partitions: int, offline: int
) -> None:
    """Export what a LogManager knows of its log dirs and partitions.

    ``partitions``: how many it serves. ``offline``: how many went offline with their dir.
    """
    to_load, dirs_offline = 0, 0
    for dir in dirs:
        to_load += max(dir.to_load - dir.loaded, 0)
        if not dir.is_online:
            dirs_offline += 1
            continue
        exporter.gauge("raylog_log_dir_usable_bytes", dir.usable_bytes, log_dir=dir.path)
        exporter.gauge("raylog_log_dir_size_bytes", dir.size_bytes, log_dir=dir.path)
        if dir.total_bytes:  # it has been measured
            exporter.gauge("raylog_log_dir_total_bytes", dir.total_bytes, log_dir=dir.path)
    exporter.gauge("raylog_partitions", partitions)
    exporter.gauge("raylog_partitions_offline", offline)
    exporter.gauge("raylog_partitions_to_load", to_load)
    exporter.gauge("raylog_log_dirs_offline", dirs_offline)
