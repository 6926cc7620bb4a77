"""What happens to transactions by time: those open for too long are aborted, unused ids go.

A prepared transaction is exempt from both: only its decision ends it. Source:
``TransactionStateManager.timedOutTransactions`` and ``removeExpiredTransactionalIds`` of Kafka.
"""

from typing import Final

from raylog.actors.coordinators.log_record import LogRecord
from raylog.actors.coordinators.transactions.ending import fence
from raylog.actors.coordinators.transactions.records import transaction_key
from raylog.actors.coordinators.transactions.table import TransactionTable
from raylog.actors.coordinators.transactions.transaction import State, Transaction
from raylog.actors.coordinators.transactions.turn import (
    ByItself,
    ExpiryIsDue,
    TimeoutsAreDue,
    Turn,
)

# Of the tombstones of unused ids: so many in a batch.
EXPIRED_IN_A_BATCH: Final = 1_000


def abort_timed_out(table: TransactionTable, turn: Turn) -> None:
    """Abort the transactions that are open for longer than their producers have asked for."""
    turn.timers.set(TimeoutsAreDue(), turn.now_ms + turn.config.abort_interval_ms)
    for transaction in table.transactions.values():
        if _has_timed_out(transaction, turn.wall_ms):
            turn.change(fence(transaction, turn.wall_ms), ByItself())


def _has_timed_out(transaction: Transaction, wall_ms: int) -> bool:
    if transaction.state is not State.ONGOING or transaction.is_prepared:
        return False
    return transaction.start_ms + transaction.timeout_ms < wall_ms


def remove_unused(table: TransactionTable, turn: Turn) -> None:
    """Forget the ids of which nothing is open, and nothing has changed for long."""
    turn.timers.set(ExpiryIsDue(), turn.now_ms + turn.config.expiry_interval_ms)
    latest_ms = turn.wall_ms - turn.config.id_expiration_ms
    tombstones = [
        LogRecord(transaction_key(transaction.transactional_id), None)
        for transaction in table.transactions.values()
        if transaction.state.is_at_rest and transaction.updated_ms <= latest_ms
    ]
    for begin in range(0, len(tombstones), EXPIRED_IN_A_BATCH):
        turn.append(tuple(tombstones[begin : begin + EXPIRED_IN_A_BATCH]), ByItself())
