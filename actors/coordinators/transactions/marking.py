"""The way from a decision to its end: a marker for each partition, and one record more."""

from dataclasses import replace
from typing import Final

from raylog.actors.coordinators.transactions.table import TransactionTable
from raylog.actors.coordinators.transactions.transaction import NO_ID, State, Transaction
from raylog.actors.coordinators.transactions.turn import (
    Completed,
    CompletionIsDue,
    SendMarkers,
    Turn,
)
from raylog.storage.names import TopicPartition

# When the log did not take the last record.
COMPLETE_AGAIN_MS: Final = 1_000


def mark(table: TransactionTable, transaction: Transaction, turn: Turn) -> None:
    """Its decision is in the log: send the markers."""
    transactional_id = transaction.transactional_id
    table.unmarked[transactional_id] = set(transaction.partitions)
    if not transaction.partitions:
        complete(transaction, turn)
        return
    turn.send(
        SendMarkers(
            transactional_id=transactional_id,
            producer_id=transaction.producer_id,
            epoch=transaction.epoch,
            is_commit=transaction.state.is_commit,
            version=transaction.version,
            partitions=tuple(sorted(transaction.partitions)),
        )
    )


def marked(
    table: TransactionTable, markers: SendMarkers, partition: TopicPartition, turn: Turn
) -> None:
    """A partition has its marker, or needs none any more."""
    transaction = table.transactions.get(markers.transactional_id)
    waits = table.unmarked.get(markers.transactional_id)
    if transaction is None or waits is None or partition not in waits:
        return
    if (transaction.producer_id, transaction.epoch) != (markers.producer_id, markers.epoch):
        return
    waits.discard(partition)
    if not waits:
        complete(transaction, turn)


def complete(transaction: Transaction, turn: Turn) -> None:
    """All have their markers. A producer id without epochs gives way to the next one."""
    is_commit = transaction.state.is_commit
    completed = replace(
        transaction,
        state=State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=turn.wall_ms,
    )
    if transaction.next_producer_id != NO_ID:
        completed = replace(
            completed,
            producer_id=transaction.next_producer_id,
            epoch=0,
            previous_producer_id=transaction.producer_id,
            next_producer_id=NO_ID,
        )
    turn.change(completed, Completed(transaction.transactional_id))


def complete_later(transactional_id: str, turn: Turn) -> None:
    """The log has refused the last record."""
    turn.timers.set(CompletionIsDue(transactional_id), turn.now_ms + COMPLETE_AGAIN_MS)


def complete_now(table: TransactionTable, transactional_id: str, turn: Turn) -> None:
    """Try again."""
    transaction = table.transactions.get(transactional_id)
    if transaction is not None and table.unmarked.get(transactional_id) == set():
        complete(transaction, turn)
