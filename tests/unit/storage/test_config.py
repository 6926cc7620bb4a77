"""Config keys: defaults, what they take, what they refuse."""

from dataclasses import fields
from typing import Any, get_origin, get_type_hints

import pytest

from raylog.actors.node.broker_config import BrokerConfig
from raylog.storage.config import FIXED_TOPIC_KEYS, TOPIC_KEYS, LogConfig, keys_of
from raylog.storage.errors import InvalidConfig

# Kafka 4.x's own, and two of raylog.
DEFAULTS = {
    "check.compressed.batches": True,
    "max.plain.batch.bytes": 104857600,
    "segment.bytes": 1073741824,
    "segment.ms": 604800000,
    "segment.jitter.ms": 0,
    "segment.index.bytes": 10485760,
    "index.interval.bytes": 4096,
    "flush.messages": 9223372036854775807,
    "flush.ms": 9223372036854775807,
    "retention.bytes": -1,
    "retention.ms": 604800000,
    "file.delete.delay.ms": 60000,
    "max.message.bytes": 1048588,
    "cleanup.policy": "delete",
    "delete.retention.ms": 86400000,
    "min.compaction.lag.ms": 0,
    "max.compaction.lag.ms": 9223372036854775807,
    "min.cleanable.dirty.ratio": 0.5,
    "preallocate": False,
    "compression.type": "producer",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.zstd.level": 3,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": 9223372036854775807,
    "message.timestamp.after.max.ms": 3600000,
    "internal.segment.bytes": 0,
}


def attribute(key: str) -> str:
    return key.replace(".", "_")


def test_every_topic_key_has_kafkas_default() -> None:
    assert {key.name: key.default for key in TOPIC_KEYS.values()} == DEFAULTS
    assert {
        field.name: getattr(LogConfig(), field.name) for field in fields(LogConfig) if field.init
    } == {attribute(key): value for key, value in DEFAULTS.items()}
    assert LogConfig.parse({}) == LogConfig()


@pytest.mark.parametrize("config", [LogConfig, BrokerConfig])
def test_every_default_is_a_value_that_its_key_takes(config: type) -> None:
    """mypy does not see the types of the defaults."""
    for key in keys_of(config).values():
        if key.default != ():  # log.dirs must be given
            assert key.parse(key.default) == key.default
            hint = get_type_hints(config)[attribute(key.name)]
            assert isinstance(key.default, get_origin(hint) or hint)


NUMBERS = [key for key, value in DEFAULTS.items() if type(value) is int and "level" not in key]


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_is_taken_as_yaml_and_command_lines_give_it(key: str) -> None:
    for given in (1 << 20, str(1 << 20), float(1 << 20)):
        assert getattr(LogConfig.parse({key: given}), attribute(key)) == 1 << 20


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize(
    "value", ["", "x", "1.5", 1.5, None, True, [], {}, float("nan"), float("inf"), -2, 2**63]
)
def test_what_is_no_such_number_is_refused_by_the_keys_name(key: str, value: Any) -> None:
    with pytest.raises(InvalidConfig) as caught:
        LogConfig.parse({key: value})
    assert caught.value.args[0] == key
    assert "an integer from" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "lowest"),
    [
        ("segment.bytes", 1 << 20),
        ("segment.ms", 1),
        ("flush.messages", 1),
        ("retention.ms", -1),
        ("flush.ms", 0),
    ],
)
def test_the_lowest_value_is_taken_and_the_one_below_is_not(key: str, lowest: int) -> None:
    LogConfig.parse({key: lowest})
    with pytest.raises(InvalidConfig):
        LogConfig.parse({key: lowest - 1})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("compression.type", "none"),
        ("message.timestamp.type", "createtime"),
    ],
)
def test_a_choice_that_is_none_is_refused_with_those_there_are(key: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match="one of"):
        LogConfig.parse({key: value})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("compact", "compact"),
        ("compact,delete", "compact,delete"),
        (" delete , compact ", "delete,compact"),
        (["compact", "delete"], "compact,delete"),
        ("delete,delete", "delete"),
    ],
)
def test_a_cleanup_policy_is_one_or_both(value: Any, expected: str) -> None:
    config = LogConfig.parse({"cleanup.policy": value})
    assert config.cleanup_policy == expected
    assert (config.is_compacted, config.is_deleted) == ("compact" in expected, "delete" in expected)


@pytest.mark.parametrize(
    "value", [None, "", "Compact", "compact,", "none", [], 7, [None], {"compact": 1}]
)
def test_what_is_no_cleanup_policy_is_refused(value: Any) -> None:
    with pytest.raises(InvalidConfig, match=r"config cleanup\.policy=.*delete, compact, or both"):
        LogConfig.parse({"cleanup.policy": value})


@pytest.mark.parametrize("value", [-0.1, 1.1, "x", None, True, float("nan"), []])
def test_what_is_no_share_is_refused(value: Any) -> None:
    with pytest.raises(InvalidConfig, match="a number from 0 to 1"):
        LogConfig.parse({"min.cleanable.dirty.ratio": value})


def test_shares_flags_and_rates_are_taken_as_yaml_and_command_lines_give_them() -> None:
    assert LogConfig.parse({"min.cleanable.dirty.ratio": "0.25"}).min_cleanable_dirty_ratio == 0.25
    for given, expected in ((True, True), ("false", False), ("True", True)):
        assert LogConfig.parse({"preallocate": given}).preallocate is expected
    with pytest.raises(InvalidConfig, match="preallocate"):
        LogConfig.parse({"preallocate": 1})


def test_the_lags_of_compaction_must_leave_room_between_them() -> None:
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms=5: must not exceed max.*=4"):
        LogConfig.parse({"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 4})


def test_a_segment_of_a_compacted_log_rolls_in_time_for_the_longest_lag() -> None:
    assert LogConfig(max_compaction_lag_ms=5).max_segment_ms == LogConfig().segment_ms
    assert LogConfig(max_compaction_lag_ms=5, cleanup_policy="compact").max_segment_ms == 5


@pytest.mark.parametrize("key", ["listeners", "message.format.version", "", "topic_defaults"])
def test_an_unknown_key_is_refused_and_the_known_are_named(key: str) -> None:
    with pytest.raises(InvalidConfig, match=r"unknown key; the known keys are .*retention\.bytes"):
        LogConfig.parse({key: 1})


@pytest.mark.parametrize(
    ("key", "only", "other"), [(key, only, "2") for key, (only, _) in FIXED_TOPIC_KEYS.items()]
)
def test_a_key_for_what_there_is_not_takes_its_default_alone(
    key: str, only: str, other: str
) -> None:
    assert LogConfig.parse({key: only}) == LogConfig()
    with pytest.raises(InvalidConfig, match="remove the key"):
        LogConfig.parse({key: other})


def test_a_mistyped_key_is_answered_with_those_like_it() -> None:
    with pytest.raises(InvalidConfig, match=r"unknown key; similar keys are segment\.bytes"):
        LogConfig.parse({"segment.byte": 1})


@pytest.mark.parametrize(
    ("codec", "levels", "refused"),
    [
        ("gzip", (-1, 1, 9), (0, 10, -2)),
        ("lz4", (1, 17), (0, 18)),
        ("zstd", (-131_072, 22), (-131_073, 23)),
    ],
)
def test_each_codec_has_its_levels(
    codec: str, levels: tuple[int, ...], refused: tuple[int, ...]
) -> None:
    key = f"compression.{codec}.level"
    for level in levels:
        assert LogConfig.parse({key: level, "compression.type": codec}).compression_level == level
    for level in refused:
        with pytest.raises(InvalidConfig):
            LogConfig.parse({key: level})


def test_overrides_stand_on_a_base() -> None:
    base = LogConfig(retention_ms=5, segment_ms=6)
    assert LogConfig.parse({"retention.ms": 7}, base) == LogConfig(retention_ms=7, segment_ms=6)


def test_the_internal_segment_size_goes_below_a_mebibyte() -> None:
    assert LogConfig.parse({"internal.segment.bytes": 100}).segment_bytes == 100
