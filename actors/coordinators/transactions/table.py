"""The transactional ids of one partition of ``__transaction_state``, as its records tell them."""

from raylog.actors.coordinators.transactions.records import read
from raylog.actors.coordinators.transactions.transaction import Transaction
from raylog.storage.buffers import Buffer
from raylog.storage.names import TopicPartition


class TransactionTable:
    """``replay`` changes it, when a record is in the log or read from it.

    ``unmarked``: of each decided transaction the partitions that have no marker yet. That is in
    memory alone: after a restart all partitions get another one, and nobody minds a second one.
    """

    def __init__(self) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.unmarked: dict[str, set[TopicPartition]] = {}

    def replay(self, key: Buffer, value: Buffer | None) -> Transaction | None:
        """A record of the log. Returns what it says; None for a tombstone. Raises InvalidRecord."""
        transactional_id, found = read(key, value)
        self.unmarked.pop(transactional_id, None)
        if found is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = found
        return found

    def validate(self) -> None:
        """Assert what is true between two events."""
        for transactional_id, transaction in self.transactions.items():
            assert transaction.transactional_id == transactional_id
            transaction.validate()
            waits = self.unmarked.get(transactional_id)
            if transaction.state.is_decided:
                assert waits is not None, f"{transactional_id} is decided, and nobody marks it"
                assert waits <= transaction.partitions
            else:
                assert waits is None
        assert self.unmarked.keys() <= self.transactions.keys()
