"""What producers and consumers say of a setting that they do not have."""

from collections.abc import Collection
from difflib import get_close_matches


def no_such_setting(key: str, names: Collection[str]) -> str:
    """The setting whose name is nearest to ``key``, or all; ``names``: with underscores."""
    near = get_close_matches(key.replace(".", "_"), sorted(names), n=1, cutoff=0.6)
    if near:
        return f"no such setting; did you mean {_dotted(near[0])}?"
    return f"no such setting; there are {', '.join(map(_dotted, sorted(names)))}"


def _dotted(name: str) -> str:
    return name.replace("_", ".")
