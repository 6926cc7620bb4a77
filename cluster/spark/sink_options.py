"""The options of a write with ``format("raylog")``: parsed, checked, and refused by name.

``topic`` and ``includeHeaders`` are those of Spark's Kafka connector, and so is the prefix
``kafka.``: what follows it is a setting of the producer, as in ``kafka.compression.type``.

Pure: nothing here knows a broker.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from raylog.cluster.client.producer.config import ProducerConfig
from raylog.cluster.spark.errors import InvalidSparkOption
from raylog.cluster.spark.options import NAMES as READ_NAMES
from raylog.cluster.spark.options import NO_KAFKA_CLIENT, Mode, boolean
from raylog.storage.errors import RaylogError

PREFIX = "kafka."
NAMES = ("topic", "includeHeaders", "address", "namespace")
_BY_LOWER = {name.lower(): name for name in NAMES}
_OF_READS = {name.lower() for name in READ_NAMES if name not in NAMES}
# What Spark itself takes from a stream's options, and hands on.
_OF_SPARK = ("checkpointlocation", "queryname")
_NOT_HERE = {
    "key.serializer": "Spark's columns are bytes already; cast or encode them in the query",
    "value.serializer": "Spark's columns are bytes already; cast or encode them in the query",
    "partitioner": "keys decide (murmur2); to choose partitions, add a column partition",
    "transactional.id": "tasks write beside each other, and a transaction has one producer",
    "transaction.timeout.ms": "there are no transactions in a write of Spark",
}
_SETTINGS = {
    field.name.replace("_", "."): field
    for field in dataclasses.fields(ProducerConfig)
    if field.name.replace("_", ".") not in _NOT_HERE
}


@dataclass(frozen=True)
class SinkOptions:
    """All options of one write, valid together. ``topic``: for all rows; None: a column has it."""

    topic: str | None = None
    producer: tuple[tuple[str, Any], ...] = ()
    address: str | None = None
    namespace: str | None = None


def parse_sink(given: Mapping[str, str], mode: Mode = "batch") -> SinkOptions:
    """Options of a write. Raises InvalidSparkOption on the first that is wrong."""
    options: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for key, text in given.items():
        value = str(text).strip()
        if mode == "stream" and key.lower() in _OF_SPARK:
            continue
        if key.lower().startswith(PREFIX):
            setting = key[len(PREFIX) :].lower()
            settings[setting] = _setting(key, setting, value)
        else:
            options[_known(key, value)] = value
    # Checked only: as in the connector, a column headers is written in any case.
    boolean(options, "includeHeaders", False)
    if options.get("topic") == "":
        raise InvalidSparkOption("topic", "", "name a topic, or remove the option")
    _check_together(settings)
    return SinkOptions(
        topic=options.get("topic"),
        producer=tuple(sorted(settings.items())),
        address=options.get("address"),
        namespace=options.get("namespace"),
    )


def _known(key: str, value: str) -> str:
    name = _BY_LOWER.get(key.lower())
    if name is None:
        raise InvalidSparkOption(key, value, _what_instead(key.lower()))
    return name


def _what_instead(key: str) -> str:
    if key == "path":
        return "a log has no path; call save() without one, and name the topic with option topic"
    if key in _OF_READS:
        return f"only a read has it; remove the option (a write has {', '.join(NAMES)})"
    near = get_close_matches(key, [*_BY_LOWER, *_SETTINGS], n=1, cutoff=0.75)
    if not near:
        return f"unknown option; a write has {', '.join(NAMES)}, and {PREFIX}* for the producer"
    return f"unknown option; did you mean {_BY_LOWER.get(near[0], PREFIX + near[0])}?"


def _setting(key: str, setting: str, value: str) -> Any:
    """The value of a producer's setting, of the type that the producer takes."""
    if setting in _NOT_HERE:
        raise InvalidSparkOption(key, value, f"not supported: {_NOT_HERE[setting]}")
    field = _SETTINGS.get(setting)
    if field is None:
        near = get_close_matches(setting, _SETTINGS, n=1, cutoff=0.75)
        hint = f"did you mean {PREFIX}{near[0]}?" if near else NO_KAFKA_CLIENT
        raise InvalidSparkOption(key, value, f"unknown setting of the producer; {hint}")
    if isinstance(field.default, bool):
        return boolean({key: value}, key, field.default)
    if isinstance(field.default, int) or field.default is None:
        return _integer(key, value)
    return value


def _integer(key: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise InvalidSparkOption(key, value, "give an integer") from None


def _check_together(settings: Mapping[str, Any]) -> None:
    try:
        ProducerConfig.of(settings)
    except RaylogError as wrong:
        names = ", ".join(PREFIX + name for name in sorted(settings))
        raise InvalidSparkOption(names, "", str(wrong)) from wrong
