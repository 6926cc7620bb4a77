"""Which keys of a broker's config a node takes while it serves, and how it says what it obeys."""

from raylog.actors.node.broker_config import BROKER_KEYS, BROKER_SYNONYMS, BrokerConfig
from raylog.actors.node.config_digests import (
    BY_START,
    digest_at_once,
    digest_by_start,
    taken_at_once,
    values_of,
)

GIVEN = BrokerConfig.parse({"log.dirs": ["/a,b", "/c"], "log.retention.hours": 3})
AT_ONCE = BrokerConfig.parse({"log.dirs": ["/a,b", "/c"], "log.cleaner.threads": 4})
BY_START_ONLY = BrokerConfig.parse({"log.dirs": ["/a,b", "/c", "/d"], "log.retention.hours": 3})


def test_the_values_of_a_config_give_it_again() -> None:
    assert BrokerConfig.parse(values_of(GIVEN)) == GIVEN


def test_the_values_are_of_every_key() -> None:
    synonyms = {names[0][0] for names in BROKER_SYNONYMS.values()}
    assert values_of(GIVEN).keys() == {*BROKER_KEYS, *synonyms}
    assert set(BY_START) <= BROKER_KEYS.keys()


def test_each_kind_of_key_has_a_digest_of_its_own() -> None:
    assert digest_at_once(AT_ONCE) != digest_at_once(GIVEN)
    assert digest_by_start(AT_ONCE) == digest_by_start(GIVEN)
    assert digest_at_once(BY_START_ONLY) == digest_at_once(GIVEN)
    assert digest_by_start(BY_START_ONLY) != digest_by_start(GIVEN)


def test_a_node_that_serves_keeps_what_it_has_from_its_start() -> None:
    wanted = BrokerConfig.parse({"log.dirs": "/d", "log.cleaner.threads": 4})
    assert taken_at_once(wanted, GIVEN) == AT_ONCE
