"""Records as lines, and lines as records: what ``consume`` prints and what ``produce`` takes.

JSON is the same in both directions, one object a line::

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1795242042203, "key": "en",
     "value": {"base64": "/w=="}, "headers": [["trace", null]]}

Keys, values and the values of headers are null, a string, or ``{"base64": "..."}`` for bytes that
are not UTF-8. Text is a value a line, with the key before it if asked for; a template says anything
else (``template``). No Ray here, and no options.
"""

import base64
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import typer

from raylog.storage.errors import InvalidRecord
from raylog.storage.limits import MAX_LONG
from raylog.storage.records.record import ConsumerRecord

Headers = tuple[tuple[str, bytes | None], ...]
Print = Callable[[ConsumerRecord], bytes]


class Row(NamedTuple):
    """A record to be sent. Without a timestamp it gets the present time, without a partition one by
    its key."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None


# -- JSON ------------------------------------------------------------------------------------------

_ENCODE = json.JSONEncoder(ensure_ascii=False).encode
# Some readers end a line at these; JSON escapes the other ones itself.
_LINE_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def to_json(record: ConsumerRecord) -> bytes:
    """A record as a line."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _readable(record.key),
        "value": _readable(record.value),
    }
    if record.headers:
        fields["headers"] = [[name, _readable(content)] for name, content in record.headers]
    text = _ENCODE(fields)
    if not text.isascii():
        text = text.translate(_LINE_BREAKS)
    return text.encode() + b"\n"


def _readable(content: bytes | None) -> Any:
    """UTF-8 as a string; other bytes as ``{"base64": ...}``."""
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content or b"").decode()}


def from_json(line: bytes) -> Row:
    """A line as a record; its topic and offset mean nothing. Raises InvalidRecord."""
    try:
        fields = json.loads(line.decode())
    except json.JSONDecodeError as error:
        raise InvalidRecord(f"it is not JSON: {error.msg}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"it is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InvalidRecord('it is no JSON object; write {"key": ..., "value": ...}')
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise InvalidRecord(f"field {unknown[0]!r} is unknown; the fields are {', '.join(FIELDS)}")
    if "value" not in fields:
        raise InvalidRecord('it has no "value"; write "value": null for a tombstone')
    timestamp = _number("timestamp", fields.get("timestamp"), -1)
    return Row(
        value=_content("value", fields["value"]),
        key=_content("key", fields.get("key")),
        headers=_headers(fields.get("headers")),
        timestamp=None if timestamp == -1 else timestamp,  # Kafka's "none"
        partition=_number("partition", fields.get("partition"), 0),
    )


def _content(name: str, content: Any) -> bytes | None:
    """What ``_readable`` made."""
    if content is None:
        return None
    try:
        if isinstance(content, str):
            return content.encode()
        if isinstance(content, dict) and list(content) == ["base64"]:
            return base64.b64decode(content["base64"], validate=True)
    except (ValueError, TypeError) as error:
        raise InvalidRecord(f"{name}: {error}") from None
    raise InvalidRecord(
        f'{name} is neither a string nor null; write other JSON as a string, and bytes as {{"base64'
        '": "..."}'
    )


def _headers(headers: Any) -> Headers:
    if headers is None:
        return ()
    try:
        named = [(name, content) for name, content in headers]
    except (TypeError, ValueError):
        named = [(None, None)]
    if isinstance(headers, str | dict) or not all(isinstance(name, str) for name, _ in named):
        raise InvalidRecord('headers are not a list of pairs; write [["name", "value"], ...]')
    return tuple((name, _content(f"header {name!r}", content)) for name, content in named)


def _number(name: str, number: Any, least: int) -> int | None:
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= MAX_LONG:
        raise InvalidRecord(f"{name} {number!r:.40} is not an integer of {least} or more")
    return number


# -- text ------------------------------------------------------------------------------------------

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)


def unescaped(option: str, text: str) -> bytes:
    r"""Text with ``\n``, ``\t``, ``\r``, ``\0``, ``\\`` and ``\x1f`` as bytes."""
    found = b""
    end = 0
    for escape in _ESCAPE.finditer(text):
        found += as_given(text[end : escape.start()])
        name = escape[1]
        if name not in _ESCAPES and len(name) < 3:
            raise typer.BadParameter(
                rf"{option}: \{name} means nothing; there are \n, \t, \r, \0, \\ and \x1f"
            )
        found += _ESCAPES[name] if name in _ESCAPES else bytes.fromhex(name[1:])
        end = escape.end()
    return found + as_given(text[end:])


def as_given(text: str) -> bytes:
    """An argument as the bytes that the shell gave."""
    return text.encode(errors="surrogateescape")


def from_text(
    line: bytes, *, key: bytes | None, separator: bytes | None, null: bytes | None
) -> Row:
    """A line as a record: a value, or a key and a value; what equals ``null`` is null."""
    value: bytes | None = line
    if separator is not None and separator in line:
        key, _, value = line.partition(separator)
    if null is None:
        return Row(value, key)
    return Row(None if value == null else value, None if key == null else key)


_FIELDS: dict[str, Callable[[ConsumerRecord, bytes], bytes]] = {
    "t": lambda record, _: record.topic.encode(),
    "p": lambda record, _: b"%d" % record.partition,
    "o": lambda record, _: b"%d" % record.offset,
    "T": lambda record, _: b"%d" % record.timestamp,
    "k": lambda record, null: null if record.key is None else record.key,
    "K": lambda record, _: b"%d" % _length(record.key),
    "v": lambda record, null: null if record.value is None else record.value,
    "V": lambda record, _: b"%d" % _length(record.value),
    "h": lambda record, null: b",".join(
        name.encode() + b"=" + (null if content is None else content)
        for name, content in record.headers
    ),
}
_FIELDS["s"], _FIELDS["S"] = _FIELDS["v"], _FIELDS["V"]  # kcat's names
_FIELD = re.compile(r"%(.?)", re.DOTALL)


def template(text: str, null: bytes) -> Print:
    """How to print a record: ``%k %v`` and so on stand for its fields."""
    pattern = b""
    getters: list[Callable[[ConsumerRecord, bytes], bytes]] = []
    end = 0
    for field in _FIELD.finditer(text):
        pattern += _literal(text[end : field.start()])
        end = field.end()
        if field[1] == "%":
            pattern += b"%%"
        elif field[1] in _FIELDS:
            pattern += b"%b"
            getters.append(_FIELDS[field[1]])
        else:
            raise typer.BadParameter(
                f"--format: %{field[1]} means nothing; there are "
                f"{' '.join(f'%{name}' for name in _FIELDS)} %%"
            )
    pattern += _literal(text[end:])
    return lambda record: pattern % tuple(get(record, null) for get in getters)


def _literal(text: str) -> bytes:
    return unescaped("--format", text).replace(b"%", b"%%")


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


# -- numbers of lines ------------------------------------------------------------------------------


def runs(numbers: Sequence[int]) -> str:
    """``line 3``, or ``lines 3-5, 9``: ascending numbers in words."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in parts]
    return ("line " if len(numbers) == 1 else "lines ") + ", ".join(words)
