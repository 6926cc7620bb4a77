"""What a consumer's machine says and is told: places, instructions to its shell, batches."""

from typing import NamedTuple, Protocol

from raylog.storage.names import TopicPartition
from raylog.storage.state.epochs import NO_EPOCH


class When(NamedTuple):
    """A place that must be looked up: a time in ms, or Kafka's EARLIEST or LATEST."""

    timestamp: int


class OffsetAndEpoch(NamedTuple):
    """A place that can be kept: an offset, and of which leader epoch the records before it are.

    With the epoch, a log knows whether it still has those records (KIP-320); -1: not known.
    """

    offset: int
    leader_epoch: int = NO_EPOCH


Start = int | OffsetAndEpoch | When  # an offset, or what leads to one


# -- instructions ----------------------------------------------------------------------------------


class Fetch(NamedTuple):
    """Ask for batches. The answer is an event with the same ``number``."""

    number: int
    partition: TopicPartition
    topic_id: str
    offset: int
    max_bytes: int
    max_wait_ms: int
    last_fetched_epoch: int


class LookUp(NamedTuple):
    """Ask for the offset of a time."""

    number: int
    partition: TopicPartition
    topic_id: str
    timestamp: int


class Learn(NamedTuple):
    """Ask for a topic's metadata."""

    topic: str


class ListTopics(NamedTuple):
    """Ask which topics there are."""


class Forget(NamedTuple):
    """Look up afresh who serves a partition."""

    partition: TopicPartition


Instruction = Fetch | LookUp | Learn | ListTopics | Forget


class Reset(NamedTuple):
    """A partition goes on elsewhere than where it was: to be told."""

    partition: TopicPartition
    offset: int
    place: str  # where it goes on
    why: Exception

    def __str__(self) -> str:
        return (
            f"{self.partition}: offset {self.offset} is not there; going on at {self.place}: "
            f"{self.why}"
        )


class Shortened(NamedTuple):
    """A partition ends before its end, which the log has lost: to be told."""

    partition: TopicPartition
    end: int
    log_end: int
    why: Exception

    def __str__(self) -> str:
        return (
            f"{self.partition}: the log ends at {self.log_end}, before offset {self.end}, where "
            f"reading was to end: {self.why}"
        )


class Chunk(Protocol):
    """The batches of one answer."""

    size_bytes: int
