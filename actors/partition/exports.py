"""A partition's metrics: what its meters have counted, and its present state, for an exporter."""

from raylog.actors.messages import OpeningReport
from raylog.actors.metrics import Exporter
from raylog.actors.partition.meters import drain
from raylog.actors.partition.partition import Partition


def export_partition(partition: Partition, exporter: Exporter) -> None:
    """Export what has come since the last time, and the partition's present state."""
    meters = partition.meters
    appends, fetches = drain(meters.appends), drain(meters.fetches)
    written = [
        (size_bytes, records)
        for _, size_bytes, records, is_duplicate in appends
        if not is_duplicate
    ]
    exporter.add("raylog_bytes_in", sum(size_bytes for size_bytes, _ in written))
    exporter.add("raylog_records_in", sum(records for _, records in written))
    exporter.add("raylog_duplicates", len(appends) - len(written))
    exporter.add("raylog_bytes_out", sum(size_bytes for _, size_bytes in fetches))
    exporter.observe("raylog_append_seconds", (seconds for seconds, _, _, _ in appends))
    exporter.observe("raylog_fetch_seconds", (seconds for seconds, _ in fetches))
    exporter.observe("raylog_fsync_seconds", drain(meters.fsyncs))
    for name in drain(meters.failed_appends):
        exporter.add("raylog_append_errors", 1, error=name)
    for name in drain(meters.failed_fetches):
        exporter.add("raylog_fetch_errors", 1, error=name)
    for name, value in _present_state(partition).items():
        exporter.gauge(name, value)


def export_opening(report: OpeningReport, exporter: Exporter) -> None:
    """Export what opening the log did, and the files that it left aside."""
    for total in report.totals:
        exporter.gauge("raylog_mended_files", total.files, kind=total.kind)
        exporter.gauge("raylog_mended_bytes", total.size_bytes, kind=total.kind)
    exporter.gauge("raylog_asides", len(report.asides))
    undecided = [aside for aside in report.asides if not aside.is_unfinished]
    exporter.gauge("raylog_asides_to_decide", len(undecided))
    exporter.gauge("raylog_aside_bytes", sum(aside.size_bytes for aside in report.asides))


def _present_state(partition: Partition) -> dict[str, float]:
    log, offsets = partition.log, partition.offsets()
    retention_lag_s = 0.0 if partition.is_offline else log.retention_lag_ms() / 1000
    return {
        "raylog_in_flight_bytes": partition.in_flight_bytes,
        "raylog_parked_polls": partition.waiting,
        "raylog_log_size_bytes": log.size_bytes,
        "raylog_log_segments": len(log.segments),
        "raylog_log_start_offset": offsets.log_start_offset,
        "raylog_log_end_offset": offsets.log_end_offset,
        "raylog_unflushed_records": offsets.log_end_offset - offsets.recovery_point,
        "raylog_offline": float(partition.is_offline),
        "raylog_retention_lag_seconds": retention_lag_s,
    }
