"""Many names in a few words."""

from collections.abc import Iterable

NAMED_AT_MOST = 5


def named(names: Iterable[str]) -> str:
    """``t-0, t-1 and 3 more``."""
    listed = list(names)
    left = len(listed) - NAMED_AT_MOST
    return (
        ", ".join(listed) if left <= 0 else ", ".join(listed[:NAMED_AT_MOST]) + f" and {left} more"
    )
