"""Values that cross between processes of two releases of raylog that are one apart.

While a cluster is upgraded node by node, a release and the one before it speak with each other.
pickle writes an object as the values of its fields in their order, so a reader with another
definition of the class fails, or takes one field for another. A class that is marked with
``message`` travels by names instead, as the call ::

    read_message(("raylog.actors.control.Report", "0.1.0", ("node", "life", ...)), node, life, ...)
                   the class                       writer   names of the fields    their values

================================== ======================================================
the reader                         what it does
================================== ======================================================
does not know a field              it leaves the field out
knows a field that is not there    the default of its definition; UnsupportedMessage if it
                                   has none
does not know the class            UnsupportedMessage
================================== ======================================================

The name of this function, its arguments and the names of the classes are part of the interface.
Errors travel in a similar way (``errors/base.py``). What a new field means is not decided here: see
"Releases that are one apart" in docs/ARCHITECTURE.md.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from raylog.storage.errors.requests import UnsupportedMessage

Class = TypeVar("Class", bound=type)
# The class, the release of the writer, the names of the fields: one object a class, so that pickle
# writes it once for all messages that it finds in another.
Head = tuple[str, str, tuple[str, ...]]

# The package's head names every module for type checkers: an import of it would be a circle.
RELEASE: str = import_module("raylog").__version__
HEADS_AT_ONCE = 1024  # of two releases; a release has less than a hundred


def message(cls: Class) -> Class:
    """Mark a dataclass or a NamedTuple that crosses between processes.

    It stands above ``@dataclass``. A field that is added later must have a default.
    """
    names = tuple(_definition(cls))
    head = (f"{cls.__module__}.{cls.__qualname__}", RELEASE, names)

    def reduce(self: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return read_message, (head, *[getattr(self, name) for name in names])

    cls.__reduce__ = reduce  # type: ignore[method-assign,assignment]
    return cls


def read_message(head: Head, *values: Any) -> Any:
    """The message that another process has written. Raises UnsupportedMessage."""
    reader = _reader(head)
    named = zip(head[2], values, strict=True)
    return reader.cls(**{name: value for name, value in named if name in reader.known})


class _Reader(NamedTuple):
    """The class of a message here, and the names of its fields."""

    cls: Callable[..., Any]
    known: frozenset[str]


@lru_cache(HEADS_AT_ONCE)
def _reader(head: Head) -> _Reader:
    kind, release, names = head
    module, _, name = kind.rpartition(".")
    try:
        cls = getattr(import_module(module), name)
    except (ImportError, AttributeError):
        raise UnsupportedMessage(kind, release, RELEASE, "it is not known here") from None
    definition = _definition(cls)
    for field, has_default in definition.items():
        if not has_default and field not in names:
            raise UnsupportedMessage(kind, release, RELEASE, f"it lacks {field!r}")
    return _Reader(cls, frozenset(definition))


def _definition(cls: Any) -> dict[str, bool]:
    """The fields of a message -> whether each has a default."""
    if issubclass(cls, tuple):
        return {name: name in cls._field_defaults for name in cls._fields}
    return {
        field.name: field.default is not MISSING or field.default_factory is not MISSING
        for field in fields(cls)
        if field.init
    }
