"""A snapshot of the metadata in a log dir, for tests of where it lies."""

from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.snapshots import snapshot_of
from raylog.storage.files import FileSystem
from raylog.storage.testing.clock import ManualClock


def save_snapshot(fs: FileSystem, log_dir: str) -> None:
    """A snapshot of all records; the log begins where the one before ends."""
    log = MetadataLog(fs, ManualClock(), log_dir)
    log.save(snapshot_of(log.desired, log.history().point()))
    log.close()
