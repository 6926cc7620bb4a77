"""Reading a partition: through its LogActor, or on its own node straight from the segment's file.

On the same node the actor answers with where the batches lie, and the reader reads the file. It
checks the inode, since the name may have gone to another file. Where that does not agree, or the
file is gone or too short, it asks the actor for the bytes.

The bytes of a fetch are valid until the next fetch with the same :class:`FetchBuffer`. What is
decoded from them refers to none of them (tests/unit/cluster/client/test_fetch_buffer.py).
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from raylog.actors.messages import FetchRequest, FetchResult
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.nodes import own_node_id
from raylog.cluster.client.limits import MAX_PLAIN_BATCH_BYTES
from raylog.storage.buffers import Buffer
from raylog.storage.descriptors import Descriptor
from raylog.storage.errors import StorageError
from raylog.storage.readable import Slice
from raylog.storage.records.decode import decode_table
from raylog.storage.records.scan import next_offset

if TYPE_CHECKING:
    from raylog.cluster.broker import Broker
    from raylog.cluster.controller.placement import TopicDescription

# Decoding costs a call of a compiled kernel once per fetch: several MB make it vanish.
FETCH_BYTES = 8 << 20


class FetchBuffer:
    """Reads slices of segment files into one buffer, which is used again for the next slice.

    The file is opened for each slice, which costs some microseconds of a fetch. So a reader keeps
    no file open that retention has removed. It is not mapped, because a mapped page that was cut
    away, or that the disk cannot read, ends the process (SIGBUS).
    """

    def __init__(self) -> None:
        self._buffer = bytearray()

    def read(self, location: Slice) -> memoryview | None:
        """The bytes at ``location``, until the next call; None if they are not there any more."""
        content = self._with_room(location.size_bytes)
        try:
            file = Descriptor(location.path, os.O_RDONLY)
            is_same = file.inode == location.inode
            if is_same and file.read_into(content, location.position) == len(content):
                return content
        except (OSError, StorageError):
            pass  # the actor will send the bytes, or say what is wrong
        return None

    def _with_room(self, size_bytes: int) -> memoryview:
        if size_bytes > FETCH_BYTES:
            return memoryview(bytearray(size_bytes))  # one large batch: rare, so it is not kept
        if size_bytes > len(self._buffer):
            self._buffer = bytearray(1 << (size_bytes - 1).bit_length())
        return memoryview(self._buffer)[:size_bytes]


class PartitionReader:
    """Fetches of one partition, by the way that is open here."""

    def __init__(
        self, broker: "Broker", topic: str, partition: int, buffer: FetchBuffer | None = None
    ) -> None:
        """``buffer``: shared by readers of one thread."""
        self.topic, self.partition = topic, partition
        self._broker = broker
        self._buffer = buffer or FetchBuffer()
        self._is_local: bool | None = None

    @property
    def is_local(self) -> bool:
        """Whether the partition's disk is on this node.

        Waits for the Controller where that is not known yet.
        """
        if self._is_local is None:
            self._learn(self._broker.topic(self.topic))
        return bool(self._is_local)

    def _is_known_local(self) -> bool:
        """As ``is_local``, but False while it is not known.

        The Controller may be busy, and the actor can send bytes.
        """
        if self._is_local is None:
            described = self._broker.topic_if_known(self.topic)
            if described is not None:
                self._learn(described)
        return bool(self._is_local)

    def _learn(self, described: "TopicDescription") -> None:
        node_id = None
        if self.partition < len(described.partitions):
            node_id = described.partitions[self.partition].node_id
        if node_id is None:
            # It serves, but what is known here is older than that: ask again next time.
            self._broker.forget(self.topic, self.partition)
        else:
            self._is_local = node_id == own_node_id()

    def request(
        self, offset: int, max_bytes: int, max_wait_ms: int = 0
    ) -> Call[FetchResult | bytes]:
        """Ask for batches from ``offset`` on; the answer is for :meth:`records`.

        NotLeader at once if no actor is there.
        """
        log_actor = self._broker.log_actor(self.topic, self.partition, timeout_s=0)
        request = FetchRequest(
            offset=offset,
            max_bytes=max_bytes,
            min_bytes=1,
            max_wait_ms=max_wait_ms,
            locate=self._is_known_local(),
        ).encode()
        return log_actor.poll_request(request) if max_wait_ms else log_actor.fetch_request(request)

    def records(self, answer: FetchResult | bytes, offset: int, max_bytes: int) -> Buffer | None:
        """The bytes of an answer, until the next call; None at the log's end.

        Raises CorruptRecord for offsets that cannot be there: a position behind them skips records.
        """
        result = FetchResult.decode(answer) if isinstance(answer, bytes) else answer
        if result.location is not None:
            content = self._buffer.read(result.location)
            if content is not None:
                next_offset(content, offset, result.end_offset)
                return content
            key = (self.topic, self.partition)
            results = self._broker.ask(
                [key], lambda _, log_actor: log_actor.fetch(offset, max_bytes)
            )
            result = results[key]
        if result.records is None:
            return None
        content = memoryview(result.records)  # type: ignore[arg-type]
        next_offset(content, offset, result.end_offset)
        return content

    def fetch(self, offset: int, max_bytes: int = FETCH_BYTES) -> Buffer | None:
        """Batches from ``offset`` on, now, until the next call; None at the log's end.

        Waits for an actor that is being restarted.
        """
        key = (self.topic, self.partition)
        request = FetchRequest(
            offset=offset, max_bytes=max_bytes, min_bytes=1, max_wait_ms=0, locate=self.is_local
        ).encode()
        answers = self._broker.ask([key], lambda _, log_actor: log_actor.fetch_request(request))
        return self.records(answers[key], offset, max_bytes)

    def lost(self) -> None:
        """The actor did not answer: look it up again, and where it is."""
        self._is_local = None
        self._broker.forget(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def read_range(
    broker: "Broker",
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    fetch_bytes: int = FETCH_BYTES,
) -> Iterator[pa.RecordBatch]:
    """The records with ``start`` <= offset < ``end``, in batches of about ``fetch_bytes``.

    The batches are as ``decode_table`` makes them. Raises OffsetOutOfRange if ``start`` is below
    the log start offset, and RaylogErrors of the partition.
    """
    reader = PartitionReader(broker, topic, partition)
    while start < end:
        records = reader.fetch(start, fetch_bytes)
        if records is None:
            return
        batch = decode_table(
            records,
            start_offset=start,
            end_offset=end,
            max_plain_batch_bytes=MAX_PLAIN_BATCH_BYTES,
        )
        start = next_offset(records, start)
        if batch.num_rows:
            yield batch
