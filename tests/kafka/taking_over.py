"""raylog on the log dir of a Kafka that is down: its lock, its checkpoints, its partitions, in
raylog's own code.

Nothing here knows Kafka: :class:`TakenOver` is what a LogManager does with a log dir, for as long
as a test needs.
"""

import shutil
from pathlib import Path
from typing import Any

from raylog.storage.clock import SystemClock
from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import open_log
from raylog.storage.log import Log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.readable import COMMITTED, LOG_END
from raylog.storage.records.batch import BatchHeader, iter_batches
from raylog.storage.records.decode import decode_records
from raylog.storage.state.properties import MetaProperties, read_topic_id, write_topic_id
from tests.kafka.written import CREATE_TIME, LOG_APPEND_TIME, Seen, Written


class TakenOver:
    """A log dir that raylog holds the lock of."""

    def __init__(self, path: Path, meta: MetaProperties) -> None:
        self._fs, self._clock = RealFileSystem(), SystemClock()
        self._dir = LogDir(self._fs, str(path), meta.cluster_id, meta.node_id)
        self._offsets = self._dir.offsets()
        self._logs: dict[TopicPartition, Log] = {}
        self.path, self.was_clean = path, self._dir.was_clean

    def open(self, topic: str, **config: Any) -> Log:
        """Open partition 0 of a topic as it lies there, and begin a leader epoch, as a LogActor
        does."""
        partition = TopicPartition(topic, 0)
        known = self._offsets.get(partition, CheckpointedOffsets(0, 0, 0))
        folder = self._dir.folder(partition)
        log = open_log(
            self._fs,
            self._clock,
            folder,
            partition,
            LogConfig(**config),
            topic_id=read_topic_id(self._fs, folder),
            is_clean=self.was_clean,
            recovery_point=known.recovery_point,
            log_start_offset=known.log_start_offset,
        )
        log.epochs.assign(log.epochs.latest + 1, log.log_end_offset)
        self._logs[partition] = log
        return log

    def replace(self, topic: str, written: Written) -> None:
        """Put a log that was written elsewhere in the place of Kafka's folder, under the id that
        Kafka knows."""
        partition = TopicPartition(topic, 0)
        folder = self._dir.folder(partition)
        topic_id = read_topic_id(self._fs, folder)
        assert topic_id is not None
        shutil.rmtree(folder)
        shutil.copytree(written.folder, folder)
        write_topic_id(self._fs, folder, topic_id)
        end = written.log_end_offset
        self._offsets[partition] = CheckpointedOffsets(end, written.log_start_offset, end)

    def close(self, *closed: Log) -> None:
        """An orderly stop: Kafka will trust what it finds. ``closed``: logs that are so already."""
        for partition, log in self._logs.items():
            if log not in closed:
                log.close()
            self._offsets[partition] = CheckpointedOffsets(
                log.recovery_point, log.log_start_offset, log.high_watermark
            )
        self._dir.write_offsets(self._offsets)
        self._dir.close(clean=True)

    def crash(self) -> None:
        """As after kill -9: what was written is there, but no log was closed and no checkpoint
        written."""
        self._dir.close(clean=False)


def records_of(log: Log) -> list[Seen]:
    """All records of a log, by reads that follow each other."""
    return _read(log, is_committed=False)


def committed_of(log: Log) -> list[Seen]:
    """What a reader of committed records sees: it skips aborted transactions as Kafka's consumers
    do."""
    return _read(log, is_committed=True)


def _read(log: Log, *, is_committed: bool) -> list[Seen]:
    seen: list[Seen] = []
    offset = log.log_start_offset
    while (found := log.read(offset, 20_000, COMMITTED if is_committed else LOG_END)).size_bytes:
        content = found.read()
        waiting = sorted(found.aborted, key=lambda entry: entry.first_offset)
        aborting: set[int] = set()
        for position, header in iter_batches(content):
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborting.add(waiting.pop(0).producer_id)
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (is_committed and header.is_transactional and header.producer_id in aborting):
                seen += _records(content[position : position + header.size_bytes], header, offset)
            offset = max(offset, header.next_offset)
    return seen


def _records(batch: bytes, header: BatchHeader, start: int) -> list[Seen]:
    kind = LOG_APPEND_TIME if header.timestamp_type == "LogAppendTime" else CREATE_TIME
    return [
        Seen(
            record.offset,
            record.timestamp,
            kind,
            record.key,
            record.value,
            tuple((header.key, header.value) for header in record.headers),
        )
        for record in decode_records(batch, start_offset=start)
    ]
