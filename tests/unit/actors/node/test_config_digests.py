"""Which keys of a broker's config a node takes while it serves, and how it says what it obeys."""

import pytest

from raylog.actors.node import config_digests
from raylog.actors.node.broker_config import BROKER_KEYS, BROKER_SYNONYMS, BrokerConfig
from raylog.actors.node.config_digests import (
    BY_START,
    config_of,
    digest_at_once,
    digest_by_start,
    taken_at_once,
    values_of,
)

GIVEN = BrokerConfig.parse({"log.dirs": ["/a,b", "/c"], "log.retention.hours": 3})
AT_ONCE = BrokerConfig.parse({"log.dirs": ["/a,b", "/c"], "log.cleaner.threads": 4})
BY_START_ONLY = BrokerConfig.parse({"log.dirs": ["/a,b", "/c", "/d"], "log.retention.hours": 3})


def test_the_values_of_a_config_give_it_again() -> None:
    assert config_of(values_of(GIVEN)) == GIVEN


def test_a_config_without_log_dirs_can_be_read_back() -> None:
    assert config_of(values_of(BrokerConfig())) == BrokerConfig()


def test_a_key_that_only_the_next_release_has_is_left_out() -> None:
    assert config_of({**values_of(GIVEN), "log.of.tomorrow": 7}) == GIVEN


@pytest.mark.parametrize("key", ["log.cleaner.threads", "producer.id.expiration.ms"])
def test_a_release_that_lacks_a_key_has_the_same_digests_while_nobody_sets_it(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    digests = digest_at_once(GIVEN), digest_by_start(GIVEN)
    others = {name: value for name, value in BROKER_KEYS.items() if name != key}
    monkeypatch.setattr(config_digests, "BROKER_KEYS", others)
    monkeypatch.setattr(config_digests, "BY_START", tuple({*BY_START} - {key}))
    assert (digest_at_once(GIVEN), digest_by_start(GIVEN)) == digests


def test_the_values_are_of_every_key() -> None:
    synonyms = {names[0][0] for names in BROKER_SYNONYMS.values()}
    assert values_of(GIVEN).keys() == {*BROKER_KEYS, *synonyms}
    assert set(BY_START) <= BROKER_KEYS.keys()


def test_each_kind_of_key_has_a_digest_of_its_own() -> None:
    assert digest_at_once(AT_ONCE) != digest_at_once(GIVEN)
    assert digest_by_start(AT_ONCE) == digest_by_start(GIVEN)
    assert digest_at_once(BY_START_ONLY) == digest_at_once(GIVEN)
    assert digest_by_start(BY_START_ONLY) != digest_by_start(GIVEN)


def test_where_clients_come_in_is_from_the_start() -> None:
    for key, value in (
        ("listeners", "PLAINTEXT://127.0.0.1:9092"),
        ("listener.security.protocol.map", "A:SSL"),
    ):
        other = BrokerConfig.parse(
            {"log.dirs": ["/a,b", "/c"], "log.retention.hours": 3, key: value}
        )
        assert digest_at_once(other) == digest_at_once(GIVEN)
        assert digest_by_start(other) != digest_by_start(GIVEN)


def test_a_node_that_serves_keeps_what_it_has_from_its_start() -> None:
    wanted = BrokerConfig.parse({"log.dirs": "/d", "log.cleaner.threads": 4})
    assert taken_at_once(wanted, GIVEN) == AT_ONCE
