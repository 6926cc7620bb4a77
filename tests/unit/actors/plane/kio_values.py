"""Values as kio has them, and as the schemas have them.

===================  =====================  =========================================
``kafka_type``       kio                    here
===================  =====================  =========================================
timedelta_i32, _i64  ``timedelta``          ms, an int; kio's name lacks the "Ms"
datetime_i64         ``datetime`` or None   ms, -1; kio takes whole seconds
(never None)         ``datetime``           ms; Kafka also has -1, which kio refuses
error_code           an enum                its code
uuid                 ``UUID`` or None       ``UUID``, all zeros for none
===================  =====================  =========================================
"""

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Final, get_args, get_type_hints
from uuid import UUID

from kio.schema.errors import ErrorCode

CODES: Final = [code.value for code in ErrorCode]
NO_DEFAULT: Final = MISSING
_NEVER_NONE: Final = "datetime_i64, never None"  # a transaction's start in DescribeTransactions
_NONE: Final = {"uuid": UUID(int=0), "datetime_i64": -1}
MAX_MS: Final = 2**40  # far within a timedelta and a datetime


def adapted(value: Any, kio_class: Any) -> Any:
    """A struct with values that kio has, too. It has no other field that is not its default."""
    changed = dict(value)
    for name, kafka_type, nested in _fields(kio_class):
        changed[name] = _adapted(value[name], kafka_type, nested)
    return changed


def _adapted(value: Any, kafka_type: str | None, nested: Any) -> Any:
    if isinstance(value, list):
        return [_adapted(entry, kafka_type, nested) for entry in value]
    if isinstance(value, dict):
        return adapted(value, nested)
    if kafka_type == "error_code":
        return CODES[value % len(CODES)]
    if kafka_type == "datetime_i64":
        return -1 if value < 0 else value % MAX_MS // 1000 * 1000
    if kafka_type == _NEVER_NONE:
        return value % MAX_MS // 1000 * 1000
    if kafka_type == "timedelta_i64":
        return value % MAX_MS
    return value


def said(value: Any, kio_class: Any) -> Any:
    """A struct without the fields that kio's version of it does not have."""
    if isinstance(value, list):
        return [said(entry, kio_class) for entry in value]
    if not isinstance(value, dict):
        return value
    return {name: said(value[name], nested) for name, _, nested in _fields(kio_class)}


def defaults(kio_class: Any) -> Iterator[tuple[str, Any, Any]]:
    """Of each field our name, its default or ``NO_DEFAULT``, and the class that is nested in it."""
    own = [field.default for field in fields(kio_class)]
    for default, (name, kafka_type, nested) in zip(own, _fields(kio_class), strict=True):
        yield name, default if default is MISSING else _plain(default, kafka_type), nested


def plain(entity: Any) -> dict[str, Any]:
    """The fields of one of kio's entities, as the schemas have them."""
    own = [field.name for field in fields(entity)]
    return {
        name: _plain(getattr(entity, field), kafka_type)
        for field, (name, kafka_type, _) in zip(own, _fields(type(entity)), strict=True)
    }


def _plain(value: Any, kafka_type: str | None) -> Any:
    if is_dataclass(value):
        return plain(value)
    if isinstance(value, tuple):
        return [_plain(entry, kafka_type) for entry in value]
    if value is None and kafka_type in _NONE:
        return _NONE[kafka_type]
    if isinstance(value, timedelta):
        return round(value / timedelta(milliseconds=1))
    if isinstance(value, datetime):
        return round(value.timestamp()) * 1000
    return int(value) if isinstance(value, ErrorCode) else value


def _fields(kio_class: Any) -> Iterator[tuple[str, str | None, Any]]:
    """Of each field our name, kio's type, and the class of what is nested in it."""
    hints = get_type_hints(kio_class)
    for field in fields(kio_class):
        kafka_type = field.metadata.get("kafka_type")
        name = re.sub("_([a-z])", lambda found: found[1].upper(), field.name)
        is_time = kafka_type is not None and kafka_type.startswith(("timedelta", "datetime"))
        if kafka_type == "datetime_i64" and type(None) not in get_args(hints[field.name]):
            kafka_type = _NEVER_NONE
        nested = next(filter(is_dataclass, _parts(hints[field.name])), None)
        yield (f"{name}Ms" if is_time else name), kafka_type, nested


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in get_args(hint):
        yield from _parts(part)
