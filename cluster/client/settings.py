"""Settings of producers and consumers, by Kafka's names: dotted, or with underscores."""

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

from raylog.storage.errors import InvalidConfig


def by_name(
    given: Mapping[str, Any],
    names: Collection[str],
    why_not: Callable[[str, Collection[str]], str] | None = None,
) -> dict[str, Any]:
    """``given`` with underscores. Raises InvalidConfig for a name that is unknown, or given twice.

    ``names``: those that there are, with underscores. ``why_not``: what is said of another one.
    """
    settings: dict[str, Any] = {}
    for key, value in given.items():
        name = key.replace(".", "_")
        if name not in names:
            raise InvalidConfig(key, value, (why_not or no_such_setting)(key, names))
        if name in settings:
            raise InvalidConfig(key, value, "is given twice, in both spellings; give it once")
        settings[name] = value
    return settings


def no_such_setting(key: str, names: Collection[str]) -> str:
    """The setting whose name is nearest to ``key``, or all; ``names``: with underscores."""
    near = get_close_matches(key.replace(".", "_"), sorted(names), n=1, cutoff=0.6)
    if near:
        return f"no such setting; did you mean {_dotted(near[0])}?"
    return f"no such setting; there are {', '.join(map(_dotted, sorted(names)))}"


def _dotted(name: str) -> str:
    return name.replace("_", ".")
