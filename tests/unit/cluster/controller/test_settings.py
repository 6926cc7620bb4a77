"""Configs as people see and change them."""

from collections.abc import Sequence

import pytest

from raylog.actors.messages import ConfigEntry
from raylog.actors.node.broker_config import BROKER_KEYS, BrokerConfig, broker_keys
from raylog.cluster.controller.settings import (
    altered,
    broker_entries,
    conflict,
    of_broker_keys,
    of_topic_keys,
    topic_entries,
    topic_overrides,
)
from raylog.storage.config import TOPIC_KEYS, LogConfig
from raylog.storage.errors import InvalidConfig, UnknownConfigKey


def test_a_change_sets_deletes_and_keeps_the_rest() -> None:
    before = {"retention.ms": 5, "segment.bytes": 2_000_000}
    assert altered(before, {"flush.messages": "7"}, ["retention.ms", "segment.ms"]) == {
        "segment.bytes": 2_000_000,
        "flush.messages": 7,
    }
    assert before == {"retention.ms": 5, "segment.bytes": 2_000_000}


def test_keys_that_have_one_value_only_are_taken_and_not_kept() -> None:
    assert altered({}, {"min.insync.replicas": "1"}, ["unclean.leader.election.enable"]) == {}
    with pytest.raises(InvalidConfig, match="one replica"):
        altered({}, {"min.insync.replicas": 2}, ())


@pytest.mark.parametrize(
    ("changes", "delete", "message"),
    [
        ({"retention.ms": "soon"}, (), "must be an integer"),
        ({"retention.m": 5}, (), "retention.ms"),
        ({}, ["retention.m"], "retention.ms"),
        ({"num.partitions": 5}, (), "broker key"),
        ({"retention.ms": 5}, ["retention.ms"], "both set and deleted"),
    ],
)
def test_what_cannot_be_is_named(
    changes: dict[str, object], delete: list[str], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message):
        altered({}, changes, delete)


def test_a_topic_shows_every_key_with_its_value_and_who_set_it() -> None:
    defaults = BrokerConfig.parse({"log.retention.hours": 2}).topic_defaults
    entries = {name: rest for name, *rest in topic_entries({"flush.messages": 1}, defaults)}
    assert set(entries) == set(TOPIC_KEYS) - {"internal.segment.bytes"}
    assert entries["flush.messages"] == [1, "topic"]
    assert entries["retention.ms"] == [7_200_000, "broker"]
    assert entries["segment.bytes"] == [1 << 30, "default"]


def test_a_topic_that_sets_what_is_the_default_anyway_has_set_it() -> None:
    entries = topic_entries({"segment.bytes": 1 << 30}, LogConfig())
    assert ("segment.bytes", 1 << 30, "topic") in entries


LAGS = BrokerConfig.parse(
    {"log.cleaner.min.compaction.lag.ms": 50, "log.cleaner.max.compaction.lag.ms": 1_000}
).topic_defaults


@pytest.mark.parametrize(
    ("own", "problem"),
    [
        (
            {"min.compaction.lag.ms": 1_001},
            "topic t sets min.compaction.lag.ms=1001, which exceeds the broker's "
            "log.cleaner.max.compaction.lag.ms=1000",
        ),
        (
            {"max.compaction.lag.ms": 49},
            "topic t sets max.compaction.lag.ms=49, which is less than the broker's "
            "log.cleaner.min.compaction.lag.ms=50",
        ),
    ],
)
def test_where_a_topics_own_config_does_not_go_with_the_brokers_both_keys_are_named(
    own: dict[str, object], problem: str
) -> None:
    found = conflict("t", own, LAGS)
    assert found is not None
    assert found.problem == problem
    assert f"`raylog config set t --delete {next(iter(own))}`" in found.advice
    assert conflict("t", {"min.compaction.lag.ms": 1_000}, LAGS) is None


def test_a_topic_shows_every_key_also_where_they_do_not_go_together() -> None:
    entries = {name: rest for name, *rest in topic_entries({"min.compaction.lag.ms": 5_000}, LAGS)}
    assert set(entries) == set(TOPIC_KEYS) - {"internal.segment.bytes"}
    assert entries["min.compaction.lag.ms"] == [5_000, "topic"]
    assert entries["max.compaction.lag.ms"] == [1_000, "broker"]


def test_a_broker_shows_every_key_once() -> None:
    entries = broker_entries(BrokerConfig.parse({"log.dirs": "/a", "log.roll.hours": 1}))
    names = [entry.name for entry in entries]
    assert names == sorted(set(names))
    assert set(BROKER_KEYS) < set(names)
    assert ("log.dirs", ("/a",), "broker") in entries
    assert ("log.roll.ms", 3_600_000, "broker") in entries
    assert ("num.partitions", 1, "default") in entries


def test_a_brokers_key_is_not_a_topics() -> None:
    with pytest.raises(InvalidConfig, match=r"use the topic key segment\.bytes"):
        topic_overrides({"log.segment.bytes": 1 << 20})
    with pytest.raises(InvalidConfig, match="this is a broker key"):
        altered({}, {}, ["log.segment.bytes"])


def names(entries: Sequence[ConfigEntry]) -> list[str]:
    return [entry.name for entry in entries]


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("log.dir", "log.dirs"),
        ("log.retention.hours", "log.retention.ms"),
        ("log.roll.hours", "log.roll.ms"),
        ("num.partitions", "num.partitions"),
    ],
)
def test_another_name_of_a_brokers_key_is_answered_with_the_key(key: str, shown: str) -> None:
    config = BrokerConfig.parse({"log.dir": "/a,/b"})
    (entry,) = of_broker_keys(broker_entries(config), [key])
    assert entry.name == shown
    assert shown != "log.dirs" or entry.value == ("/a", "/b")


def test_every_key_that_a_broker_takes_is_shown() -> None:
    entries = broker_entries(BrokerConfig())
    assert len(of_broker_keys(entries, sorted(broker_keys()))) == len(broker_keys())
    assert of_broker_keys(entries, []) == entries


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("retention.ms", "^config retention.ms: this is a topic key; .* broker key log.retention"),
        ("log.dri", "^config log.dri: unknown key; similar keys are log.dir"),
    ],
)
def test_a_key_that_a_broker_does_not_have_says_what_to_ask_for(key: str, why: str) -> None:
    with pytest.raises(UnknownConfigKey, match=why):
        of_broker_keys(broker_entries(BrokerConfig()), [key])


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("log.retention.hours", "this is a broker key; use the topic key retention.ms"),
        ("retention.sm", "unknown key; similar keys are retention.ms"),
        ("min.insync.replicas", "its only value is '1'"),
        ("internal.segment.bytes", "it is not set"),
    ],
)
def test_a_key_that_a_topic_does_not_show_says_why(key: str, why: str) -> None:
    entries = topic_entries({}, LogConfig())
    with pytest.raises(UnknownConfigKey, match=f"^config {key}: {why}"):
        of_topic_keys(entries, ["retention.ms", key])
    assert names(of_topic_keys(entries, ["retention.ms"])) == ["retention.ms"]
