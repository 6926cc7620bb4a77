"""What users give for a record, as the exact types that the kernel takes: a copy of whatever may
change afterwards."""

from collections.abc import Mapping
from datetime import datetime
from operator import index
from typing import Any

from raylog.cluster.client.times import milliseconds
from raylog.storage.errors import InvalidRecord, InvalidTopic
from raylog.storage.limits import MAX_LONG

Headers = tuple[tuple[str, bytes | None], ...]


def plain_bytes(
    content: Any, what: str, advice: str = ", or give the producer a serializer for it"
) -> bytes | None:
    """A key or value. Raises InvalidRecord for what is not bytes, and does not look like it."""
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        return memoryview(content).tobytes()
    raise InvalidRecord(
        f"{what}={content!r:.40} is a {type(content).__name__}; encode it to bytes first{advice}"
    )


def plain_timestamp(timestamp: Any) -> int:
    """Milliseconds since the epoch, of a number or a datetime (one without a zone is UTC)."""
    if isinstance(timestamp, datetime):
        time_ms = milliseconds(timestamp)
    else:
        time_ms = _integer(timestamp, -1)
    if not 0 <= time_ms <= MAX_LONG:
        raise InvalidRecord(
            f"timestamp={timestamp!r} is invalid; give ms since the epoch, an int of 0 or more, or "
            "a datetime since 1970"
        )
    return time_ms


def plain_partition(partition: Any) -> int:
    """A partition's number."""
    number = _integer(partition, -1)
    if number < 0:
        raise InvalidRecord(f"partition={partition!r} is invalid; give an int of 0 or more")
    return number


def plain_topic(topic: Any) -> str:
    """A topic's name, of the exact type."""
    if not isinstance(topic, str):
        raise InvalidTopic(topic, f"is a {type(topic).__name__}, not a str")
    return str.__str__(topic) if type(topic) is str else "".join(topic)


def plain_headers(headers: Any) -> Headers | None:
    """Headers from a mapping, or any iterable of pairs."""
    if headers is None:
        return None
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    try:
        return tuple(_plain_header(pair) for pair in pairs)
    except TypeError as error:
        raise InvalidRecord(
            f"headers={headers!r:.40} are no headers ({error}); give pairs (str, bytes), or a "
            "mapping"
        ) from error


def _plain_header(pair: Any) -> tuple[str, bytes | None]:
    if isinstance(pair, str | bytes):
        raise InvalidRecord(f"header {pair!r:.40} is not a pair; give (str, bytes)")
    fields = tuple(pair)
    if len(fields) != 2:
        raise InvalidRecord(f"header {pair!r:.40} has {len(fields)} fields; give (str, bytes)")
    name, content = fields
    if not isinstance(name, str):
        raise InvalidRecord(f"header name {name!r:.40} is a {type(name).__name__}; give a str")
    try:
        exact = name.encode().decode()
    except UnicodeEncodeError as error:
        raise InvalidRecord(f"header name {name!r:.40} is not Unicode text: {error}") from error
    return exact, plain_bytes(content, f"header {exact}", advice="")


def _integer(number: Any, otherwise: int) -> int:
    """An int, numpy's too; ``otherwise`` for what is none."""
    if isinstance(number, bool):
        return otherwise
    try:
        return index(number)
    except TypeError:
        return otherwise
