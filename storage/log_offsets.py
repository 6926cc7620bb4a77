"""Where a log begins, and up to where it is flushed: what its checkpoints will say of it."""

from raylog.storage.locks import LogLocks


class LogOffsets:
    """``start``: the log start offset. ``recovery_point``: below it all is on the disk."""

    def __init__(self, locks: LogLocks, start: int, recovery_point: int) -> None:
        self._locks = locks
        self.start = start
        self.recovery_point = max(recovery_point, start)
        self._cut = (-1, -1)  # where the records end since the last truncation, and where it was

    def raise_start(self, offset: int) -> None:
        """The log begins there now. What lies below needs no recovery."""
        self.start = offset
        self.flushed_to(offset)

    def flushed_to(self, offset: int) -> None:
        """Advance the recovery point; not above the last record before a cut.

        Retention and a flush do this beside each other.
        """
        records_end, cut_at = self._cut
        if offset <= cut_at:
            offset = min(offset, records_end)
        with self._locks.list:
            self.recovery_point = max(self.recovery_point, offset)

    def lower_recovery_point(self, offset: int) -> None:
        """The log will be cut, and after a crash may end there."""
        self.recovery_point = min(self.recovery_point, offset)

    def cut(self, records_end: int, offset: int) -> None:
        """The log will end at ``offset``, and its last record before ``records_end``."""
        self._cut = records_end, offset

    def lower_start(self, offset: int) -> None:
        """The log ends at ``offset`` now, which may be below its start."""
        self.start = min(self.start, offset)

    def empty_at(self, offset: int) -> None:
        """The log has no records, and goes on at ``offset``."""
        self._cut = offset, offset
        self.raise_start(offset)
