"""What raylog's own producers of transactions raise."""

from raylog.actors.coordinators.codes import (
    INVALID_TRANSACTION_TIMEOUT,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)
from raylog.storage.errors import RaylogError


class ProducerFenced(RaylogError):
    """Another producer has the transactional id, or the coordinator has aborted the transaction."""

    code, error_name = PRODUCER_FENCED, "PRODUCER_FENCED"
    fields = ("transactional_id", "why")
    transactional_id: str
    why: str
    template = (
        "transactional.id={transactional_id}: {why}. What was not committed is aborted, and this "
        "producer can only be closed. A new one goes on after the last commit, and fences others"
    )


class TransactionFailed(RaylogError):
    """Something of a transaction was not written, so that it cannot be committed."""

    code, error_name = TRANSACTION_ABORTABLE, "TRANSACTION_ABORTABLE"
    fields = ("transactional_id", "why")
    transactional_id: str
    why: str
    template = (
        "the transaction of transactional.id={transactional_id} cannot be committed: {why}. Call "
        "abort_transaction; then begin another one, and do its work again"
    )


class TransactionAborted(RaylogError):
    """A record was not sent, since its transaction is aborted."""

    fields = ("transactional_id",)
    transactional_id: str
    template = "the transaction of transactional.id={transactional_id} is aborted"


class IllegalTransactionState(RaylogError):
    """A call that a producer of transactions does not take now."""

    fields = ("call", "why")
    call: str
    why: str
    template = "{call}: {why}"


class InvalidTransactionTimeout(RaylogError):
    """The broker allows no transaction to be open for so long."""

    code, error_name = INVALID_TRANSACTION_TIMEOUT, "INVALID_TRANSACTION_TIMEOUT"
    fields = ("transaction_timeout_ms",)
    transaction_timeout_ms: int
    template = (
        "transaction.timeout.ms={transaction_timeout_ms} is above transaction.max.timeout.ms of "
        "the broker; give a smaller one"
    )
