"""Answers Fetch: batches as they lie in the segments' files, and the wait for more of them.

A request is answered at once where it finds ``min_bytes``, where a partition has an error, where a
log parts from what its reader has, and where a reader is behind the newest segment. Else it is
parked in its connection's thread (``parking.py``) until there is so much, or ``max_wait_ms`` have
passed; then there is an answer with what there is.

**Bounds**: each partition gives at most its own and what is left of the request's; whole batches
only. The first that has any gives at least one, however large (KIP-74).

**Bytes** go from the file to the socket without entering the process. Only a small answer is read,
since one call with all its parts costs less than three.

There are no fetch sessions: an answer has session id 0, which every client takes for "ask in full
next time" (KIP-227). Source: ``KafkaApis.handleFetchRequest``, ``DelayedFetch`` of Kafka.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from raylog.actors.plane.codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    FETCH_SESSION_ID_NOT_FOUND,
    code_of,
)
from raylog.actors.plane.errors import PeerGone
from raylog.actors.plane.frames import Request
from raylog.actors.plane.hosts import Host, Hosts, check_epoch
from raylog.actors.plane.hot.fetch import FetchBody, PartitionFetch, read_fetch
from raylog.actors.plane.hot.fetch_answer import FetchedPartition, fetch_answer
from raylog.actors.plane.hot.parts import Tags, Topic
from raylog.actors.plane.own_clients import bounds_tags, error_tags
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.sending import FileRange, Piece
from raylog.storage.buffers import Buffer
from raylog.storage.descriptors import Descriptor
from raylog.storage.errors import RaylogError
from raylog.storage.readable import COMMITTED, Isolation, LogRead
from raylog.storage.state.epochs import NO_EPOCH

# Kafka's default of the broker's fetch.max.bytes.
MAX_BYTES: Final = 55 * 1024 * 1024
# The longest that a fetch is parked.
MAX_WAIT_MS: Final = 300_000
# Of what is sent from the file; less is read, and sent with its head and trailer in one call.
SENDFILE_BYTES: Final = 64 * 1024
_READ_COMMITTED: Final = 1
_NO_OFFSET: Final = -1
_WITHOUT_SESSION: Final = (0, -1)  # session epochs: of a new session, and of none
_NO_RECORDS: Final = b""


class Found(NamedTuple):
    """What one look at a partition gave."""

    asked: PartitionFetch
    host: Host | None
    error_code: int
    read: LogRead | None
    seen_bytes: int  # readable before the look: what is appended later wakes who waits
    more_tags: Tags | None = None


def fetch(
    request: Request,
    hosts: Hosts,
    parking: Parking,
    now_s: Callable[[], float] = time.monotonic,
) -> Sequence[Piece]:
    """The pieces of the answer to a Fetch request. Raises PeerGone if its reader went meanwhile."""
    body = read_fetch(request)
    refused = _refused(body)
    if refused:
        return fetch_answer(request, [], refused)
    return fetch_answer(request, _Fetch(request, body, hosts, parking, now_s).run())


def _refused(body: FetchBody) -> int:
    """The error code for a request as a whole; 0 if it may be answered."""
    if body.replica_id >= 0:
        return CLUSTER_AUTHORIZATION_FAILED  # there are no followers
    is_in_session = body.session_epoch not in _WITHOUT_SESSION
    return FETCH_SESSION_ID_NOT_FOUND if is_in_session else 0


class _Fetch:
    """One request, from its first look to its answer."""

    def __init__(
        self,
        request: Request,
        body: FetchBody,
        hosts: Hosts,
        parking: Parking,
        now_s: Callable[[], float],
    ) -> None:
        self._request = request
        self._body, self._hosts, self._parking, self._now_s = body, hosts, parking, now_s
        self._isolation: Isolation = (
            COMMITTED if body.isolation == _READ_COMMITTED else "high_watermark"
        )
        self._max_bytes = min(body.max_bytes, MAX_BYTES)
        self._min_bytes = min(body.min_bytes, self._max_bytes)

    def run(self) -> list[Topic[FetchedPartition]]:
        """The topics of the answer."""
        wait_ms = min(self._body.max_wait_ms, MAX_WAIT_MS)
        deadline_s = self._now_s() + wait_ms / 1000
        while True:
            looks = self._look()
            left_ms = int((deadline_s - self._now_s()) * 1000)
            if left_ms <= 0 or self._is_enough(looks):
                return self._answer(looks)
            self._wait(looks, left_ms)

    # -- looks -------------------------------------------------------------------------------------

    def _look(self) -> list[list[Found]]:
        """What is there now, by topic."""
        looks = []
        left_bytes = self._max_bytes
        is_first = True
        for topic in self._body.topics:
            some = []
            for asked in topic.partitions:
                found = self._look_at(topic, asked, left_bytes, is_first=is_first)
                size_bytes = _size_bytes(found)
                left_bytes -= size_bytes
                is_first = is_first and not size_bytes
                some.append(found)
            looks.append(some)
        return looks

    def _look_at(
        self,
        topic: Topic[PartitionFetch],
        asked: PartitionFetch,
        left_bytes: int,
        *,
        is_first: bool,
    ) -> Found:
        host = self._hosts.find(topic.name, topic.topic_id, asked.partition)
        if isinstance(host, int):
            return Found(asked, None, host, None, 0)
        seen_bytes = host.partition.log.readable_bytes
        most_bytes = max(0, min(asked.max_bytes, left_bytes))
        try:
            check_epoch(host, max(asked.current_leader_epoch, NO_EPOCH))
            read = host.partition.read(
                asked.offset, most_bytes, self._isolation, asked.last_fetched_epoch
            )
        except RaylogError as error:
            return Found(asked, host, code_of(error), None, 0, error_tags(self._request, error))
        if not is_first and read.size_bytes > most_bytes:
            read = read._replace(file=None, size_bytes=0)
        return Found(asked, host, 0, read, seen_bytes)

    def _is_enough(self, looks: list[list[Found]]) -> bool:
        every = [found for some in looks for found in some]
        if not every or sum(map(_size_bytes, every)) >= self._min_bytes:
            return True
        return any(found.error_code or _is_over(found) for found in every)

    # -- the wait ----------------------------------------------------------------------------------

    def _wait(self, looks: list[list[Found]], left_ms: int) -> None:
        """Return when there may be enough, or the time is up. Raises PeerGone.

        Of several partitions one has its share when all together have enough.
        """
        every = [found for some in looks for found in some]
        missing_bytes = self._min_bytes - sum(map(_size_bytes, every))
        share_bytes = max(1, -(-missing_bytes // len(every)))
        self._parking.prepare()
        watched = []
        for found in every:
            assert found.host is not None, "who has an error is not waited for"
            partition = found.host.partition
            waiter = partition.waiters.add(found.seen_bytes + share_bytes, self._parking.wake)
            watched.append((partition, waiter))
        try:
            if self._parking.wait(left_ms) == "peer is gone":
                raise PeerGone("its fetch was waiting for records")
        finally:
            for partition, waiter in watched:
                partition.waiters.remove(waiter)

    # -- the answer --------------------------------------------------------------------------------

    def _answer(self, looks: list[list[Found]]) -> list[Topic[FetchedPartition]]:
        return [
            Topic(topic.name, topic.topic_id, [self._answered(found) for found in some])
            for topic, some in zip(self._body.topics, looks, strict=True)
        ]

    def _answered(self, found: Found) -> FetchedPartition:
        read = found.read
        if read is None:
            return _failed(found.asked.partition, found.error_code, found.more_tags)
        try:
            records = _records(read)
        except RaylogError as error:
            tags = error_tags(self._request, error)
            return _failed(found.asked.partition, code_of(error), tags)
        has_aborted = self._isolation == COMMITTED and read.diverging is None
        return FetchedPartition(
            partition=found.asked.partition,
            error_code=0,
            high_watermark=read.high_watermark,
            last_stable_offset=read.last_stable_offset,
            log_start_offset=read.log_start_offset,
            aborted=read.aborted if has_aborted else None,
            records=records,
            diverging=read.diverging,
            more_tags=bounds_tags(self._request, read),
        )


def _size_bytes(found: Found) -> int:
    return 0 if found.read is None else found.read.size_bytes


def _is_over(found: Found) -> bool:
    """Whether waiting gives nothing: the log parts from the reader's, or he is behind."""
    read, host = found.read, found.host
    if read is None or host is None:
        return False
    newest_base = host.partition.log.segments[-1].base_offset
    is_behind = read.size_bytes > 0 and read.segment_base != newest_base
    return is_behind or read.diverging is not None


def _records(read: LogRead) -> Buffer | FileRange:
    """What is sent of a read. Raises StorageError."""
    is_large = read.size_bytes >= SENDFILE_BYTES
    if is_large and isinstance(read.file, Descriptor):
        return FileRange(read.file, read.position, read.size_bytes)
    return read.read()


def _failed(index: int, error_code: int, more_tags: Tags | None) -> FetchedPartition:
    return FetchedPartition(
        index,
        error_code,
        _NO_OFFSET,
        _NO_OFFSET,
        _NO_OFFSET,
        None,
        _NO_RECORDS,
        more_tags=more_tags,
    )
