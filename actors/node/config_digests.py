"""What a node obeys of its broker's config: which keys it takes while it serves, and digests of it.

A node is *given* a config when its LogManager is started. While it serves it takes most keys of
another one at once; those of ``BY_START`` it has from its start. What it *obeys* it tells by two
digests, one for each kind, so that the Controller knows what is to be done (``rolling.py``).

The next release may have other keys. Where nobody sets them, its digests are the same: they are of
what differs from Kafka's defaults. A key that a release does not know it cannot obey, and leaves
out, as an unknown field of a message.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from raylog.actors.node.broker_config import (
    BROKER_KEYS,
    BROKER_SYNONYMS,
    BrokerConfig,
    broker_keys,
)
from raylog.storage.config import attribute_of

# They are part of what a LogManager or a LogActor is made of: another value needs another one.
BY_START = (
    "connections.max.idle.ms",
    "listener.security.protocol.map",
    "listeners",
    "log.dirs",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
    "max.connections",
    "producer.id.expiration.check.interval.ms",
    "producer.id.expiration.ms",
    "sasl.enabled.mechanisms",
    "socket.request.max.bytes",
    "ssl.client.auth",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
# Hexadecimal digits: two configs of one cluster must differ in them.
DIGEST_DIGITS = 16


def values_of(config: BrokerConfig) -> dict[str, Any]:
    """Every key with its value, so that ``config_of`` gives the same config.

    Of several keys for one default of topics it is the one with the finest unit. What a value is
    made of, msgpack and JSON have, too.
    """
    values = {key: getattr(config, attribute_of(key)) for key in BROKER_KEYS}
    for topic_key, names in BROKER_SYNONYMS.items():
        values[names[0][0]] = getattr(config.topic_defaults, attribute_of(topic_key))
    for key in ("log.dirs", "sasl.enabled.mechanisms"):
        values[key] = list(values[key])
    return values


DEFAULTS = values_of(BrokerConfig())


def config_of(values: Mapping[str, Any]) -> BrokerConfig:
    """The config that has these values, as this release or the next one wrote them.

    A key that only that one has is left out. Raises InvalidConfig.
    """
    known = broker_keys()
    settings = {key: value for key, value in values.items() if key in known}
    if not settings.get("log.dirs"):  # each node has those of its RAYLOG_LOG_DIRS
        settings.pop("log.dirs", None)
    return BrokerConfig.parse(settings)


def digest_at_once(config: BrokerConfig) -> str:
    """Of what a node takes while it serves."""
    values = _set_values(config)
    return _digest({key: value for key, value in values.items() if key not in BY_START})


def digest_by_start(config: BrokerConfig) -> str:
    """Of what a node has from the start of its LogManager."""
    values = _set_values(config)
    return _digest({key: value for key, value in values.items() if key in BY_START})


def taken_at_once(config: BrokerConfig, given: BrokerConfig) -> BrokerConfig:
    """``config`` as a node obeys it whose LogManager was started with ``given``."""
    kept = {attribute_of(key): getattr(given, attribute_of(key)) for key in BY_START}
    return replace(config, **kept)


def _set_values(config: BrokerConfig) -> dict[str, Any]:
    """The values that are not Kafka's defaults."""
    return {key: value for key, value in values_of(config).items() if value != DEFAULTS[key]}


def _digest(values: Mapping[str, Any]) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_DIGITS]
