"""What a coordinator of transactions is asked, and what it answers, without the wire's versions.

The door reads a request of some version into one of these, and writes the answer in that version.
A fence is always PRODUCER_FENCED (90) here; versions that do not know it are told 47 by the door.
"""

from typing import NamedTuple, TypeAlias

from raylog.actors.coordinators.codes import NONE
from raylog.actors.coordinators.transactions.transaction import NO_ID
from raylog.storage.names import TopicPartition


class Owner(NamedTuple):
    """Who asks, as it knows itself."""

    transactional_id: str
    producer_id: int
    epoch: int


class InitRequest(NamedTuple):
    """A producer takes a transactional id.

    ``owner``: with the producer id and the epoch that it has had; both -1 where it has none.
    ``fresh_producer_id``: one that nobody has had, should it be needed; None: there is none yet.
    """

    owner: Owner
    timeout_ms: int
    fresh_producer_id: int | None = None


class InitAnswer(NamedTuple):
    error_code: int
    producer_id: int = NO_ID
    epoch: int = NO_ID


class ProducerIdNeeded(NamedTuple):
    """The same request is to be asked again, with a fresh producer id. Nothing has changed."""


class AddPartitionsRequest(NamedTuple):
    """``version``: of the transactions that its client makes."""

    owner: Owner
    partitions: tuple[TopicPartition, ...]
    version: int


class AddPartitionsAnswer(NamedTuple):
    error_code: int


class VerifyRequest(NamedTuple):
    """The leader of partitions asks whether they are in a transaction."""

    owner: Owner
    partitions: tuple[TopicPartition, ...]


class VerifyAnswer(NamedTuple):
    """The codes of the partitions, in their order."""

    error_codes: tuple[int, ...]


class PrepareRequest(NamedTuple):
    """All of a transaction is written, and somebody else decides (raylog's own)."""

    owner: Owner


class PrepareAnswer(NamedTuple):
    error_code: int


class EndRequest(NamedTuple):
    """``version``: of the transactions that its client makes. ``fresh_producer_id``: see above."""

    owner: Owner
    is_commit: bool
    version: int
    fresh_producer_id: int | None = None


class EndAnswer(NamedTuple):
    """``producer_id``, ``epoch``: for the next transaction; -1 with an error."""

    error_code: int
    producer_id: int = NO_ID
    epoch: int = NO_ID


class DescribeRequest(NamedTuple):
    transactional_ids: tuple[str, ...]


class DescribedTransaction(NamedTuple):
    """``partitions``: those that are in it, and have no marker yet.

    The defaults are those of an error, as Kafka answers it.
    """

    transactional_id: str
    error_code: int = NONE
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    epoch: int = 0
    partitions: tuple[TopicPartition, ...] = ()


class DescribeAnswer(NamedTuple):
    transactions: tuple[DescribedTransaction, ...]


class ListRequest(NamedTuple):
    """Only those that match all. ``states``, ``producer_ids``: none for all.

    ``older_than_ms``: for how long it must have been open; -1 for any.
    """

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    older_than_ms: int = -1


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


class ListAnswer(NamedTuple):
    error_code: int
    unknown_states: tuple[str, ...] = ()
    transactions: tuple[ListedTransaction, ...] = ()


TransactionRequest: TypeAlias = (
    InitRequest
    | AddPartitionsRequest
    | VerifyRequest
    | PrepareRequest
    | EndRequest
    | DescribeRequest
    | ListRequest
)
TransactionAnswer: TypeAlias = (
    InitAnswer
    | ProducerIdNeeded
    | AddPartitionsAnswer
    | VerifyAnswer
    | PrepareAnswer
    | EndAnswer
    | DescribeAnswer
    | ListAnswer
)
# Of requests that change something.
Changed: TypeAlias = InitAnswer | AddPartitionsAnswer | PrepareAnswer | EndAnswer
