"""Settings of producers and consumers, by Kafka's names: dotted, or with underscores."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from raylog.storage.errors import InvalidConfig


def by_name(
    given: Mapping[str, Any],
    names: Collection[str],
    instead: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """``given`` with underscores. Raises InvalidConfig for a name that is unknown, or given twice.

    ``names``: those that there are, with underscores. ``instead``: see ``no_such_setting``.
    """
    settings: dict[str, Any] = {}
    for key, value in given.items():
        name = key.replace(".", "_")
        if name not in names:
            raise InvalidConfig(key, value, no_such_setting(key, names, instead))
        if name in settings:
            raise InvalidConfig(key, value, "is given twice, in both spellings; give it once")
        settings[name] = value
    return settings


def no_such_setting(
    key: str, names: Collection[str], instead: Mapping[str, str] | None = None
) -> str:
    """What to use instead of ``key``; else the setting whose name is nearest to it, or all.

    ``names``: with underscores. ``instead``: by Kafka's keys; one that ends in a dot stands for all
    that begin so.
    """
    asked = dotted(key)
    for known, advice in (instead or {}).items():
        if asked == known or (known.endswith(".") and asked.startswith(known)):
            return advice
    near = get_close_matches(key.replace(".", "_"), sorted(names), n=1, cutoff=0.6)
    if near:
        return f"no such setting; did you mean {dotted(near[0])}?"
    return f"no such setting; there are {', '.join(map(dotted, sorted(names)))}"


def dotted(name: str) -> str:
    """A setting by Kafka's spelling."""
    return name.replace("_", ".")
