"""InitProducerId: a producer takes a transactional id, and who had it before is fenced.

================  ============================================  ==================
the id is         the producer says                             answer
================  ============================================  ==================
not known         anything                                      a new producer id
prepared          anything                                      51
any               another producer id than the id has, or had   90
Prepare*          anything else                                 51
Ongoing           nothing, or the current epoch                 51, and it aborts
Ongoing           another epoch                                 90
Empty, Complete*  nothing, or the current epoch                 the next epoch
Empty, Complete*  the epoch for which it got the current one    the current epoch
Empty, Complete*  another epoch                                 90
================  ============================================  ==================

51 means "ask again": the markers are on their way, or the decision is. Where no epoch is left the
next one is the epoch 0 of a new producer id: the largest epoch is for a fence, and nobody gets it.
An abort of a transaction that is open raises the epoch by itself, so that its producer is fenced
before its markers are written; who takes the id raises it once more. Source:
``TransactionCoordinator.handleInitProducerId`` of Kafka; KIP-360.

In one case Kafka decides otherwise: an old epoch aborts the transaction of who has the current one.
"""

from dataclasses import replace
from typing import Final

from raylog.actors.coordinators.codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    NONE,
    PRODUCER_FENCED,
)
from raylog.actors.coordinators.transactions.ending import fence
from raylog.actors.coordinators.transactions.messages import (
    InitAnswer,
    InitRequest,
    Owner,
    ProducerIdNeeded,
)
from raylog.actors.coordinators.transactions.transaction import (
    MAX_EPOCH,
    NO_ID,
    NO_TIME,
    State,
    Transaction,
)
from raylog.actors.coordinators.transactions.turn import Answered, Token, Turn

# A record's key has its length in two bytes.
MAX_ID_BYTES: Final = 32_767


def begin(known: Transaction | None, request: InitRequest, token: Token, turn: Turn) -> None:
    """A producer takes an id. ``known``: what is known of it."""
    code = _why_wrong(request, turn)
    if not code and known is not None:
        code = _why_refused(known, request.owner)
    if code:
        turn.reply(token, InitAnswer(code))
    elif known is None:
        _take_fresh_id(None, request, token, turn)
    elif known.state is State.ONGOING:
        is_owner = request.owner.epoch != NO_ID
        aborted = fence(known, turn.wall_ms, is_asked_by_owner=is_owner)
        turn.change(aborted, Answered(token, InitAnswer(CONCURRENT_TRANSACTIONS)))
    elif _is_repeated(known, request.owner) and known.epoch != MAX_EPOCH:
        turn.reply(token, InitAnswer(NONE, known.producer_id, known.epoch))
    elif known.is_exhausted:
        _take_fresh_id(known, request, token, turn)
    else:
        _take_next_epoch(known, request, token, turn)


def _why_wrong(request: InitRequest, turn: Turn) -> int:
    owner = request.owner
    if not 1 <= len(owner.transactional_id.encode()) <= MAX_ID_BYTES:
        return INVALID_REQUEST
    if (owner.producer_id == NO_ID) != (owner.epoch == NO_ID):
        return INVALID_REQUEST
    if not 1 <= request.timeout_ms <= turn.config.max_timeout_ms:
        return INVALID_TRANSACTION_TIMEOUT
    return NONE


def _why_refused(known: Transaction, owner: Owner) -> int:
    if known.is_prepared:
        return CONCURRENT_TRANSACTIONS
    if owner.producer_id not in (NO_ID, known.producer_id, known.previous_producer_id):
        return PRODUCER_FENCED
    if known.state.is_decided:
        return CONCURRENT_TRANSACTIONS
    is_owner = owner.epoch == NO_ID or _is_current(known, owner)
    if is_owner or (known.state.is_at_rest and _is_repeated(known, owner)):
        return NONE
    return PRODUCER_FENCED


def _is_current(known: Transaction, owner: Owner) -> bool:
    return owner.producer_id == known.producer_id and known.is_current(owner.epoch)


def _is_repeated(known: Transaction, owner: Owner) -> bool:
    """Whether the producer has the current epoch by this same request, and its answer was lost."""
    if owner.epoch == NO_ID or owner.epoch != known.last_epoch:
        return False
    return owner.producer_id == known.producer_id or known.epoch == 0


def _take_fresh_id(
    known: Transaction | None, request: InitRequest, token: Token, turn: Turn
) -> None:
    if request.fresh_producer_id is None:
        turn.reply(token, ProducerIdNeeded())
        return
    taken = Transaction(
        transactional_id=request.owner.transactional_id,
        producer_id=request.fresh_producer_id,
        epoch=0,
        timeout_ms=request.timeout_ms,
        state=State.EMPTY,
        updated_ms=turn.wall_ms,
        last_epoch=NO_ID if known is None else request.owner.epoch,
        previous_producer_id=NO_ID if known is None else known.producer_id,
    )
    turn.change(taken, Answered(token, InitAnswer(NONE, taken.producer_id, 0)))


def _take_next_epoch(known: Transaction, request: InitRequest, token: Token, turn: Turn) -> None:
    taken = replace(
        known,
        epoch=known.epoch + 1,
        last_epoch=request.owner.epoch,
        timeout_ms=request.timeout_ms,
        state=State.EMPTY,
        updated_ms=turn.wall_ms,
        start_ms=NO_TIME,
        previous_producer_id=NO_ID,
    )
    turn.change(taken, Answered(token, InitAnswer(NONE, taken.producer_id, taken.epoch)))
