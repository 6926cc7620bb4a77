"""The groups and offsets of one partition of ``__consumer_offsets``, as its records tell them."""

from raylog.actors.coordinators.committed_offsets import CommittedOffsets
from raylog.actors.coordinators.group import Group
from raylog.actors.coordinators.group_records import GroupRecord, OffsetRecord, read
from raylog.storage.buffers import Buffer

_UNKNOWN_TIME = -1


class GroupTable:
    """``replay`` and ``replay_end`` change it, when a record is in the log or read from it.

    The groups themselves also have what is in memory alone: who has joined, who waits.
    """

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()
        # Groups of another kind: nothing is done for them but to keep their offsets.
        self.others: set[str] = set()

    def replay(
        self, key: Buffer, value: Buffer | None, at: int, producer_id: int | None = None
    ) -> None:
        """A record of the log. Raises InvalidRecord.

        ``at``: its offset. ``producer_id``: of the transaction that it is part of.
        """
        record = read(key, value)
        if isinstance(record, OffsetRecord):
            self._replay_offset(record, at, producer_id)
        elif isinstance(record, GroupRecord):
            if record.found is None:
                self.groups.pop(record.group_id, None)
            else:
                self.groups[record.group_id] = record.found
        elif record.begins:
            self.others.add(record.group_id)
            self.groups.pop(record.group_id, None)
        elif record.ends:
            self.others.discard(record.group_id)

    def _replay_offset(self, record: OffsetRecord, at: int, producer_id: int | None) -> None:
        if record.committed is None:
            self.offsets.remove(record.group, record.partition)
            return
        self.offsets.put(record.group, record.partition, record.committed, at, producer_id)
        if producer_id is None:
            self._make_simple(record.group)

    def replay_end(self, producer_id: int, *, is_commit: bool) -> None:
        """A marker of the log ends a producer's transaction."""
        for group in self.offsets.end(producer_id, is_commit=is_commit):
            self._make_simple(group)

    def _make_simple(self, group_id: str) -> None:
        if group_id not in self.groups and group_id not in self.others:
            self.groups[group_id] = Group(group_id, state_since_ms=_UNKNOWN_TIME)

    def validate(self) -> None:
        """Assert what is true between two events."""
        for group_id, group in self.groups.items():
            assert group.group_id == group_id
            group.validate()
        assert not self.others & self.groups.keys()
