"""AddPartitionsToTxn, AddOffsetsToTxn: partitions come into a transaction before they are written.

Each is in the log before it is answered: a partition that the coordinator forgot would never get a
marker. The leader of a partition asks, too, whether it is in the transaction, before it takes the
first batch: so a batch that comes late, when the transaction has ended, opens nothing that nobody
ends (KIP-890). Source: ``TransactionCoordinator.handleAddPartitionsToTransaction`` of Kafka.
"""

from dataclasses import replace

from raylog.actors.coordinators.codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)
from raylog.actors.coordinators.transactions.messages import (
    AddPartitionsAnswer,
    AddPartitionsRequest,
    Owner,
    PrepareAnswer,
    PrepareRequest,
    VerifyAnswer,
    VerifyRequest,
)
from raylog.actors.coordinators.transactions.transaction import State, Transaction
from raylog.actors.coordinators.transactions.turn import Answered, Token, Turn


def add(known: Transaction | None, request: AddPartitionsRequest, token: Token, turn: Turn) -> None:
    """Put partitions into a transaction; the first ones begin it."""
    if known is None:
        turn.reply(token, AddPartitionsAnswer(INVALID_PRODUCER_ID_MAPPING))
        return
    code = _why_no_owner(known, request.owner)
    if not code and known.is_prepared:
        code = INVALID_TXN_STATE
    is_ongoing = known.state is State.ONGOING
    if code or (is_ongoing and known.partitions.issuperset(request.partitions)):
        turn.reply(token, AddPartitionsAnswer(code))
        return
    added = replace(
        known,
        state=State.ONGOING,
        partitions=known.partitions | frozenset(request.partitions),
        start_ms=known.start_ms if is_ongoing else turn.wall_ms,
        updated_ms=turn.wall_ms,
        version=request.version,
    )
    turn.change(added, Answered(token, AddPartitionsAnswer(NONE)))


def _why_no_owner(known: Transaction, owner: Owner) -> int:
    """The code for who may not change the transaction; 0 for who may.

    Before the epoch it is looked whether markers are on their way: they may have raised it, and its
    owner is not fenced by that (KAFKA-18660).
    """
    if known.producer_id != owner.producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    if known.state.is_decided:
        return CONCURRENT_TRANSACTIONS
    return NONE if known.is_current(owner.epoch) else PRODUCER_FENCED


def verify(known: Transaction | None, request: VerifyRequest) -> VerifyAnswer:
    """Which partitions are in a transaction that takes batches."""
    code = INVALID_PRODUCER_ID_MAPPING if known is None else _why_no_owner(known, request.owner)
    if known is None or code:
        return VerifyAnswer((code,) * len(request.partitions))
    may_write = known.state is State.ONGOING and not known.is_prepared
    return VerifyAnswer(
        tuple(
            NONE if may_write and one in known.partitions else TRANSACTION_ABORTABLE
            for one in request.partitions
        )
    )


def prepare(known: Transaction | None, request: PrepareRequest, token: Token, turn: Turn) -> None:
    """From now on only its decision ends the transaction."""
    if known is None:
        turn.reply(token, PrepareAnswer(INVALID_PRODUCER_ID_MAPPING))
        return
    code = _why_no_owner(known, request.owner)
    if not code and known.state is not State.ONGOING:
        code = INVALID_TXN_STATE
    if code or known.is_prepared:
        turn.reply(token, PrepareAnswer(code))
        return
    prepared = replace(known, is_prepared=True, updated_ms=turn.wall_ms)
    turn.change(prepared, Answered(token, PrepareAnswer(NONE)))
