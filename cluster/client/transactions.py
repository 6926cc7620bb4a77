"""Transactions as an administrator sees them: which are open, who writes in them; or ended.

Two kinds of transactions stand in the way of readers of committed records:

- One that is open for long. Its coordinator knows it: ``describe`` shows its partitions, and
  ``fence`` aborts it in all of them, whatever its producer does next. Its coordinator would do the
  same when the producer's ``transaction.timeout.ms`` is over.
- One that *hangs*: a partition has it open, and no coordinator knows of it, so that nobody will
  ever end it. Leaders verify transactions to prevent this (KIP-890). ``find_hanging`` looks for
  those that came before, by a fault or with files of another broker, and ``abort`` ends one.

Every call waits for its answers, and repeats what may pass, for ``timeout_s`` each. Source:
``TransactionsCommand`` and ``FenceProducersHandler`` of Kafka; KIP-664, KIP-939.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from raylog.actors.coordinators.codes import CONCURRENT_TRANSACTIONS
from raylog.actors.coordinators.errors import (
    MarkerRefused,
    NoOpenTransaction,
    TransactionalIdNotFound,
    TransactionEnding,
    TransactionOpen,
    TransactionPrepared,
    transaction_error,
)
from raylog.actors.coordinators.homes import partition_of
from raylog.actors.coordinators.transactions.messages import ListedTransaction
from raylog.actors.coordinators.transactions.transaction import NO_ID
from raylog.actors.errors import InvalidRequest, NotLeader, UnknownTopicOrPartition
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.records import DESCRIBE_PRODUCERS, INIT_PRODUCER_ID
from raylog.actors.plane.apis.transactions import (
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from raylog.cluster.client.asker import BACKOFF_S, TIMEOUT_S, Asker
from raylog.cluster.client.connection import GroupConnection
from raylog.cluster.client.consumer.group.offsets import Repeated
from raylog.cluster.client.consumer.waiter import Waiter
from raylog.storage.clock import Clock, SystemClock
from raylog.storage.errors import StorageError
from raylog.storage.names import TRANSACTION_STATE, TopicPartition
from raylog.storage.schemas.transactions import TRANSACTION_STATES
from raylog.storage.schemas.types import Value
from raylog.storage.state.producers import ProducerStanding

T = TypeVar("T")

# Kafka's transaction.max.timeout.ms: by then a coordinator has ended what it knows of.
LONGEST_TRANSACTION_MS: Final = 15 * 60_000
# Kafka's, of who fences: whoever takes the id next gives its own timeout.
_FENCE_TIMEOUT_MS: Final = 1
_ONGOING: Final = "Ongoing"
_PREPARE: Final = "Prepare"
_COMPLETE: Final = "Complete"


class TransactionDescription(NamedTuple):
    """A transactional id, and its transaction.

    ``state``: Kafka's name, such as Ongoing. ``start_ms``: since the epoch, and ``age_ms``: of a
    transaction that is open or is being ended; else None. ``partitions``: those in it; when it is
    being ended, those that have no marker yet.
    """

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int | None
    age_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Whether it is Ongoing, or is being ended."""
        return self.state == _ONGOING or self.state.startswith(_PREPARE)


class Fenced(NamedTuple):
    """What became of a transactional id. ``producer_id``, ``epoch``: what it has now.

    ``ended``: of the transaction that was open, Commit or Abort; None where there was none.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    ended: str | None


class HangingTransaction(NamedTuple):
    """An open transaction of a partition that no coordinator knows of."""

    partition: TopicPartition
    producer: ProducerStanding

    @property
    def start_offset(self) -> int:
        return self.producer.transaction_start


class Transactions:
    """See the module's head. Not safe for threads."""

    def __init__(
        self,
        connection: GroupConnection,
        *,
        timeout_s: float = TIMEOUT_S,
        waiter: Waiter | None = None,
        clock: Clock | None = None,
    ) -> None:
        """``clock``: the wall's, for ages."""
        self._asker = Asker(connection, timeout_s=timeout_s, waiter=waiter)
        self._timeout_s, self._clock = timeout_s, clock or SystemClock()

    # -- what there is -----------------------------------------------------------------------------

    def list(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        older_than_ms: int | None = None,
    ) -> tuple[ListedTransaction, ...]:
        """All transactional ids, sorted; or those that match all that is given.

        ``states``: Kafka's names. ``older_than_ms``: open for longer than that.
        """
        wanted = list(states)
        for state in wanted:
            if state not in TRANSACTION_STATES:
                why = f"is no state of a transaction; take of {', '.join(TRANSACTION_STATES)}"
                raise InvalidRequest("state", state, why)
        filters: Value = {
            "stateFilters": wanted,
            "producerIdFilters": list(producer_ids),
            "durationFilter": NO_ID if older_than_ms is None else older_than_ms,
        }
        asked = self._of_homes(LIST_TRANSACTIONS, filters, _listed)
        return tuple(sorted(one for some in asked.values() for one in self._asker.result(some)))

    def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises TransactionalIdNotFound."""
        found = self._described(self._home_of(transactional_id), [transactional_id])
        descriptions = self._asker.result(found)
        if not descriptions:
            raise TransactionalIdNotFound(transactional_id)
        return descriptions[0]

    def producers(self, topic: str, partition: int) -> tuple[ProducerStanding, ...]:
        """The producers that a partition knows, by id. Raises UnknownTopicOrPartition.

        ``transaction_start``: where the open transaction of one begins; -1 where it has none.
        ``timestamp``: ms since the epoch, of its last batch or marker.
        """
        return self._asker.result(self._producers(TopicPartition(topic, partition)))

    def find_hanging(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        older_than_ms: int = LONGEST_TRANSACTION_MS,
    ) -> tuple[HangingTransaction, ...]:
        """Open transactions that no coordinator knows of: in a partition, a topic, or all of them.

        ``older_than_ms``: by the time of a transaction's last records. 0 looks at all: what begins
        or ends meanwhile is not taken for one that hangs.
        """
        if topic is None and partition is not None:
            raise InvalidRequest("partition", partition, "is of no topic; give a topic, too")
        open_ones = self._open_in(self._partitions(topic, partition))
        now_ms = self._clock.now_ms()
        old = {one for one in open_ones if max(now_ms - one.producer.timestamp, 0) >= older_than_ms}
        # A coordinator knows a transaction before its partition does, and until it has its marker.
        # So what it does not know has ended since the partition was asked, or hangs.
        known = self._known({one.producer.producer_id for one in old})
        suspects = {_identity(one) for one in old if _place(one) not in known}
        still_open = self._open_in(sorted({partition for partition, *_ in suspects}))
        return tuple(sorted(one for one in still_open if _identity(one) in suspects))

    # -- changes -----------------------------------------------------------------------------------

    def fence(self, transactional_id: str) -> Fenced:
        """Abort the transaction of an id, if one is open, and shut its producer out.

        It returns when readers of committed records can go on. What had been decided before is not
        changed. Whoever takes the id next is let in. Raises TransactionalIdNotFound,
        TransactionPrepared, and TransactionEnding where partitions do not take their markers in
        time.
        """
        ends_at = self._asker.now() + self._timeout_s
        before, ended = self.describe(transactional_id), None
        while True:
            taken_over = self._take_over(transactional_id)
            if taken_over is not None:
                producer_id, epoch = taken_over
                return Fenced(transactional_id, producer_id, epoch, ended)
            now = self.describe(transactional_id)
            if _is_untouched(before, now):
                raise TransactionPrepared(transactional_id)
            ended = ended or _decision_of(now)
            if self._asker.now() >= ends_at:
                raise TransactionEnding(transactional_id, ", ".join(map(str, now.partitions)))
            before = now
            self._asker.pause(BACKOFF_S)

    def _take_over(self, transactional_id: str) -> tuple[int, int] | None:
        """The producer id and epoch that nobody else has; what is open is aborted first.

        None: its transaction is being ended, or is prepared.
        """

        def take(answer: Value) -> tuple[int, int] | None:
            code = answer["errorCode"]
            if code == CONCURRENT_TRANSACTIONS:
                return None
            _check(transactional_id, code)
            return answer["producerId"], answer["producerEpoch"]

        body: Value = {
            "transactionalId": transactional_id,
            "transactionTimeoutMs": _FENCE_TIMEOUT_MS,
            "producerId": NO_ID,
            "producerEpoch": NO_ID,
        }
        home = self._home_of(transactional_id)
        asked = self._asker.of_partition(home, INIT_PRODUCER_ID, body, take, is_read=False)
        return self._asker.result(asked)

    def abort(self, topic: str, partition: int, start_offset: int) -> HangingTransaction:
        """Write the marker that ends a hanging transaction. Returns what was ended.

        ``start_offset``: where it begins, as ``find_hanging`` says. Raises NoOpenTransaction, and
        TransactionOpen where it does not hang: ``fence`` its transactional id then.
        """
        place = TopicPartition(topic, partition)
        found = [one for one in self._open_in([place]) if one.start_offset == start_offset]
        if not found:
            raise NoOpenTransaction(str(place), start_offset)
        (hanging,) = found
        owner = self._known({hanging.producer.producer_id}).get(_place(hanging))
        if owner is not None:
            raise TransactionOpen(str(place), owner)
        self._write_marker(hanging)
        return hanging

    def _write_marker(self, hanging: HangingTransaction) -> None:
        """As of version 1 of transactions: with the epoch of the batches. It may be there twice."""
        place, producer = hanging
        marker = {
            "producerId": producer.producer_id,
            "producerEpoch": producer.epoch,
            "transactionResult": False,
            "topics": [{"name": place.topic, "partitionIndexes": [place.partition]}],
            "coordinatorEpoch": max(producer.coordinator_epoch, 0),
            "transactionVersion": 0,
        }

        def take(answer: Value) -> None:
            (written,) = answer["markers"]
            (part,) = (part for topic in written["topics"] for part in topic["partitions"])
            code = part["errorCode"]
            _check_partition(place, code)
            if code:
                raise MarkerRefused(str(place), producer.producer_id, code)

        body: Value = {"markers": [marker]}
        asked = self._asker.of_partition(place, WRITE_TXN_MARKERS, body, take, is_read=False)
        self._asker.result(asked)

    # -- asking coordinators -----------------------------------------------------------------------

    def _homes(self) -> Sequence[TopicPartition]:
        """Where coordinators are; none before the first transactional id."""
        try:
            known = self._asker.metadata(TRANSACTION_STATE)
        except UnknownTopicOrPartition:
            return ()
        return [TopicPartition(TRANSACTION_STATE, each.partition) for each in known.partitions]

    def _home_of(self, transactional_id: str) -> TopicPartition:
        """Raises TransactionalIdNotFound where there has never been one."""
        homes = self._homes()
        if not homes or not transactional_id:
            raise TransactionalIdNotFound(transactional_id)
        return homes[partition_of(transactional_id, len(homes))]

    def _of_homes(
        self, api: Api, body: Value, take: Callable[[Value], T]
    ) -> "dict[TopicPartition, Repeated[T]]":
        return {home: self._asker.of_partition(home, api, body, take) for home in self._homes()}

    def _described(
        self, home: TopicPartition, transactional_ids: Sequence[str]
    ) -> "Repeated[Sequence[TransactionDescription]]":
        """Of one coordinator; ids that it does not know are left out."""

        def take(body: Value) -> Sequence[TransactionDescription]:
            found = []
            for state in body["transactionStates"]:
                if state["errorCode"] == TransactionalIdNotFound.code:
                    continue
                _check(state["transactionalId"], state["errorCode"])
                found.append(_description(state, self._clock.now_ms()))
            return found

        body: Value = {"transactionalIds": list(transactional_ids)}
        return self._asker.of_partition(home, DESCRIBE_TRANSACTIONS, body, take)

    def _known(self, producer_ids: Iterable[int]) -> dict[tuple[int, TopicPartition], str]:
        """The transactional ids that have these producers' transactions open, by partition.

        Ids at rest have no partitions.
        """
        wanted = sorted(producer_ids)
        if not wanted:
            return {}
        filters: Value = {
            "stateFilters": [],
            "producerIdFilters": wanted,
            "durationFilter": NO_ID,
        }
        listed = self._of_homes(LIST_TRANSACTIONS, filters, _listed)
        described = []
        for home, asked in listed.items():
            names = [one.transactional_id for one in self._asker.result(asked)]
            if names:
                described.append(self._described(home, names))
        return {
            (one.producer_id, partition): one.transactional_id
            for some in described
            for one in self._asker.result(some)
            for partition in one.partitions
        }

    # -- asking partitions -------------------------------------------------------------------------

    def _partitions(self, topic: str | None, partition: int | None) -> Sequence[TopicPartition]:
        """Which are meant. Raises UnknownTopicOrPartition."""
        if topic is not None and partition is not None:
            return [TopicPartition(topic, partition)]
        found = []
        for name in self._asker.topics() if topic is None else [topic]:
            if name == TRANSACTION_STATE:  # there are no transactions in it
                continue
            try:
                known = self._asker.metadata(name)
            except UnknownTopicOrPartition:
                if topic is not None:
                    raise
                continue  # it has been deleted meanwhile
            found += [TopicPartition(name, each.partition) for each in known.partitions]
        return found

    def _open_in(self, partitions: Iterable[TopicPartition]) -> Sequence[HangingTransaction]:
        """All open transactions of partitions, whether they hang or not."""
        asked = {each: self._producers(each) for each in partitions}
        return [
            HangingTransaction(each, producer)
            for each in asked
            for producer in self._asker.result(asked[each])
            if producer.transaction_start >= 0
        ]

    def _producers(self, place: TopicPartition) -> "Repeated[tuple[ProducerStanding, ...]]":
        def take(body: Value) -> tuple[ProducerStanding, ...]:
            (part,) = (part for topic in body["topics"] for part in topic["partitions"])
            _check_partition(place, part["errorCode"])
            return tuple(sorted(map(_producer, part["activeProducers"])))

        topics = [{"name": place.topic, "partitionIndexes": [place.partition]}]
        return self._asker.of_partition(place, DESCRIBE_PRODUCERS, {"topics": topics}, take)


def _check(transactional_id: str, code: int) -> None:
    if code:
        raise transaction_error(transactional_id, code)


def _check_partition(partition: TopicPartition, code: int) -> None:
    """Raise an error that may pass; others are the caller's business."""
    if code == NotLeader.code:
        raise NotLeader(str(partition), "another process serves it, or will")
    if code == StorageError.code:
        raise StorageError(str(partition), "its log dir is offline; see `raylog health`")


def _listed(body: Value) -> Sequence[ListedTransaction]:
    _check("(all)", body["errorCode"])
    return [
        ListedTransaction(one["transactionalId"], one["producerId"], one["transactionState"])
        for one in body["transactionStates"]
    ]


def _description(state: Value, now_ms: int) -> TransactionDescription:
    found = TransactionDescription(
        transactional_id=state["transactionalId"],
        state=state["transactionState"],
        producer_id=state["producerId"],
        epoch=state["producerEpoch"],
        timeout_ms=state["transactionTimeoutMs"],
        start_ms=None,
        age_ms=None,
        partitions=tuple(
            TopicPartition(topic["topic"], number)
            for topic in state["topics"]
            for number in topic["partitions"]
        ),
    )
    start_ms = state["transactionStartTimeMs"]
    if not found.is_open or start_ms < 0:
        return found
    return found._replace(start_ms=start_ms, age_ms=max(now_ms - start_ms, 0))


def _producer(found: Value) -> ProducerStanding:
    return ProducerStanding(
        producer_id=found["producerId"],
        epoch=found["producerEpoch"],
        last_sequence=found["lastSequence"],
        timestamp=found["lastTimestamp"],
        coordinator_epoch=found["coordinatorEpoch"],
        transaction_start=found["currentTxnStartOffset"],
    )


def _place(one: HangingTransaction) -> tuple[int, TopicPartition]:
    return one.producer.producer_id, one.partition


def _identity(one: HangingTransaction) -> tuple[TopicPartition, int, int]:
    """Two transactions of a partition never begin at the same offset."""
    return one.partition, one.producer.producer_id, one.start_offset


def _is_untouched(before: TransactionDescription, now: TransactionDescription) -> bool:
    """Whether the same transaction is Ongoing, though an abort was asked for in between.

    Only one that is prepared withstands: any other has been decided before the answer came.
    """
    is_same = before.producer_id, before.epoch, before.start_ms
    return before.state == now.state == _ONGOING and is_same == (
        now.producer_id,
        now.epoch,
        now.start_ms,
    )


def _decision_of(found: TransactionDescription) -> str | None:
    """Commit or Abort, of a transaction that is decided; else None."""
    for beginning in (_PREPARE, _COMPLETE):
        if found.state.startswith(beginning):
            return found.state.removeprefix(beginning)
    return None
