"""Requests that only the Controller answers: which they are, and what is said where it is away.

The LogManager passes such a frame on to the Controller, and its answer back
(``cluster/controller/admin_door.py``). Where the Controller is away, every entry of the request is
answered with the reason: a client that asks again is right, and one that gives up can say why.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.errors import ActorAway, BrokerNotFound, NeededActorAway
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from raylog.actors.plane.apis.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from raylog.actors.plane.codes import NOT_CONTROLLER, REQUEST_TIMED_OUT, code_of
from raylog.actors.plane.describing import NO_ID
from raylog.storage.errors import RaylogError
from raylog.storage.schemas.types import Value

# Of a request that does not say how long its client waits.
TIMEOUT_S: Final = 30.0
# No client waits longer; a request that says more is answered after this.
MAX_TIMEOUT_S: Final = 600.0
FIRST_WITH_TOPIC_STRUCTS: Final = 6  # of DeleteTopics


class Fault(NamedTuple):
    """Why an entry of a request was not done. ``code``: Kafka's."""

    code: int
    message: str


def fault_of(error: RaylogError) -> Fault:
    """The fault that this error is to a client.

    While there is no Controller nothing was done. Where it ended in the middle, nobody knows.
    """
    if isinstance(error, BrokerNotFound):
        return Fault(NOT_CONTROLLER, str(error))
    if isinstance(error, ActorAway | NeededActorAway):
        return Fault(REQUEST_TIMED_OUT, str(error))
    return Fault(code_of(error), str(error))


def _topics_not_made(version: int, body: Value, fault: Fault) -> Value:
    topics = [topic_not_made(topic["name"], fault) for topic in body["topics"]]
    return {"throttleTimeMs": 0, "topics": topics}


def topic_not_made(name: str, fault: Fault) -> Value:
    """The entry of a CreateTopics answer for a topic that was not made."""
    return {
        "name": name,
        "topicId": NO_ID,
        "errorCode": fault.code,
        "errorMessage": fault.message,
        "numPartitions": -1,
        "replicationFactor": -1,
        "configs": [],
    }


def _topics_not_deleted(version: int, body: Value, fault: Fault) -> Value:
    if version < FIRST_WITH_TOPIC_STRUCTS:
        names = [{"name": name} for name in body["topicNames"]]
    else:
        names = [{"name": one["name"], "topicId": one["topicId"]} for one in body["topics"]]
    code, message = fault
    responses = [{**one, "errorCode": code, "errorMessage": message} for one in names]
    return {"throttleTimeMs": 0, "responses": responses}


def _topics_not_extended(version: int, body: Value, fault: Fault) -> Value:
    code, message = fault
    results = [
        {"name": topic["name"], "errorCode": code, "errorMessage": message}
        for topic in body["topics"]
    ]
    return {"throttleTimeMs": 0, "results": results}


def _configs_not_described(version: int, body: Value, fault: Fault) -> Value:
    results = [{**resource, "configs": []} for resource in _resources(body, fault)]
    return {"throttleTimeMs": 0, "results": results}


def _configs_not_altered(version: int, body: Value, fault: Fault) -> Value:
    return {"throttleTimeMs": 0, "responses": _resources(body, fault)}


def _resources(body: Value, fault: Fault) -> list[Value]:
    return [
        {
            "errorCode": fault.code,
            "errorMessage": fault.message,
            "resourceType": resource["resourceType"],
            "resourceName": resource["resourceName"],
        }
        for resource in body["resources"]
    ]


_Refusing: TypeAlias = Callable[[int, Value, Fault], Value]
_REFUSALS: Final[Mapping[Api, _Refusing]] = MappingProxyType(
    {
        CREATE_TOPICS: _topics_not_made,
        DELETE_TOPICS: _topics_not_deleted,
        CREATE_PARTITIONS: _topics_not_extended,
        DESCRIBE_CONFIGS: _configs_not_described,
        ALTER_CONFIGS: _configs_not_altered,
        INCREMENTAL_ALTER_CONFIGS: _configs_not_altered,
    }
)
ADMIN_APIS: Final = frozenset(_REFUSALS)


def refused(api: Api, version: int, body: Value, fault: Fault) -> Value:
    """The answer in which each entry of the request has this fault."""
    return _REFUSALS[api](version, body, fault)


def timeout_s(body: Value) -> float:
    """How long the client of a request waits for its answer."""
    given_ms = body.get("timeoutMs")
    if given_ms is None:
        return TIMEOUT_S
    return min(max(given_ms, 0) / 1000, MAX_TIMEOUT_S)
