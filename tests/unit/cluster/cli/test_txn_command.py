"""``raylog txn``: what is shown, what is ended, what is refused."""

import json
from collections.abc import Callable

import pytest
import typer
from typer.testing import CliRunner, Result

from raylog.cluster.cli import transactions
from raylog.cluster.cli.durations import duration_ms
from raylog.cluster.cli.main import app
from raylog.storage.names import TopicPartition
from tests.harness.consuming import ManualWaiter
from tests.harness.transacting import TransactionalProducer, TransactionBroker

Run = Callable[..., Result]
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker() -> TransactionBroker:
    return TransactionBroker(t=2)


@pytest.fixture
def ann(broker: TransactionBroker) -> TransactionalProducer:
    """Her transaction is open in both partitions."""
    made = broker.producer("ann")
    made.write(ZERO, ONE)
    return made


@pytest.fixture
def run(broker: TransactionBroker, monkeypatch: pytest.MonkeyPatch) -> Run:
    from raylog.cluster.client import asker
    from raylog.cluster.client import transactions as client

    monkeypatch.setattr(transactions, "connection", lambda _: broker)
    monkeypatch.setattr(asker, "Waiter", lambda: ManualWaiter(broker))
    monkeypatch.setattr(client, "SystemClock", lambda: broker)

    def call(*words: str) -> Result:
        return CliRunner().invoke(app, ["txn", *words])

    return call


def test_transactions_are_listed(
    run: Run, broker: TransactionBroker, ann: TransactionalProducer
) -> None:
    broker.producer("carl")
    ann_id = ann.owner.producer_id
    assert run("list").stdout.splitlines() == [
        "transactional id\tproducer\tstate",
        f"ann\t{ann_id}\tOngoing",
        "carl\t1000\tEmpty",
    ]
    document = json.loads(run("list", "--state", "ongoing", "--format", "json").stdout)
    assert document == {
        "transactions": [{"transactional_id": "ann", "producer_id": ann_id, "state": "Ongoing"}]
    }
    assert run("list", "--producer-id", "1000").stdout.splitlines()[1:] == ["carl\t1000\tEmpty"]
    assert run("list", "--older-than", "1m").stdout.splitlines()[1:] == []
    broker.pass_time(50)
    assert len(run("list", "--older-than", "40s").stdout.splitlines()[1:]) == 1


def test_a_transaction_is_described(
    run: Run, broker: TransactionBroker, ann: TransactionalProducer
) -> None:
    broker.pass_time(5)
    assert run("describe", "ann").stdout.splitlines() == [
        "state\tproducer\tepoch\ttimeout\tage\tpartitions",
        f"Ongoing\t{ann.owner.producer_id}\t0\t60.000000\t5.000000\tt-0,t-1",
    ]
    document = json.loads(run("describe", "ann", "--format", "json").stdout)["transaction"]
    assert (document["state"], document["age_ms"], document["timeout_ms"]) == (
        "Ongoing",
        5000,
        60000,
    )
    assert document["partitions"] == [
        {"topic": "t", "partition": 0},
        {"topic": "t", "partition": 1},
    ]
    broker.producer("carl")
    assert run("describe", "carl").stdout.splitlines()[1:] == ["Empty\t1000\t0\t60.000000\t-\t-"]
    assert "there is no transactional id 'nobody'" in str(run("describe", "nobody").exception)


def test_producers_are_shown(
    run: Run, broker: TransactionBroker, ann: TransactionalProducer
) -> None:
    began_ms, ann_id = broker.now_ms(), ann.owner.producer_id
    assert run("producers", "t", "1").stdout.splitlines() == [
        "producer\tepoch\tlast sequence\tlast timestamp\tcoordinator epoch\tstart offset",
        f"{ann_id}\t0\t0\t{began_ms}\t-\t0",
    ]
    document = json.loads(run("producers", "t", "1", "--format", "json").stdout)
    assert document["producers"] == [
        {
            "producer_id": ann_id,
            "epoch": 0,
            "last_sequence": 0,
            "timestamp": began_ms,
            "coordinator_epoch": -1,
            "transaction_start": 0,
        }
    ]


def test_what_hangs_is_found_and_ended(
    run: Run, broker: TransactionBroker, ann: TransactionalProducer
) -> None:
    found = run("find-hanging", "--older-than", "0")
    assert (found.exit_code, found.stderr) == (0, "no transaction hangs\n")
    broker.append(ONE, 77)
    began_ms = broker.now_ms()
    assert run("find-hanging").stdout.splitlines()[1:] == []
    broker.pass_time(15 * 60)
    assert run("find-hanging", "--topic", "t", "--partition", "0").stdout.splitlines()[1:] == []
    assert run("find-hanging", "--topic", "t").stdout.splitlines() == [
        "partition\tstart offset\tproducer\tepoch\tcoordinator epoch\tlast timestamp",
        f"t-1\t1\t77\t0\t-\t{began_ms}",
    ]
    document = json.loads(run("find-hanging", "--format", "json").stdout)
    assert document["hanging"] == [
        {
            "topic": "t",
            "partition": 1,
            "start_offset": 1,
            "producer_id": 77,
            "epoch": 0,
            "coordinator_epoch": -1,
            "last_timestamp": began_ms,
        }
    ]
    place = ("--topic", "t", "--partition", "1", "--start-offset", "1")
    assert run("abort", *place).stdout == (
        "aborted the transaction of producer 77 that began at offset 1 of t-1\n"
    )
    assert run("find-hanging", "--older-than", "0").stdout.splitlines()[1:] == []
    assert "no open transaction begins at offset 1" in str(run("abort", *place).exception)


def test_a_transaction_is_aborted_and_its_producer_shut_out(
    run: Run, broker: TransactionBroker, ann: TransactionalProducer
) -> None:
    refused = run("abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
    assert "`raylog txn abort ann` aborts it" in str(refused.exception)
    assert run("abort", "ann").stdout == (
        "aborted the transaction of ann; its producer is shut out\n"
    )
    assert ann.end() == 90
    assert run("abort", "ann").stdout == ("ann had no open transaction; its producer is shut out\n")
    carl = broker.producer("carl")
    carl.write(ZERO)
    carl.end()
    assert run("abort", "carl").stdout == (
        "the transaction of carl had been decided before, and is committed; its producer is shut "
        "out\n"
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("abort",), "give an ID, or"),
        (("abort", "ann", "--topic", "t"), "give an ID, or"),
        (("abort", "ann", "--start-offset", "0"), "give an ID, or"),
        (("abort", "--topic", "t", "--partition", "0"), "give an ID, or"),
        (("find-hanging", "--partition", "0"), "give --topic"),
        (("find-hanging", "--older-than", "long"), "no duration"),
        (("list", "--older-than", "5"), "no duration"),
        (("list", "--state", "open"), "'open' is not one of 'empty', 'ongoing'"),
    ],
)
def test_what_means_nothing_is_refused(run: Run, words: tuple[str, ...], why: str) -> None:
    found = run(*words)
    assert found.exit_code == 2
    assert why in " ".join(found.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("0", 0),
        ("0s", 0),
        ("500ms", 500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2min", 120_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        ("1w", 604_800_000),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert duration_ms("--for", text) == expected_ms


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "1.5h", "5 m", "5y", "9" * 30 + "w", "٣m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="--for"):
        duration_ms("--for", text)
