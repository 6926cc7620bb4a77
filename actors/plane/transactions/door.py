"""Answers requests about transactions: to their coordinator, and to the leaders of partitions.

Versions differ in what they know of a fence: older ones are told INVALID_PRODUCER_EPOCH (47) where
newer ones are told PRODUCER_FENCED (90).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from raylog.actors.coordinators.codes import (
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    NONE,
    NOT_COORDINATOR,
    PRODUCER_FENCED,
)
from raylog.actors.coordinators.group_coordinator import GroupCoordinator
from raylog.actors.coordinators.refusals import NotServed
from raylog.actors.coordinators.transactions.messages import (
    AddPartitionsAnswer,
    AddPartitionsRequest,
    DescribeAnswer,
    DescribedTransaction,
    DescribeRequest,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    ListAnswer,
    ListRequest,
    Owner,
    TransactionRequest,
    VerifyAnswer,
    VerifyRequest,
)
from raylog.actors.coordinators.transactions.transaction import NO_ID, VERSION_1, VERSION_2
from raylog.actors.partition.transaction_end import TransactionEnd
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.records import INIT_PRODUCER_ID
from raylog.actors.plane.apis.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
)
from raylog.actors.plane.codes import NOT_LEADER, code_of
from raylog.actors.plane.errors import PeerAway, PeerGone
from raylog.actors.plane.frames import Request, answer, read_body
from raylog.actors.plane.hosts import Hosts
from raylog.actors.plane.hot.parts import NO_TOPIC_ID
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.transactions.service import Transactions
from raylog.storage.errors import RaylogError
from raylog.storage.names import CONSUMER_OFFSETS, TopicPartition
from raylog.storage.schemas.types import Value

# The first version that is told PRODUCER_FENCED.
_FENCES_FROM: Final = {
    INIT_PRODUCER_ID: 4,
    ADD_PARTITIONS_TO_TXN: 2,
    ADD_OFFSETS_TO_TXN: 2,
    END_TXN: 2,
}
_SEVERAL_FROM: Final = 4  # AddPartitionsToTxn: several transactions, of leaders
_RAISES_EPOCH_FROM: Final = 5  # EndTxn: version 2 of transactions
_ASKED_OF_EACH_FROM: Final = 2  # WriteTxnMarkers: the version of its transaction
_Answer = TypeVar("_Answer")


class _Asking:
    """One request's way to the coordinator of this process, if there is one."""

    def __init__(self, request: Request, transactions: Transactions | None) -> None:
        self._request, self.transactions = request, transactions

    def __call__(self, asked: TransactionRequest, kind: type[_Answer]) -> _Answer | int:
        """The answer, of its kind; or the code that says why there is none."""
        coordinator = None if self.transactions is None else self.transactions.coordinator
        if coordinator is None:
            return NOT_COORDINATOR
        found = coordinator.ask(asked)
        if isinstance(found, NotServed):
            return found.error_code
        assert isinstance(found, kind), found
        return found

    def why_not_here(self, transactional_id: str) -> int:
        """The code for an id that cannot be, or has its coordinator elsewhere; 0: ask here."""
        if not transactional_id:
            return INVALID_REQUEST
        if self.transactions is None:
            return NOT_COORDINATOR
        return self.transactions.why_not_here(transactional_id)

    def told(self, code: int) -> int:
        """A code as the request's version knows it."""
        first = _FENCES_FROM.get(self._request.api, 0)
        is_old = code == PRODUCER_FENCED and self._request.version < first
        return INVALID_PRODUCER_EPOCH if is_old else code


def _init(_: Request, body: Value, ask: _Asking) -> Value:
    transactional_id = body["transactionalId"]
    found: InitAnswer | int = ask.why_not_here(transactional_id)
    if found == NONE:
        owner = Owner(transactional_id, body["producerId"], body["producerEpoch"])
        found = ask(InitRequest(owner, body["transactionTimeoutMs"]), InitAnswer)
    if isinstance(found, int):
        found = InitAnswer(found)
    return {
        "throttleTimeMs": 0,
        "errorCode": ask.told(found.error_code),
        "producerId": found.producer_id,
        "producerEpoch": found.epoch,
    }


def _add_partitions(request: Request, body: Value, ask: _Asking) -> Value:
    if request.version < _SEVERAL_FROM:
        owner = Owner(
            body["v3AndBelowTransactionalId"],
            body["v3AndBelowProducerId"],
            body["v3AndBelowProducerEpoch"],
        )
        partitions = _named(body["v3AndBelowTopics"])
        codes = _add(owner, partitions, VERSION_1, ask)
        return {"throttleTimeMs": 0, "resultsByTopicV3AndBelow": _by_topic(partitions, codes)}
    results = []
    for one in body["transactions"]:
        owner = Owner(one["transactionalId"], one["producerId"], one["producerEpoch"])
        partitions = _named(one["topics"])
        if one["verifyOnly"]:
            codes = _verify(owner, partitions, ask)
        else:
            codes = _add(owner, partitions, VERSION_2, ask)
        results.append(
            {
                "transactionalId": owner.transactional_id,
                "topicResults": _by_topic(partitions, codes),
            }
        )
    return {"throttleTimeMs": 0, "errorCode": NONE, "resultsByTransaction": results}


def _add(owner: Owner, partitions: list[TopicPartition], version: int, ask: _Asking) -> list[int]:
    """The codes of the partitions: all of them are added, or none is."""
    code = ask.why_not_here(owner.transactional_id)
    if not code:
        assert ask.transactions is not None
        codes = ask.transactions.why_not_added(partitions)
        if codes:
            return codes
        found = ask(AddPartitionsRequest(owner, tuple(partitions), version), AddPartitionsAnswer)
        code = found if isinstance(found, int) else found.error_code
    return [ask.told(code)] * len(partitions)


def _verify(owner: Owner, partitions: list[TopicPartition], ask: _Asking) -> list[int]:
    found: VerifyAnswer | int = ask.why_not_here(owner.transactional_id)
    if found == NONE:
        found = ask(VerifyRequest(owner, tuple(partitions)), VerifyAnswer)
    if isinstance(found, int):
        return [found] * len(partitions)
    return list(found.error_codes)


def _add_offsets(_: Request, body: Value, ask: _Asking) -> Value:
    """The partition that has a group's offsets comes into the transaction."""
    owner = Owner(body["transactionalId"], body["producerId"], body["producerEpoch"])
    code = ask.why_not_here(owner.transactional_id)
    if not code:
        assert ask.transactions is not None
        try:
            partition = ask.transactions.offsets_of(body["groupId"])
        except PeerAway:
            partition = None
        code = COORDINATOR_NOT_AVAILABLE
        if partition is not None:
            (code,) = _add(owner, [partition], VERSION_1, ask)
    return {"throttleTimeMs": 0, "errorCode": code}


def _end(request: Request, body: Value, ask: _Asking) -> Value:
    owner = Owner(body["transactionalId"], body["producerId"], body["producerEpoch"])
    version = VERSION_2 if request.version >= _RAISES_EPOCH_FROM else VERSION_1
    found: EndAnswer | int = ask.why_not_here(owner.transactional_id)
    if found == NONE:
        found = ask(EndRequest(owner, body["committed"], version), EndAnswer)
    if isinstance(found, int):
        found = EndAnswer(found)
    return {
        "throttleTimeMs": 0,
        "errorCode": ask.told(found.error_code),
        "producerId": found.producer_id,
        "producerEpoch": found.epoch,
    }


def _describe(_: Request, body: Value, ask: _Asking) -> Value:
    names = body["transactionalIds"]
    found = ask(DescribeRequest(tuple(names)), DescribeAnswer)
    if isinstance(found, int):
        code = found
        found = DescribeAnswer(tuple(DescribedTransaction(name, code) for name in names))
    states = [
        {
            "errorCode": one.error_code,
            "transactionalId": one.transactional_id,
            "transactionState": one.state,
            "transactionTimeoutMs": one.timeout_ms,
            "transactionStartTimeMs": one.start_ms,
            "producerId": one.producer_id,
            "producerEpoch": one.epoch,
            "topics": [
                {"topic": topic, "partitions": [part.partition for part in some]}
                for topic, some in _grouped(one.partitions).items()
            ],
        }
        for one in found.transactions
    ]
    return {"throttleTimeMs": 0, "transactionStates": states}


def _list(request: Request, body: Value, ask: _Asking) -> Value:
    """Every broker is asked: who coordinates nothing has an empty list, and no error."""
    asked = ListRequest(
        states=tuple(body["stateFilters"]),
        producer_ids=tuple(body["producerIdFilters"]),
        older_than_ms=body["durationFilter"] if request.version else NO_ID,
    )
    found = ask(asked, ListAnswer)
    if isinstance(found, int):
        found = ListAnswer(NONE if found == NOT_COORDINATOR else found)
    states = [
        {
            "transactionalId": one.transactional_id,
            "producerId": one.producer_id,
            "transactionState": one.state,
        }
        for one in found.transactions
    ]
    return {
        "throttleTimeMs": 0,
        "errorCode": found.error_code,
        "unknownStateFilters": list(found.unknown_states),
        "transactionStates": states,
    }


_ANSWERS: Final[Mapping[Api, Callable[[Request, Value, _Asking], Value]]] = {
    INIT_PRODUCER_ID: _init,
    ADD_PARTITIONS_TO_TXN: _add_partitions,
    ADD_OFFSETS_TO_TXN: _add_offsets,
    END_TXN: _end,
    DESCRIBE_TRANSACTIONS: _describe,
    LIST_TRANSACTIONS: _list,
}
# What a coordinator is asked, but for InitProducerId, which others ask, too.
COORDINATOR_APIS: Final = frozenset(_ANSWERS) - {INIT_PRODUCER_ID}


def answer_transaction_request(request: Request, transactions: Transactions | None) -> bytes:
    """The answer to one of COORDINATOR_APIS, or to InitProducerId. Raises MalformedRequest."""
    body = read_body(request)
    return answer(request, _ANSWERS[request.api](request, body, _Asking(request, transactions)))


def write_markers(
    request: Request, hosts: Hosts, groups: GroupCoordinator | None, parking: Parking
) -> bytes:
    """The answer to a WriteTxnMarkers request: of a coordinator, or of an administrator.

    A marker of ``__consumer_offsets`` goes by its coordinator, so that the offsets that it commits
    count when it is answered.

    A coordinator that has waited for too long ends its connection, and asks again by another one.
    A process that stood still reads all these copies at once, and the next transaction may begin
    when the newest one is answered. So a copy whose sender has gone is dropped. Its sender may go
    right after that look: ``asked_at`` tells what has begun since.

    Raises MalformedRequest, and PeerGone where nobody waits for the answer.
    """
    ends = {(host.topic, host.number): host.partition.log.log_end_offset for host in hosts}
    if parking.has_peer_gone():
        raise PeerGone("its markers were asked for again")
    markers = []
    for marker in read_body(request)["markers"]:
        version = marker["transactionVersion"] if request.version >= _ASKED_OF_EACH_FROM else 0
        end = TransactionEnd(
            producer_id=marker["producerId"],
            epoch=marker["producerEpoch"],
            is_commit=marker["transactionResult"],
            coordinator_epoch=marker["coordinatorEpoch"],
            raises_epoch=version >= VERSION_2,
        )
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partitionIndex": number,
                        "errorCode": _write_marker(
                            topic["name"],
                            number,
                            end._replace(asked_at=ends.get((topic["name"], number))),
                            hosts,
                            groups,
                        ),
                    }
                    for number in topic["partitionIndexes"]
                ],
            }
            for topic in marker["topics"]
        ]
        markers.append({"producerId": end.producer_id, "topics": topics})
    return answer(request, {"markers": markers})


def _write_marker(
    name: str, number: int, end: TransactionEnd, hosts: Hosts, groups: GroupCoordinator | None
) -> int:
    host = hosts.find(name, NO_TOPIC_ID, number)
    if isinstance(host, int):
        return host
    try:
        if name != CONSUMER_OFFSETS:
            host.partition.end_transaction(end)
            return NONE
        if groups is None or groups.end_transaction(end) is not None:
            return NOT_LEADER  # a code that is tried again
    except RaylogError as error:
        return code_of(error)
    return NONE


def _named(topics: Iterable[Value]) -> list[TopicPartition]:
    return [
        TopicPartition(topic["name"], number) for topic in topics for number in topic["partitions"]
    ]


def _grouped(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition)
    return topics


def _by_topic(partitions: list[TopicPartition], codes: list[int]) -> list[Value]:
    code_by_partition = dict(zip(partitions, codes, strict=True))
    return [
        {
            "name": topic,
            "resultsByPartition": [
                {
                    "partitionIndex": one.partition,
                    "partitionErrorCode": code_by_partition[one],
                }
                for one in some
            ],
        }
        for topic, some in _grouped(partitions).items()
    ]
