"""``raylog group``: what is shown, what is moved, what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from raylog.cluster.cli import groups
from raylog.cluster.cli.main import app
from raylog.cluster.client.consumer import Consumer
from raylog.storage.testing.logs import batch
from tests.harness.grouping import GroupBroker

Run = Callable[..., Result]


@pytest.fixture
def broker() -> GroupBroker:
    """Ten records in each of two partitions; a group has read all, and then one more came."""
    made = GroupBroker(t=2)
    for served in made.topics["t"]:
        served.partition.append(batch(10))
    return made


@pytest.fixture
def member(broker: GroupBroker) -> Consumer:
    made = broker.member("t", from_="earliest", group_instance_id="ann")
    for _ in range(20):
        made.poll(200)
    made.commit()
    broker.topics["t"][0].partition.append(batch(1))
    return made


@pytest.fixture
def run(broker: GroupBroker, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(groups, "connection", lambda _: broker)

    def call(*words: str) -> Result:
        return CliRunner().invoke(app, ["group", *words])

    return call


def expel(broker: GroupBroker, member: Consumer) -> None:
    """A static member stays until its session ends."""
    member.close()
    broker.idle(50)


def test_groups_are_listed(run: Run, member: Consumer) -> None:
    assert run("list").stdout == "group\tstate\tmembers\tlag\ng\tStable\t1\t1\n"
    listed = json.loads(run("list", "--format", "json").stdout)
    assert listed == {"groups": [{"group": "g", "state": "Stable", "members": 1, "lag": 1}]}


def test_a_group_is_described(run: Run, broker: GroupBroker, member: Consumer) -> None:
    found = run("describe", "g")
    assert found.stdout.splitlines() == [
        "partition\tcommitted\tend\tlag\tmember\thost",
        "t-0\t10\t11\t1\tann\t127.0.0.1",
        "t-1\t10\t10\t0\tann\t127.0.0.1",
    ]
    assert found.stderr == "g: Stable, 1 member, cooperative-sticky\n"
    document = json.loads(run("describe", "g", "--format", "json").stdout)
    assert [one["lag"] for one in document["offsets"]] == [1, 0]
    assert document["group"]["members"][0]["instance_id"] == "ann"
    expel(broker, member)
    assert run("describe", "g").stderr == "g: Empty, no members\n"


def test_a_group_is_moved(run: Run, broker: GroupBroker, member: Consumer, tmp_path: Path) -> None:
    expel(broker, member)

    def moved(*words: str) -> list[str]:
        return run("seek", "g", *words).stdout.splitlines()[1:]

    assert moved("--to", "earliest", "--validate-only") == ["t-0\t0", "t-1\t0"]
    assert moved("--shift", "-3") == ["t-0\t7", "t-1\t7"]
    assert moved("--to", "4", "--partition", "1") == ["t-1\t4"]
    assert moved("--to", "latest", "--topic", "t") == ["t-0\t11", "t-1\t10"]
    assert moved("--to", "@0", "--topic", "t", "--partition", "0") == ["t-0\t0"]
    file = tmp_path / "places.csv"
    file.write_text("t,0,5\n\nt, 1, 6\n")
    assert moved("--file", str(file)) == ["t-0\t5", "t-1\t6"]
    document = json.loads(run("seek", "g", "--shift", "1", "--format", "json").stdout)
    assert document["committed"] == {"t-0": 6, "t-1": 7}


def test_a_group_that_was_never_there_is_made_by_a_seek_of_a_topic(
    run: Run, broker: GroupBroker
) -> None:
    found = run("seek", "new", "--to", "latest", "--topic", "t")
    assert found.stdout.splitlines()[1:] == ["t-0\t10", "t-1\t10"]
    assert run("list").stdout.splitlines()[1:] == ["new\tEmpty\t0\t0"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "one of them"),
        (("--to", "latest", "--shift", "1"), "one of them"),
        (("--to", "nowhere"), "no place in a topic"),
        (("--file", "FILE", "--topic", "t"), "says which partitions"),
        (("--file", "FILE"), "TOPIC,PARTITION,OFFSET"),
    ],
)
def test_what_means_nothing_is_refused(
    run: Run, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    file = tmp_path / "places.csv"
    file.write_text("t;0;5\n")
    found = run("seek", "g", *(str(file) if word == "FILE" else word for word in words))
    assert found.exit_code == 2
    assert why in " ".join(found.stderr.replace("│", " ").split())


def test_a_group_is_deleted(run: Run, broker: GroupBroker, member: Consumer) -> None:
    assert "has members" in str(run("delete", "g").exception)
    expel(broker, member)
    assert run("delete", "g", "--topic", "t").stdout == (
        "deleted the offsets of 2 partitions from group g\n"
    )
    assert run("delete", "g").stdout == "deleted group g\n"
    assert "there is no group g" in str(run("delete", "g").exception)
