"""A LogManager that is told another config of the broker, as transcripts; see ``nodes.py``."""

from raylog.actors.control import ObeyConfig
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.config_digests import digest_at_once, digest_by_start
from tests.transcripts.nodes import Node

GIVEN: dict[str, str | int] = {"log.dirs": "/a", "num.recovery.threads.per.data.dir": 1}
WANTED = BrokerConfig.parse(
    {"log.dirs": "/a,/b", "num.recovery.threads.per.data.dir": 3, "log.cleaner.threads": 4}
)


def test_it_takes_what_it_can_while_it_serves_and_reports_what_it_obeys() -> None:
    node = Node("A", config=GIVEN)
    assert "take the config" in node.obeys(ObeyConfig(config=WANTED))
    given = BrokerConfig.parse(GIVEN)
    assert node.report.config_digest == digest_at_once(WANTED)
    assert node.report.start_digest == digest_by_start(given) != digest_by_start(WANTED)


def test_an_order_that_comes_again_changes_nothing() -> None:
    node = Node("A", config=GIVEN)
    node.obeys(ObeyConfig(config=WANTED))
    assert node.obeys(ObeyConfig(config=WANTED)) == []


def test_another_life_of_it_begins_with_the_config_of_its_first_start_and_says_so() -> None:
    node = Node("A", config=GIVEN, is_restarted=True)
    assert node.report.config_digest == digest_at_once(BrokerConfig.parse(GIVEN))
