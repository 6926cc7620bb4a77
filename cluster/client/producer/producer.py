"""The producer: records in, acknowledged batches in the log.

::

    send ---> the kernel's accumulator: each row's bytes into its partition's open batch
    send_arrow ---> encoded batches                |
                                                   v
    sender.py: one background thread --> machine.py, one a partition: what is sent, when, how often
                                                   |
                                                   v
                                     connection.py: Kafka's requests

A request whose answer is lost is sent again with the same producer id and sequence, and the log
answers a repeat with the offsets that it gave the first time: nothing is lost, and nothing is there
twice. Defaults and names are those of Kafka's producer.
"""

import atexit
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, SupportsIndex

from raylog.actors.errors import InvalidRequest, ProduceFailed, RequestTimedOut
from raylog.cluster.client.connection import Connection
from raylog.cluster.client.producer.config import ProducerConfig
from raylog.cluster.client.producer.delivery import SentRecord
from raylog.cluster.client.producer.rows import plain_partition, plain_topic
from raylog.cluster.client.producer.sender import Sender
from raylog.cluster.client.producer.taking import Taking
from raylog.storage.buffers import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

    from raylog.cluster.client.consumer.group.messages import GroupMetadata
    from raylog.cluster.client.producer.tables import SentTable
    from raylog.cluster.client.producer.transactions.transaction import Transactions

Headers = Mapping[str, Buffer | None] | Iterable[tuple[str, Buffer | None]]

# Beyond delivery.timeout.ms, flush waits this long for the last batch to be given up.
GRACE_S: Final = 1.0
# What ends those that are not closed, at the end of the process; also of those that nobody refers
# to any more.
_open: "dict[Sender, Callable[[], None]]" = {}


class Producer:
    """Sends records to topics. Safe for many threads.

    Use it as a context manager, or ``close`` it. A process that ends without it flushes first, for
    at most ``delivery.timeout.ms``, and says on stderr how many records it could not send.

    A record that could not be written makes its ``SentRecord.result`` raise ProduceFailed; if
    nobody asked for that, the next ``flush`` or ``close`` raises it: no loss is silent.
    """

    def __init__(
        self,
        connection: Connection,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        clock: Callable[[], float] = time.monotonic,
        is_threaded: bool = True,
        **more: Any,
    ) -> None:
        """Settings: ``config.py``. ``is_threaded`` False: tests call the sender's ``step``."""
        self.config = ProducerConfig.of({**(settings or {}), **more})
        self._taking = Taking(self.config, connection)
        self._sender = Sender(
            self.config, connection, self._taking.send, clock=clock, is_threaded=is_threaded
        )
        self._taking.sender = self._sender
        self._transactions = self._new_transactions(connection)
        # the compiled method itself: a call through a method of ours would cost as much again
        self.send = self._sender.accumulator.send  # type: ignore[method-assign]
        _remember(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: object, error: BaseException | None, _: object) -> None:
        """Close it. Where the body raised, what was taken is sent as well; if that fails, the
        body's error is raised, with a note."""
        if error is None:
            self.close()
            return
        if self._transactions is not None:
            self._transactions.close(self._limit_s(None), is_told=False)
        try:
            self.close()
        except (ProduceFailed, RequestTimedOut) as failure:
            error.add_note(f"raylog's producer: {failure}")

    def __reduce__(self) -> Any:
        raise TypeError(
            "a producer has a thread and records on their way, and cannot be pickled; send the "
            "Broker instead, and call broker.producer() there"
        )

    # -- sending -----------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        timestamp: SupportsIndex | datetime | None = None,
        headers: Headers | None = None,
        partition: SupportsIndex | None = None,
    ) -> SentRecord:
        """Take one record in; what is given may change afterwards.

        ``value``, ``key``: bytes, bytearray, memoryview or None; with a serializer, what it takes.
        ``timestamp``: ms since the epoch or a datetime (without a zone: UTC), default now.
        ``headers``: a mapping, or pairs. Without a partition the key decides (murmur2, as Kafka's),
        and without a key the records go in runs to one partition after another.

        Returns a Future of the record's RecordMetadata. Waits, at most ``max.block.ms``, for the
        topic's partitions and for room in ``buffer.memory``.

        Raises RecordTooLargeToSend, UnknownTopicOrPartition, InvalidTopic, InvalidRecord;
        BufferExhausted if there is no room; InvalidRequest once closed.
        """
        raise NotImplementedError("each producer has the kernel's method in this place")

    def send_arrow(
        self,
        topic: str,
        table: "pa.Table | pa.RecordBatch",
        *,
        partition: SupportsIndex | None = None,
    ) -> "SentTable":
        """Take in every row of a table. No Python object is made per record.

        Columns: ``value``, and as you like ``key`` (both of any binary or string type),
        ``timestamp`` (int64 ms, or any timestamp; finer than ms is cut), ``headers`` (list of
        struct of key, value). The other columns of ``Consumer.poll_arrow`` (topic, partition,
        offset, timestampType) are left out. Without a partition, keys decide row by row; rows
        without a key go to one partition after another.

        Returns a Future of the ranges of offsets; its ``offsets()`` has those of each row.

        Raises InvalidRecord for a table of another shape, UnknownTopicOrPartition,
        RecordTooLargeToSend, BufferExhausted; rows before the one that raised are sent.
        """
        from raylog.cluster.client.producer.tables import send_table  # Arrow, which rows do without

        number = None if partition is None else plain_partition(partition)
        return send_table(self._taking, self.config, plain_topic(topic), table, number)

    def partitions_for(self, topic: str) -> set[int]:
        """The numbers of a topic's partitions. Raises UnknownTopicOrPartition."""
        return set(range(self._taking.partitions(plain_topic(topic))))

    # -- transactions ------------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take ``transactional.id``: whoever had it is fenced, and what it left open is aborted.

        Call it once, before the first transaction. ``timeout``: in seconds, here and in the calls
        that follow; default ``max.block.ms``.

        Raises InvalidTransactionTimeout, CoordinatorRefused, RequestTimedOut (call it again).
        """
        self._of_transactions("init_transactions").init(timeout)

    def begin_transaction(self) -> None:
        """Records that are sent from now on count when the transaction is committed.

        Raises IllegalTransactionState if one is open.
        """
        self._of_transactions("begin_transaction").begin()

    def send_offsets_to_transaction(
        self, offsets: Any, group: "GroupMetadata", timeout: float | None = None
    ) -> None:
        """Have offsets of a group be committed with the transaction, instead of by its consumer.

        ``offsets``: as of ``Consumer.commit``, such as ``consumer.positions()``. ``group``:
        ``consumer.group_metadata()``, from after the last poll. Where this raises anything, the
        transaction can only be aborted: CommitFailed where others read the partitions by now,
        OffsetMetadataTooLarge, RequestTimedOut, TransactionFailed, ProducerFenced.
        """
        transactions = self._of_transactions("send_offsets_to_transaction")
        transactions.send_offsets(offsets, group, timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send what is left, and have the transaction count: all of it, or nothing.

        When this returns it is decided, whatever dies next. Readers of committed records see it a
        moment later.

        Raises TransactionFailed if something was not written (call ``abort_transaction``),
        RequestTimedOut if nobody knows whether it counts (call this again), ProducerFenced.
        """
        self._of_transactions("commit_transaction").commit(timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Have nothing of the transaction count; what was not sent is not sent any more.

        Raises RequestTimedOut (call this again), ProducerFenced.
        """
        self._of_transactions("abort_transaction").abort(timeout)

    def _of_transactions(self, call: str) -> "Transactions":
        if self._transactions is None:
            why = "needs transactions: make the producer with a transactional.id"
            raise InvalidRequest(call, None, why)
        return self._transactions

    def _new_transactions(self, connection: Connection) -> "Transactions | None":
        if self.config.transactional_id is None:
            self._taking.check_transaction = _nothing
            return None
        from raylog.cluster.client.producer.transactions.transaction import Transactions

        transactions = Transactions(self.config, connection, self._sender)
        self._taking.check_transaction = transactions.check
        return transactions

    # -- waiting -----------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Return when everything sent before is acknowledged; it does not linger meanwhile.

        The callbacks of all that have run by then.

        ``timeout``: in seconds, default ``delivery.timeout.ms``. Raises ProduceFailed if some was
        given up and nobody has seen that yet; RequestTimedOut.
        """
        self._sender.check_not_forked()
        if self._sender.is_own_thread():
            raise InvalidRequest("flush", "callback", "would wait for itself; flush elsewhere")
        limit_s = self._limit_s(timeout)
        is_done = self._sender.wait(self._sender.hurry(), limit_s)
        self._raise_failure()
        if not is_done:
            raise RequestTimedOut("flush", int(limit_s * 1000))

    def close(self, timeout: float | None = None) -> None:
        """Flush for at most ``timeout`` seconds (default: ``delivery.timeout.ms``), and end.

        What could not be sent in that time is given up. A transaction that is open is aborted.
        Raises ProduceFailed if something was given up and nobody has seen that yet.
        """
        if self._sender.is_closed:
            return
        if self._sender.is_own_thread():
            raise InvalidRequest("close", "callback", "would wait for itself; close elsewhere")
        if self._transactions is not None:
            self._transactions.close(self._limit_s(timeout), is_told=True)
        self._sender.close()
        try:
            self._sender.wait(self._sender.hurry(), self._limit_s(timeout))
        except BaseException as error:  # Ctrl-C: what is given up is told with it
            self._end()
            self._add_failure_to(error)
            raise
        self._end()
        self._raise_failure()

    def _end(self) -> None:
        _open.pop(self._sender, None)
        self._sender.stop()

    def _add_failure_to(self, error: BaseException) -> None:
        failure, records = self._sender.take_failures()
        if failure is not None:
            error.add_note(f"raylog's producer: {records} records in all: {failure}")

    def _raise_failure(self) -> None:
        """Raise what has failed and nobody has seen."""
        failure, records = self._sender.take_failures()
        if failure is None:
            return
        if records > failure.records:
            failure.add_note(f"{records} records in all were not acknowledged")
        raise failure

    def _limit_s(self, timeout: float | None) -> float:
        return _patience_s(self.config) if timeout is None else timeout


def _patience_s(config: ProducerConfig) -> float:
    return config.delivery_timeout_ms / 1000 + GRACE_S


def _remember(producer: Producer) -> None:
    """Flush it at the end of the process.

    Registered with the first producer: then Ray is imported, and its own end comes after ours.
    """
    if not _is_registered:
        _is_registered.append(True)
        atexit.register(_close_all)
        os.register_at_fork(after_in_child=_leave_to_parent)
    _open[producer._sender] = partial(
        _end_late, producer._sender, producer.config, producer._transactions
    )


_is_registered: list[bool] = []


def _close_all() -> None:
    """The process ends: send what is left, and say what could not be."""
    for sender in _open:
        sender.hurry()
    for end in list(_open.values()):
        end()


def _end_late(sender: Sender, config: ProducerConfig, transactions: "Transactions | None") -> None:
    if transactions is not None:
        transactions.close(_patience_s(config), is_told=True)
    sender.close()
    try:
        sender.wait(sender.hurry(), _patience_s(config))
    finally:  # also after Ctrl-C
        sender.stop()
        _tell_what_is_lost(sender)


def _leave_to_parent() -> None:
    """This is a forked child, without the producers' threads: their records are the parent's."""
    for sender in _open:
        sender.leave_to_parent()
    _open.clear()


def _nothing() -> None:
    """Without transactions a record may be taken at any time."""


def _tell_what_is_lost(sender: Sender) -> None:
    failure, records = sender.take_failures()
    if failure is None:
        return
    text = (
        f"raylog: {records} records of {sender.name} that was not closed were not acknowledged: "
        f"{failure.cause}"
    )
    print(text, file=sys.stderr, flush=True)
    warnings.warn(text, ResourceWarning, stacklevel=1)
