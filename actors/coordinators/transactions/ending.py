"""EndTxn: a transaction is decided, once and for ever.

The decision is in the log, and on the disk, before its producer is answered and before the first
marker leaves. So a commit that was answered is a commit, whatever dies next. Its records are seen
a moment later, when the partitions have their markers.

Version 1 of the protocol; its producer goes on with the same epoch:

================  ===============  ===============
state             commit           abort
================  ===============  ===============
Ongoing           PrepareCommit    PrepareAbort
Empty             48               48
PrepareCommit     51               48
PrepareAbort      48               51
CompleteCommit    0, a repetition  48
CompleteAbort     48               0, a repetition
================  ===============  ===============

Version 2 (KIP-890). Each end raises the epoch. So the epoch before the current one is of who asks
once more, since he has got no answer ("again"):

================  =============  =============  ============  ============
state             commit         commit, again  abort         abort, again
================  =============  =============  ============  ============
Ongoing           PrepareCommit  90             PrepareAbort  90
Empty             48             90             PrepareAbort  90
PrepareCommit     90             51             90            48
PrepareAbort      90             48             90            51
CompleteCommit    48             0              PrepareAbort  48
CompleteAbort     48             48             PrepareAbort  0
================  =============  =============  ============  ============

An abort with nothing open raises the epoch, too: a batch may be on its way of which nobody knows.
Where no epoch is left, markers have the largest one, and the next transaction another producer id.
Source: ``TransactionCoordinator.endTransaction`` of Kafka.
"""

from dataclasses import replace

from raylog.actors.coordinators.codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
)
from raylog.actors.coordinators.transactions.messages import (
    EndAnswer,
    EndRequest,
    ProducerIdNeeded,
)
from raylog.actors.coordinators.transactions.transaction import (
    NO_ID,
    VERSION_1,
    VERSION_2,
    State,
    Transaction,
)
from raylog.actors.coordinators.transactions.turn import Answered, Token, Turn


def end(known: Transaction | None, request: EndRequest, token: Token, turn: Turn) -> None:
    """Decide a transaction."""
    if known is None:
        turn.reply(token, EndAnswer(INVALID_PRODUCER_ID_MAPPING))
        return
    repeats = request.version >= VERSION_2 and _has_ended_it(known, request)
    code = NONE if repeats else _why_no_owner(known, request)
    if code:
        turn.reply(token, EndAnswer(code))
    elif repeats:
        turn.reply(token, _repeated(known, request))
    elif request.version >= VERSION_2:
        _end_2(known, request, token, turn)
    else:
        _end_1(known, request, token, turn)


def _why_no_owner(known: Transaction, request: EndRequest) -> int:
    if known.producer_id != request.owner.producer_id:
        return INVALID_PRODUCER_ID_MAPPING
    return NONE if known.is_current(request.owner.epoch) else PRODUCER_FENCED


def _has_ended_it(known: Transaction, request: EndRequest) -> bool:
    """Whether the producer has raised the epoch by this end, or by another one of the same.

    An epoch that a timeout or another producer has raised has no epoch before it (``fence``).
    """
    owner = request.owner
    if known.version < VERSION_2 or known.state in (State.EMPTY, State.ONGOING):
        return False
    is_its_id = owner.producer_id in (known.producer_id, known.previous_producer_id)
    return is_its_id and owner.epoch != NO_ID and owner.epoch == known.last_epoch


def _repeated(known: Transaction, request: EndRequest) -> EndAnswer:
    """The answer to who asks for what has been decided."""
    if known.state.is_commit != request.is_commit:
        return EndAnswer(INVALID_TXN_STATE)
    if known.state.is_decided:
        return EndAnswer(CONCURRENT_TRANSACTIONS)
    return EndAnswer(NONE, known.producer_id, known.epoch)


def _end_1(known: Transaction, request: EndRequest, token: Token, turn: Turn) -> None:
    if known.state is State.EMPTY:
        turn.reply(token, EndAnswer(INVALID_TXN_STATE))
    elif known.state is not State.ONGOING:
        turn.reply(token, _repeated(known, request))
    else:
        decided = replace(
            _decided(known, turn.wall_ms, is_commit=request.is_commit), version=VERSION_1
        )
        answer = EndAnswer(NONE, known.producer_id, known.epoch)
        turn.change(decided, Answered(token, answer))


def _end_2(known: Transaction, request: EndRequest, token: Token, turn: Turn) -> None:
    if known.state.is_decided:
        turn.reply(token, EndAnswer(PRODUCER_FENCED))
    elif request.is_commit and known.state is not State.ONGOING:
        turn.reply(token, EndAnswer(INVALID_TXN_STATE))
    elif known.is_exhausted and request.fresh_producer_id is None:
        turn.reply(token, ProducerIdNeeded())
    else:
        decided = replace(
            _decided(known, turn.wall_ms, is_commit=request.is_commit),
            epoch=known.epoch + 1,
            last_epoch=known.epoch,
            previous_producer_id=known.producer_id,
            version=VERSION_2,
        )
        answer = EndAnswer(NONE, decided.producer_id, decided.epoch)
        if known.is_exhausted:
            assert request.fresh_producer_id is not None
            decided = replace(decided, next_producer_id=request.fresh_producer_id)
            answer = EndAnswer(NONE, request.fresh_producer_id, 0)
        turn.change(decided, Answered(token, answer))


def fence(known: Transaction, wall_ms: int, *, is_asked_by_owner: bool = False) -> Transaction:
    """Abort a transaction that is open, and let nobody go on with its epoch.

    ``is_asked_by_owner``: its producer wants another epoch, and may ask again for this one.
    """
    return replace(
        _decided(known, wall_ms, is_commit=False),
        epoch=known.epoch + 1,
        last_epoch=known.epoch if is_asked_by_owner else NO_ID,
        previous_producer_id=NO_ID,
    )


def _decided(known: Transaction, wall_ms: int, *, is_commit: bool) -> Transaction:
    state = State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT
    return replace(known, state=state, updated_ms=wall_ms, is_prepared=False)
