"""The calls of a producer of transactions, which wait for coordinators and for what is sent.

::

    init_transactions      InitProducerId      who had the id before is fenced
    begin_transaction      -                   records are taken in
    send                   Produce             the log adds its partition to the transaction
    send_offsets_...       TxnOffsetCommit     the group's coordinator adds its own
    commit_, abort_...     EndTxn              the answer has the epoch of the next transaction

This is version 2 of transactions (KIP-890): each end raises the epoch. So what comes late, of a
transaction that has ended, is refused wherever it arrives, and no partition is left open by it.

A request whose answer is lost is sent again, and coordinators answer what they have decided. While
a decision has no answer, nobody knows it: then only the same one may be asked for again.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from raylog.actors.coordinators.transactions.errors import (
    IllegalTransactionState,
    ProducerFenced,
    TransactionAborted,
    TransactionFailed,
)
from raylog.actors.errors import InvalidRequest, RequestTimedOut
from raylog.actors.plane.apis.records import INIT_PRODUCER_ID
from raylog.actors.plane.apis.transactions import END_TXN
from raylog.cluster.client.connection import Connection
from raylog.cluster.client.consumer.group.given import offsets_of
from raylog.cluster.client.consumer.group.messages import GroupMetadata
from raylog.cluster.client.producer.batches import ProducerIdentity
from raylog.cluster.client.producer.call_lock import CallLock
from raylog.cluster.client.producer.config import ProducerConfig
from raylog.cluster.client.producer.sender import Sender
from raylog.cluster.client.producer.transactions.asking import FENCES, Asking
from raylog.cluster.client.producer.transactions.bodies import end_body, init_body, offsets_body
from raylog.cluster.client.producer.transactions.states import CALLED_ONCE, NEXT, Call, State
from raylog.storage.errors import RaylogError
from raylog.storage.schemas.types import Value

logger = logging.getLogger(__name__)


class Transactions:
    """See the module's head. One call is made at a time."""

    def __init__(self, config: ProducerConfig, connection: Connection, sender: Sender) -> None:
        assert config.transactional_id is not None
        self._id: str = config.transactional_id
        self._config, self._sender = config, sender
        self._asking = Asking(self._id, config, connection, sender)
        self._calls = CallLock("producer")  # held by a call while it waits
        self._lock = CallLock("producer")  # guards the three below
        self._state = State.NEW
        self._why: RaylogError | None = None  # what is raised while it is FAILED or FENCED
        self._is_undecided = False  # a commit was given up before it asked for its decision
        self._has_sent = False  # whether others may know of the transaction
        self._has_closed = False
        sender.note_sent, sender.note_failure = self._note_sent, self._note_failure

    # -- calls -------------------------------------------------------------------------------------

    def init(self, timeout_s: float | None) -> None:
        """Take the id."""
        with self._calling(Call.INIT, timeout_s) as deadline:
            body = init_body(self._id, self._config.transaction_timeout_ms)
            answer = self._asking.coordinator(Call.INIT.value, INIT_PRODUCER_ID, body, deadline)
            self._take_epoch(answer)

    def begin(self) -> None:
        """Take records in."""
        with self._calling(Call.BEGIN, None):
            self._has_sent = False
            self._sender.open()

    def send_offsets(self, given: Any, group: GroupMetadata, timeout_s: float | None) -> None:
        """Have offsets count with the transaction. ``given``: as a user gives them."""
        with self._calling(Call.SEND_OFFSETS, timeout_s) as deadline:
            try:
                self._send_offsets(given, group, deadline)
            except BaseException as error:  # also where nobody knows whether they are in it
                self._note_failure(error)
                raise

    def _send_offsets(self, given: Any, group: GroupMetadata, deadline: float) -> None:
        offsets = offsets_of(given)
        if not isinstance(group, GroupMetadata):
            raise InvalidRequest("group", group, "must be the group_metadata() of a consumer")
        if not offsets:
            return
        self._note_sent()
        body = offsets_body(self._id, self._sender.identity, group, offsets)
        self._asking.commit_offsets(Call.SEND_OFFSETS.value, group.group_id, body, deadline)

    def commit(self, timeout_s: float | None) -> None:
        """Wait for what was sent, and decide."""
        with self._calling(Call.COMMIT, timeout_s) as deadline:
            try:
                self._wait_for_batches(Call.COMMIT, deadline)
            except BaseException:
                self._is_undecided = True
                raise
            with self._lock.thread, self._lock.alone():
                has_failed = self._state is not State.COMMITTING
            if has_failed:
                self._sender.take_failures()  # they are told here
                raise self._told()
            self._end(Call.COMMIT, deadline)

    def abort(self, timeout_s: float | None) -> None:
        """Give up what was not sent, and decide."""
        with self._calling(Call.ABORT, timeout_s) as deadline:
            self._sender.give_up(TransactionAborted(self._id))
            self._wait_for_batches(Call.ABORT, deadline)
            self._sender.take_failures()  # they are what the user gives up
            self._end(Call.ABORT, deadline)

    def check(self) -> None:
        """Raises where no record may be taken now."""
        with self._lock.thread, self._lock.alone():
            self._next(Call.SEND)

    def close(self, timeout_s: float, *, is_told: bool) -> None:
        """Abort what is open, so that no reader waits for it until its timeout. Once.

        ``is_told``: log that there was something, which nobody has asked to abort.
        """
        if self._sender.is_closed or self._has_closed:
            return
        with self._lock.thread, self._lock.alone():
            if self._state is State.COMMITTING and self._is_undecided:
                self._state = State.OPEN
            state = self._state
        if state is State.COMMITTING:
            logger.warning("%s closes, and does not know whether its commit counts", self._name)
        if state in (State.OPEN, State.FAILED, State.ABORTING):
            self._abort_at_close(timeout_s, is_told=is_told)
        self._has_closed = True

    def _abort_at_close(self, timeout_s: float, *, is_told: bool) -> None:
        if is_told and (self._has_sent or self._sender.has_waiting):
            logger.warning("%s closes within a transaction, which is aborted", self._name)
        try:
            self.abort(timeout_s)
        except RaylogError as error:
            logger.warning(
                "%s: its transaction is open until transaction.timeout.ms: %s", self._name, error
            )

    @property
    def _name(self) -> str:
        return f"the producer with transactional.id={self._id}"

    # -- states ------------------------------------------------------------------------------------

    @contextmanager
    def _calling(self, call: Call, timeout_s: float | None) -> Iterator[float]:
        """Be the only call, in the state that it leads to; yields its deadline."""
        self._sender.check_not_forked()
        if self._sender.is_own_thread():
            raise InvalidRequest(call.value, "callback", "would wait for itself; call it elsewhere")
        patience_s = self._config.max_block_ms / 1000 if timeout_s is None else timeout_s
        with self._calls.thread, self._calls.alone():
            if self._sender.is_closed:
                raise InvalidRequest(call.value, "closed", "create a new producer")
            self._sender.lock.check()
            with self._lock.thread, self._lock.alone():
                self._state = self._next(call)
                self._is_undecided = False
            if self._state is not State.OPEN:
                self._sender.shut()
            try:
                yield self._sender.clock() + patience_s
            except ProducerFenced as fenced:
                with self._lock.thread, self._lock.alone():
                    self._state, self._why = State.FENCED, fenced
                raise

    def _next(self, call: Call) -> State:
        """Where a call leads. Raises what keeps it from being made. The lock is held."""
        following = NEXT.get((self._state, call))
        if following is not None:
            return following
        if self._why is not None:
            raise self._told()
        why = CALLED_ONCE if call is Call.INIT else self._state.value
        raise IllegalTransactionState(call.value, why)

    def _told(self) -> RaylogError:
        """What has failed, to be raised once more."""
        assert self._why is not None
        told = copy(self._why)
        told.__cause__ = self._why.__cause__
        return told

    def _take_epoch(self, answer: Value) -> None:
        """The next transaction has this one."""
        producer_id, epoch = answer["producerId"], answer["producerEpoch"]
        self._sender.begin_transaction(ProducerIdentity(producer_id, epoch, is_transactional=True))
        self._be_ready()

    def _be_ready(self) -> None:
        with self._lock.thread, self._lock.alone():
            self._state, self._why = State.READY, None

    def _note_sent(self) -> None:
        self._has_sent = True

    def _note_failure(self, error: BaseException) -> None:
        """Something of the transaction has failed: nothing more of it is sent."""
        with self._lock.thread, self._lock.alone():
            if self._state not in (State.OPEN, State.COMMITTING):
                return
            fence = FENCES.get(error.code) if isinstance(error, RaylogError) else None
            if fence is None:
                self._state = State.FAILED
                why: RaylogError = TransactionFailed(self._id, str(error) or repr(error))
            else:
                self._state, why = State.FENCED, ProducerFenced(self._id, fence)
            why.__cause__ = error
            self._why = why
        self._sender.shut()
        self._sender.give_up(why)

    # -- the end -----------------------------------------------------------------------------------

    def _wait_for_batches(self, call: Call, deadline: float) -> None:
        left_s = max(deadline - self._sender.clock(), 0.0)
        if not self._sender.wait(self._sender.hurry(), left_s):
            raise RequestTimedOut(call.value, round(left_s * 1000))

    def _end(self, call: Call, deadline: float) -> None:
        """Decide, unless nobody but this producer knows of the transaction."""
        if not self._has_sent:
            self._be_ready()
            return
        body = end_body(self._id, self._sender.identity, is_commit=call is Call.COMMIT)
        self._take_epoch(self._asking.coordinator(call.value, END_TXN, body, deadline))
