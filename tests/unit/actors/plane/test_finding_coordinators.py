"""FindCoordinator: the broker of a group, and the topic that is made at the first question."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from raylog.actors.coordinators.group_config import OffsetsTopic
from raylog.actors.coordinators.homes import partition_of
from raylog.actors.coordinators.transactions.config import StateTopic
from raylog.actors.errors import BrokerNotFound
from raylog.actors.plane.apis.cluster import FIND_COORDINATOR
from raylog.actors.plane.apis.topics import CREATE_TOPICS
from raylog.actors.plane.cluster_door import ClusterDoor
from raylog.actors.plane.door import Door
from raylog.actors.plane.frames import answer, parse, read_body
from raylog.actors.plane.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from raylog.storage.schemas.types import Value
from tests.unit.actors.plane.clients import Client, FakeController, client_of

OFFSETS, STATE = "__consumer_offsets", "__transaction_state"
BROKERS = (BrokerImage(0, "a", 19092), BrokerImage(7, "b", 19099))


def image(*partitions: PartitionImage, name: str = OFFSETS) -> ClusterImage:
    topic = TopicImage(name, UUID(int=3), partitions, is_internal=True)
    topics: Mapping[str, TopicImage] = {name: topic} if partitions else {}
    return ClusterImage("cluster-1", 0, BROKERS, topics)


class Maker(FakeController):
    """Makes topics, or says why not."""

    def __init__(self, code: int = 0, message: str | None = None) -> None:
        super().__init__()
        self.made: list[Value] = []
        self._code, self._message = code, message

    def answer_command(self, frame: bytes, timeout_s: float) -> bytes:
        if self.problem is not None:
            raise self.problem
        request = parse(frame)
        assert request.api is CREATE_TOPICS
        (topic,) = read_body(request)["topics"]
        self.made.append(topic)
        told = {
            "name": topic["name"],
            "topicId": UUID(int=3),
            "errorCode": self._code,
            "errorMessage": self._message,
            "numPartitions": topic["numPartitions"],
            "replicationFactor": 1,
            "configs": [],
        }
        return answer(request, {"throttleTimeMs": 0, "topics": [told]})


def found(
    cluster: ClusterImage,
    maker: Maker | None = None,
    *keys: str,
    version: int = 4,
    kind: int = 0,
) -> list[Value]:
    topic = OffsetsTopic(partitions=3, segment_bytes=1 << 20)
    state = StateTopic(partitions=2, segment_bytes=1 << 21)
    door = Door(ClusterDoor(maker or Maker(), lambda: (), cluster, topic, state))
    with client_of(door) as client:
        return asked(client, version, kind, *(keys or ("g",)))


def asked(client: Client, version: int, kind: int, *keys: str) -> list[Value]:
    body: dict[str, Any] = {"coordinatorKeys": list(keys)} if version >= 4 else {"key": keys[0]}
    if version:
        body["keyType"] = kind
    answer = client.ask(FIND_COORDINATOR, version, **body)
    return list(answer["coordinators"]) if version >= 4 else [answer]


@pytest.mark.parametrize("version", range(FIND_COORDINATOR.last_version + 1))
def test_the_leader_of_a_groups_partition_is_its_coordinator(version: int) -> None:
    online = PartitionImage(leader=7)
    (one,) = found(image(online), version=version)
    assert (one["errorCode"], one["nodeId"], one["host"], one["port"]) == (0, 7, "b", 19099)


def test_each_group_has_a_partition_by_its_name() -> None:
    """Of two partitions "g" has the second one, and "my-group" the first."""
    cluster = image(PartitionImage(leader=0), PartitionImage(leader=7))
    both = found(cluster, None, "g", "my-group")
    assert [(one["key"], one["nodeId"]) for one in both] == [("g", 7), ("my-group", 0)]


@pytest.mark.parametrize(
    ("group", "of_2", "of_3", "of_4", "of_50"),
    [
        ("g", 1, 1, 3, 3),
        ("group-1", 1, 2, 3, 49),
        ("my-group", 0, 0, 2, 12),
        ("orders", 1, 0, 3, 31),
        ("consumer-group", 0, 1, 0, 38),
        ("é", 1, 2, 1, 33),
        ("😀", 1, 1, 3, 49),
        ("polygenelubricants", 0, 0, 0, 0),
        ("", 0, 0, 0, 0),
    ],
)
def test_the_partition_is_kafkas(group: str, of_2: int, of_3: int, of_4: int, of_50: int) -> None:
    found = [partition_of(group, count) for count in (1, 2, 3, 4, 50)]
    assert found == [0, of_2, of_3, of_4, of_50]


@pytest.mark.parametrize(
    "partition",
    [PartitionImage(leader=7, is_online=False), PartitionImage(leader=8)],
    ids=["offline", "its process has never listened"],
)
def test_a_coordinator_that_does_not_serve_is_asked_for_again(partition: PartitionImage) -> None:
    (one,) = found(image(partition))
    assert (one["errorCode"], one["nodeId"], one["port"]) == (15, -1, -1)
    assert "is not served now" in one["errorMessage"]


def test_the_topic_is_made_when_somebody_asks_for_the_first_time() -> None:
    maker = Maker()
    (one,) = found(image(), maker)
    assert (one["errorCode"], one["nodeId"]) == (15, -1)
    (topic,) = maker.made
    assert (topic["name"], topic["numPartitions"]) == (OFFSETS, 3)
    assert {entry["name"]: entry["value"] for entry in topic["configs"]} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "1048576",
    }


def test_a_topic_that_somebody_else_has_just_made_is_no_problem() -> None:
    (one,) = found(image(), Maker(36, "it is there"))
    assert (one["errorCode"], one["errorMessage"]) == (15, f"{OFFSETS} is being made")


def test_why_the_topic_cannot_be_made_is_told() -> None:
    (one,) = found(image(), Maker(44, "no room"))
    assert one["errorCode"] == 15
    assert one["errorMessage"] == f"{OFFSETS} cannot be made: no room"
    maker = Maker()
    maker.problem = BrokerNotFound("raylog")
    (one,) = found(image(), maker)
    assert one["errorMessage"].startswith(f"{OFFSETS} is not made yet: no raylog broker")


@pytest.mark.parametrize(("kind", "code"), [(2, 42), (-1, 42)])
def test_other_coordinators_there_are_none(kind: int, code: int) -> None:
    maker = Maker()
    for cluster in (image(), image(PartitionImage(leader=7))):
        (one,) = found(cluster, maker, kind=kind)
        assert (one["errorCode"], one["nodeId"]) == (code, -1)
    assert maker.made == []


def test_a_transactional_id_has_its_coordinator_by_the_same_hash() -> None:
    cluster = image(PartitionImage(leader=0), PartitionImage(leader=7), name=STATE)
    both = found(cluster, None, "g", "my-group", kind=1)
    assert [(one["key"], one["nodeId"]) for one in both] == [("g", 7), ("my-group", 0)]


def test_the_topic_of_transactions_is_made_at_the_first_question() -> None:
    maker = Maker()
    (one,) = found(image(PartitionImage(leader=0)), maker, kind=1)
    assert (one["errorCode"], one["errorMessage"]) == (15, f"{STATE} is being made")
    (topic,) = maker.made
    assert (topic["name"], topic["numPartitions"]) == (STATE, 2)
    assert {config["name"]: config["value"] for config in topic["configs"]} == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "flush.messages": "1",
        "segment.bytes": str(1 << 21),
    }
