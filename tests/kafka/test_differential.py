"""The same requests to raylog and to a real Kafka: the answers are alike, field by field.

Requests are drawn by a seed, over APIs, versions and values, good ones and wrong ones
(``differential/``). What may differ is in ``differential/known.py``, each with its reason.
``RAYLOG_DIFFERENTIAL_SEED`` sets the seed, ``RAYLOG_DIFFERENTIAL_COUNT`` the number of requests.
"""

import os
import uuid
from collections.abc import Iterator, Mapping
from random import Random
from typing import Final

import pytest

from tests.harness import clusters
from tests.harness.librdkafka import running
from tests.kafka.broker import KafkaBroker
from tests.kafka.differential import cluster, configs, records, transactions
from tests.kafka.differential.alike import Difference
from tests.kafka.differential.groups import Groups
from tests.kafka.differential.known import KNOWN, reason_of
from tests.kafka.differential.pair import Pair
from tests.kafka.differential.question import Draw, Making, Question, drawn
from tests.kafka.differential.side import Side
from tests.kafka.distribution import Kafka

SEED: Final = int(os.environ.get("RAYLOG_DIFFERENTIAL_SEED", "1"))
COUNT: Final = int(os.environ.get("RAYLOG_DIFFERENTIAL_COUNT", "600"))
# Apart from the ports of other suites' brokers, and from the default.
PORT: Final = 27500
# What Kafka's broker of these tests sets otherwise, too.
CONFIG: Final = {
    "listeners": f"PLAINTEXT://127.0.0.1:{PORT}",
    "log.retention.ms": -1,
    "log.cleaner.backoff.ms": 200,
    "log.index.size.max.bytes": 1 << 16,
    "group.initial.rebalance.delay.ms": 0,
}
# What is asked how often.
WEIGHTS: Final[dict[Making, int]] = {
    records.produce: 20,
    records.fetch: 15,
    records.list_offsets: 8,
    records.offset_for_leader_epoch: 5,
    records.init_producer_id: 3,
    records.delete_records: 4,
    records.describe_producers: 3,
    cluster.metadata: 8,
    cluster.describe_cluster: 2,
    cluster.describe_topic_partitions: 5,
    cluster.find_coordinator: 2,
    cluster.list_partition_reassignments: 2,
    cluster.connection: 4,
    cluster.create_topics: 8,
    cluster.delete_topics: 3,
    cluster.create_partitions: 4,
    configs.describe_configs: 5,
    configs.alter_configs: 5,
    configs.incremental_alter_configs: 8,
}

TRANSACTIONS: Final[dict[Making, int]] = {
    transactions.init: 12,
    transactions.add_partitions: 14,
    transactions.add_offsets: 6,
    transactions.commit_offsets: 8,
    transactions.end: 14,
    transactions.describe: 8,
    transactions.list_all: 6,
}


@pytest.fixture(scope="module")
def pair(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    real = KafkaBroker(kafka, tmp_path_factory.mktemp("kafka"))
    folder = str(tmp_path_factory.mktemp("raylog") / "logs")
    try:
        real.start()
        kafka_side = Side("Kafka", int(real.address.rpartition(":")[2]))
        with (
            clusters.local_ray(),
            running([folder], f"differential-{uuid.uuid4().hex[:8]}", **CONFIG),
        ):
            both = Pair(kafka_side, Side("raylog", PORT))
            both.begin()
            yield both
            both.kafka.close()
            both.raylog.close()
    finally:
        real.kill()


def is_done_once(question: Question, found: Difference) -> bool:
    """Whether one cluster may have done what the other refused: they are not alike any more."""
    if not (question.changes_cluster or question.api.name in ("Produce", "DeleteRecords")):
        return False
    field = found.path.rpartition(".")[2]
    if field == "errorCode":
        return 0 in (found.kafka, found.raylog)
    return field in ("baseOffset", "lowWatermark", "")


@pytest.mark.timeout(240 + COUNT)
def test_answers_are_alike(pair: Pair) -> None:
    ask_alike(pair, WEIGHTS, COUNT)


@pytest.mark.timeout(240 + COUNT)
def test_coordinators_answer_alike(pair: Pair) -> None:
    groups = Groups(pair.kafka)
    of_groups: dict[Making, int] = {
        groups.join: 20,
        groups.sync: 12,
        groups.heartbeat: 5,
        groups.leave: 6,
        groups.commit: 10,
        groups.fetch: 10,
        groups.delete_offsets: 4,
        groups.describe: 8,
        groups.list: 5,
        groups.delete: 4,
    }
    ask_alike(pair, of_groups | TRANSACTIONS, COUNT // 2)


def ask_alike(pair: Pair, weights: Mapping[Making, int], count: int) -> None:
    """Ask both, and fail where answers differ for no known reason."""
    draw = Draw(Random(SEED))
    needed: set[str] = set()
    wrong = 0
    for number in range(count):
        (making,) = draw.random.choices(list(weights), list(weights.values()))
        question = drawn(draw, making, pair.kafka)
        found = pair.ask(question)
        known = [reason_of(question, one) for one in found]
        needed |= {one.name for one in known if one is not None}
        unknown = [one for one, reason in zip(found, known, strict=True) if reason is None]
        if unknown:
            wrong += 1
            print(report(number, question, unknown), flush=True)
        if any(is_done_once(question, one) for one in found):
            pair.level(question)
        if question.changes_cluster:
            pair.check_topics()
    assert not wrong, f"{wrong} answers are not alike, see above; seed {SEED}"
    print("exceptions that were not needed:", sorted({one.name for one in KNOWN} - needed))


def report(number: int, question: Question, found: list[Difference]) -> str:
    """A question, and where its answers are not alike."""
    asked = f"{number}. {question.api.name} {question.version} at {question.place}: {question.body}"
    return "\n".join(
        [asked, *(f"    {one.path}: Kafka {one.kafka!r}, raylog {one.raylog!r}" for one in found)]
    )
