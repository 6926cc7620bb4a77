"""What a consumer's machine knows of a partition that is read, and of a topic."""

from collections import deque

from raylog.cluster.client.consumer.instructions import Chunk, OffsetAndEpoch, Start, When
from raylog.storage.names import TopicPartition
from raylog.storage.state.epochs import NO_EPOCH


class Assigned:
    """One partition that is read."""

    __slots__ = (
        "asked",
        "began_at",
        "chunks",
        "end",
        "error",
        "failing_since",
        "failures",
        "fetch_at",
        "fetched_epoch",
        "had_end",
        "has_answered",
        "is_edge",
        "is_paused",
        "is_refused",
        "partition",
        "position",
        "readable_end",
        "retry_at",
        "seeking",
    )

    def __init__(
        self,
        partition: TopicPartition,
        start: Start | None,
        end: Start | None,
        *,
        had_end: bool = False,
    ) -> None:
        self.partition = partition
        is_saved = isinstance(end, OffsetAndEpoch) and end.leader_epoch != NO_EPOCH
        self.end = end.offset if isinstance(end, OffsetAndEpoch) else end
        self.had_end = had_end or is_saved  # whether the log had it at any time
        self.is_edge = False  # ``end`` is where the log ended when it was looked up
        self.chunks: deque[Chunk] = deque()
        self.asked = 0  # the number of the request that is on its way
        self.error: Exception | None = None  # raised once the chunks are handed out
        self.is_paused = False
        self.is_refused = False  # a fetch that waits: the next one does not
        self.readable_end = -1  # by the last answer
        self.retry_at, self.failures = 0.0, 0
        self.failing_since: float | None = None
        self.go_to(start)
        self.began_at = self.position  # where its start, or the last seek, has put it

    def go_to(self, place: Start | None, fetched_epoch: int = NO_EPOCH) -> None:
        """Forget what was fetched, and go on at ``place``.

        ``fetched_epoch``: of a batch that was fetched from before ``place``, or from behind it
        while the log held both.
        """
        if isinstance(place, OffsetAndEpoch):
            place, fetched_epoch = place
        self.chunks.clear()
        self.asked, self.error = 0, None
        self.fetched_epoch = fetched_epoch
        self.has_answered = False  # to a fetch at this place
        self.seeking: When | None = place if isinstance(place, When) else None
        self.position = self.fetch_at = place if isinstance(place, int) else None

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to the end was handed out."""
        return self._is_behind_end(self.position)

    @property
    def is_fetched(self) -> bool:
        """Whether everything up to the end was fetched."""
        return self._is_behind_end(self.fetch_at)

    def _is_behind_end(self, offset: int | None) -> bool:
        if not isinstance(self.end, int) or offset is None:
            return False
        # an offset behind the log's own end may be gone: only a fetch tells
        is_doubtful = self.is_edge and not self.has_answered and offset > self.end
        return offset >= self.end and not is_doubtful


class Topic:
    """What is known of a topic."""

    __slots__ = (
        "due_at",
        "failing_since",
        "failures",
        "is_asked",
        "is_followed",
        "is_new",
        "partitions",
        "topic_id",
    )

    def __init__(self, *, is_followed: bool, is_new: bool) -> None:
        self.topic_id: str | None = None
        self.partitions = 0
        self.is_followed = is_followed  # all its partitions are read, also those added later
        self.is_new = is_new  # it came after the subscription: read from its beginning
        self.is_asked = False
        self.due_at = 0.0
        self.failures = 0
        self.failing_since: float | None = None
