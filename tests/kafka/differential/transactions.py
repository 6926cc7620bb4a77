"""Questions about transactions, to their coordinator, and to that of groups.

No timeout ends anything while a test runs. Whoever asks waits after each end until it is complete:
how long that takes is each cluster's own.
"""

from typing import Any, Final

from raylog.actors.plane.apis.records import INIT_PRODUCER_ID
from raylog.actors.plane.apis.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
)
from raylog.storage.schemas.types import Value
from tests.kafka.differential.groups import committed_topics
from tests.kafka.differential.question import (
    OF_GROUPS,
    OF_TRANSACTIONS,
    Draw,
    ProducerEpoch,
    ProducerId,
    Question,
)
from tests.kafka.differential.records import PLAIN

IDS: Final = ("transaction-a", "transaction-b")
GROUP: Final = "of-transactions"
LAST_OF_CLIENTS: Final = 3  # versions of AddPartitionsToTxn above it are brokers'


def _id(draw: Draw) -> str:
    return draw.usually(draw.one(*IDS), draw.one(*IDS), "absent", "")


def _owner(draw: Draw, name: str) -> Value:
    epoch = draw.usually(
        ProducerEpoch(name), ProducerEpoch(name), ProducerEpoch(name, -1), ProducerEpoch(name, 1)
    )
    return {
        "producerId": draw.usually(ProducerId(name), ProducerId(name), 987_654_321),
        "producerEpoch": epoch,
    }


def init(draw: Draw) -> Question:
    name, version = _id(draw), draw.version(INIT_PRODUCER_ID)
    owner: Value = {"producerId": -1, "producerEpoch": -1}
    if version >= 3 and draw.chance(0.4):
        owner = _owner(draw, name)
    body = {
        "transactionalId": name,
        "transactionTimeoutMs": draw.usually(900_000, 0, -1, 900_001),
        **owner,
    }
    return Question(INIT_PRODUCER_ID, version, body, OF_TRANSACTIONS)


def add_partitions(draw: Draw) -> Question:
    name = _id(draw)
    version = draw.usually(draw.random.randint(0, LAST_OF_CLIENTS), *range(4, 6))
    names = dict.fromkeys(draw.some(2, lambda: draw.usually(PLAIN, "small", "no-such")))
    topics = [{"name": one, "partitions": [draw.usually(0, 9)]} for one in names]
    owner = _owner(draw, name)
    body: Value
    if version <= LAST_OF_CLIENTS:
        body = {
            "v3AndBelowTransactionalId": name,
            "v3AndBelowProducerId": owner["producerId"],
            "v3AndBelowProducerEpoch": owner["producerEpoch"],
            "v3AndBelowTopics": topics,
        }
    else:
        one = {"transactionalId": name, **owner, "verifyOnly": draw.one(True, False)}
        body = {"transactions": [{**one, "topics": topics}]}
    return Question(ADD_PARTITIONS_TO_TXN, version, body, OF_TRANSACTIONS)


def add_offsets(draw: Draw) -> Question:
    name = _id(draw)
    body = {
        "transactionalId": name,
        **_owner(draw, name),
        "groupId": draw.usually(GROUP, GROUP, ""),
    }
    return Question(ADD_OFFSETS_TO_TXN, draw.version(ADD_OFFSETS_TO_TXN), body, OF_TRANSACTIONS)


def commit_offsets(draw: Draw) -> Question:
    name = _id(draw)
    member: Any = draw.usually("", "no-such")
    body = {
        "transactionalId": name,
        "groupId": draw.usually(GROUP, GROUP, ""),
        **_owner(draw, name),
        "generationId": draw.usually(-1, 0),
        "memberId": member,
        "groupInstanceId": draw.usually(None, None, "other"),
        "topics": committed_topics(draw),
    }
    return Question(TXN_OFFSET_COMMIT, draw.version(TXN_OFFSET_COMMIT), body, OF_GROUPS)


def end(draw: Draw) -> Question:
    name = _id(draw)
    body = {"transactionalId": name, **_owner(draw, name), "committed": draw.one(True, False)}
    return Question(END_TXN, draw.version(END_TXN), body, OF_TRANSACTIONS)


def describe(draw: Draw) -> Question:
    body = {"transactionalIds": draw.some(3, lambda: _id(draw))}
    return Question(DESCRIBE_TRANSACTIONS, 0, body, OF_TRANSACTIONS)


def list_all(draw: Draw) -> Question:
    body = {
        "stateFilters": draw.usually([], ["Ongoing"], ["ongoing"], ["Empty", "nonsense"]),
        "producerIdFilters": draw.usually([], [ProducerId(draw.one(*IDS))], [987_654_321]),
        "durationFilter": draw.usually(-1, 0, 600_000),
    }
    return Question(LIST_TRANSACTIONS, draw.version(LIST_TRANSACTIONS), body, OF_TRANSACTIONS)
