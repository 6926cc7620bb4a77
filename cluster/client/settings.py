"""What producers and consumers say of a setting that they do not have."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches


def no_such_setting(
    key: str, names: Collection[str], instead: Mapping[str, str] | None = None
) -> str:
    """What to use instead of ``key``; else the setting whose name is nearest to it, or all.

    ``names``: with underscores. ``instead``: by Kafka's keys; one that ends in a dot stands for all
    that begin so.
    """
    dotted = _dotted(key)
    for known, advice in (instead or {}).items():
        if dotted == known or (known.endswith(".") and dotted.startswith(known)):
            return advice
    near = get_close_matches(key.replace(".", "_"), sorted(names), n=1, cutoff=0.6)
    if near:
        return f"no such setting; did you mean {_dotted(near[0])}?"
    return f"no such setting; there are {', '.join(map(_dotted, sorted(names)))}"


def _dotted(name: str) -> str:
    return name.replace("_", ".")
