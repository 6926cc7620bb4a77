"""A snapshot of the metadata of a cluster of the first level, for tests of where it lies."""

from raylog.actors.metadata_history import HistoryPoint
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.snapshots import snapshot_of
from raylog.storage.files import FileSystem
from raylog.storage.testing.clock import ManualClock


def save_snapshot(fs: FileSystem, log_dir: str) -> None:
    """A snapshot of all records; the log begins where the one before ends."""
    log = MetadataLog(fs, ManualClock(), log_dir)
    history = log.history()
    point = HistoryPoint(
        cluster_id=history.cluster_id,
        end=history.end,
        digest=history.digest_at(history.end),
        epochs=history.epochs,
        ruled_from=history.ruled_from,
        copies_at=history.copies_at,
    )
    log.save(snapshot_of(log.desired, point))
    log.close()
