"""The offsets that groups have committed, as the log tells them.

An offset that belongs to a transaction is *pending* until the transaction's marker: then it counts
if it was committed, and if nothing that lies behind it in the log has taken its place meanwhile. So
what is here is the same whether it was built record by record while they were written, or by
reading the log again, also after compaction. Source: ``OffsetMetadataManager`` of Kafka,
KAFKA-5247.
"""

from collections.abc import Mapping
from typing import NamedTuple

from raylog.actors.coordinators.group_records import Committed
from raylog.storage.names import TopicPartition


class _Placed(NamedTuple):
    """``at``: the offset of its record in ``__consumer_offsets``."""

    committed: Committed
    at: int


class CommittedOffsets:
    """Those of all groups. Only what is in the log changes them."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[TopicPartition, _Placed]] = {}
        self._pending: dict[int, dict[tuple[str, TopicPartition], _Placed]] = {}  # by producer id

    def put(
        self,
        group: str,
        partition: TopicPartition,
        committed: Committed,
        at: int,
        producer_id: int | None = None,
    ) -> None:
        """A record commits an offset; ``producer_id``: as part of this producer's transaction."""
        placed = _Placed(committed, at)
        if producer_id is not None:
            self._pending.setdefault(producer_id, {})[group, partition] = placed
        else:
            self._groups.setdefault(group, {})[partition] = placed

    def remove(self, group: str, partition: TopicPartition) -> None:
        """A tombstone takes an offset away, also from transactions that are open."""
        of_group = self._groups.get(group, {})
        of_group.pop(partition, None)
        if not of_group:
            self._groups.pop(group, None)
        for producer_id, pending in list(self._pending.items()):
            pending.pop((group, partition), None)
            if not pending:
                del self._pending[producer_id]

    def end(self, producer_id: int, *, is_commit: bool) -> set[str]:
        """A producer's transaction has ended; returns the groups that have new offsets by it."""
        pending = self._pending.pop(producer_id, {})
        if not is_commit:
            return set()
        for (group, partition), placed in pending.items():
            of_group = self._groups.setdefault(group, {})
            there = of_group.get(partition)
            if there is None or there.at < placed.at:
                of_group[partition] = placed
        return {group for group, _ in pending}

    def of(self, group: str) -> Mapping[TopicPartition, Committed]:
        """All that a group has committed."""
        return {
            partition: placed.committed for partition, placed in self._groups.get(group, {}).items()
        }

    def get(self, group: str, partition: TopicPartition) -> Committed | None:
        """What a group has committed of one partition."""
        placed = self._groups.get(group, {}).get(partition)
        return placed.committed if placed else None

    def pending_of(self, group: str) -> set[TopicPartition]:
        """The partitions of which open transactions hold offsets."""
        return {
            partition
            for pending in self._pending.values()
            for named, partition in pending
            if named == group
        }

    def __contains__(self, group: object) -> bool:
        return group in self._groups
