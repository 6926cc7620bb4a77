"""Questions about configs. Those of brokers are only tried, since Kafka's would change."""

from typing import Any, Final

from raylog.actors.plane.apis.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)
from raylog.storage.schemas.types import Value
from tests.kafka.differential.cluster import CONFIGS, MADE, anywhere
from tests.kafka.differential.question import BrokerNumber, Draw, Question
from tests.kafka.differential.records import KEPT, RECORD_TOPICS

TOPIC, BROKER = 2, 4
# Of Kafka: unknown, any, a broker's loggers, client metrics, groups; and none at all.
OTHER_TYPES: Final = (0, 1, 8, 16, 32, 99)
KEYS: Final = (
    "retention.ms",
    "cleanup.policy",
    "compression.type",
    "preallocate",
    "min.cleanable.dirty.ratio",
    "no.such.key",
    "",
)
BROKER_KEYS: Final = ("log.retention.ms", "num.partitions", "log.dirs", "no.such.key")


def _topic(draw: Draw) -> str:
    return draw.usually(draw.one(KEPT, KEPT, *MADE), "no-such", "", "a b", "a" * 250)


def _resource(draw: Draw) -> Value:
    kind = draw.usually(TOPIC, BROKER, *OTHER_TYPES)
    if kind == BROKER:
        own: Any = BrokerNumber(is_text=True)
        return {"resourceType": kind, "resourceName": draw.usually(own, "", "77", "x")}
    return {"resourceType": kind, "resourceName": _topic(draw)}


def describe_configs(draw: Draw) -> Question:
    version = draw.version(DESCRIBE_CONFIGS)

    def resource() -> Value:
        own = _resource(draw)
        if own["resourceType"] == TOPIC and draw.chance(0.5):
            own["resourceName"] = draw.one(*RECORD_TOPICS)
        keys = BROKER_KEYS if own["resourceType"] == BROKER else KEYS
        some = draw.random.sample(keys, draw.random.randrange(3))
        return {**own, "configurationKeys": draw.one(None, some)}

    body: Value = {
        "resources": draw.some(2, resource),
        "includeSynonyms": draw.one(True, False),
    }
    if version >= 3:
        body["includeDocumentation"] = draw.one(True, False)
    return Question(DESCRIBE_CONFIGS, version, body, anywhere(draw))


def _changed(draw: Draw, configs: Any, *, repeats: float = 0) -> tuple[list[Value], bool]:
    """Resources with their changes, and whether they are only tried.

    ``repeats``: how often each is named twice; Kafka never answers an AlterConfigs that does so.
    """

    def resource() -> Value:
        return {**_resource(draw), "configs": configs()}

    named = {(one["resourceType"], str(one["resourceName"])): one for one in draw.some(2, resource)}
    resources = list(named.values())
    if draw.chance(repeats):
        resources *= 2
    is_of_topics = all(one["resourceType"] == TOPIC for one in resources)
    return resources, not is_of_topics or draw.chance(0.3)


def alter_configs(draw: Draw) -> Question:
    def configs() -> list[Value]:
        some = [draw.one(*CONFIGS) for _ in range(draw.one(0, 1, 1, 2))]
        return [{"name": key, "value": value} for key, value in some]

    resources, is_trial = _changed(draw, configs)
    body = {"resources": resources, "validateOnly": is_trial}
    return Question(ALTER_CONFIGS, draw.version(ALTER_CONFIGS), body, anywhere(draw))


def incremental_alter_configs(draw: Draw) -> Question:
    def config() -> Value:
        operation = draw.usually(draw.one(0, 1, 2, 3), 4, -1)
        pool = [entry for entry in CONFIGS if operation < 2 or entry[0] == "cleanup.policy"]
        key, value = draw.one(*(pool if draw.chance(0.8) else CONFIGS))
        return {"name": key, "configOperation": operation, "value": value}

    def configs() -> list[Value]:
        return [config() for _ in range(draw.one(0, 1, 1, 1, 2))]

    resources, is_trial = _changed(draw, configs, repeats=0.05)
    body = {"resources": resources, "validateOnly": is_trial}
    version = draw.version(INCREMENTAL_ALTER_CONFIGS)
    return Question(INCREMENTAL_ALTER_CONFIGS, version, body, anywhere(draw))
