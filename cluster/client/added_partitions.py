"""Clients of a process hear at once of the partitions that the same process adds to their topics.

Of what others add they hear within their ``metadata.max.age.ms``.
"""

import threading
from typing import Protocol
from weakref import WeakSet


class Hearer(Protocol):
    """A client that wants to know of partitions that this process adds."""

    def tell(self, namespace: str, topic: str, partitions: int) -> None: ...


_hearers: WeakSet[Hearer] = WeakSet()
_lock = threading.Lock()  # nobody may be added while the set is walked


def hear_of_partitions(client: Hearer) -> None:
    """Tell ``client`` for as long as it lives."""
    with _lock:
        _hearers.add(client)


def partitions_added(namespace: str, topic: str, partitions: int) -> None:
    """Tell all clients of this process."""
    with _lock:
        hearers = list(_hearers)
    for hearer in hearers:
        hearer.tell(namespace, topic, partitions)
