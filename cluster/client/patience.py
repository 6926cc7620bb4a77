"""Which errors of a partition pass by themselves, and how long to wait before asking again."""

from random import Random
from typing import Final

from raylog.actors.errors import (
    FencedLeaderEpoch,
    NotLeader,
    RequestTimedOut,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from raylog.storage.errors import RaylogError, StorageError

# A restart, a move, or a segment that was deleted before it was read.
PASSING: Final = (
    NotLeader,
    RequestTimedOut,
    StorageError,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    UnknownTopicId,
)


def may_pass(error: BaseException) -> bool:
    """Whether to ask again before anybody is told; what has no name tells nothing."""
    return isinstance(error, PASSING) or not isinstance(error, RaylogError)


def backoff_s(failures: int, first_s: float, most_s: float, random: Random) -> float:
    """Kafka's: doubled each time, up to a most, a fifth more or less at random."""
    return min(first_s * 2 ** min(failures, 20), most_s) * random.uniform(0.8, 1.2)


def as_error(error: BaseException) -> Exception:
    """What a future has failed with, for who takes errors alone."""
    return error if isinstance(error, Exception) else RuntimeError(repr(error))
