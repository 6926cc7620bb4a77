"""What may still run unseen: a node that Ray has given up, a log that is being closed."""

from dataclasses import replace

from raylog.actors.control import LogId, LogReport
from raylog.actors.node.confirmed_logs import CONFIRMED_FOR_MS
from raylog.actors.node.report_maker import REPORT_INTERVAL_MS
from raylog.cluster.controller.commands import ApplyConfig, LogDirOut
from raylog.cluster.controller.leaving_dirs import leaving_waits_for
from raylog.cluster.controller.observed import SUSPECT_MS
from raylog.storage.errors import LogLocked
from raylog.storage.names import TopicPartition
from tests.harness.control_nodes import PerfectNode
from tests.harness.controller_play import Play, begun
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


def test_a_log_dir_that_failed_is_in_use_until_its_log_actors_have_ended() -> None:
    """Its node reports it offline at once, and ends them then."""
    node = node_b()
    play = begun(node_a(), node)
    play.create("t", 2)
    play.settle()
    (log, where), found = next((key, value) for key, value in node.logs.items())
    play.asks(LogDirOut(log_dir=f"/{where}"))
    play.appended()
    play.obeys("b")
    record = play.desired.dirs[where]

    def waits_for(state: str) -> str:
        node.logs[log, where] = replace(found, state=state)  # type: ignore[arg-type]
        play.reports("b")
        return leaving_waits_for(play.desired, play.machine.watched.nodes, record, play.now_ms)

    assert waits_for("closing") == f"{log.partition} to be closed"
    assert waits_for("failed") == ""


def begins_beside_a_failed_dir(node: PerfectNode, play: Play) -> str:
    """Its log dir fails, its LogManager dies, and the next one does not read that dir."""
    play.create("t", 1)
    play.settle(6_000)
    (where,) = {where for _, where in node.logs}
    node.restart(by_ray=True)
    node.fails(where)
    node.logs.clear()
    play.reports(node.key)
    play.settle(1_000)
    return where


def test_an_alter_waits_for_a_log_actor_that_a_new_log_manager_does_not_know() -> None:
    """It lives in a log dir that is not in use, and has a right from the life before."""
    node = node_a()
    play = begun(node)
    confirmed_ms = play.now_ms + 6_000  # by the life before
    begins_beside_a_failed_dir(node, play)
    play.asks(alter())
    play.until(lambda: play.answer is not None)
    assert play.now_ms - confirmed_ms >= CONFIRMED_FOR_MS, (
        f"answered {play.now_ms - confirmed_ms} ms after the life before was confirmed the config"
    )
    assert play.answer is not None
    assert play.answer.value.behind == ()  # type: ignore[union-attr]


def test_a_log_dir_is_not_said_to_be_out_of_use_beside_a_log_actor_that_nobody_knows() -> None:
    node = node_a()
    play = begun(node)
    where = begins_beside_a_failed_dir(node, play)
    began_ms = play.now_ms - 1_000
    play.asks(LogDirOut(log_dir=f"/{where}"))
    play.until(lambda: play.answer is not None)
    assert play.now_ms - began_ms >= CONFIRMED_FOR_MS


def test_an_alter_waits_for_a_log_actor_that_was_silent_though_its_log_manager_hangs_now() -> None:
    """Its log dir is online, and the log is only found; nobody has met its LogActor."""
    node = node_a()
    play = begun(node)
    play.create("t", 1)
    play.settle(6_000)
    confirmed_ms = play.now_ms
    node.restart(by_ray=True)
    play.reports("a")
    play.obeys("a")  # without a word of the log
    play.silent.add("a")
    for _ in range(11):
        play.passes()
    play.asks(alter())
    play.until(lambda: play.answer is not None)
    assert play.now_ms - confirmed_ms >= CONFIRMED_FOR_MS


def test_an_alter_waits_for_nobody_whose_log_dir_was_closed_in_order() -> None:
    """Also where another Controller hears the LogManager's life for the first time."""
    node = node_b()
    play = begun(node_a(), node)
    play.create("t", 2)
    (where,) = {where for log, where in node.logs}
    play.asks(LogDirOut(log_dir=f"/{where}"))
    play.settle(1_000)
    play.begin()
    play.settle(1_000)
    began_ms = play.now_ms
    play.asks(alter())
    play.until(lambda: play.answer is not None)
    assert play.now_ms - began_ms < SUSPECT_MS
    play.asks(LogDirOut(log_dir=f"/{where}"))
    play.until(lambda: play.answer is not None)
    assert play.now_ms - began_ms < SUSPECT_MS


def test_a_log_dir_is_in_use_while_somebody_is_ended_who_may_be_anywhere() -> None:
    node = node_a()
    play = begun(node)
    play.create("t", 1)
    play.settle()
    play.asks(LogDirOut(log_dir="/a2"))
    play.appended()
    play.obeys("a")
    record = play.desired.dirs["a2"]

    def waits_for(state: str, directory_id: str) -> str:
        somebody = LogReport(
            partition=TopicPartition("gone", 0),
            topic_id=None,
            directory_id=directory_id,
            state=state,  # type: ignore[arg-type]
        )
        key = (LogId(partition=somebody.partition, topic_id=""), "")
        node.logs[key] = somebody
        play.reports("a")
        return leaving_waits_for(play.desired, play.machine.watched.nodes, record, play.now_ms)

    assert waits_for("closing", "") == "gone-0 to be closed"
    assert waits_for("opening", "") == "", "a folder that is being made"
    assert waits_for("closing", "a1") == ""
    assert waits_for("closing", "a2") == "gone-0 to be closed"


def only_reports(play: Play) -> int:
    """Node a does nothing but report until the request is answered; returns how long, in ms."""
    began_ms = play.now_ms
    while play.answer is None:
        play.passes()
        play.mail.clear()
        play.reports("a")
    return play.now_ms - began_ms


def test_an_alter_names_a_log_that_another_process_has_open() -> None:
    """It may be a LogActor of before, with a right to remove under the older config."""
    node = node_a()
    play = begun(node)
    play.create("t", 1)
    play.settle()
    (log, where), found = next((key, value) for key, value in node.logs.items())
    problem = LogLocked("/a1/t-0", "process 7")
    node.logs[log, where] = replace(found, state="failed", config_version=-1, problem=problem)
    play.asks(alter())
    play.appended()
    only_reports(play)
    assert play.answer is not None
    assert [one.why for one in play.answer.value.behind] == [  # type: ignore[union-attr]
        "another process has its log open, perhaps an older LogActor of it"
    ]


def test_a_config_is_not_applied_while_nobody_knows_what_a_log_obeys() -> None:
    """Its LogActor was silent when its LogManager began, and may have a right."""
    node = node_a()
    play = begun(node)
    play.create("t", 1)
    play.settle()
    (log, where), found = next((key, value) for key, value in node.logs.items())
    play.asks(ApplyConfig(config={"log.dirs": ["/a1"], "log.retention.ms": 7}))
    play.appended()
    node.obey(play.mail.pop("a"))
    node.logs[log, where] = replace(found, state="found", config_version=-1)
    play.reports("a")
    assert only_reports(play) >= CONFIRMED_FOR_MS


def cut_off(play: Play, *, is_still: bool | None) -> int:
    """For a minute the copy of b, which was in sync, is silent; Ray answers ``is_still``.

    Returns how long after its beginning node a was confirmed something last, in ms.
    """
    play.followed = {"b"}
    play.begin()
    play.settle(10_000)
    play.create("t", 2)
    play.settle(3_000)
    assert play.desired.copies == ("a", "b")
    began_ms = last_ms = play.now_ms
    play.silent.add("b")
    while play.now_ms - began_ms < 60_000:
        play.passes()
        if play.is_asking:
            play.says_whether(is_still)
        if play.appending:
            play.appended()
        orders = play.mail.get("a")
        if orders is not None and orders.report >= 0:
            last_ms = play.now_ms
        if orders is None:
            play.reports("a")
        else:
            play.obeys("a")
    return last_ms - began_ms


def test_who_hears_neither_ray_nor_a_copy_in_sync_confirms_nothing_any_more() -> None:
    """Another Controller may have begun from that copy, and altered what this one confirms."""
    last_ms = cut_off(Play(node_a(), node_b()), is_still=None)
    assert last_ms <= SUSPECT_MS + REPORT_INTERVAL_MS


def test_who_is_still_the_controller_goes_on_without_a_silent_copy() -> None:
    play = Play(node_a(), node_b())
    assert cut_off(play, is_still=True) >= 50_000
    assert play.desired.copies == ("a",)


def test_nothing_is_opened_in_a_dir_whose_end_is_written_and_waits_for_a_copy() -> None:
    """Ray has started its LogManager again, which reads from the page cache of the life before."""
    play = Play(node_a(), node_b())
    play.followed = {"b"}
    play.begin()
    play.settle(10_000)
    play.create("t", 2)
    play.settle(3_000)
    node = play.nodes["a"]
    (where,) = {where for _, where in node.logs}
    online = node.dirs[where]
    play.silent.add("b")  # with the copy that is in sync
    node.fails(where)
    play.reports("a")
    play.appended()
    assert play.desired.dirs[where].state == "online", "no record counts that no copy has"
    node.restart(by_ray=True)
    node.dirs[where] = online
    for _ in range(3):
        play.reports("a")
        if "a" in play.mail:
            play.obeys("a")
    assert {log.state for (_, at), log in node.logs.items() if at == where} == {"found"}
