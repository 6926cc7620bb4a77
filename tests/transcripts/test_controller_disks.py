"""The Controller's machine and disks that fail, fill, or come back."""

from dataclasses import replace

import pytest

from raylog.actors.control import LogReport
from raylog.actors.errors import (
    NoLogDirs,
)
from raylog.cluster.controller.commands import (
    AddPartitions,
    AllocateProducerId,
    Command,
    CreateTopic,
    DeleteTopic,
    LogDirOnline,
    MovePartition,
)
from raylog.cluster.controller.journal import RESERVE_RETRY_MS
from raylog.storage.errors import (
    DiskFull,
    LogDirOffline,
    OutOfResources,
    StorageError,
)
from tests.harness.control_nodes import PerfectNode, entry, is_as_desired, version_of
from tests.harness.controller_play import Play, begun
from tests.transcripts.controllers import (
    FULL,
    LOG,
    alter,
    create,
    error_of,
    node_a,
)

# -- the metadata's disk ---------------------------------------------------------------------------


def test_a_full_metadata_disk_is_an_error_and_it_is_tried_again() -> None:
    play = begun(node_a())
    play.asks(create())
    assert "answer 1: DiskFull" in play.append_fails(DiskFull("/a1"))
    play.asks(create())
    play.settle()
    assert play.answer is not None
    assert play.answer.error is None
    assert is_as_desired(play.desired, play.nodes.values())


def uses_the_reserve(play: Play) -> None:
    """A record that the Controller writes by itself meets a full disk."""
    play.asks(AllocateProducerId())
    play.appended(shortage=FULL)


def test_while_the_reserve_is_given_up_nothing_grows_and_what_makes_room_is_done() -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.create("u", 1)
    play.asks(AllocateProducerId())
    assert "note metadata-reserve-given-up" in play.appended(shortage=FULL)
    assert play.asks(create("v")) == ["answer 4: DiskFull"]
    assert play.asks(AddPartitions(name="t", total=2)) == ["answer 5: DiskFull"]
    only_asked = CreateTopic(name="v", topic_id="id-v", partitions=1, validate_only=True)
    assert play.asks(only_asked) == ["answer 6: DiskFull"]
    assert play.machine.reserve_problem == FULL
    play.asks(alter())
    play.appended(shortage=FULL)
    play.asks(DeleteTopic(name="u"))
    play.appended(shortage=FULL)
    play.settle(5_000)
    play.asks(MovePartition(name="t", number=0, log_dir="/a2"))
    play.appended(shortage=FULL)
    play.settle(5_000)
    assert play.states() == {"t-0": "online in a2"}
    assert play.nodes["a"].serving[LOG] == ("a2", version_of(1, 1))
    play.settle(RESERVE_RETRY_MS)
    assert play.machine.reserve_problem is None
    play.create("v", 1)
    assert is_as_desired(play.desired, play.nodes.values())


def test_where_all_log_dirs_are_full_a_creation_is_refused_for_the_disk_of_the_metadata() -> None:
    node = PerfectNode("a", "a1")
    play = begun(node)
    node.dirs["a1"] = replace(node.dirs["a1"], usable_bytes=5)
    play.reports("a")
    play.asks(create())
    assert isinstance(error_of(play), NoLogDirs)
    uses_the_reserve(play)
    play.asks(create())
    assert isinstance(error_of(play), DiskFull)


def test_the_reserve_is_made_again_when_there_is_room_and_is_asked_for_now_and_then() -> None:
    play = Play(node_a())
    play.sees()
    play.reports("a")
    play.appended()
    assert play.makes_reserve(FULL) == ["note metadata-reserve-given-up"]
    assert "make the reserve" not in play.passes(RESERVE_RETRY_MS - 1)
    assert "make the reserve" in play.passes(1)
    assert play.makes_reserve(FULL) == []
    assert "make the reserve" in play.passes(RESERVE_RETRY_MS)
    assert play.makes_reserve() == ["note metadata-reserve-made"]
    assert "make the reserve" not in play.passes(10 * RESERVE_RETRY_MS)


def test_a_reserve_that_was_given_up_is_not_asked_for_at_once() -> None:
    play = begun(node_a())
    play.settle(2 * RESERVE_RETRY_MS)
    play.asks(AllocateProducerId())
    assert "make the reserve" not in play.appended(shortage=FULL)
    assert "make the reserve" not in play.passes(RESERVE_RETRY_MS - 1)
    assert "make the reserve" in play.passes(1)


def test_a_creation_that_is_repeated_needs_no_room() -> None:
    play = begun(node_a())
    play.create("t", 1)
    uses_the_reserve(play)
    assert play.asks(create()) == ["answer 3: t"]


def test_a_reserve_that_cannot_be_made_for_another_reason_is_told_and_refuses_nothing() -> None:
    play = begun(node_a())
    uses_the_reserve(play)
    play.passes(RESERVE_RETRY_MS)
    play.makes_reserve(OutOfResources("/a1", "ulimit -f"))
    assert isinstance(play.machine.reserve_problem, OutOfResources)
    play.create("t", 1)


def test_only_what_the_controller_writes_by_itself_or_makes_room_may_use_the_reserve() -> None:
    def may(*commands: Command) -> list[bool]:
        play = begun(node_a())
        play.create("t", 1)
        for command in commands:
            play.asks(command)
        assert play.appending is not None
        answer = [play.appending.may_use_reserve]
        play.appended()
        play.obeys("a")
        return answer if play.appending is None else [*answer, play.appending.may_use_reserve]

    assert may(create("u")) == [False, True]  # the partition is online
    assert may(AddPartitions(name="t", total=2)) == [False, True]
    assert may(MovePartition(name="t", number=0, log_dir="/a2"))[0]
    assert may(DeleteTopic(name="t")) == [True, True]
    assert may(alter())[0]
    play = Play(node_a())
    play.sees()
    play.reports("a")
    assert play.appending is not None
    assert play.appending.may_use_reserve, "its epoch"


def test_where_not_even_the_epoch_can_be_written_who_asks_is_told_soon_and_by_name() -> None:
    play = Play(node_a())
    play.sees()
    play.reports("a")
    play.asks(create())
    assert play.append_fails(FULL) == ["note metadata-reserve-given-up", "answer 1: DiskFull"]
    assert play.asks(DeleteTopic(name="t")) == ["answer 2: DiskFull"]
    play.passes(1_000)
    play.settle(RESERVE_RETRY_MS)
    play.create("t", 1)


def test_after_a_full_disk_the_next_command_is_tried() -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.asks(AllocateProducerId())
    assert "answer 2: DiskFull" in play.append_fails(FULL)
    play.asks(DeleteTopic(name="t"))
    play.appended()
    play.settle()
    assert play.states() == {}


def test_a_creation_whose_end_cannot_be_written_is_answered_and_undone_when_it_can() -> None:
    play = begun(node_a())
    play.asks(create())
    play.appended()
    play.obeys("a")
    lines = play.append_fails(FULL)
    assert "append: t-0 removing at a, topic removed id-t" in lines
    assert "answer 1: DiskFull" in play.appended()
    play.settle(2 * RESERVE_RETRY_MS)
    assert play.states() == {}
    assert is_as_desired(play.desired, play.nodes.values())


@pytest.mark.parametrize("is_written", [False, True])
def test_after_a_failed_fsync_every_command_is_refused_and_health_has_the_error(
    is_written: bool,
) -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.asks(DeleteTopic(name="t"))
    failed = StorageError("/a1", "EIO")
    lines = play.append_fails(failed, is_written=is_written)
    assert lines == ["note metadata-failed", "answer 2: StorageError"]
    assert play.asks(create("u")) == ["answer 3: StorageError"]
    assert play.machine.failure == failed
    play.passes(20_000)
    assert play.mail.pop("a").report == -1  # no deletion by a config of which nobody knows
    play.begin()  # whatever is on the disk counts
    play.settle()
    assert play.states() == ({} if is_written else {"t-0": "online in a1"})
    assert is_as_desired(play.desired, play.nodes.values())


def test_after_a_failed_fsync_a_creation_that_waits_is_answered() -> None:
    play = begun(node_a())
    play.asks(create())
    play.appended()
    play.obeys("a")
    assert "answer 1: StorageError" in play.append_fails(StorageError("/a1", "EIO"))


def test_a_controller_that_cannot_write_its_epoch_tells_nobody_anything() -> None:
    play = Play(node_a())
    play.sees()
    play.reports("a")
    play.append_fails(StorageError("/a1", "EIO"))
    assert play.reports("a") == []
    assert play.asks(create()) == ["answer 1: StorageError"]


# -- disks -----------------------------------------------------------------------------------------


def test_a_dir_that_failed_stays_offline_until_its_logs_were_read_back() -> None:
    play = begun(node_a())
    play.create("t", 1)
    play.nodes["a"].fails("a1")
    assert play.reports("a") == ["append: dir a1 offline at a"]
    assert "note log-dir-offline" in play.appended()
    play.asks(MovePartition(name="t", number=0, log_dir="/a1"))
    play.settle()
    play.nodes["a"].logs[LOG, "a1"] = entry(LOG, "a1", "found")
    assert play.asks(LogDirOnline(log_dir="/a1")) == ["append: dir a1 returning at a"]
    assert "tell a: read back a1" in play.appended()
    assert play.answer is not None
    play.settle()
    assert play.desired.dirs["a1"].state == "online"
    assert is_as_desired(play.desired, play.nodes.values())


def with_a_dir_that_failed_and_was_found_again(*, by_ray: bool) -> Play:
    """Another life of the LogManager finds the log dir in order, whose disk had failed."""
    play = begun(node_a())
    play.create("t", 1)
    play.nodes["a"].fails("a1")
    play.settle()
    node = play.nodes["a"]
    node.restart(by_ray=by_ray)
    node.dirs["a1"] = replace(node.dirs["a1"], state="online", why="")
    node.logs[LOG, "a1"] = entry(LOG, "a1", "found")
    play.reports("a")
    return play


def dir_states(play: Play) -> dict[str, str]:
    return {name: record.state for name, record in play.desired.dirs.items()}


def test_a_kill_of_the_manager_does_not_bring_a_failed_dir_back() -> None:  # number 6
    play = with_a_dir_that_failed_and_was_found_again(by_ray=True)
    assert play.obeys("a") == ["tell a: keep out a1"]
    assert play.obeys("a") == ["tell a: -"]
    assert play.nodes["a"].dirs["a1"].why == "EIO"
    play.settle()
    assert dir_states(play) == {"a1": "offline", "a2": "online"}
    play.asks(LogDirOnline(log_dir="/a1"))
    play.settle()
    assert dir_states(play) == {"a1": "online", "a2": "online"}


def test_a_fresh_start_reads_a_failed_dir_back() -> None:
    play = with_a_dir_that_failed_and_was_found_again(by_ray=False)
    assert play.obeys("a") == ["append: dir a1 returning at a"]
    assert play.appended() == ["note log-dir-returning", "tell a: read back a1"]
    assert play.obeys("a") == ["append: dir a1 online at a", "tell a: -"]
    assert play.appended() == ["tell a: serve t-0 in a1 v1.0"]


def test_a_creation_whose_disk_fails_is_answered_with_it() -> None:
    play = begun(PerfectNode("a", "a1"))
    play.asks(create())
    play.appended()
    play.obeys("a")
    play.nodes["a"].fails("a1")
    play.settle()
    assert isinstance(error_of(play), LogDirOffline)


def test_a_folder_with_a_damaged_partition_metadata_that_is_served_is_left_alone() -> None:
    play = begun(node_a())
    play.create("t", 1)
    node = play.nodes["a"]
    node.logs[LOG, "a1"] = replace(node.logs[LOG, "a1"], topic_id=None)
    play.settle()
    assert node.set_aside == []
    node.logs[LOG, "a1"] = LogReport(
        partition=LOG.partition, topic_id=None, directory_id="a1", state="found"
    )
    play.settle()
    assert node.set_aside == []
