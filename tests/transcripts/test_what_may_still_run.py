"""What may still run unseen: a node that Ray has given up, a log that is being closed."""

from dataclasses import replace

from raylog.actors.node.confirmed_logs import CONFIRMED_FOR_MS
from raylog.cluster.controller.commands import LogDirOut
from tests.harness.controller_play import begun
from tests.transcripts.controllers import alter, node_a, node_b


def test_an_alter_waits_for_the_rights_of_a_node_that_ray_has_given_up() -> None:
    """Its raylet hangs (SIGSTOP), so Ray takes the node for dead; its processes live on."""
    play = begun(node_a(), node_b())
    play.create("t", 2)
    play.settle(6_000)  # both were confirmed just now: a right that holds for 20 s
    confirmed_ms = play.now_ms
    play.away.add("b")
    play.sees()
    play.asks(alter())
    play.until(lambda: play.answer is not None)
    assert play.now_ms - confirmed_ms >= CONFIRMED_FOR_MS, (
        f"answered {play.now_ms - confirmed_ms} ms after b was confirmed the older config"
    )


def test_a_log_dir_is_not_said_to_be_out_of_use_when_ray_gives_its_node_up() -> None:
    """The answer "offline" means that the disk can be unmounted; nobody has closed anything."""
    node = node_b()
    node.is_slow = True
    play = begun(node_a(), node)
    play.asks(LogDirOut(log_dir="/b2"))
    play.appended()
    play.settle(2_000)
    assert play.answer is None, "its logs are being closed"
    play.away.add("b")
    play.sees()
    play.passes()
    assert play.answer is None, "its processes may live on, as in the test above"


def test_an_alter_waits_for_a_log_that_is_being_closed_in_a_dir_that_is_taken_offline() -> None:
    """Its LogActor may hang before its end, with a right to remove under the older config."""
    node = node_b()
    node.is_slow = True
    play = begun(node_a(), node)
    play.create("t", 2)
    play.settle(6_000)
    (log, where), found = next((key, value) for key, value in node.logs.items())
    play.asks(LogDirOut(log_dir=f"/{where}"))
    play.appended()
    node.obey(play.mail.pop("b"))
    node.logs[log, where] = replace(found, state="closing", config_version=-1)
    play.reports("b")
    began_ms = play.now_ms
    play.asks(alter())
    play.until(lambda: play.answer is not None)
    assert play.now_ms - began_ms >= CONFIRMED_FOR_MS - 1_000, (
        f"answered {play.now_ms - began_ms} ms after {log.partition} was confirmed the older config"
    )
