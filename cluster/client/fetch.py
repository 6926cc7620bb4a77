"""Reading a partition: through its LogActor, or on its own node straight from the segment's file.

On the same node the actor answers with where the batches lie; the reader maps the file and decodes
from the page cache, with nothing copied before. It checks the inode, since the name may have gone
to another file; where that does not agree, or the file is gone, it asks for the bytes.
"""

import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from raylog.actors.messages import FetchRequest, FetchResult
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.nodes import own_node_id
from raylog.cluster.client.limits import MAX_PLAIN_BATCH_BYTES
from raylog.storage.buffers import Buffer
from raylog.storage.readable import Slice
from raylog.storage.records.batch import next_offset
from raylog.storage.records.decode import decode_table

if TYPE_CHECKING:
    from raylog.cluster.broker import Broker
    from raylog.cluster.controller.placement import TopicDescription

# Segments that a reader keeps mapped: address space, no memory.
MAPPED_SEGMENTS = 16
# Decoding costs a call of a compiled kernel once per fetch: several MB make it vanish.
FETCH_BYTES = 8 << 20


class SegmentMaps:
    """Memory maps of the segments that were read last."""

    def __init__(self) -> None:
        self._maps: OrderedDict[tuple[str, int], memoryview] = OrderedDict()

    def view(self, location: Slice) -> memoryview | None:
        """The bytes at ``location``, in the map itself; None if that file is gone."""
        end = location.position + location.size_bytes
        key = (location.path, location.inode)  # an inode is unique on one disk only
        segment = self._maps.get(key)
        if segment is None or len(segment) < end:
            segment = _map(location)
            if segment is None or len(segment) < end:
                return None
            self._maps[key] = segment
            if len(self._maps) > MAPPED_SEGMENTS:
                self._maps.popitem(last=False)
        self._maps.move_to_end(key)
        return segment[location.position : end]


def _map(location: Slice) -> memoryview | None:
    try:
        descriptor = os.open(location.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        stat = os.fstat(descriptor)
        if stat.st_ino != location.inode or not stat.st_size:
            return None
        return memoryview(mmap.mmap(descriptor, stat.st_size, prot=mmap.PROT_READ))
    except OSError:
        return None  # the actor will send the bytes
    finally:
        os.close(descriptor)


class PartitionReader:
    """Fetches of one partition, by the way that is open here."""

    def __init__(
        self, broker: "Broker", topic: str, partition: int, maps: SegmentMaps | None = None
    ) -> None:
        self.topic, self.partition = topic, partition
        self._broker = broker
        self._maps = maps or SegmentMaps()
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
        """The bytes of an answer; None at the log's end."""
        result = FetchResult.decode(answer) if isinstance(answer, bytes) else answer
        if result.location is not None:
            view = self._maps.view(result.location)
            if view is not None:
                return view
            key = (self.topic, self.partition)
            results = self._broker.ask(
                [key], lambda _, log_actor: log_actor.fetch(offset, max_bytes)
            )
            result = results[key]
        return None if result.records is None else memoryview(result.records)  # type: ignore[arg-type]

    def fetch(self, offset: int, max_bytes: int = FETCH_BYTES) -> Buffer | None:
        """Batches from ``offset`` on, now; None at the log's end.

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
