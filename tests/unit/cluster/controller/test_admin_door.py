"""Topics and configs by Kafka's protocol: from the client's frame to the Controller's commands."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from raylog.actors.plane.apis.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from raylog.cluster.controller.admin_door import answer_command, answer_lookup
from raylog.storage.schemas.types import Value
from raylog.storage.state.properties import id_uuid
from tests.harness.instant_controller import InstantController
from tests.unit.actors.plane.clients import Client, FakeController, client_of, cluster_door

NO_ID = UUID(int=0)
CONFIG = {"num.partitions": 2, "log.segment.bytes": 2 << 20, "log.dirs": "/a1"}
ALL_VERSIONS = range(CREATE_TOPICS.first_version, CREATE_TOPICS.last_version + 1)


class Passing(FakeController):
    """Answers frames as the Controller does."""

    def __init__(self, controller: InstantController) -> None:
        super().__init__()
        self._controller = controller

    def answer_command(self, frame: bytes, timeout_s: float) -> bytes:
        return answer_command(frame, self._controller.commanding, self._controller.lookups)

    def answer_lookup(self, frame: bytes, timeout_s: float) -> bytes:
        return answer_lookup(frame, self._controller.lookups)


@pytest.fixture
def controller() -> InstantController:
    return InstantController(BrokerConfig.parse(CONFIG))


@pytest.fixture
def client(controller: InstantController) -> Iterator[Client]:
    with client_of(cluster_door(controller=Passing(controller))) as one:
        yield one


def new(
    name: str,
    partitions: int = 1,
    copies: int = -1,
    assignments: list[Value] | None = None,
    **config: str | None,
) -> Value:
    return {
        "name": name,
        "numPartitions": partitions,
        "replicationFactor": copies,
        "assignments": assignments or [],
        "configs": [
            {"name": key.replace("_", "."), "value": value} for key, value in config.items()
        ],
    }


def created(client: Client, *topics: Value, version: int = 7, only: bool = False) -> list[Value]:
    body = {"topics": list(topics), "timeoutMs": 1000, "validateOnly": only}
    told: list[Value] = client.ask(CREATE_TOPICS, version, **body)["topics"]
    return told


def codes(entries: list[Value], key: str = "name") -> dict[str, int]:
    return {entry[key]: entry["errorCode"] for entry in entries}


# -- CreateTopics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_topic_is_made_in_every_version(
    client: Client, controller: InstantController, version: int
) -> None:
    [told] = created(client, new("t", 3, 1, retention_ms="5"), version=version)
    assert (told["name"], told["errorCode"], told["errorMessage"]) == ("t", 0, None)
    made = controller.lookups.describe_topic("t")
    assert (len(made.partitions), made.config) == (3, {"retention.ms": 5})
    if version >= 5:
        assert (told["numPartitions"], told["replicationFactor"]) == (3, 1)
        configs = {one["name"]: one for one in told["configs"]}
        assert (configs["retention.ms"]["value"], configs["retention.ms"]["configSource"]) == (
            "5",
            1,
        )
        assert configs["segment.bytes"]["configSource"] == 4
        assert (configs["preallocate"]["value"], configs["preallocate"]["configSource"]) == (
            "false",
            5,
        )
    if version == 7:
        assert told["topicId"] == id_uuid(made.topic_id)


def test_without_a_number_of_partitions_a_topic_has_the_brokers(client: Client) -> None:
    [told] = created(client, new("t", -1))
    assert (told["errorCode"], told["numPartitions"]) == (0, 2)


def test_a_topic_that_is_only_validated_is_not_made(
    client: Client, controller: InstantController
) -> None:
    [told] = created(client, new("t", -1), only=True)
    assert (told["errorCode"], told["numPartitions"], told["topicId"]) == (0, 2, NO_ID)
    assert codes(created(client, new("u", 0), only=True)) == {"u": 37}
    assert controller.lookups.list_topics() == []


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (new("a/b"), 17, "topic name"),
        (new("t", 0), 37, "number of partitions 0"),
        (new("t", -2), 37, "number of partitions -2"),
        (new("t", 1, 2), 38, "one copy"),
        (new("t", 1, 0), 38, "larger than 0"),
        (new("t", -1, -1, [{"partitionIndex": 0, "brokerIds": [1]}]), 39, "no assignment"),
        (new("t", retention_ms="soon"), 40, "retention.ms='soon'"),
        (new("t", no_such="1"), 40, "no.such"),
        (new("t", retention_ms=None), 40, "retention.ms"),
        (new("there"), 36, "there"),
    ],
)
def test_what_cannot_be_made_says_why_and_the_others_are_made(
    client: Client, controller: InstantController, topic: Value, code: int, words: str
) -> None:
    created(client, new("there"))
    told = {one["name"]: one for one in created(client, topic, new("good"))}
    refused = told[topic["name"]]
    assert (refused["errorCode"], refused["numPartitions"]) == (code, -1)
    assert (refused["replicationFactor"], refused["configs"]) == (-1, [])
    assert words in refused["errorMessage"]
    assert told["good"]["errorCode"] == 0
    assert controller.lookups.list_topics() == ["good", "there"]


def test_a_topic_that_is_named_twice_is_refused_once(
    client: Client, controller: InstantController
) -> None:
    told = created(client, new("t"), new("t", 2), new("u"))
    assert [one["name"] for one in told] == ["u", "t"]
    assert codes(told) == {"t": 42, "u": 0}
    assert controller.lookups.list_topics() == ["u"]


# -- DeleteTopics ----------------------------------------------------------------------------------


def deleted(client: Client, *topics: tuple[str | None, UUID], version: int = 6) -> list[Value]:
    names: dict[str, Any] = {"topicNames": [name for name, _ in topics]}
    if version == 6:
        names = {"topics": [{"name": name, "topicId": topic_id} for name, topic_id in topics]}
    told: list[Value] = client.ask(DELETE_TOPICS, version, timeoutMs=1000, **names)["responses"]
    return told


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name_in_every_version(
    client: Client, controller: InstantController, version: int
) -> None:
    [made, _] = created(client, new("t"), new("u"))
    told = deleted(client, ("t", NO_ID), ("nowhere", NO_ID), version=version)
    assert codes(told) == {"t": 0, "nowhere": 3}
    if version >= 6:
        assert [one["topicId"] for one in told] == [made["topicId"], NO_ID]
    assert controller.lookups.list_topics() == ["u"]


def test_topics_are_deleted_by_id(client: Client, controller: InstantController) -> None:
    [told] = created(client, new("t"))
    unknown = UUID(int=7)
    first, second = deleted(client, (None, told["topicId"]), (None, unknown))
    assert (first["name"], first["errorCode"], first["topicId"]) == ("t", 0, told["topicId"])
    assert (second["name"], second["errorCode"]) == (None, 100)
    assert controller.lookups.list_topics() == []


def test_who_names_a_topic_twice_or_not_at_all_deletes_nothing(
    client: Client, controller: InstantController
) -> None:
    [told] = created(client, new("t"))
    topic_id = told["topicId"]
    [twice] = deleted(client, ("t", NO_ID), ("t", NO_ID))
    [both, nothing] = deleted(client, ("t", topic_id), (None, NO_ID))
    assert (twice["errorCode"], both["errorCode"], nothing["errorCode"]) == (42, 42, 42)
    assert controller.lookups.list_topics() == ["t"]


# -- CreatePartitions ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_topics_are_extended(client: Client, controller: InstantController, version: int) -> None:
    created(client, new("t"), new("u", 2))
    entries = [
        {"name": "t", "count": 3, "assignments": None},
        {"name": "u", "count": 2, "assignments": None},
        {"name": "v", "count": 2, "assignments": None},
        {"name": "w", "count": 2, "assignments": [{"brokerIds": [1]}]},
        {"name": "x", "count": 2, "assignments": None},
        {"name": "x", "count": 3, "assignments": None},
    ]
    body = {"topics": entries, "timeoutMs": 1000}
    checked = client.ask(CREATE_PARTITIONS, version, validateOnly=True, **body)["results"]
    told = client.ask(CREATE_PARTITIONS, version, validateOnly=False, **body)["results"]
    expected = {"t": 0, "u": 37, "v": 3, "w": 39, "x": 42}
    assert (codes(checked), codes(told)) == (expected, expected)
    assert [one["errorMessage"] for one in told if not one["errorCode"]] == [None]
    assert len(controller.lookups.describe_topic("t").partitions) == 3


# -- DescribeConfigs -------------------------------------------------------------------------------


def described(
    client: Client,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    version: int = 4,
    **flags: bool,
) -> Value:
    resource = {"resourceType": kind, "resourceName": name, "configurationKeys": keys}
    body: dict[str, Any] = {"includeSynonyms": flags.get("synonyms", False)}
    if version >= 3:
        body["includeDocumentation"] = flags.get("documentation", False)
    [told] = client.ask(DESCRIBE_CONFIGS, version, resources=[resource], **body)["results"]
    return told


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topics_config_is_told_in_every_version(client: Client, version: int) -> None:
    created(client, new("t", cleanup_policy="compact,delete", preallocate="true"))
    keys = ["cleanup.policy", "preallocate", "segment.bytes", "no.such"]
    told = described(client, 2, "t", keys, version=version)
    assert (told["errorCode"], told["errorMessage"]) == (0, "")
    found = [(one["name"], one["value"], one["configSource"]) for one in told["configs"]]
    assert found == [
        ("cleanup.policy", "compact,delete", 1),
        ("preallocate", "true", 1),
        ("segment.bytes", "2097152", 4),
    ]
    assert not any(one["readOnly"] or one["isSensitive"] for one in told["configs"])
    if version >= 3:
        assert [one["configType"] for one in told["configs"]] == [7, 1, 5]
    everything = described(client, 2, "t", version=version)["configs"]
    assert described(client, 2, "t", [], version=version)["configs"] == everything


def test_synonyms_and_documents_are_told_where_they_are_asked_for(client: Client) -> None:
    created(client, new("t", segment_bytes="1048576"))
    keys = ["segment.bytes", "retention.ms"]
    plain = described(client, 2, "t", keys)
    assert all(not one["synonyms"] and one["documentation"] is None for one in plain["configs"])
    told = described(client, 2, "t", keys, synonyms=True, documentation=True)
    retention, segment = told["configs"]
    assert [tuple(one.values()) for one in segment["synonyms"]] == [
        ("segment.bytes", "1048576", 1),
        ("log.segment.bytes", "2097152", 4),
        ("log.segment.bytes", "1073741824", 5),
    ]
    assert [tuple(one.values()) for one in retention["synonyms"]] == [
        ("log.retention.ms", "604800000", 5)
    ]
    assert "time for which records are kept" in retention["documentation"]


def test_a_broker_shows_its_config_and_lets_nobody_change_it(client: Client) -> None:
    told = described(client, 4, "0", synonyms=True, documentation=True)
    assert told["errorCode"] == 0
    configs = {one["name"]: one for one in told["configs"]}
    assert configs["num.partitions"]["value"] == "2"
    assert configs["num.partitions"]["synonyms"] == [
        {"name": "num.partitions", "value": "2", "source": 4}
    ]
    types = {name: one["configType"] for name, one in configs.items()}
    assert (configs["log.dirs"]["value"], types["log.dirs"]) == ("/a1", 7)
    lists = ("listeners", "log.cleanup.policy", "sasl.enabled.mechanisms")
    assert {types[name] for name in lists} == {7}
    assert (types["ssl.client.auth"], types["log.cleaner.io.buffer.load.factor"]) == (2, 6)
    assert all(one["readOnly"] and one["documentation"] for one in told["configs"])
    everybody = described(client, 4, "")
    assert (everybody["errorCode"], everybody["configs"]) == (0, [])


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [(2, "nowhere", 3), (2, "a/b", 17), (4, "99", 42), (4, "x", 42), (8, "0", 42)],
)
def test_what_has_no_config_is_refused(client: Client, kind: int, name: str, code: int) -> None:
    told = described(client, kind, name)
    assert (told["errorCode"], told["configs"]) == (code, [])
    assert told["errorMessage"]


# -- AlterConfigs, IncrementalAlterConfigs ---------------------------------------------------------


def altered(client: Client, name: str, only: bool = False, **config: str | None) -> Value:
    entries = [{"name": key.replace("_", "."), "value": value} for key, value in config.items()]
    resource = {"resourceType": 2, "resourceName": name, "configs": entries}
    body = {"resources": [resource], "validateOnly": only}
    [told] = client.ask(ALTER_CONFIGS, 2, **body)["responses"]
    return told


def test_all_configs_of_a_topic_are_replaced(client: Client, controller: InstantController) -> None:
    created(client, new("t", retention_ms="5", segment_ms="7"))
    own = controller.lookups.describe_topic
    assert altered(client, "t", True, retention_ms="6")["errorCode"] == 0
    assert own("t").config == {"retention.ms": 5, "segment.ms": 7}
    assert altered(client, "t", retention_ms="6")["errorMessage"] is None
    assert own("t").config == {"retention.ms": 6}
    assert altered(client, "t", retention_ms=None)["errorCode"] == 42
    assert altered(client, "t", False, retention_ms="6", **{"retention.ms": "7"})["errorCode"] == 42
    assert altered(client, "t", no_such="1")["errorCode"] == 40
    assert altered(client, "nowhere")["errorCode"] == 3
    assert altered(client, "t")["errorCode"] == 0
    assert own("t").config == {}


def changed(
    client: Client,
    *changes: tuple[str, int, str | None],
    name: str = "t",
    kind: int = 2,
    only: bool = False,
    times: int = 1,
) -> Value:
    configs = [
        {"name": key, "configOperation": operation, "value": value}
        for key, operation, value in changes
    ]
    resource = {"resourceType": kind, "resourceName": name, "configs": configs}
    body = {"resources": [resource] * times, "validateOnly": only}
    told = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, **body)["responses"]
    assert told == [told[0]] * times, "each is answered, the same ones alike"
    return told[0]


def test_single_configs_are_set_deleted_appended_and_subtracted(
    client: Client, controller: InstantController
) -> None:
    created(client, new("t", retention_ms="5", segment_ms="7"))

    def own() -> dict[str, Any]:
        return dict(controller.lookups.describe_topic("t").config)

    told = changed(client, ("retention.ms", 0, "6"), ("segment.ms", 1, None))
    assert (told["errorCode"], told["errorMessage"]) == (0, None)
    assert own() == {"retention.ms": 6}
    assert changed(client, ("cleanup.policy", 2, "compact"))["errorCode"] == 0
    assert own() == {"retention.ms": 6, "cleanup.policy": "delete,compact"}
    assert changed(client, ("cleanup.policy", 2, "compact,delete"))["errorCode"] == 0
    assert own()["cleanup.policy"] == "delete,compact"
    assert changed(client, ("cleanup.policy", 3, "delete"))["errorCode"] == 0
    assert own()["cleanup.policy"] == "compact"
    assert changed(client, ("retention.ms", 0, "8"), only=True)["errorCode"] == 0
    assert own()["retention.ms"] == 6


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("no.such", 0, "1")], 40),
        ([("retention.ms", 0, "soon")], 40),
        ([("retention.ms", 2, "1")], 40),
        ([("log.dirs", 2, "/b")], 40),
        ([("cleanup.policy", 3, "delete")], 40),
        ([("retention.ms", 0, None)], 42),
        ([("cleanup.policy", 2, None)], 42),
        ([("retention.ms", 9, "1")], 42),
        ([("retention.ms", 0, "1"), ("retention.ms", 1, None)], 42),
    ],
)
def test_of_a_change_that_cannot_be_nothing_is_done(
    client: Client,
    controller: InstantController,
    changes: list[tuple[str, int, str | None]],
    code: int,
) -> None:
    created(client, new("t"))
    told = changed(client, ("segment.ms", 0, "7"), *changes)
    assert told["errorCode"] == code
    assert told["errorMessage"]
    assert controller.lookups.describe_topic("t").config == {}


def test_what_has_no_config_to_be_changed_is_refused(client: Client) -> None:
    created(client, new("t"))
    change = ("retention.ms", 0, "1")
    assert changed(client, change, name="nowhere")["errorCode"] == 3
    assert changed(client, change, name="a/b")["errorCode"] == 17
    assert changed(client, change, name="")["errorCode"] == 42, "a default of all topics"
    assert changed(client, change, times=2)["errorCode"] == 42
    broker = changed(client, ("num.partitions", 0, "3"), kind=4, name="0")
    assert broker["errorCode"] == 42
    assert "raylog start --config" in broker["errorMessage"]
    assert changed(client, change, kind=32)["errorCode"] == 42


@pytest.mark.parametrize("api", [CREATE_TOPICS, CREATE_PARTITIONS, ALTER_CONFIGS])
def test_a_request_of_nothing_is_answered(client: Client, api: Api) -> None:
    of_topics = {"topics": [], "timeoutMs": 1}
    body = {"resources": []} if api is ALTER_CONFIGS else of_topics
    client.ask(api, api.last_version, validateOnly=False, **body)
