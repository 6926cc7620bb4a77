"""A whole Controller, with its threads, over nodes that obey at once; without Ray."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from raylog.actors.errors import (
    InvalidRequest,
    NotLeader,
    OlderMetadata,
    TopicExists,
    UnknownTopicOrPartition,
)
from raylog.actors.node.metadata_copy import values_of
from raylog.cluster.controller.commands import StopNode
from raylog.cluster.controller.describe import PartitionDescription
from raylog.cluster.controller.events import Asked, NodesSeen
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import TopicRecord, decode
from raylog.cluster.controller.reserve import METADATA_RESERVE, RESERVE_BYTES
from raylog.cluster.controller.shell import LONGEST_PAUSE_S, again_until_open, why_not_open
from raylog.storage.errors import DiskFull, InvalidConfig, LogDirOffline, LogLocked, StorageError
from raylog.storage.names import TopicPartition
from raylog.storage.testing.clock import ManualClock
from tests.harness.control_nodes import PerfectNode, version_of
from tests.harness.controller_shells import LOG_DIR, ShellPlay


def broken(path: str) -> StorageError:
    return StorageError(path, "EIO")


@pytest.fixture
def play() -> Iterator[ShellPlay]:
    made = ShellPlay(PerfectNode("a", "dir-a"), PerfectNode("b", "dir-b"))
    yield made
    made.end()


def test_a_topic_serves_when_its_creation_returns_and_is_gone_when_its_deletion_does(
    play: ShellPlay,
) -> None:
    play.begin()
    described = play.shell.commanding.create_topic("t", 4, {"retention.ms": 5})
    assert {entry.node_id for entry in described.partitions} == {"ray-a", "ray-b"}
    assert described.outdated == ()
    lookups = play.shell.lookups
    assert lookups.list_topics() == ["t"]
    assert lookups.explain(TopicPartition("t", 3)) is None
    assert lookups.nodes() == {"ray-a": None, "ray-b": None}
    play.shell.commanding.delete_topic("t")
    assert lookups.list_topics() == []
    assert all(node.logs == {} for node in play.managers.nodes.values())


def test_a_changed_config_is_obeyed_when_the_change_returns(play: ShellPlay) -> None:
    play.begin()
    commanding = play.shell.commanding
    commanding.create_topic("t", 2, {})
    described = commanding.alter_topic_config("t", {"retention.ms": -1}, [])
    assert (described.config, described.outdated) == ({"retention.ms": -1}, ())
    versions = {
        version for node in play.managers.nodes.values() for _, version in node.serving.values()
    }
    assert versions == {version_of(1, 1)}


def test_every_node_is_shown_what_clients_are_to_know(play: ShellPlay) -> None:
    play.begin()

    def is_shown() -> bool:
        known = [list(entries.topics.values()) for entries in play.managers.shown.values()]
        counts = [len(topics[0].partitions) for topics in known if topics]
        return counts == [2] * len(play.managers.nodes)

    play.shell.commanding.create_topic("t", 2, {})
    play.is_soon(is_shown, "all are told of the topic")


def test_what_is_only_looked_at_is_not_done(play: ShellPlay) -> None:
    play.begin()
    commanding = play.shell.commanding
    described = commanding.create_topic("new", 3, {"retention.ms": 5}, validate_only=True)
    assert (described.topic_id, described.config) == ("", {"retention.ms": 5})
    assert play.shell.lookups.list_topics() == []
    commanding.create_topic("there", 1, {})
    assert len(commanding.add_partitions("there", 3, validate_only=True).partitions) == 1
    altered = commanding.alter_topic_config("there", {"retention.ms": 5}, [], validate_only=True)
    assert altered.config == {"retention.ms": 5}
    assert play.shell.lookups.describe_topic("there").config == {}
    with pytest.raises(InvalidConfig):
        commanding.alter_topic_config("there", {"retention.ms": "x"}, [], validate_only=True)
    with pytest.raises(TopicExists):
        commanding.create_topic("there", 1, {}, validate_only=True)


def test_a_log_manager_that_hangs_keeps_nobody_else_waiting(play: ShellPlay) -> None:
    play.begin()
    play.managers.hangs("b")
    commanding = play.shell.commanding
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(commanding.create_topic, "on-both", 2, {})
        play.is_soon(lambda: play.shell.lookups.list_topics() == ["on-both"], "it is begun")
        assert commanding.allocate_producer_id() >= 1 << 40
        on_b = play.shell.lookups.describe_topic("on-both").partitions[1]
        assert (on_b.node_id, on_b.problem) == (None, "it is being created")
        assert not waiting.done()
        play.managers.hanging["b"].set()
        assert waiting.result().outdated == ()


def test_a_log_dir_that_was_offline_is_used_again_when_it_was_read_back(play: ShellPlay) -> None:
    play.begin()
    commanding, lookups = play.shell.commanding, play.shell.lookups
    commanding.create_topic("t", 1, {})
    node = play.managers.nodes["a"]
    node.fails("dir-a")
    play.managers.reports("a")

    def problem() -> PartitionDescription:
        return lookups.describe_topic("t").partitions[0]

    play.is_soon(lambda: "EIO" in (problem().problem or ""), "it is recorded")
    assert f"raylog log-dirs online {LOG_DIR}`" in (problem().todo or "")
    assert commanding.log_dir_online(LOG_DIR).state in ("returning", "online")
    play.is_soon(lambda: node.dirs["dir-a"].is_read_back, "it is read back")


def test_a_log_dir_that_no_node_could_read_is_not_said_to_be_online(play: ShellPlay) -> None:
    play.begin()
    commanding = play.shell.commanding
    assert commanding.log_dir_online(LOG_DIR).state == "online"
    dirs = play.managers.nodes["a"].dirs
    dirs["dir-a"] = replace(
        dirs["dir-a"], directory_id=None, state="offline", why="meta.properties is missing"
    )
    play.managers.reports("a")
    play.is_soon(
        lambda: not all(d.is_online for d in play.shell.lookups.log_dirs()), "it is noticed"
    )
    with pytest.raises(LogDirOffline, match=r"meta\.properties is missing"):
        commanding.log_dir_online(LOG_DIR)


def test_why_the_own_node_takes_no_part_is_raised_by_the_start(play: ShellPlay) -> None:
    play.managers.errors["a"] = LogLocked(LOG_DIR)
    with pytest.raises(LogLocked):
        play.begin()


def test_why_another_node_takes_no_part_is_told(play: ShellPlay) -> None:
    play.managers.errors["b"] = LogLocked("/dir-b")
    play.begin()
    nodes = play.shell.lookups.nodes()
    assert nodes["ray-a"] is None
    assert "/dir-b" in (nodes["ray-b"] or "")


def test_a_start_over_older_metadata_is_refused_and_nobody_is_told_anything(
    play: ShellPlay,
) -> None:
    play.managers.nodes["b"].epoch = 9
    with pytest.raises(OlderMetadata, match="epoch 9 is known to node b"):
        play.begin()
    assert "older metadata" in play.shell.lookups.problems()
    with pytest.raises(OlderMetadata):
        play.shell.commanding.allocate_producer_id()
    assert play.failures == [], "the next life would read the same"
    assert play.managers.nodes["a"].epoch == 0


def test_after_a_failed_fsync_all_are_told_and_the_controller_ends(play: ShellPlay) -> None:
    play.begin()
    with play.fs.failing(broken, "flush"), pytest.raises(StorageError):
        play.shell.commanding.create_topic("t", 1, {})
    play.is_soon(lambda: play.failures, "the shell is told")
    assert "metadata" in play.shell.lookups.problems()
    with pytest.raises(StorageError):
        play.shell.commanding.allocate_producer_id()
    assert len(play.failures) == 1, "it is told once"


def test_the_next_controller_goes_on_where_the_one_before_ended(play: ShellPlay) -> None:
    play.begin()
    play.shell.commanding.create_topic("t", 2, {})
    first = play.shell.commanding.allocate_producer_id()
    play.end()
    again = ShellPlay(*play.managers.nodes.values(), fs=play.fs)
    again.begin()
    assert again.shell.cluster_id == "cluster-1"
    assert again.shell.lookups.describe_topic("t").outdated == ()
    assert again.shell.commanding.allocate_producer_id() >> 40 > first >> 40
    again.end()


def test_after_a_failed_fsync_the_next_one_begins_in_the_same_process(play: ShellPlay) -> None:
    play.begin()
    play.shell.commanding.create_topic("t", 1, {})
    with play.fs.failing(broken, "flush"), pytest.raises(StorageError):
        play.shell.commanding.create_topic("u", 1, {})
    assert play.end(), "the metadata is unlocked"
    again = ShellPlay(*play.managers.nodes.values(), fs=play.fs)
    again.begin()
    assert again.shell.lookups.list_topics() == ["t"]
    again.shell.commanding.create_topic("u", 1, {})
    again.end()


def test_a_start_does_not_wait_for_nodes_after_the_metadata_has_failed(play: ShellPlay) -> None:
    play.shell.begin()
    play.sees("a", "b")
    play.shell.wait_until_serving(threading.Event().wait)
    play.managers.hangs("b")
    with play.fs.failing(broken, "flush"), pytest.raises(StorageError):
        play.shell.commanding.create_topic("t", 1, {})
    with pytest.raises(StorageError, match="EIO"):
        play.shell.wait_until_serving(threading.Event().wait)


def test_a_controller_begins_on_a_full_disk_and_what_makes_room_is_done(play: ShellPlay) -> None:
    play.begin()
    commanding = play.shell.commanding
    commanding.create_topic("t", 1, {})
    commanding.create_topic("gone", 1, {})
    play.is_soon(lambda: reserve_bytes(play) == RESERVE_BYTES, "the reserve is made")
    nodes = play.managers.nodes
    play.end()
    play.fs.size_bytes = 64 << 20
    play.fs.write_file("/disk/ballast", bytes(play.fs.room("/disk").usable_bytes))

    full = ShellPlay(*nodes.values(), fs=play.fs.crash())
    full.begin()
    assert {node.epoch for node in nodes.values()} == {2}
    with pytest.raises(DiskFull):
        full.shell.commanding.create_topic("more", 1, {})
    assert "metadata reserve" in full.shell.lookups.problems()
    assert full.shell.commanding.alter_topic_config("t", {"retention.ms": 5}, []).outdated == ()
    full.shell.commanding.delete_topic("gone")
    assert full.shell.commanding.allocate_producer_id() >> 40 == 2
    assert reserve_bytes(full) < RESERVE_BYTES
    full.end()

    full.fs.remove("/disk/ballast")
    again = ShellPlay(*nodes.values(), fs=full.fs)
    again.begin()
    play.is_soon(lambda: reserve_bytes(again) == RESERVE_BYTES, "the reserve is made again")
    again.shell.commanding.create_topic("more", 1, {})
    assert again.shell.lookups.list_topics() == ["more", "t"]
    assert again.shell.lookups.problems() == {}
    again.end()


def test_where_there_is_no_room_at_all_a_creation_is_refused_by_name_and_soon(
    play: ShellPlay,
) -> None:
    with play.fs.failing(DiskFull, "append"):
        play.shell.begin()
        play.sees("a", "b")
        with pytest.raises(DiskFull):
            play.shell.commanding.create_topic("t", 1, {})


def reserve_bytes(play: ShellPlay) -> int:
    stat = play.fs.stat(f"{LOG_DIR}/{METADATA_RESERVE}")
    return 0 if stat is None else stat.size_bytes


def test_who_waits_when_it_ends_is_told(play: ShellPlay) -> None:
    play.begin()
    play.managers.hangs("b")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(play.shell.commanding.create_topic, "t", 2, {})
        play.is_soon(lambda: play.shell.lookups.list_topics() == ["t"], "it is begun")
        play.managers.hanging["b"].set()
        play.shell.leave(NotLeader("the broker", "it is stopping"))
        assert waiting.exception() is None or isinstance(waiting.exception(), NotLeader)
    with pytest.raises(NotLeader, match="stopping"):
        play.shell.commanding.delete_topic("t")


def test_what_does_not_exist_is_refused_by_its_name(play: ShellPlay) -> None:
    play.begin()
    with pytest.raises(UnknownTopicOrPartition):
        play.shell.lookups.describe_topic("t")
    assert isinstance(play.shell.lookups.explain(TopicPartition("t", 0)), UnknownTopicOrPartition)


# -- the metadata is opened again and again --------------------------------------------------------


def test_the_metadata_is_tried_again_until_it_opens_and_each_new_reason_is_told() -> None:
    errors = [LogLocked("/x"), LogLocked("/x"), StorageError("/x", "EIO")]
    told: list[Exception] = []
    pauses: list[float] = []

    def open_once() -> None:
        if errors:
            raise errors.pop(0)

    def wait(pause_s: float) -> bool:
        pauses.append(pause_s)
        return False

    again_until_open(open_once, told.append, wait)
    assert [type(error) for error in told] == [LogLocked, StorageError]
    assert pauses == [0.5, 1.0, 2.0]


def test_who_waits_for_a_controller_is_told_whose_lock_it_waits_for_and_what_to_do() -> None:
    locked = LogLocked("/x/m-0", "process 4711 (ray::LogManager) on machine h1")
    why = why_not_open(locked, "disk-1")
    assert "Controller on node disk-1" in why
    assert "/x/m-0 is locked by process 4711 (ray::LogManager) on machine h1" in why
    assert why.endswith("(`kill -9` and its pid): Ray starts it again, and nothing is lost")
    assert "kill" not in why_not_open(StorageError("/x", "EIO"), "disk-1")


def test_nobody_tries_to_open_the_metadata_of_a_controller_that_stops() -> None:
    tries: list[float] = []

    def open_once() -> None:
        raise LogLocked("/x")

    def wait(pause_s: float) -> bool:
        tries.append(pause_s)
        return len(tries) == 8

    again_until_open(open_once, lambda _: None, wait)
    assert len(tries) == 8
    assert tries[-1] == LONGEST_PAUSE_S


def test_a_node_that_left_is_told_nothing_more(play: ShellPlay) -> None:
    play.begin()
    assert "line-b" in {thread.name for thread in threading.enumerate()}
    play.shell.put(NodesSeen(nodes={"a": "ray-a"}))
    play.is_soon(
        lambda: "line-b" not in {thread.name for thread in threading.enumerate()}, "its line ends"
    )


# -- copies of the metadata ------------------------------------------------------------------------


def batch_sizes(batches: tuple[bytes, ...]) -> list[int]:
    return [len(batch) for batch in batches]


def test_a_topic_is_on_the_disks_of_two_nodes_when_its_creation_returns(play: ShellPlay) -> None:
    play.begin()
    lookups = play.shell.lookups
    play.is_soon(lambda: [c.is_in_sync for c in lookups.metadata_copies()] == [True, True], "b")
    play.shell.commanding.create_topic("t", 1, {})
    kept = play.managers.copies["b"].status()
    topics = [decode(v) for b in play.managers.copies["b"].read(0, 1 << 20) for v in values_of(b)]
    assert any(isinstance(record, TopicRecord) and record.name == "t" for record in topics)
    assert play.end()
    log = MetadataLog(play.fs, ManualClock(), LOG_DIR)
    own = log.batches(0, kept.end, 1 << 20)
    assert batch_sizes(own) == batch_sizes(play.managers.copies["b"].read(0, 1 << 20))[: len(own)]
    log.close()


def test_a_copy_that_hangs_holds_up_decisions_and_no_look_up(play: ShellPlay) -> None:
    play.begin()
    lookups = play.shell.lookups
    play.is_soon(lambda: [c.is_in_sync for c in lookups.metadata_copies()] == [True, True], "b")
    gate = play.managers.copying["b"] = threading.Event()
    end = lookups.metadata_copies()[0].end
    with ThreadPoolExecutor() as pool:
        created = pool.submit(play.shell.commanding.create_topic, "t", 1, {})
        play.is_soon(lambda: lookups.metadata_copies()[0].end > end, "it is on the own disk")
        assert lookups.list_topics() == []
        assert not created.done()
        gate.set()
        assert created.result(20).name == "t"


def test_an_orderly_stop_is_written_down_in_every_copy(play: ShellPlay) -> None:
    play.begin()
    lookups = play.shell.lookups
    play.is_soon(lambda: [c.is_in_sync for c in lookups.metadata_copies()] == [True, True], "b")
    assert play.shell.write_stopped(20)
    assert play.end()
    log = MetadataLog(play.fs, ManualClock(), LOG_DIR)
    assert log.desired.is_all_stopped
    assert log.history().end == play.managers.copies["b"].status().end
    log.close()


def test_a_stop_that_a_copy_does_not_hear_of_is_not_called_orderly(play: ShellPlay) -> None:
    play.begin()
    lookups = play.shell.lookups
    play.is_soon(lambda: [c.is_in_sync for c in lookups.metadata_copies()] == [True, True], "b")
    play.managers.copying["b"] = threading.Event()
    assert not play.shell.write_stopped(0.2)


# -- one node --------------------------------------------------------------------------------------


def test_a_node_is_stopped_and_started_while_the_other_serves(play: ShellPlay) -> None:
    play.begin()
    commanding, lookups = play.shell.commanding, play.shell.lookups
    commanding.create_topic("t", 2, {})
    with ThreadPoolExecutor() as pool:
        stopping = pool.submit(commanding.stop_node, "b")
        play.is_soon(lambda: play.managers.nodes["b"].ended, "it has ended")
        play.sees("a", "b")
        stopped = stopping.result()
    assert (stopped.state, stopped.was_clean, stopped.waits_for) == ("stopped", True, "")
    assert commanding.stop_node("ray-b").state == "stopped"  # Ray's id of it
    away = lookups.describe_topic("t").partitions[1]
    assert away.problem == "its node b is stopped; `raylog node start b` starts it"
    assert isinstance(lookups.explain(TopicPartition("t", 1)), NotLeader)
    assert lookups.describe_topic("t").partitions[0].problem is None
    assert [node.state for node in lookups.describe_nodes()] == ["online", "stopped"]
    started = commanding.start_node("b")
    assert (started.state, started.serving, started.not_serving) == ("online", 1, {})


def test_a_broker_starts_while_the_node_of_its_controller_is_stopped(play: ShellPlay) -> None:
    play.begin()
    play.shell.commanding.create_topic("t", 2, {})
    play.shell.put(Asked(request=1_000, command=StopNode(node="a")))
    play.is_soon(lambda: play.managers.nodes["a"].ended, "it has ended")
    play.end()
    play.start_again()
    play.begin()
    described = play.shell.lookups.describe_nodes()
    assert [(node.node, node.state) for node in described] == [("a", "stopped"), ("b", "online")]
    assert play.managers.started.count("a") == 1


def test_what_is_no_node_is_refused_before_anything_is_asked(play: ShellPlay) -> None:
    play.begin()
    for name in ("c", "", "ray-"):  # the last one may be any
        with pytest.raises(InvalidRequest, match="nodes are: a, b"):
            play.shell.commanding.drain_node(name)
