"""The end of a transaction, as its coordinator sends it to a partition."""

from typing import NamedTuple


class TransactionEnd(NamedTuple):
    """``raises_epoch``: it has another epoch than the batches (version 2 of transactions)."""

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    raises_epoch: bool = False

    @property
    def ended_epoch(self) -> int:
        """The last epoch whose batches it ends."""
        return self.epoch - self.raises_epoch
