"""Configs as people see and change them: every key with its value and who set it. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from raylog.actors.messages import ConfigEntry
from raylog.actors.node.broker_config import (
    BROKER_KEYS,
    BROKER_SYNONYMS,
    BrokerConfig,
    broker_keys,
    shown_as,
    why_no_broker_key,
)
from raylog.storage.config import (
    FIXED_TOPIC_KEYS,
    MAX_LAG,
    MIN_LAG,
    TOPIC_KEYS,
    LogConfig,
    attribute_of,
    is_fixed,
    no_such_key,
    parse_value,
)
from raylog.storage.errors import InvalidConfig, TopicConfigConflict, UnknownConfigKey

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


def _check_topic_key(key: str, value: Any) -> None:
    why = _why_no_topic_key(key)
    if why:
        raise InvalidConfig(key, value, why)


def _why_no_topic_key(key: str) -> str:
    """Why topics do not have this key; empty if they do."""
    if key in TOPIC_KEYS or key in FIXED_TOPIC_KEYS:
        return ""
    for topic_key, synonyms in BROKER_SYNONYMS.items():
        if key in (name for name, _ in synonyms):
            return f"this is a broker key; use the topic key {topic_key}"
    if key in broker_keys():
        return "this is a broker key, and no topic key sets the same; see docs/CONFIG.md"
    return no_such_key(key, TOPIC_KEYS)


def altered(
    config: Mapping[str, Any], changes: Mapping[str, Any], delete: Iterable[str]
) -> dict[str, Any]:
    """A topic's config after a change: what ``changes`` sets, without the keys of ``delete``.

    A key that is deleted has the broker's value again. Deleting a key that is not set is no error.
    Raises InvalidConfig.
    """
    gone = set(delete)
    for key in sorted(gone):
        why = _why_no_topic_key(key)
        if why:
            raise UnknownConfigKey(key, why)
        if key in changes:
            raise InvalidConfig(
                key, changes[key], "the key is both set and deleted; do only one of the two"
            )
    kept = {key: value for key, value in config.items() if key not in gone}
    return {**kept, **topic_overrides(changes)}


def conflict(
    topic: str, config: Mapping[str, Any], defaults: LogConfig
) -> TopicConfigConflict | None:
    """Why no log can have a topic's own config over the broker's; None where it can.

    The config was valid when it was given, so the broker has been started with another one since.
    """
    try:
        LogConfig.parse(config, defaults)
    except InvalidConfig as error:
        key, value, why = error.args
        if key == MIN_LAG:
            return _conflict_of_lags(topic, config, defaults)
        return TopicConfigConflict(key, value, f"the broker refuses: {why}", topic)
    return None


def _conflict_of_lags(
    topic: str, config: Mapping[str, Any], defaults: LogConfig
) -> TopicConfigConflict:
    """One of the two is the topic's own: the broker's go together."""
    own, other = (MIN_LAG, MAX_LAG) if MIN_LAG in config else (MAX_LAG, MIN_LAG)
    must = "exceeds" if own == MIN_LAG else "is less than"
    of_broker = f"{BROKER_SYNONYMS[other][0][0]}={getattr(defaults, attribute_of(other))}"
    why = f"{must} the broker's {of_broker}"
    return TopicConfigConflict(own, config[own], why, topic)


def topic_entries(config: Mapping[str, Any], defaults: LogConfig) -> list[ConfigEntry]:
    """Every topic key; also where the topic's own do not go with the broker's.

    The source of a key that the topic does not set is the broker if the value differs from Kafka's
    default, else the default.
    """
    values = LogConfig.unchecked(config, defaults)
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


def of_topic_keys(entries: Sequence[ConfigEntry], keys: Sequence[str]) -> Sequence[ConfigEntry]:
    """A topic's entries of these keys; all without a key. Raises UnknownConfigKey."""
    known = {entry.name: entry for entry in entries}
    for key in keys:
        why = _why_no_topic_key(key) or _why_not_shown(key, known)
        if why:
            raise UnknownConfigKey(key, why)
    return [known[key] for key in keys] or entries


def _why_not_shown(key: str, known: Collection[str]) -> str:
    """Why a topic's config does not show a key that topics have; empty if it does."""
    if key in known:
        return ""
    if key in FIXED_TOPIC_KEYS:
        return f"its only value is {FIXED_TOPIC_KEYS[key][0]!r}"
    return "it is not set"


def of_broker_keys(entries: Sequence[ConfigEntry], keys: Sequence[str]) -> Sequence[ConfigEntry]:
    """The broker's entries of these keys; all without a key. Raises UnknownConfigKey.

    Another name of a key is answered with the key.
    """
    known = {entry.name: entry for entry in entries}
    for key in keys:
        why = why_no_broker_key(key)
        if why:
            raise UnknownConfigKey(key, why)
    return [known[shown_as(key)] for key in keys] or entries


def _source(value: Any, default: Any) -> str:
    return DEFAULT if value == default else BROKER
