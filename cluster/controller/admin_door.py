"""Answers the requests of Kafka's protocol that only the Controller can: topics and configs.

::

    client --> LogActor --> LogManager --(frame, by Ray)--> here --> Commanding, Lookups

They become the commands of ``Broker`` and of the command line, with the same rules and errors. The
topics of a request are done beside each other, and each has a result of its own. An answer comes
when what was asked is done: a topic that was made serves then.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from raylog.actors.plane.admin import timeout_s
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from raylog.actors.plane.apis.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from raylog.actors.plane.frames import answer, parse, read_body
from raylog.cluster.controller import config_requests, topic_requests
from raylog.cluster.controller.asking import Commanding, Lookups
from raylog.storage.schemas.types import Value

_Commanding: TypeAlias = Callable[[int, Value, Commanding, Lookups], Value]
_COMMANDS: Final[Mapping[Api, _Commanding]] = MappingProxyType(
    {
        CREATE_TOPICS: topic_requests.create,
        DELETE_TOPICS: topic_requests.delete,
        CREATE_PARTITIONS: topic_requests.extend,
        ALTER_CONFIGS: config_requests.replace,
        INCREMENTAL_ALTER_CONFIGS: config_requests.change,
    }
)


def answer_command(frame: bytes, commanding: Commanding, lookups: Lookups) -> bytes:
    """The frame that answers a command. Raises MalformedRequest; KeyError for any other API."""
    request = parse(memoryview(frame))
    command, body = _COMMANDS[request.api], read_body(request)
    within = commanding.within(timeout_s(body))
    return answer(request, command(request.version, body, within, lookups))


def answer_lookup(frame: bytes, lookups: Lookups) -> bytes:
    """The frame that answers a DescribeConfigs request, from memory. Raises MalformedRequest."""
    request = parse(memoryview(frame))
    assert request.api is DESCRIBE_CONFIGS, request.api.name
    return answer(request, config_requests.describe(read_body(request), lookups))
