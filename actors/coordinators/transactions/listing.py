"""DescribeTransactions and ListTransactions: what administrators ask."""

from raylog.actors.coordinators.codes import (
    INVALID_REQUEST,
    NONE,
    TRANSACTIONAL_ID_NOT_FOUND,
)
from raylog.actors.coordinators.transactions.messages import (
    DescribeAnswer,
    DescribedTransaction,
    DescribeRequest,
    ListAnswer,
    ListedTransaction,
    ListRequest,
)
from raylog.actors.coordinators.transactions.table import TransactionTable
from raylog.actors.coordinators.transactions.transaction import State, Transaction
from raylog.storage.schemas.transactions import TRANSACTION_STATES


def describe(table: TransactionTable, request: DescribeRequest) -> DescribeAnswer:
    """Each id; of one that is decided, the partitions that have no marker yet."""
    return DescribeAnswer(tuple(_described(table, one) for one in request.transactional_ids))


def _described(table: TransactionTable, transactional_id: str) -> DescribedTransaction:
    if not transactional_id:
        return DescribedTransaction(transactional_id, INVALID_REQUEST)
    known = table.transactions.get(transactional_id)
    if known is None:
        return DescribedTransaction(transactional_id, TRANSACTIONAL_ID_NOT_FOUND)
    partitions = table.unmarked.get(transactional_id, known.partitions)
    return DescribedTransaction(
        transactional_id=transactional_id,
        state=name_of(known.state),
        timeout_ms=known.timeout_ms,
        start_ms=known.start_ms,
        producer_id=known.producer_id,
        epoch=known.epoch,
        partitions=tuple(sorted(partitions)),
    )


def list_transactions(table: TransactionTable, request: ListRequest, wall_ms: int) -> ListAnswer:
    """The ids that match; the states that are none are told."""
    unknown = tuple(one for one in request.states if one not in TRANSACTION_STATES)
    states = {one for one in request.states if one in TRANSACTION_STATES}
    if request.states and not states:
        return ListAnswer(NONE, unknown)
    listed = []
    for known in table.transactions.values():
        if states and name_of(known.state) not in states:
            continue
        if request.producer_ids and known.producer_id not in request.producer_ids:
            continue
        if request.older_than_ms >= 0 and not _is_older(known, request.older_than_ms, wall_ms):
            continue
        listed.append(
            ListedTransaction(known.transactional_id, known.producer_id, name_of(known.state))
        )
    return ListAnswer(NONE, unknown, tuple(listed))


def _is_older(known: Transaction, duration_ms: int, wall_ms: int) -> bool:
    is_open = known.state is State.ONGOING or known.state.is_decided
    return is_open and wall_ms - known.start_ms > duration_ms


def name_of(state: State) -> str:
    """As Kafka's tools show it."""
    return TRANSACTION_STATES[state.value]
