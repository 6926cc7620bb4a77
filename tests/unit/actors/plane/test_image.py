"""The image that clients are told, made of what a LogManager was shown."""

from uuid import UUID

from raylog.actors.cluster_image import (
    ClusterEntries,
    Endpoint,
    NodeEntry,
    PartitionEntry,
    TopicEntry,
)
from raylog.actors.plane.image import (
    NO_NODE,
    BrokerImage,
    PartitionImage,
    TopicImage,
    image_of,
)
from raylog.storage.state.properties import id_text

TOPIC_ID = UUID(int=7)
NODES = (NodeEntry("a", Endpoint(5, 19_097), "host-a"), NodeEntry("b", Endpoint(1, 19_093), ""))


def entries(controller: str, *partitions: PartitionEntry) -> ClusterEntries:
    topic = TopicEntry("t", id_text(TOPIC_ID), partitions)
    return ClusterEntries(
        cluster_id="c",
        controller=controller,
        nodes={node.key: node for node in NODES},
        topics={topic.topic_id: topic},
    )


def test_managers_and_log_actors_are_brokers_in_the_order_of_their_numbers() -> None:
    image = image_of(entries("a", PartitionEntry(0, Endpoint(2, 19_094), "a", 3, True)))
    assert image.brokers == (
        BrokerImage(2, "host-a", 19_094),
        BrokerImage(5, "host-a", 19_097),
    )
    assert (image.cluster_id, image.controller) == ("c", 5)
    assert image.topics == {"t": TopicImage("t", TOPIC_ID, (PartitionImage(2, 3, True),))}


def test_processes_whose_host_nobody_knows_are_no_brokers() -> None:
    of_b = PartitionEntry(0, Endpoint(2, 19_094), "b", 3, True)
    nowhere = PartitionEntry(1, Endpoint(3, 19_095), "", -1, False)
    image = image_of(entries("c", of_b, nowhere))
    assert image.brokers == (BrokerImage(5, "host-a", 19_097),)
    assert image.controller == NO_NODE
    assert [part.leader for part in image.topics["t"].partitions] == [2, 3]


def test_a_process_that_has_never_listened_is_no_broker() -> None:
    """The port that it was given may be another cluster's, and any broker is asked for metadata."""
    new = PartitionEntry(0, Endpoint(2, 19_094), "a", -1, False, has_listened=False)
    away = PartitionEntry(1, Endpoint(3, 19_095), "a", -1, False)
    brokers = image_of(entries("a", new, away)).brokers
    assert [broker.node_id for broker in brokers] == [3, 5], "one that is away is back soon"
