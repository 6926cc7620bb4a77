"""Another config of the broker while it serves, told as transcripts; see ``controller_play.py``."""

from typing import Any

from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.commands import (
    AddPartitions,
    AlterTopic,
    ApplyConfig,
    DeleteTopic,
    MovePartition,
    StartNode,
    StopNode,
)
from raylog.cluster.controller.config_changes import parsed_for
from raylog.cluster.controller.describe import Snapshot, explain, is_settled
from raylog.cluster.controller.instructions import Applied
from raylog.cluster.controller.rolling import Roll, digests_of, roll
from raylog.storage.errors import InvalidConfig, RaylogError
from raylog.storage.names import TopicPartition
from tests.harness.control_nodes import PerfectNode
from tests.harness.controller_play import Play
from tests.transcripts.controllers import FULL, answer_of, node_a, node_b

GIVEN = {"log.dirs": ["/a1"]}
AT_ONCE = {**GIVEN, "log.retention.ms": 5}
BY_START = {**GIVEN, "producer.id.expiration.ms": 7}


def serving(*nodes: PerfectNode) -> Play:
    """A broker that was started with GIVEN, and has a topic with two partitions."""
    play = Play(*nodes)
    play.config = BrokerConfig.parse(GIVEN)
    for node in nodes:
        node.config = play.config
    play.begin()
    play.settle()
    play.create("t", partitions=2)
    return play


def applied(play: Play, config: dict[str, Any], ms: int = 30_000) -> str:
    """What the command is answered after a while."""
    play.asks(ApplyConfig(config=config))
    play.settle(ms)
    answer = answered(play)
    changes = [f"{change.key} {change.how}" for change in answer.changes]
    return ", ".join(changes + sorted(answer.behind))


def answered(play: Play) -> Applied:
    assert play.answer is not None
    assert isinstance(play.answer.value, Applied), play.answer.error
    return play.answer.value


def obeyed(play: Play, key: str) -> BrokerConfig:
    config = play.nodes[key].config
    assert config is not None
    return config


def test_what_can_be_taken_at_once_is_a_record_and_then_an_order() -> None:
    play = serving(node_a())
    assert play.asks(ApplyConfig(config=AT_ONCE)) == ["append: config v1.1"]
    assert play.appended() == [
        "tell a: obey the config, serve t-0 in a1 v1.1, serve t-1 in a2 v1.1"
    ]
    assert play.obeys("a") == ["answer 2: log.retention.ms at once", "tell a: -"]
    assert obeyed(play, "a").topic_defaults.retention_ms == 5


def test_only_asked_what_differs_it_changes_nothing() -> None:
    play = serving(node_a())
    only_asked = ApplyConfig(config=BY_START, validate_only=True)
    assert play.asks(only_asked) == ["answer 2: producer.id.expiration.ms node by node"]
    assert play.desired.broker is None


def test_who_meets_a_full_disk_and_asks_again_is_told_what_differed() -> None:
    play = serving(node_a())
    play.asks(ApplyConfig(config=BY_START))
    assert "answer 2: DiskFull" in play.append_fails(FULL)
    play.settle()
    assert applied(play, BY_START) == "producer.id.expiration.ms node by node"


def test_the_same_config_changes_nothing() -> None:
    play = serving(node_a())
    assert play.asks(ApplyConfig(config={})) == ["answer 2: nothing"]


def test_a_config_that_was_compared_with_an_older_one_is_refused() -> None:
    play = serving(node_a())
    play.asks(ApplyConfig(config=BY_START, validate_only=True))
    compared = answered(play).version
    applied(play, AT_ONCE)
    play.asks(ApplyConfig(config=GIVEN, if_version=compared))
    assert play.answer is not None
    assert "another was applied meanwhile" in str(play.answer.error)
    play.asks(ApplyConfig(config={}, validate_only=True))
    assert play.asks(ApplyConfig(config=GIVEN, if_version=answered(play).version)) == [
        "append: config v1.2"
    ]


def test_a_broker_whose_nodes_have_log_dirs_of_their_own_takes_another_config() -> None:
    assert parsed_for(BrokerConfig(), {"log.cleaner.threads": 2}).log_dirs == ()


def test_log_dirs_are_not_taken_away_and_nothing_else_is_applied_then() -> None:
    play = serving(node_a())
    assert play.asks(ApplyConfig(config={**AT_ONCE, "log.dirs": "/b"})) == [
        "answer 2: InvalidConfig"
    ]
    assert play.answer is not None
    assert isinstance(play.answer.error, InvalidConfig)
    assert "log.dirs" in str(play.answer.error)
    assert play.desired.broker is None


def test_defaults_that_a_topics_own_config_does_not_go_with_are_refused() -> None:
    play = serving(node_a())
    play.create("u", min_compaction_lag_ms=10)
    play.asks(ApplyConfig(config={**GIVEN, "log.cleaner.max.compaction.lag.ms": 5}))
    assert play.answer is not None
    assert "for topic u" in str(play.answer.error)


def test_nodes_that_need_a_start_are_replaced_one_after_the_other() -> None:
    play = serving(node_a(), node_b())
    play.asks(ApplyConfig(config=BY_START))
    play.until(lambda: play.nodes["a"].life != "a-life-1")
    assert play.nodes["b"].life == "b-life-1"  # it waits until the first one serves again
    play.settle(10_000)
    assert not answered(play).behind
    assert {key: node.life for key, node in play.nodes.items()} == {
        "a": "a-life-2",
        "b": "b-life-2",
    }
    assert obeyed(play, "a") == obeyed(play, "b") == BrokerConfig.parse(BY_START)


def test_a_node_that_does_not_end_stops_it_and_is_named() -> None:
    play = serving(node_a(), node_b())
    play.nodes["a"].is_slow = True
    play.asks(ApplyConfig(config=BY_START))
    play.settle(130_000)
    assert play.nodes["b"].life == "b-life-1"
    assert "node a is closing its logs" in answered(play).behind["node b"]


def test_a_node_that_has_left_holds_nobody_up_for_logs_that_are_to_be_removed() -> None:
    """They are removed when it returns; nobody waits for them."""
    play = serving(node_a(), node_b())
    del play.nodes["b"]
    play.settle(60_000)
    play.asks(DeleteTopic(name="t"))
    play.settle(60_000)
    assert play.desired.logs_at("b"), "its folder is still there"
    play.asks(ApplyConfig(config=BY_START))
    play.settle(10_000)
    assert not answered(play).behind
    assert play.nodes["a"].life == "a-life-2"


def test_a_new_controller_goes_on_with_the_config_that_was_applied() -> None:
    play = serving(node_a())
    assert applied(play, AT_ONCE) == "log.retention.ms at once"
    play.begin()
    play.settle()
    assert play.machine.config == BrokerConfig.parse(AT_ONCE)


def test_a_log_manager_that_ray_starts_again_is_told_the_present_config() -> None:
    play = serving(node_a())
    applied(play, AT_ONCE)
    play.nodes["a"].config = BrokerConfig.parse(GIVEN)  # of its first start
    play.nodes["a"].restart(by_ray=True)
    play.settle()
    assert obeyed(play, "a") == BrokerConfig.parse(AT_ONCE)


def test_another_start_of_the_broker_has_a_config_of_its_own() -> None:
    play = serving(node_a())
    applied(play, AT_ONCE)
    version = play.desired.config_version("id-t")
    play.start_id = "start-2"
    play.begin()
    play.settle()
    assert play.machine.config == BrokerConfig.parse(GIVEN)
    assert play.desired.config_version("id-t") > version
    assert obeyed(play, "a") == BrokerConfig.parse(GIVEN)


def test_a_topic_that_is_altered_later_has_a_higher_version_than_the_broker() -> None:
    play = serving(node_a())
    applied(play, AT_ONCE)
    broker = play.desired.config_version("id-t")
    play.create("u")
    assert play.desired.config_version("id-u") == broker


def test_a_new_controller_goes_on_replacing_nodes_and_waits_for_them() -> None:
    play = serving(node_a(), node_b())
    play.asks(ApplyConfig(config=BY_START))
    play.until(lambda: play.nodes["a"].life == "a-life-2")
    play.nodes["b"].is_slow = True
    play.begin()
    play.asks(ApplyConfig(config=BY_START))  # as who has not been answered does
    play.settle(60_000)
    assert play.answer is None, "node b has the old config yet"
    play.nodes["b"].end()
    play.settle(10_000)
    assert not answered(play).behind
    assert [node.life for node in play.nodes.values()] == ["a-life-2", "b-life-2"]


def test_a_living_node_is_told_the_config_of_another_start_though_nobody_applied_one() -> None:
    play = serving(node_a())
    version = play.desired.config_version("id-t")
    play.start_id, play.config = "start-2", BrokerConfig.parse(AT_ONCE)
    play.begin()
    play.settle()
    assert obeyed(play, "a") == BrokerConfig.parse(AT_ONCE)
    assert play.desired.config_version("id-t") > version


def stop_on_its_way() -> Play:
    """Node a was ordered to stop, and then a partition of b does not serve for a while."""
    play = serving(node_a(), node_b())
    play.asks(ApplyConfig(config=BY_START))
    assert "tell a: stop" in play.appended()
    play.nodes["b"].is_opening = True  # a LogActor of b was killed
    return play


def test_no_other_node_is_stopped_while_one_may_still_obey_its_order_to_stop() -> None:
    play = stop_on_its_way()
    a, b = play.nodes["a"], play.nodes["b"]
    a.is_slow = True
    stop = play.mail["a"]
    assert play.reports("b") == ["tell a: -", "tell b: -"]
    a.obey(stop)
    play.reports("a")
    play.settle(30_000)
    assert (a.is_ending, b.is_ending) == (True, False)
    a.end()
    b.is_opening = False
    play.settle(30_000)
    assert (a.life, b.life) == ("a-life-2", "b-life-2")


def test_a_node_whose_order_to_stop_was_lost_serves_on_and_the_other_one_is_first() -> None:
    play = stop_on_its_way()
    a, b = play.nodes["a"], play.nodes["b"]
    b.is_slow = True
    play.mail.clear()
    play.reports("b")
    assert play.obeys("a") == ["tell a: serve t-0 in a1 v1.1", "tell b: stop"]
    play.settle(1_000)
    assert (a.life, a.is_ending, b.is_ending) == ("a-life-1", False, True)
    b.end()
    b.is_opening = False
    play.settle(30_000)
    assert (a.life, b.life) == ("a-life-2", "b-life-2")


def test_a_node_that_may_be_closing_its_logs_is_named_as_the_reason() -> None:
    play = stop_on_its_way()
    play.reports("b")
    wanted = digests_of(play.machine.config)
    turn = roll(play.desired, play.machine.watched.nodes, play.now_ms, wanted)
    assert turn == Roll(waits_for="node a may be closing its logs")


# -- a topic whose own config does not go with that of the start -----------------------------------

LAG = {**GIVEN, "log.cleaner.max.compaction.lag.ms": 1_000}


def in_conflict() -> Play:
    """A start with LAG, of a broker that has a topic which it does not go with, and another one."""
    play = serving(node_a())
    play.create("u", min_compaction_lag_ms=60_000)
    play.nodes["a"].restart()
    play.start_id, play.config = "start-2", BrokerConfig.parse(LAG)
    play.begin()
    play.settle()
    return play


def snapshot_of(play: Play) -> Snapshot:
    return Snapshot(
        desired=play.desired,
        observed=play.machine.watched.nodes,
        node_ids={"a": "ray-a"},
        now_ms=play.now_ms,
        config=play.machine.config,
    )


def why_away(play: Play, name: str) -> RaylogError | None:
    return explain(snapshot_of(play), TopicPartition(name, 0))


def test_a_start_does_not_wait_for_a_topic_whose_own_config_does_not_go_with_the_brokers() -> None:
    play = in_conflict()
    assert is_settled(snapshot_of(play))
    assert why_away(play, "t") is None
    assert str(why_away(play, "u")) == (
        "topic u sets min.compaction.lag.ms=60000, which exceeds the broker's "
        "log.cleaner.max.compaction.lag.ms=1000; set another value with `raylog config set u "
        "min.compaction.lag.ms=VALUE`, or remove it with `raylog config set u --delete "
        "min.compaction.lag.ms`; or change the broker's config file, and give it to the broker "
        "with `raylog start --config FILE --apply`"
    )


def test_such_a_topic_is_opened_when_its_own_config_goes_with_the_brokers_again() -> None:
    play = in_conflict()
    told = play.asks(AlterTopic(name="u", delete=("min.compaction.lag.ms",)))
    assert told == ["append: topic u v2.1"]
    assert play.appended() == ["tell a: serve u-0 in a1 v2.1"]
    assert play.answer is None, "it is answered when the partition serves"
    play.settle()
    assert answer_of(play) == "u v2.1"
    assert why_away(play, "u") is None


def test_such_a_topic_is_opened_when_the_broker_gets_another_config() -> None:
    play = in_conflict()
    applied(play, GIVEN)
    assert why_away(play, "u") is None


def test_such_a_topic_is_neither_extended_nor_moved_and_nobody_waits_for_it() -> None:
    play = in_conflict()
    for command in (
        AddPartitions(name="u", total=2),
        MovePartition(name="u", number=0, log_dir="a2"),
    ):
        play.asks(command)
        assert answer_of(play) == "TopicConfigConflict"
    play.asks(DeleteTopic(name="u"))
    play.settle()
    assert "u-0" not in play.states()


def test_a_start_of_a_node_does_not_wait_for_such_a_topic() -> None:
    play = in_conflict()
    for command in (StopNode(node="a"), StartNode(node="a")):
        play.asks(command)
        play.settle(10_000)
    assert answer_of(play) == "node a"
    assert why_away(play, "t") is None
