"""What clients of a coordinator are told where it does not, or cannot, do what they ask."""

from typing import Final, NamedTuple

from raylog.actors.coordinators.codes import (
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    UNKNOWN_SERVER_ERROR,
)
from raylog.storage.errors import RaylogError

# What a client of a coordinator is told where an append fails with another code of Kafka's.
_CODES: Final = {
    3: COORDINATOR_NOT_AVAILABLE,  # the partition is not there
    7: COORDINATOR_NOT_AVAILABLE,  # it took too long
    19: COORDINATOR_NOT_AVAILABLE,  # there is no room
    6: NOT_COORDINATOR,  # somebody else leads
    56: NOT_COORDINATOR,  # the disk
    4: UNKNOWN_SERVER_ERROR,
    10: UNKNOWN_SERVER_ERROR,  # too large
    18: UNKNOWN_SERVER_ERROR,
}


class NotServed(NamedTuple):
    """There is no answer now; ``error_code``: what the client is told."""

    error_code: int


def code_for_clients(error: RaylogError) -> int:
    """The code for who asked, where the log did not take a record."""
    return _CODES.get(error.code, error.code)
