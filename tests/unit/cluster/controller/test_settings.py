"""Configs as people see and change them."""

import pytest

from raylog.actors.node.broker_config import BROKER_KEYS, BrokerConfig
from raylog.cluster.controller.settings import (
    altered,
    broker_entries,
    topic_entries,
    topic_overrides,
)
from raylog.storage.config import TOPIC_KEYS, LogConfig
from raylog.storage.errors import InvalidConfig


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
