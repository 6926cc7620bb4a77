"""The end of a transaction, as its coordinator sends it to a partition."""

from typing import NamedTuple


class TransactionEnd(NamedTuple):
    """``raises_epoch``: it has another epoch than the batches (version 2 of transactions).

    ``asked_at``: the end of the partition's log when it was asked for. What begins there or behind
    may be the next transaction: see ``Partition.write_end``. None: nobody can ask late.
    """

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    raises_epoch: bool = False
    asked_at: int | None = None

    @property
    def ended_epoch(self) -> int:
        """The last epoch whose batches it ends."""
        return self.epoch - self.raises_epoch
