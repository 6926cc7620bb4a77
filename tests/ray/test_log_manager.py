"""A LogManager with real LogActors, ordered about as a Controller would: what it serves, what it
reports, what it has left when it ends.

The rules are in the transcripts of its machine (``tests/transcripts/test_node_*.py``); here is that
disks and actors are as it reports them.
"""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from raylog.actors.control import (
    Confirmed,
    KeepOut,
    LogId,
    Move,
    ReadBack,
    Remove,
    Report,
    Serve,
    SetAside,
)
from raylog.actors.errors import NotLeader
from raylog.actors.partition.log_actor import LogActor
from raylog.actors.runtime.handles import create, find, kill
from raylog.actors.runtime.names import (
    compaction_actor_name,
    log_actor_name,
    retention_actor_name,
)
from raylog.actors.runtime.nodes import own_node
from raylog.storage.config import LogConfig
from raylog.storage.errors import InconsistentClusterId, LogLocked, RecordTooLarge
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log
from raylog.storage.names import TopicPartition
from raylog.storage.state.checkpoints import RECOVERY_POINTS
from raylog.storage.state.properties import CLEAN_SHUTDOWN, random_id
from raylog.storage.testing.logs import batch_of_size
from raylog.storage.testing.waiting import wait_for
from tests.harness.bare_logs import bare_spec, settled
from tests.harness.faults import hanging
from tests.harness.faults import kill as kill_processes
from tests.harness.one_node import (
    DEADLINE_S,
    EPOCH,
    ORDERS,
    OneNode,
    entries,
    is_serving,
    pid_of,
)

OTHERS = LogId(partition=TopicPartition("others", 0), topic_id=random_id())
ANEW = LogId(partition=ORDERS.partition, topic_id=random_id())  # the topic was made again
SMALL = LogConfig(max_message_bytes=500)
LARGE = 501

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def node(local_ray: None, tmp_path: Path) -> Iterator[OneNode]:
    made = OneNode(tmp_path)
    made.start()
    yield made
    made.end()


@pytest.fixture
def two_dirs(local_ray: None, tmp_path: Path) -> Iterator[OneNode]:
    made = OneNode(tmp_path, "ab", **{"log.segment.delete.delay.ms": 0})
    made.start()
    yield made
    made.end()


# -- serving ---------------------------------------------------------------------------------------


def test_a_log_that_is_ordered_is_made_served_and_written_to(node: OneNode) -> None:
    served = node.make()
    assert (served.leader_epoch, served.config_version, served.problem) == (0, 0, None)
    assert node.append(3) == 0
    assert node.folders() == ["orders-0"]
    node.wait_for_log("serving", log_end_offset=3)


def test_a_config_that_is_ordered_counts_in_the_actor_that_runs(node: OneNode) -> None:
    served = node.make()
    pid = node.pid()
    node.serve(ORDERS, served.directory_id, 2, max_message_bytes=SMALL.max_message_bytes)
    with pytest.raises(RecordTooLarge):
        node.ask("append", bytes(batch_of_size(LARGE)))
    assert node.call("order_of", ORDERS).config == SMALL
    node.order(
        Serve(
            log=ORDERS,
            directory_id=served.directory_id,
            config=LogConfig(),
            config_version=1,
        )
    )
    node.make(OTHERS)  # what was ordered before is obeyed by now
    assert node.wait_for_log("serving").config_version == 2, "an older one comes late"
    assert node.call("order_of", ORDERS).config_version == 2
    assert node.pid() == pid


def test_a_log_that_cannot_be_opened_is_reported_with_the_reason(node: OneNode) -> None:
    served = node.make()
    node.append()
    assert node.shutdown()
    metadata = node.dirs[0] / "orders-0" / "partition.metadata"
    content = metadata.read_bytes()
    folder = str(node.dirs[0] / "orders-0")
    spec = bare_spec(ORDERS.partition, ORDERS.topic_id, folder)
    intruder: Any = LogActor.remote(spec)  # type: ignore[attr-defined]
    assert settled(intruder).state == "serving"
    node.start()
    node.order(
        Serve(
            log=ORDERS,
            directory_id=served.directory_id,
            config=LogConfig(),
            config_version=0,
        )
    )

    def is_refused(report: Report) -> bool:
        return any("lock" in str(entry.problem) for entry in entries(report, ORDERS))

    node.wait_for(is_refused, "it says why")
    ray.get(intruder.close.remote(), timeout=DEADLINE_S)
    ray.kill(intruder)
    node.serve(ORDERS, served.directory_id)
    assert node.log_end_offset() == 1
    assert metadata.read_bytes() == content


def test_an_actor_of_another_topic_under_the_partitions_name_is_replaced(
    node: OneNode, tmp_path: Path
) -> None:
    folder = tmp_path / "elsewhere" / "orders-0"
    folder.parent.mkdir()
    create_log(RealFileSystem(), str(folder), ANEW.topic_id)
    name = log_actor_name(ANEW.partition)
    create(
        LogActor,
        name,
        node.namespace,
        own_node(),
        bare_spec(ANEW.partition, ANEW.topic_id, str(folder)),
    )
    node.make()
    assert node.append() == 0
    assert node.ask("says").log == ORDERS


# -- deaths ----------------------------------------------------------------------------------------


def test_actors_live_on_while_their_log_manager_is_killed_and_are_adopted(
    node: OneNode,
) -> None:
    served = node.make()
    node.append(2)
    pid, life = node.pid(), node.report().life
    os.kill(node.manager_pid(), signal.SIGKILL)
    again = node.wait_for(
        lambda report: report.life != life and is_serving(report), "another life has adopted it"
    )
    assert again.is_restarted
    assert again.controller_epoch == EPOCH
    assert node.append() == 2
    node.serve(ORDERS, served.directory_id, 1)
    assert node.pid() == pid


@pytest.mark.parametrize("is_hanging", [True, False])
def test_an_actor_whose_dir_was_replaced_is_ended_even_if_it_hung_meanwhile(
    two_dirs: OneNode, is_hanging: bool
) -> None:
    """Its disk is not mounted any more, and a new log dir is made in the empty folder."""
    node = two_dirs
    served = node.make()
    node.append(2)
    path = next(dir for dir in node.dirs if node.id_of(dir) == served.directory_id)
    actor, life = node.pid(), node.report().life
    stopped = [actor] if is_hanging else []
    with hanging(*stopped):
        kill_processes(node.manager_pid())
        path.rename(path.with_name("unmounted"))
        path.mkdir()
        again = node.wait_for(lambda report: report.life != life, "another life has begun")
        assert {dir.state for dir in again.dirs} == {"online"}
        assert served.directory_id not in {dir.directory_id for dir in again.dirs}
    wait_for(lambda: node.actor() is None, 30, "its actor has ended")
    wait_for(lambda: not is_running(actor), 30, "its process has ended")


def test_a_log_manager_that_is_made_anew_adopts_them_as_well(node: OneNode) -> None:
    node.make()
    pid = node.pid()
    node.kill_manager()
    assert not node.start().is_restarted
    node.wait_for(is_serving, "it is adopted")
    assert node.pid() == pid


@pytest.mark.parametrize("is_for_good", [False, True], ids=["SIGKILL", "for good"])
def test_a_log_actor_that_dies_is_started_again(node: OneNode, is_for_good: bool) -> None:
    served = node.make()
    node.append(2)
    if is_for_good:
        ray.kill(node.actor(), no_restart=True)
    else:
        os.kill(node.pid(), signal.SIGKILL)
    node.wait_for_log(
        "serving", directory_id=served.directory_id, leader_epoch=served.leader_epoch + 1
    )
    assert node.append() == 2


def test_an_adopted_actor_that_dies_is_served_again_without_an_order(node: OneNode) -> None:
    served = node.make()
    node.append(2)
    life = node.report().life
    os.kill(node.manager_pid(), signal.SIGKILL)
    again = node.wait_for(
        lambda report: report.life != life and is_serving(report), "another life has adopted it"
    )
    number = node.order(confirms=again.number)
    node.wait_for(lambda report: report.orders == number, "the confirmation is obeyed")
    os.kill(node.pid(), signal.SIGKILL)
    node.wait_for_log(
        "serving", directory_id=served.directory_id, leader_epoch=served.leader_epoch + 1
    )
    assert node.append() == 2


def test_a_log_manager_that_cannot_begin_again_says_why_and_begins_when_it_can(
    node: OneNode,
) -> None:
    node.make()
    report = node.report()
    [path] = node.dirs
    aside = path.with_name("aside")
    path.rename(aside)
    path.touch()  # no folder
    os.kill(node.manager_pid(), signal.SIGKILL)
    said: list[str] = []

    def is_told() -> bool:
        try:
            node.order(confirms=report.number)
        except NotLeader as error:
            said.append(error.why)
        return str(path) in "".join(said)

    wait_for(is_told, 60, "orders are refused with the reason")
    path.unlink()
    aside.rename(path)
    node.wait_for(lambda again: again.life != report.life, "it has begun")


def test_an_actor_that_dies_while_its_log_manager_is_away_waits_for_orders(
    node: OneNode,
) -> None:
    served = node.make()
    node.append(2)
    node.kill_manager()
    os.kill(node.pid(), signal.SIGKILL)

    def is_learning() -> bool:
        try:
            return bool(node.ask("says").state == "learning")
        except NotLeader:  # Ray starts it again just now
            return False

    wait_for(is_learning, DEADLINE_S, "it waits", poll_s=0.1)
    with pytest.raises(NotLeader, match="waits for its LogManager"):
        node.append()
    node.start()
    node.serve(ORDERS, served.directory_id, 1)
    assert node.append() == 2


def test_a_closed_actor_is_replaced(node: OneNode) -> None:
    served = node.make()
    node.append(2)
    node.ask("close")
    node.wait_for_log("serving", leader_epoch=served.leader_epoch + 1)
    assert node.append() == 2


# -- removal ---------------------------------------------------------------------------------------


def test_a_log_that_is_removed_leaves_neither_actor_nor_folder(node: OneNode) -> None:
    node.make()
    node.make(OTHERS)
    node.order(Remove(log=ORDERS))
    node.wait_for(lambda report: not entries(report, ORDERS), "it is gone")
    assert node.folders() == ["others-0"]
    wait_for(lambda: node.actor() is None, DEADLINE_S, "its actor has ended")
    assert node.append(log=OTHERS) == 0


def test_another_topics_log_of_the_same_name_is_not_removed(node: OneNode) -> None:
    node.make()
    number = node.order(Remove(log=ANEW))
    node.wait_for(lambda report: report.orders == number, "the orders are obeyed")
    assert node.append() == 0
    assert node.folders() == ["orders-0"]


def test_a_topic_made_anew_does_not_begin_where_the_old_ones_checkpoint_left_off(
    node: OneNode,
) -> None:
    node.make()
    node.make(OTHERS)
    for log in (ORDERS, OTHERS):
        node.append(7, log)
        node.ask("flush", log=log)
    both = {ORDERS.partition: 7, OTHERS.partition: 7}
    wait_for(lambda: node.recovery_points() == both, DEADLINE_S, "the checkpoint is written")
    node.order(Remove(log=ORDERS))
    node.wait_for(lambda report: not entries(report, ORDERS), "it is gone")
    made = node.make(ANEW)
    assert node.ask("offsets") == (0, 0, 0, 0)
    os.kill(node.pid(), signal.SIGKILL)
    node.wait_for_log("serving", ANEW, leader_epoch=made.leader_epoch + 1)
    assert node.ask("offsets") == (0, 0, 0, 0)
    wait_for(
        lambda: node.recovery_points() == {**both, ANEW.partition: 0},
        DEADLINE_S,
        "the checkpoint has the new one's",
    )


def test_a_folder_of_no_topic_is_set_aside_by_order_and_kept(node: OneNode) -> None:
    assert node.shutdown()
    create_log(RealFileSystem(), str(node.dirs[0] / "gone-0"), ANEW.topic_id)
    node.start()
    gone = LogId(partition=TopicPartition("gone", 0), topic_id=ANEW.topic_id)
    found = node.wait_for_log("found", gone)
    node.order(
        SetAside(partition=gone.partition, topic_id=gone.topic_id, directory_id=found.directory_id)
    )
    node.wait_for(lambda report: not entries(report, gone), "it is set aside")
    [stray] = node.folders()
    assert stray.startswith("gone-0.")
    assert stray.endswith("-stray")


# -- whose orders ----------------------------------------------------------------------------------


def test_a_controller_of_a_lower_epoch_is_refused_in_this_life_and_the_next(
    node: OneNode,
) -> None:
    node.make()
    number = node.order(epoch=EPOCH + 2)
    node.wait_for(lambda report: report.orders == number, "a higher epoch is obeyed")
    node.order(Remove(log=ORDERS), epoch=EPOCH)
    refusals = node.controller.refusals
    told = (node.key, EPOCH + 2)
    wait_for(lambda: told in ray.get(refusals.remote()), DEADLINE_S, "it is refused", poll_s=0.05)
    assert node.append() == 0
    assert node.shutdown()
    assert node.start().controller_epoch == EPOCH + 2


def test_a_log_manager_that_runs_keeps_its_config_and_tells_which(node: OneNode) -> None:
    obeyed = node.wait_for(lambda _: True, "it reports").config_digest
    node.call("start", replace(node.config, num_partitions=node.config.num_partitions + 1))
    node.make()
    assert node.wait_for(lambda report: bool(report.logs), "it serves").config_digest == obeyed


def test_a_log_dir_that_is_in_use_or_another_clusters_is_refused(
    node: OneNode, tmp_path: Path
) -> None:
    other = OneNode(tmp_path)
    other.begin()
    with pytest.raises(LogLocked):
        other.call("start", other.config)
    other.kill_manager()
    assert node.shutdown()
    other.begin(cluster_id=random_id())
    with pytest.raises(InconsistentClusterId):
        other.call("start", other.config)
    other.kill_manager()
    other.start()
    other.end()


# -- disks -----------------------------------------------------------------------------------------


def test_a_dir_that_vanishes_is_reported_and_its_logs_are_served_again_when_it_was_read_back(
    two_dirs: OneNode,
) -> None:
    node = two_dirs
    first, second = node.make(), node.make(OTHERS)
    assert first.directory_id != second.directory_id, "each in the emptier dir"
    node.append(2)
    path = next(dir for dir in node.dirs if node.id_of(dir) == first.directory_id)
    gone = path.with_name("gone")
    path.rename(gone)
    assert "the folder is gone" in node.wait_for_dir(path, "offline").why
    node.wait_for_log("failed")
    wait_for(lambda: node.actor() is None, DEADLINE_S, "its actor has ended")
    assert node.append(log=OTHERS) == 0, "the other dir serves"
    assert not path.exists(), "nothing is made in its place"

    gone.rename(path)
    node.order(ReadBack(directory_id=first.directory_id))
    assert node.wait_for_dir(path, "online").is_read_back
    node.serve(ORDERS, first.directory_id)
    assert node.log_end_offset() == 2


def test_a_dir_that_is_kept_out_is_offline_until_it_is_read_back(node: OneNode) -> None:
    served = node.make()
    node.append(2)
    node.order(KeepOut(directory_id=served.directory_id, why="it failed yesterday"))
    assert node.wait_for_dir(node.dirs[0], "offline").why == "it failed yesterday"
    wait_for(lambda: node.actor() is None, DEADLINE_S, "its actor has ended")
    node.order(ReadBack(directory_id=served.directory_id))
    node.wait_for_dir(node.dirs[0], "online")
    node.serve(ORDERS, served.directory_id)
    assert node.log_end_offset() == 2


def test_a_log_moves_to_another_dir_while_it_is_written(two_dirs: OneNode) -> None:
    node = two_dirs
    home = node.make().directory_id
    source = next(path for path in node.dirs if node.id_of(path) == home)
    target = next(path for path in node.dirs if path != source)
    node.append(5)
    node.order(
        Move(
            log=ORDERS,
            directory_id=home,
            target_id=node.id_of(target),
            config=LogConfig(),
            config_version=0,
        )
    )
    node.wait_for_log("moved", directory_id=home, moved_to=node.id_of(target))
    node.serve(ORDERS, node.id_of(target))
    assert node.log_end_offset() == 5
    assert node.append() == 5
    wait_for(lambda: not node.folders(source), DEADLINE_S, "the old folder is removed")
    assert node.folders(target) == ["orders-0"]


def test_log_dirs_are_told_with_what_is_on_them(node: OneNode) -> None:
    node.make()
    node.append()

    def is_counted() -> bool:
        [status] = node.call("log_dirs")
        return bool(status.is_online and status.partitions == 1 and status.size_bytes)

    wait_for(is_counted, DEADLINE_S, "the log is counted", poll_s=0.2)
    [status] = node.call("log_dirs")
    assert (status.path, status.problem) == (str(node.dirs[0]), None)
    assert 0 < status.usable_bytes <= status.total_bytes


# -- upkeep ----------------------------------------------------------------------------------------


def confirmed(node: OneNode, log: LogId = ORDERS) -> Confirmed | None:
    right = node.call("confirmed", [log.partition]).get(log.partition)
    assert right is None or isinstance(right, Confirmed)
    return right


def test_a_config_is_confirmed_by_orders_that_leave_it_as_it_was_reported(
    node: OneNode,
) -> None:
    served = node.make()
    assert confirmed(node) is None
    node.order(confirms=node.report().number)
    wait_for(lambda: confirmed(node), DEADLINE_S, "it is confirmed", poll_s=0.05)
    right = confirmed(node)
    assert right is not None
    assert (right.log, right.config_version) == (ORDERS, 0)
    assert node.ask("delete_old_segments", right).segments == 0
    node.serve(ORDERS, served.directory_id, 1)
    assert confirmed(node) is None, "of the new one the Controller has not heard yet"


@pytest.mark.parametrize(
    ("policy", "name"),
    [("delete", retention_actor_name), ("compact", compaction_actor_name)],
    ids=["retention", "compaction"],
)
def test_an_upkeep_actor_that_is_needed_is_started_and_started_again(
    node: OneNode, policy: str, name: Callable[[str], str]
) -> None:
    node.make(cleanup_policy=policy)

    def pid() -> int | None:
        actor = find(name(node.key), node.namespace)
        try:
            return None if actor is None else pid_of(actor)
        except ray.exceptions.RayError:
            return None

    wait_for(pid, DEADLINE_S, "it runs", poll_s=0.1)
    node.wait_for(lambda report: report.upkeep, "it is reported")
    before = pid()
    kill(name(node.key), node.namespace)
    wait_for(lambda: pid() not in (None, before), DEADLINE_S, "it runs again", poll_s=0.1)


# -- the end ---------------------------------------------------------------------------------------


def test_an_orderly_stop_leaves_checkpoints_a_marker_and_no_actor(node: OneNode) -> None:
    served = node.make()
    node.append(3)
    assert node.shutdown()
    wait_for(lambda: not node.log_actors(), DEADLINE_S, "the LogActor has ended")
    assert (node.dirs[0] / CLEAN_SHUTDOWN).exists()
    assert node.recovery_points() == {ORDERS.partition: 3}
    node.start()
    assert not (node.dirs[0] / CLEAN_SHUTDOWN).exists()
    node.serve(ORDERS, served.directory_id)
    assert node.append() == 3


def test_a_stop_that_cannot_write_its_checkpoints_leaves_no_actor_no_lock_and_no_marker(
    node: OneNode,
) -> None:
    served = node.make()
    node.append(3)
    checkpoint = node.dirs[0] / RECOVERY_POINTS
    checkpoint.unlink(missing_ok=True)
    checkpoint.mkdir()  # no file can be renamed to it
    assert not node.shutdown()
    checkpoint.rmdir()
    wait_for(lambda: not node.log_actors(), DEADLINE_S, "the LogActor has ended")
    assert not (node.dirs[0] / CLEAN_SHUTDOWN).exists()
    node.start()
    node.serve(ORDERS, served.directory_id)
    assert node.append() == 3


def test_a_dir_whose_marker_cannot_be_written_is_unlocked_all_the_same(node: OneNode) -> None:
    (node.dirs[0] / CLEAN_SHUTDOWN).mkdir()
    assert not node.shutdown()
    (node.dirs[0] / CLEAN_SHUTDOWN).rmdir()
    node.start()


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
