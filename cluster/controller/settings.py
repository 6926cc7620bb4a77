"""Configs as people see and change them: every key with its value and who set it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from raylog.actors.messages import ConfigEntry
from raylog.actors.node.broker_config import (
    BROKER_KEYS,
    BROKER_SYNONYMS,
    BrokerConfig,
    broker_keys,
)
from raylog.storage.config import (
    FIXED_TOPIC_KEYS,
    TOPIC_KEYS,
    LogConfig,
    attribute_of,
    is_fixed,
    no_such_key,
    parse_value,
)
from raylog.storage.errors import InvalidConfig

TOPIC, BROKER, DEFAULT = "topic", "broker", "default"
# Kafka's keys for Kafka's own tests: shown only where somebody set them.
_HIDDEN = {"internal.segment.bytes"}


def topic_overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """A topic's own config, parsed. Keys that have one value only are left out.

    Raises InvalidConfig.
    """
    overrides = {}
    for key, value in given.items():
        _check_topic_key(key, value)
        if not is_fixed(key, value):
            overrides[key] = parse_value(TOPIC_KEYS, key, value)
    return overrides


def _check_topic_key(key: str, value: Any = None) -> None:
    """Raise InvalidConfig unless topics have this key."""
    if key in TOPIC_KEYS or key in FIXED_TOPIC_KEYS:
        return
    for topic_key, synonyms in BROKER_SYNONYMS.items():
        if key in (name for name, _ in synonyms):
            why = f"this is a broker key; use the topic key {topic_key}"
            raise InvalidConfig(key, value, why)
    if key in broker_keys():
        why = "this is a broker key, and no topic key sets the same; see docs/CONFIG.md"
        raise InvalidConfig(key, value, why)
    raise InvalidConfig(key, value, no_such_key(key, TOPIC_KEYS))


def altered(
    config: Mapping[str, Any], changes: Mapping[str, Any], delete: Iterable[str]
) -> dict[str, Any]:
    """A topic's config after a change: what ``changes`` sets, without the keys of ``delete``.

    A key that is deleted has the broker's value again. Deleting a key that is not set is no error.
    Raises InvalidConfig.
    """
    gone = set(delete)
    for key in sorted(gone):
        _check_topic_key(key)
        if key in changes:
            raise InvalidConfig(
                key, changes[key], "the key is both set and deleted; do only one of the two"
            )
    kept = {key: value for key, value in config.items() if key not in gone}
    return {**kept, **topic_overrides(changes)}


def topic_entries(config: Mapping[str, Any], defaults: LogConfig) -> list[ConfigEntry]:
    """Every topic key.

    The source of a key that the topic does not set is the broker if the value differs from Kafka's
    default, else the default.
    """
    values = LogConfig.parse(config, defaults)
    return [
        ConfigEntry(name, value, TOPIC if name in config else _source(value, key.default))
        for name, key in sorted(TOPIC_KEYS.items())
        if name in config or name not in _HIDDEN
        for value in [getattr(values, attribute_of(name))]
    ]


def broker_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """Every broker key. Of several keys for one setting: the one with the finest unit."""
    own = [
        ConfigEntry(name, value, _source(value, key.default))
        for name, key in BROKER_KEYS.items()
        for value in [getattr(config, attribute_of(name))]
    ]
    shared = [
        ConfigEntry(names[0][0], value, _source(value, TOPIC_KEYS[topic_key].default))
        for topic_key, names in BROKER_SYNONYMS.items()
        for value in [getattr(config.topic_defaults, attribute_of(topic_key))]
    ]
    return sorted([*own, *shared])


def _source(value: Any, default: Any) -> str:
    return DEFAULT if value == default else BROKER
