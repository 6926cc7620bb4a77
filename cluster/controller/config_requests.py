"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of Kafka's protocol.

A topic's config can be read and changed, a broker's only read: all brokers that clients see obey
the same one, which ``raylog start --config FILE --apply`` replaces. Source of the errors and of
what is answered: ``ConfigHelper`` and ``ConfigurationControlManager`` of Kafka 4.3; KIP-133,
KIP-226, KIP-339.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from raylog.actors.errors import InvalidRequest
from raylog.actors.messages import ConfigEntry
from raylog.actors.node.broker_config import BROKER_KEYS, BROKER_SYNONYMS, shown_as
from raylog.actors.plane.admin import Fault, fault_of
from raylog.actors.plane.codes import INVALID_REQUEST
from raylog.cluster.controller.asking import Commanding, Lookups
from raylog.cluster.controller.commands import ListChange
from raylog.cluster.controller.settings import BROKER, DEFAULT, TOPIC, broker_entries
from raylog.storage.config import TOPIC_KEYS, LogConfig, attribute_of
from raylog.storage.errors import InvalidConfig, RaylogError
from raylog.storage.names import check_topic_name
from raylog.storage.schemas.types import Value

OF_TOPIC, OF_BROKER = 2, 4  # types of resources
SET, DELETE, APPEND, SUBTRACT = range(4)
# Kafka's numbers of who set a value: a topic, the file that a broker was started with, nobody.
_SOURCES: Final[Mapping[str, int]] = MappingProxyType({TOPIC: 1, BROKER: 4, DEFAULT: 5})
_BOOLEAN, _STRING, _LONG, _DOUBLE, _LIST = 1, 2, 5, 6, 7
TOPIC_LISTS: Final = frozenset({"cleanup.policy"})
_LISTS: Final = TOPIC_LISTS | {
    "listeners",
    "log.cleanup.policy",
    "log.dirs",
    "sasl.enabled.mechanisms",
}


def text_of(value: Any) -> str:
    """A value as Kafka writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(str(one) for one in value)
    return str(value)


def source_of(entry: ConfigEntry) -> int:
    """Who has set an entry, by Kafka's number."""
    return _SOURCES[entry.source]


def _type_of(entry: ConfigEntry) -> int:
    if entry.name in _LISTS:
        return _LIST
    kinds = {bool: _BOOLEAN, int: _LONG, float: _DOUBLE}
    return kinds.get(type(entry.value), _STRING)


# -- DescribeConfigs -------------------------------------------------------------------------------


def describe(body: Value, lookups: Lookups) -> Value:
    """The answer to a DescribeConfigs request."""
    results = [_described(body, resource, lookups) for resource in body["resources"]]
    return {"throttleTimeMs": 0, "results": results}


def _described(body: Value, resource: Value, lookups: Lookups) -> Value:
    kind, name = resource["resourceType"], resource["resourceName"]
    answer = {"errorCode": 0, "errorMessage": "", "resourceType": kind, "resourceName": name}
    try:
        entries = _entries_of(kind, name, lookups)
    except RaylogError as error:
        code, message = fault_of(error)
        return {**answer, "errorCode": code, "errorMessage": message, "configs": []}
    wanted = resource["configurationKeys"]
    config = lookups.broker_config().topic_defaults
    configs = [
        {
            "name": entry.name,
            "value": text_of(entry.value),
            "readOnly": kind == OF_BROKER,
            "configSource": source_of(entry),
            "isSensitive": False,
            "synonyms": list(_synonyms(entry, config)) if body["includeSynonyms"] else [],
            "configType": _type_of(entry),
            "documentation": _doc_of(entry) if body.get("includeDocumentation") else None,
        }
        for entry in entries
        if not wanted or entry.name in wanted
    ]
    return {**answer, "configs": configs}


def _entries_of(kind: int, name: str, lookups: Lookups) -> Sequence[ConfigEntry]:
    """Of a topic, or of a broker by its number; none for all brokers, whose name is empty."""
    if kind == OF_TOPIC:
        check_topic_name(name)
        return lookups.topic_config(name)
    if kind != OF_BROKER:
        raise InvalidRequest("resource type", kind, "has no config here; topics and brokers have")
    if not name:
        return []
    if name not in {str(kafka_id) for kafka_id in lookups.kafka_ids()}:
        raise InvalidRequest("broker", name, "is no broker's number; see the cluster's metadata")
    return broker_entries(lookups.broker_config())


def _synonyms(entry: ConfigEntry, broker: LogConfig) -> Iterator[Value]:
    """Where the value comes from, and what would count without that, in this order."""
    names = BROKER_SYNONYMS.get(entry.name)
    if entry.source == TOPIC:
        yield _synonym(entry.name, entry.value, TOPIC)
    if entry.name not in TOPIC_KEYS:
        yield _synonym(entry.name, entry.value, entry.source)
        return
    of_broker = getattr(broker, attribute_of(entry.name))
    default = TOPIC_KEYS[entry.name].default
    name = names[0][0] if names else entry.name
    if of_broker != default:
        yield _synonym(name, of_broker, BROKER)
    yield _synonym(name, default, DEFAULT)


def _synonym(name: str, value: Any, source: str) -> Value:
    return {"name": name, "value": text_of(value), "source": _SOURCES[source]}


def _doc_of(entry: ConfigEntry) -> str | None:
    key = TOPIC_KEYS.get(entry.name) or BROKER_KEYS.get(entry.name)
    if key is not None:
        return key.doc
    of_topic = next(
        (key for key in BROKER_SYNONYMS if shown_as(entry.name) == BROKER_SYNONYMS[key][0][0]), ""
    )
    return TOPIC_KEYS[of_topic].doc if of_topic else None


# -- AlterConfigs, IncrementalAlterConfigs ---------------------------------------------------------


def replace(version: int, body: Value, commanding: Commanding, lookups: Lookups) -> Value:
    """The answer to an AlterConfigs request: what it does not name has the broker's value again."""

    def alter(resource: Value) -> None:
        name = resource["resourceName"]
        changes = _distinct(resource["configs"])
        commanding.alter_topic_config(name, changes, (), body["validateOnly"], replaces=True)

    return _altered(body, alter)


def change(version: int, body: Value, commanding: Commanding, lookups: Lookups) -> Value:
    """The answer to an IncrementalAlterConfigs request."""

    def alter(resource: Value) -> None:
        name, entries = resource["resourceName"], resource["configs"]
        _check_distinct(entries)
        deleted = [entry["name"] for entry in entries if entry["configOperation"] == DELETE]
        changes: dict[str, str] = {}
        lists: list[ListChange] = []
        for entry in entries:
            operation = entry["configOperation"]
            if operation == SET:
                _check_value(entry)
                changes[entry["name"]] = entry["value"]
            elif operation != DELETE:
                lists.append(_list_change(entry))
        commanding.alter_topic_config(name, changes, deleted, body["validateOnly"], lists=lists)

    return _altered(body, alter)


def _altered(body: Value, alter: Callable[[Value], None]) -> Value:
    resources = body["resources"]
    asked = Counter((one["resourceType"], one["resourceName"]) for one in resources)
    responses = []
    for resource in resources:
        kind, name = resource["resourceType"], resource["resourceName"]
        fault = _why_not_altered(kind, name, asked[kind, name]) or _fault_of(alter, resource)
        code, message = fault or (0, None)
        answer = {"errorCode": code, "errorMessage": message}
        responses.append({**answer, "resourceType": kind, "resourceName": name})
    return {"throttleTimeMs": 0, "responses": responses}


def _why_not_altered(kind: int, name: str, count: int) -> Fault | None:
    if count > 1:
        return Fault(INVALID_REQUEST, "Each resource must appear at most once.")
    if kind == OF_TOPIC and not name:
        return Fault(INVALID_REQUEST, "Default topic resources are not allowed.")
    if kind == OF_BROKER:
        why = "a broker's config is changed by `raylog start --config FILE --apply`"
        return Fault(INVALID_REQUEST, why)
    if kind != OF_TOPIC:
        return Fault(INVALID_REQUEST, f"resource type {kind} has no config here; topics have")
    return None


def _fault_of(alter: Callable[[Value], None], resource: Value) -> Fault | None:
    try:
        check_topic_name(resource["resourceName"])
        alter(resource)
    except RaylogError as error:
        return fault_of(error)
    return None


def _distinct(entries: Sequence[Value]) -> dict[str, str]:
    _check_distinct(entries)
    for entry in entries:
        _check_value(entry)
    return {entry["name"]: entry["value"] for entry in entries}


def _check_distinct(entries: Iterable[Value]) -> None:
    for name, count in Counter(entry["name"] for entry in entries).items():
        if count > 1:
            raise InvalidRequest("config", name, "is named more than once in the request")


def _check_value(entry: Value) -> None:
    if entry["value"] is None:
        raise InvalidRequest("config", entry["name"], "has no value (null) in the request")


def _list_change(entry: Value) -> ListChange:
    """What an entry does to a list."""
    name, operation = entry["name"], entry["configOperation"]
    if operation not in (APPEND, SUBTRACT):
        raise InvalidRequest("config operation", operation, "is none of 0 to 3")
    _check_value(entry)
    value: str = entry["value"]
    if name not in TOPIC_LISTS:
        raise InvalidConfig(name, value, "can be set or deleted; only a list can be appended to")
    own = tuple(one.strip() for one in value.split(","))
    return ListChange(key=name, entries=own, takes_out=operation == SUBTRACT)
