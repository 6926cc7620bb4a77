"""Clients hear of added partitions, while others come and go."""

import sys
import threading
from types import FrameType
from typing import Any

from raylog.cluster.client import added_partitions
from raylog.storage.testing.waiting import wait_for


class Client:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str, int]] = []

    def tell(self, namespace: str, topic: str, partitions: int) -> None:
        self.heard.append((namespace, topic, partitions))


def test_a_client_may_be_made_while_others_are_told() -> None:
    clients = [Client() for _ in range(3)]
    for client in clients:
        added_partitions.hear_of_partitions(client)
    late = Client()
    maker = threading.Thread(target=added_partitions.hear_of_partitions, args=(late,))

    def walk(frame: FrameType, event: str, _: Any) -> Any:
        """In the middle of the walk over the clients, another thread adds one."""
        is_walk = frame.f_code.co_filename.endswith("_weakrefset.py")
        if is_walk and frame.f_code.co_name == "__iter__" and event == "return":  # the first yield
            sys.settrace(None)
            maker.start()
            lock = getattr(added_partitions, "_lock", threading.Lock())
            wait_for(lambda: lock.locked() or not maker.is_alive(), 60, "added, or kept waiting")
        return walk

    before = sys.gettrace()
    sys.settrace(walk)
    try:
        added_partitions.partitions_added("n", "t", 4)
    finally:
        sys.settrace(before)
    maker.join()
    assert [client.heard for client in clients] == 3 * [[("n", "t", 4)]]
