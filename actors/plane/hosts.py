"""Which partitions a process serves by socket: by name, by topic id, or why not.

A request names topics, or since Produce 13 and Fetch 13 gives their ids. A process that serves one
partition today may serve many later: nothing here or above counts on one.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from raylog.actors.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from raylog.actors.partition.partition import Partition
from raylog.actors.plane.codes import NOT_LEADER
from raylog.actors.plane.hot.parts import NO_TOPIC_ID
from raylog.storage.names import TopicPartition
from raylog.storage.state.epochs import NO_EPOCH


class Host(NamedTuple):
    """A partition that is served here. ``topic_id``: 16 bytes, as in requests.

    ``remove``: makes its records below an offset unreadable; see ``LivingLog.delete_records``.
    """

    topic: str
    topic_id: bytes
    number: int
    partition: Partition
    remove: Callable[[int], int]


class Hosts:
    """The partitions of this process. It never changes: another takes its place."""

    def __init__(self, hosts: Iterable[Host] = ()) -> None:
        hosts = list(hosts)
        self._by_name = {(host.topic, host.number): host for host in hosts}
        self._by_id = {(host.topic_id, host.number): host for host in hosts}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __iter__(self) -> Iterator[Host]:
        return iter(self._by_id.values())

    def find(self, name: str, topic_id: bytes, index: int) -> Host | int:
        """The partition, or the error code that says why it is not here.

        An id counts before a name. What is not here may be elsewhere, and the client has come to
        the wrong process: it looks its metadata up again.
        """
        if topic_id != NO_TOPIC_ID:
            return self._by_id.get((topic_id, index), NOT_LEADER)
        return self._by_name.get((name, index), NOT_LEADER)


def check_epoch(host: Host, client_epoch: int) -> None:
    """Raise FencedLeaderEpoch or UnknownLeaderEpoch for a client that knows another leader epoch.

    ``client_epoch``: -1 where it knows none. Source: KIP-320.
    """
    epoch = host.partition.leader_epoch
    if client_epoch in (NO_EPOCH, epoch):
        return
    kind = FencedLeaderEpoch if client_epoch < epoch else UnknownLeaderEpoch
    raise kind(str(TopicPartition(host.topic, host.number)), client_epoch, epoch)
