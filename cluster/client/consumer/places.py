"""What users say about places in a log, as the machine takes it.

====================== =========================================================
``"earliest"``         the first record that is there
``"latest"``           behind the last record that is there
a ``datetime``         the first record at or after it; one without a zone is UTC
an integer             ms since the epoch, likewise; in a dict it is an offset
a dict                 a place for each (topic, partition); integers are offsets
====================== =========================================================
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from raylog.actors.errors import InvalidRequest
from raylog.cluster.client.consumer.machine import Start, When
from raylog.cluster.client.times import milliseconds
from raylog.storage.limits import MAX_LONG
from raylog.storage.names import TopicPartition
from raylog.storage.readable import EARLIEST, LATEST

Place = str | int | datetime
Places = Place | Mapping[tuple[str, int], Place] | None
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


def timestamp_of(when: object, argument: str) -> int:
    """Milliseconds since the epoch. Raises InvalidRequest."""
    if isinstance(when, datetime):
        return milliseconds(when)
    number = _integer(when)
    if number is None or not 0 <= number <= MAX_LONG:
        raise InvalidRequest(argument, when, "must be a datetime, or ms since the epoch")
    return number


def offset_of(offset: object, argument: str = "offset") -> int:
    """Raises InvalidRequest."""
    number = _integer(offset)
    if number is None or not 0 <= number <= MAX_LONG:
        raise InvalidRequest(argument, offset, "must be an integer of 0 or more")
    return number


def places(given: Places, argument: str) -> Callable[[TopicPartition], Start | None]:
    """Where each partition starts or ends; None where that is not said. Raises InvalidRequest."""
    if given is None:
        return lambda _: None
    if not isinstance(given, Mapping):
        everywhere = _time(given, argument)
        return lambda _: everywhere
    of_each: dict[TopicPartition, Start] = {}
    for key, place in given.items():
        partition = _partition(key, argument)
        is_offset = _integer(place) is not None
        of_each[partition] = offset_of(place, argument) if is_offset else _time(place, argument)
    return of_each.get


def _partition(key: Any, argument: str) -> TopicPartition:
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str):
        return TopicPartition(key[0], offset_of(key[1], argument))
    raise InvalidRequest(argument, key, "must have (topic, partition) as its keys")


def _time(place: object, argument: str) -> When:
    if isinstance(place, str) and place in _WORDS:
        return When(_WORDS[place])
    try:
        return When(timestamp_of(place, argument))
    except InvalidRequest:
        why = "must be 'earliest', 'latest', a datetime, ms since the epoch, or a dict of places"
        raise InvalidRequest(argument, place, why) from None


def _integer(number: Any) -> int | None:
    """An integer of any kind, also numpy's; no boolean."""
    if isinstance(number, bool | str | bytes | float) or not hasattr(number, "__index__"):
        return None
    return int(number.__index__())
