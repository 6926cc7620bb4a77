"""Each key of a real Kafka's broker is either one of raylog's, or is named with why it is not."""

import re
from fnmatch import fnmatchcase

import pytest

from raylog.actors.node.broker_config import broker_keys
from raylog.cluster.kafka_properties import ONLY, UNUSED, why_unused
from tests.kafka.distribution import Kafka

# Of Kafka before 4, of its authorizer, which is a class of its own, and what 4.3 does not tell.
NOT_SHOWN = {
    "allow.everyone.if.no.acl.found",
    "inter.broker.protocol.version",
    "log.initial.task.delay.ms",
    "log.message.format.version",
    "server.max.startup.time.ms",
    "super.users",
    "unstable.*",
    "zookeeper.*",
}


@pytest.fixture(scope="module")
def others(kafka: Kafka) -> set[str]:
    """Kafka's keys that raylog does not have."""
    told = kafka.run("kafka.server.KafkaConfig")
    keys = set(re.findall(r'<h4><a id="([^"]+)"></a>', told))
    assert len(keys) > 300
    return keys - broker_keys()


def test_each_key_of_kafka_is_known(others: set[str]) -> None:
    assert not {key for key in others if not why_unused(key)}
    assert set(ONLY) <= others, "one that raylog has is obeyed"


def test_no_pattern_is_for_nothing(others: set[str]) -> None:
    counting = {next(one for one in UNUSED if fnmatchcase(key, one)) for key in others}
    assert UNUSED.keys() - counting == NOT_SHOWN
