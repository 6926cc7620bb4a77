"""A log dir on the real disk with one partition, served without Ray as a broker serves it."""

from pathlib import Path

from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.testing.logs import TOPIC_ID, batch_of_size

PARTITION = TopicPartition("flights", 0)
CLUSTER_ID = "a cluster"
FS = RealFileSystem()
BATCH_BYTES = 100


def start(path: Path) -> LogDir:
    """Lock the log dir; it is made if it does not exist."""
    return LogDir(FS, str(path), CLUSTER_ID, 1)


def make(log_dir: LogDir) -> Log:
    """Make the partition, and open it."""
    create_log(FS, log_dir.folder(PARTITION), TOPIC_ID)
    return open_partition(log_dir)


def open_partition(log_dir: LogDir, segment_bytes: int = 10 * BATCH_BYTES) -> Log:
    """Open the partition with the offsets that the checkpoints have, as a LogActor does."""
    offsets = log_dir.offsets().get(PARTITION, CheckpointedOffsets(0, 0, 0))
    return open_log(
        FS,
        SystemClock(),
        log_dir.folder(PARTITION),
        PARTITION,
        LogConfig(segment_bytes=segment_bytes, index_interval_bytes=200),
        topic_id=TOPIC_ID,
        is_clean=log_dir.was_clean,
        recovery_point=offsets.recovery_point,
        log_start_offset=offsets.log_start_offset,
    )


def append(log: Log, count: int) -> None:
    """Append batches of one record."""
    for _ in range(count):
        log.append(batch_of_size(BATCH_BYTES))


def checkpoint(log_dir: LogDir, log: Log) -> None:
    """Flush the log, and write the checkpoints."""
    log.flush()
    offsets = CheckpointedOffsets(log.recovery_point, log.log_start_offset, log.high_watermark)
    log_dir.write_offsets({PARTITION: offsets})


def stop(log_dir: LogDir, log: Log) -> None:
    """Stop in order."""
    log.close()
    checkpoint(log_dir, log)
    log_dir.close(clean=True)
