"""How many partitions each member has, and who of some members has the fewest."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Set


class Loads:
    """The members in order of (number of partitions, id); each change keeps the order."""

    def __init__(self, members: Iterable[str]) -> None:
        self._counts = dict.fromkeys(members, 0)
        self._order = sorted((0, member) for member in self._counts)

    def __getitem__(self, member: str) -> int:
        return self._counts[member]

    def add(self, member: str, change: int) -> None:
        """The member has ``change`` partitions more."""
        place = (self._counts[member], member)
        del self._order[bisect_left(self._order, place)]
        self._counts[member] += change
        insort(self._order, (self._counts[member], member))

    def lightest(self, members: Set[str]) -> str:
        """Who of ``members``, at least one, has the fewest; the first by id of several."""
        return next(member for _, member in self._order if member in members)
