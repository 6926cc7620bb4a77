"""CreateTopics, DeleteTopics, CreatePartitions of Kafka's protocol, as commands of the Controller.

Source of the errors and of what an answer says: ``ReplicationControlManager`` of Kafka 4.3; KIP-4,
KIP-195, KIP-464, KIP-516, KIP-525. A topic has one copy here, and raylog chooses its place: another
replication factor is refused, and so is an assignment of brokers, which come into being with the
topic.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from raylog.actors.plane.admin import (
    FIRST_WITH_TOPIC_STRUCTS,
    Fault,
    fault_of,
    topic_not_made,
)
from raylog.actors.plane.codes import (
    INVALID_CONFIG,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    UNKNOWN_TOPIC_ID,
)
from raylog.actors.plane.describing import NO_ID
from raylog.cluster.controller.asking import Commanding, Lookups
from raylog.cluster.controller.config_requests import source_of, text_of
from raylog.cluster.controller.settings import topic_entries
from raylog.storage.errors import RaylogError
from raylog.storage.schemas.types import Value
from raylog.storage.state.properties import id_text, id_uuid

Entry = TypeVar("Entry")
Result = TypeVar("Result")

# Topics of one request that are made, extended or removed beside each other.
AT_ONCE: Final = 8
OF_BROKER: Final = -1  # as a number of partitions, or a replication factor: the broker's
COPIES: Final = 1
_PLACES: Final = Fault(
    INVALID_REPLICA_ASSIGNMENT,
    "raylog chooses the places of partitions; give a number of partitions and no assignment",
)


def at_once(work: Callable[[Entry], Result], entries: Iterable[Entry]) -> list[Result]:
    """What ``work`` makes of each entry, in their order; several beside each other."""
    listed = list(entries)
    if len(listed) < 2:
        return [work(entry) for entry in listed]
    with ThreadPoolExecutor(min(len(listed), AT_ONCE), "topics") as pool:
        return list(pool.map(work, listed))


# -- CreateTopics ----------------------------------------------------------------------------------


def create(version: int, body: Value, commanding: Commanding, lookups: Lookups) -> Value:
    """The answer to a CreateTopics request."""
    asked = Counter(topic["name"] for topic in body["topics"])
    once = [topic for topic in body["topics"] if asked[topic["name"]] == 1]
    work = partial(_create, body["validateOnly"], commanding, lookups)
    repeated = Fault(INVALID_REQUEST, "Duplicate topic name.")
    topics = [
        *at_once(work, once),
        *(topic_not_made(name, repeated) for name, count in asked.items() if count > 1),
    ]
    return {"throttleTimeMs": 0, "topics": topics}


def _create(validate_only: bool, commanding: Commanding, lookups: Lookups, topic: Value) -> Value:
    name, count = topic["name"], topic["numPartitions"]
    fault = _why_not_made(topic)
    if fault is not None:
        return topic_not_made(name, fault)
    partitions = None if count == OF_BROKER else count
    config = {entry["name"]: entry["value"] for entry in topic["configs"]}
    try:
        made = commanding.create_topic(name, partitions, config, validate_only)
    except RaylogError as error:
        return topic_not_made(name, fault_of(error))
    broker = lookups.broker_config()
    return {
        "name": name,
        "topicId": id_uuid(made.topic_id) if made.topic_id else NO_ID,
        "errorCode": 0,
        "errorMessage": None,
        "numPartitions": broker.num_partitions if partitions is None else partitions,
        "replicationFactor": COPIES,
        "configs": [
            {
                "name": entry.name,
                "value": text_of(entry.value),
                "readOnly": False,
                "configSource": source_of(entry),
                "isSensitive": False,
            }
            for entry in topic_entries(made.config, broker.topic_defaults)
        ],
    }


def _why_not_made(topic: Value) -> Fault | None:
    copies = topic["replicationFactor"]
    if topic["assignments"]:
        return _PLACES
    if copies > COPIES:
        why = f"Unable to replicate the partition {copies} time(s): raylog keeps one copy"
        return Fault(INVALID_REPLICATION_FACTOR, why)
    if copies not in (OF_BROKER, COPIES):
        why = "Replication factor must be larger than 0, or -1 to use the default value."
        return Fault(INVALID_REPLICATION_FACTOR, why)
    for entry in topic["configs"]:
        if entry["value"] is None:
            return Fault(
                INVALID_CONFIG, f"Null value not supported for topic configs: {entry['name']}"
            )
    return None


# -- DeleteTopics ----------------------------------------------------------------------------------


def delete(version: int, body: Value, commanding: Commanding, lookups: Lookups) -> Value:
    """The answer to a DeleteTopics request."""
    topics = [(name, NO_ID) for name in body["topicNames"]]
    if version >= FIRST_WITH_TOPIC_STRUCTS:
        topics = [(topic["name"], topic["topicId"]) for topic in body["topics"]]
    asked = Counter(topics)
    work = partial(_deleted, commanding, lookups)
    repeated = Fault(INVALID_REQUEST, "Duplicate topic name, or id.")
    responses = [
        *at_once(work, [topic for topic in topics if asked[topic] == 1]),
        *(_not_deleted(*topic, repeated) for topic, count in asked.items() if count > 1),
    ]
    return {"throttleTimeMs": 0, "responses": responses}


def _deleted(commanding: Commanding, lookups: Lookups, topic: tuple[str | None, UUID]) -> Value:
    name, topic_id = topic
    if (name is None) == (topic_id == NO_ID):
        why = "Name a topic by its name or by its id, not by both."
        return _not_deleted(name, topic_id, Fault(INVALID_REQUEST, why))
    wanted = None if topic_id == NO_ID else id_text(topic_id)
    if wanted is not None:
        name = lookups.topic_name(wanted)
    if name is None:
        return _not_deleted(None, topic_id, Fault(UNKNOWN_TOPIC_ID, "no topic has this id"))
    known = wanted or lookups.topic_id(name)
    try:
        commanding.delete_topic(name, wanted)
    except RaylogError as error:
        return _not_deleted(name, topic_id, fault_of(error))
    told = id_uuid(known) if known else topic_id
    return {"name": name, "topicId": told, "errorCode": 0, "errorMessage": None}


def _not_deleted(name: str | None, topic_id: UUID, fault: Fault) -> Value:
    code, message = fault
    return {"name": name, "topicId": topic_id, "errorCode": code, "errorMessage": message}


# -- CreatePartitions ------------------------------------------------------------------------------


def extend(version: int, body: Value, commanding: Commanding, lookups: Lookups) -> Value:
    """The answer to a CreatePartitions request."""
    asked = Counter(topic["name"] for topic in body["topics"])
    work = partial(_extended, body["validateOnly"], commanding)
    repeated = Fault(INVALID_REQUEST, "Duplicate topic name.")
    results = [
        *at_once(work, [topic for topic in body["topics"] if asked[topic["name"]] == 1]),
        *(_not_extended(name, repeated) for name, count in asked.items() if count > 1),
    ]
    return {"throttleTimeMs": 0, "results": results}


def _extended(validate_only: bool, commanding: Commanding, topic: Value) -> Value:
    name = topic["name"]
    if topic["assignments"] is not None:
        return _not_extended(name, _PLACES)
    try:
        commanding.add_partitions(name, topic["count"], validate_only)
    except RaylogError as error:
        return _not_extended(name, fault_of(error))
    return {"name": name, "errorCode": 0, "errorMessage": None}


def _not_extended(name: str, fault: Fault) -> Value:
    return {"name": name, "errorCode": fault.code, "errorMessage": fault.message}
