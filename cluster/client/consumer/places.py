"""What users say about places in a log, as the machine takes it.

====================== =========================================================
``"earliest"``         the first record that is there
``"latest"``           behind the last record that is there
a ``datetime``         the first record at or after it; one without a zone is UTC
an integer             ms since the epoch, likewise; in a dict it is an offset
a dict                 a place for each (topic, partition); integers are offsets, pairs are of an
                       offset and a leader epoch, as ``positions()`` gives them. One that ``to``
                       leaves out ends at its end; of ``from_``, ``auto.offset.reset`` says
====================== =========================================================
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any

from raylog.actors.errors import InvalidRequest, UnknownTopicOrPartition
from raylog.cluster.client.consumer.instructions import OffsetAndEpoch, Start, When
from raylog.cluster.client.times import milliseconds
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.names import TopicPartition
from raylog.storage.readable import EARLIEST, LATEST
from raylog.storage.state.epochs import NO_EPOCH

Offset = int | tuple[int, int] | list[int]  # the pairs: OffsetAndEpoch, also of JSON
Place = str | datetime | Offset
Places = Place | Mapping[tuple[str, int], Place] | Mapping[TopicPartition, Place] | None
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


def saved_offset(given: object, argument: str = "offset") -> int | OffsetAndEpoch:
    """An offset, or a pair of one and a leader epoch. Raises InvalidRequest."""
    if not isinstance(given, tuple | list):
        return offset_of(given, argument)
    epoch = _integer(given[1]) if len(given) == 2 else None
    if epoch is None or not NO_EPOCH <= epoch <= MAX_INT:
        raise InvalidRequest(argument, given, "must be an offset, or (offset, leader epoch)")
    return OffsetAndEpoch(offset_of(given[0], argument), epoch)


def partition_of(given: Any) -> TopicPartition:
    """Raises InvalidRequest."""
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
        return TopicPartition(given[0], offset_of(given[1], "(topic, partition)"))
    raise InvalidRequest("partition", given, "must be a pair (topic, partition)")


def starts(given: Places, argument: str = "from_") -> Callable[[TopicPartition], Start | None]:
    """Where each partition starts; None where that is not said. Raises InvalidRequest."""
    if given is None:
        return lambda _: None
    if not isinstance(given, Mapping):
        everywhere = _time(given, argument)
        return lambda _: everywhere
    of_each: dict[TopicPartition, Start] = {}
    for key, place in given.items():
        partition = _key(key, argument)
        if _integer(place) is not None or isinstance(place, tuple | list):
            of_each[partition] = saved_offset(place, argument)
        else:
            of_each[partition] = _time(place, argument)
    return of_each.get


def ends(given: Places) -> Callable[[TopicPartition], Start | None]:
    """Where each partition ends: at its end, where a dict leaves it out. Raises InvalidRequest."""
    place_of = starts(given, "to")
    if not isinstance(given, Mapping):
        return place_of

    def end_of(partition: TopicPartition) -> Start:
        place = place_of(partition)
        return When(LATEST) if place is None else place

    return end_of


def check_places(read: Collection[TopicPartition], from_: Places, to: Places) -> None:
    """No place is given in vain. Raises UnknownTopicOrPartition, InvalidRequest."""
    _check_are_read(from_, "from_", read)
    _check_are_read(to, "to", read)


def _check_are_read(given: Places, argument: str, read: Collection[TopicPartition]) -> None:
    """Raise UnknownTopicOrPartition for a place of a partition that is not read."""
    if not isinstance(given, Mapping):
        return
    for key in given:
        partition = _key(key, argument)
        if partition not in read:
            why = f"{argument} has a place for it, but it is not among what is to be read"
            raise UnknownTopicOrPartition(*partition, why)


def _key(given: Any, argument: str) -> TopicPartition:
    try:
        return partition_of(given)
    except InvalidRequest:
        raise InvalidRequest(argument, given, "must have (topic, partition) as its keys") from None


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
