"""A node's compaction without Ray: which log is next, what errors do, what is written down, and how
fast it goes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import NotLeader
from raylog.actors.messages import CompactionStatus, RemovedSegments
from raylog.actors.metrics import Exporter, Metric
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node_messages import UpkeepOrder
from raylog.actors.partition.partition import Partition
from raylog.actors.upkeep.compactor import Compactor, SharedLocks
from raylog.storage.cleaner.cleanable import LogFacts
from raylog.storage.cleaner.remote import LogOwner, LogView
from raylog.storage.cleaner.schedule import LONGEST_WAIT_MS
from raylog.storage.config import LogConfig
from raylog.storage.errors import CleaningAborted, DiskFull, LogLocked, StorageError
from raylog.storage.files import Lock
from raylog.storage.loader import create_log, open_log
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import TOPIC_ID, Disk, flip, offsets_of
from tests.harness.upkeep import ordered_log, upkeep_order

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
CONFIG = LogConfig(segment_bytes=300, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)


class Node:
    """A node whose logs are partitions in this process, on a disk in memory."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.partitions: dict[TopicPartition, Partition] = {}
        self.configs: dict[TopicPartition, LogConfig] = {}
        self.topic_ids: dict[TopicPartition, str] = {}  # of those that were made anew
        self.checkpoints: dict[TopicPartition, int] = {}
        self.written: list[tuple[TopicPartition, str, int]] = []
        self.errors: dict[TopicPartition, Exception] = {}  # what asking for facts answers
        self.retained: list[TopicPartition] = []
        self.before_view: Callable[[], object] = lambda: None

    def add(self, name: TopicPartition, batches: int, config: LogConfig = CONFIG) -> Partition:
        """A log of so many batches of two keys, in many segments."""
        folder = f"/logs/{name}"
        create_log(self.disk.fs, folder, TOPIC_ID)
        log = open_log(self.disk.fs, self.disk.clock, folder, name, config, is_clean=True)
        self.configs[name] = config
        self.partitions[name] = partition = Partition(log, self.disk.clock)
        self.write(name, batches)
        return partition

    def write(self, name: TopicPartition, batches: int) -> None:
        for number in range(batches):
            self.partitions[name].append(
                encode_records([(T0, b"%d" % (number % 2), b"v%d" % number, ())])
            )
        self.partitions[name].roll()

    def offsets(self, name: TopicPartition) -> list[int]:
        return offsets_of(self.partitions[name].log)

    def order(self) -> UpkeepOrder:
        """An order that names all of its logs."""
        return upkeep_order(
            [
                ordered_log(
                    name,
                    self.configs[name],
                    self.topic_ids.get(name, TOPIC_ID),
                    partition.log.folder,
                )
                for name, partition in self.partitions.items()
            ]
        )

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        return self.checkpoints

    def record_cleaner_offset(self, log: LogId, offset: int) -> None:
        self.checkpoints[log.partition] = offset
        self.written.append((log.partition, log.topic_id, offset))

    def facts(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LogFacts | Exception]:
        return {
            name: self.errors.get(name) or self.partitions[name].cleaning_facts()
            for name in partitions
        }

    def view(self, partition: TopicPartition) -> LogView:
        self.before_view()
        return self.partitions[partition].cleaning_view()

    def calls(self, partition: TopicPartition) -> LogOwner:
        return self.partitions[partition]

    def delete_old_segments(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, RemovedSegments | Exception]:
        self.retained += partitions
        return {name: self.partitions[name].delete_old_segments() for name in partitions}


@pytest.fixture
def node() -> Node:
    return Node(Disk())


def compactor(node: Node, **options: Any) -> Compactor:
    config = BrokerConfig(log_cleaner_dedupe_buffer_size=1 << 12, **options.pop("config", {}))
    fs = node.disk.fs
    return Compactor(
        node, "n1", config, node.disk.clock, fs, fs, options.pop("lock", fs.lock), **options
    )


def turn(one: Compactor, node: Node) -> bool:
    """A turn of a round over all logs of the node."""
    one.order(node.order())
    return one.turn()


def told(one: Compactor, partition: TopicPartition) -> CompactionStatus:
    return next(status for status in one.status() if status.partition == str(partition))


# -- which, and what is written down ---------------------------------------------------------------


def test_a_turn_compacts_the_filthiest_log_and_writes_down_where_it_ended(node: Node) -> None:
    node.add(A, 12)
    node.add(B, 12)
    node.checkpoints[A] = 8
    one = compactor(node)
    assert turn(one, node)
    assert node.written == [(B, TOPIC_ID, 12)]
    assert node.offsets(B) == [10, 11]
    assert turn(one, node)
    assert node.written[1:] == [(A, TOPIC_ID, 12)]
    assert not turn(one, node), "nothing is dirty"
    status = told(one, B)
    assert (status.dirty_ratio, status.first_dirty_offset, status.is_running) == (0.0, 12, False)
    assert status.last_round is not None
    assert (status.last_round.records_read, status.last_round.records_dropped) == (12, 10)
    assert status.last_round.bytes_after < status.last_round.bytes_before


def test_logs_that_are_not_compacted_are_left_alone(node: Node) -> None:
    node.add(A, 12, LogConfig(segment_bytes=300))
    one = compactor(node)
    assert not turn(one, node)
    assert (node.retained, one.status(), one.retention()) == ([], [], [])


def test_a_checkpoint_that_is_out_of_the_log_is_written_anew(node: Node) -> None:
    node.add(A, 1)
    node.checkpoints[A] = 99
    assert turn(compactor(node), node)
    assert node.written == [(A, TOPIC_ID, 0), (A, TOPIC_ID, 1)]


def test_retention_of_compacted_logs_comes_after_the_round(node: Node) -> None:
    both = LogConfig(segment_bytes=300, cleanup_policy="compact,delete", retention_ms=1000)
    node.add(A, 12, both)
    node.disk.clock.advance(10_000)
    one = compactor(node)
    turn(one, node)
    assert node.retained == [A]
    (status,) = one.retention()
    assert status.total_segments == status.segments > 0
    assert node.partitions[A].log.log_start_offset == 12


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NotLeader("a-0", "it moves"), DiskFull("/logs/a-0")])
def test_an_error_that_passes_is_told_and_the_log_is_taken_later(
    node: Node, error: Exception
) -> None:
    node.add(A, 12)
    node.errors[A] = error
    one = compactor(node)
    assert not turn(one, node)
    assert (told(one, A).problem, told(one, A).uncleanable) == (str(error), None)
    node.errors.clear()
    assert turn(one, node)
    assert told(one, A).problem is None


def test_a_log_that_cannot_be_compacted_is_left_alone_until_it_is_gone_and_the_others_go_on(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.add(A, 12)
    node.add(B, 10)
    node.disk.fs.write_file(
        "/logs/a-0/00000000000000000000.log",
        flip(90)(node.disk.fs.read_file("/logs/a-0/00000000000000000000.log")),
    )
    one = compactor(node)
    with caplog.at_level("WARNING"):
        turns = [turn(one, node) for _ in range(4)]
    assert sorted(turns) == [False, False, False, True]
    assert "corrupt record batch" in (told(one, A).uncleanable or "")
    assert node.written == [(B, TOPIC_ID, 10)]
    assert len(caplog.records) == 1
    left_alone = frozenset({LogId(partition=A, topic_id=TOPIC_ID)})
    del node.partitions[A]
    one.order(replace(node.order(), others=left_alone))
    assert told(one, A).uncleanable is not None, "it is only left out for a moment"
    turn(one, node)
    assert [status.partition for status in one.status()] == ["b-0"]


def test_the_round_over_a_log_that_no_order_names_any_more_is_given_up(node: Node) -> None:
    node.add(A, 12)
    one, before = compactor(node), node.offsets(A)
    node.before_view = lambda: one.order(upkeep_order([]))
    assert not turn(one, node)
    assert node.offsets(A) == before
    assert node.written == []


def test_a_mistake_of_ours_gives_one_log_up_not_the_thread(node: Node) -> None:
    node.add(A, 12)
    node.errors[A] = ValueError("a mistake")
    one = compactor(node)
    assert not turn(one, node)
    assert told(one, A).uncleanable == "a mistake"


def damage(node: Node, name: TopicPartition) -> bytes:
    """Flip a bit of the log; returns what the file was."""
    path = f"/logs/{name}/00000000000000000000.log"
    content = node.disk.fs.read_file(path)
    node.disk.fs.write_file(path, flip(90)(content))
    return content


def test_a_topic_that_is_made_again_inherits_no_verdict(node: Node) -> None:
    node.add(A, 12)
    content = damage(node, A)
    one = compactor(node)
    assert not turn(one, node)
    assert told(one, A).uncleanable is not None
    node.topic_ids[A] = "another"
    node.disk.fs.write_file("/logs/a-0/00000000000000000000.log", content)
    assert turn(one, node), "between two turns"
    assert told(one, A).uncleanable is None
    assert node.written == [(A, "another", 12)]


def test_a_round_of_a_topic_that_is_gone_says_nothing_of_its_successor(node: Node) -> None:
    node.add(A, 12)
    damage(node, A)
    one = compactor(node)

    def made_again() -> None:
        node.before_view = lambda: None
        node.topic_ids[A] = "another"
        assert not turn(one, node), "the round of the old topic still runs"

    node.before_view = made_again
    assert not turn(one, node)
    assert one.status() == []
    assert node.written == []


def test_a_round_that_its_disk_ends_is_tried_later_each_time(node: Node) -> None:
    node.add(A, 12)
    one = compactor(node)
    tried: list[int] = []
    began_ms = node.disk.clock.now_ms()

    def unreadable() -> None:
        tried.append((node.disk.clock.now_ms() - began_ms) // 1000)
        raise StorageError("/logs/a-0/00000000000000000000.log", "Input/output error")

    node.before_view = unreadable
    for _ in range(1000):
        assert not turn(one, node)
        assert "Input/output error" in (told(one, A).problem or ""), "which is told all the while"
        node.disk.clock.advance(1000)
    assert tried == [0, 15, 45, 105, 225, 465, 765]
    node.before_view = lambda: None
    node.disk.clock.advance(LONGEST_WAIT_MS)
    assert turn(one, node)
    assert told(one, A).problem is None
    node.write(A, 12)
    node.before_view = unreadable
    tried.clear()
    for _ in range(16):
        turn(one, node)
        node.disk.clock.advance(1000)
    assert len(tried) == 2, "what went well once waits no longer than at first"


def test_a_clock_that_is_set_back_holds_up_no_round(node: Node) -> None:
    node.add(A, 12)
    one = compactor(node)

    def unreadable() -> None:
        raise StorageError("/logs/a-0/00000000000000000000.log", "Input/output error")

    node.before_view = unreadable
    assert not turn(one, node)
    node.before_view = lambda: None
    node.disk.clock.advance(-86_400_000)
    assert turn(one, node)


# -- given up --------------------------------------------------------------------------------------


def test_a_policy_that_loses_compact_meanwhile_has_every_swap_refused(node: Node) -> None:
    partition = node.add(A, 12)
    one = compactor(node)
    node.before_view = lambda: partition.reconfigure(LogConfig(segment_bytes=300), 1)
    before = node.offsets(A)
    assert not turn(one, node)
    assert "does not contain compact any more" in (told(one, A).problem or "")
    assert (node.written, node.offsets(A)) == ([], before)
    with pytest.raises(CleaningAborted):
        partition.replace_segments([], partition.cleaning_view().round_id)


# -- two of them, and how fast ---------------------------------------------------------------------


def test_two_compactions_never_write_to_one_log_dir_at_a_time(node: Node) -> None:
    """A process that is thought dead holds its lock until it is."""
    node.add(A, 12)
    zombie, successor = compactor(node), compactor(node)
    tried: list[bool] = []

    def meet() -> None:
        node.before_view = lambda: None
        operations = len(node.disk.fs.log)
        tried.append(turn(successor, node))
        assert [line for line in node.disk.fs.log[operations:] if ".cleaned" in line] == []

    node.before_view = meet
    assert turn(zombie, node)
    assert tried == [False]
    assert "is locked by another process" in (told(successor, A).problem or "")
    node.write(A, 4)
    assert turn(successor, node), "the lock went with the round"


def test_rounds_of_one_process_share_the_lock_of_their_log_dir() -> None:
    held: list[str] = []

    class Held:
        def __init__(self, path: str) -> None:
            if path in held:
                raise LogLocked(path)
            self._path = path
            held.append(path)

        def release(self) -> None:
            held.remove(self._path)

    def take(path: str) -> Lock:
        return Held(path)

    locks = SharedLocks(take)
    with locks.held("/x"):
        with locks.held("/x"), locks.held("/y"):
            assert held == ["/x", "/y"]
        assert held == ["/x"]
    assert held == []


def test_a_rate_that_is_set_makes_rounds_sleep(node: Node) -> None:
    node.add(A, 12)
    slept: list[float] = []
    limited = {"log_cleaner_io_max_bytes_per_second": 1.0}
    seconds = iter(range(1000))
    one = compactor(node, config=limited, sleep=slept.append, now=lambda: float(next(seconds)))
    assert turn(one, node)
    assert sum(slept) > 100, "hundreds of bytes at one a second"


def test_a_checkpoint_that_a_full_disk_refuses_keeps_no_retention_from_making_room(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.add(
        A, 12, LogConfig(segment_bytes=300, cleanup_policy="compact,delete", retention_ms=1000)
    )
    node.disk.clock.advance(10_000)

    def full(*_: object) -> None:
        raise DiskFull("/disk/cleaner-offset-checkpoint")

    monkeypatch.setattr(node, "record_cleaner_offset", full)
    one = compactor(node)
    turn(one, node)
    assert one.retention()[0].total_segments > 0
    assert "cleaner-offset-checkpoint" in str(told(one, A).problem)


def test_before_the_first_round_no_time_of_it_is_told(node: Node) -> None:
    """0 would be 56 years ago."""
    node.add(A, 12)
    one = compactor(node)
    assert "raylog_compaction_last_round_seconds" not in one.numbers()
    turn(one, node)
    assert one.numbers()["raylog_compaction_last_round_seconds"] == T0 / 1000


def test_the_retention_of_compacted_logs_is_counted_as_that_of_others_is(node: Node) -> None:
    both = LogConfig(segment_bytes=300, cleanup_policy="compact,delete", retention_ms=1000)
    node.add(A, 12, both)
    node.disk.clock.advance(10_000)
    one = compactor(node)
    turn(one, node)
    (status,) = one.retention()
    numbers = one.numbers()
    assert numbers["raylog_retention_segments_deleted"] == status.total_segments > 0
    assert numbers["raylog_retention_bytes_deleted"] == status.total_bytes > 0


def test_what_rounds_did_is_told_as_metrics(node: Node) -> None:
    node.add(A, 12)
    one = compactor(node)
    made: dict[str, float] = {}

    class Made:
        def __init__(self, metric: Metric) -> None:
            self._name = metric.name

        def inc(self, value: float, _: object) -> None:
            made[self._name] = made.get(self._name, 0) + value

        def set(self, value: float, _: object) -> None:
            made[self._name] = value

    exporter = Exporter(Made, node="n1")
    for _ in range(3):
        turn(one, node)
        exporter.numbers(one.numbers())
    assert (made["raylog_compaction_rounds"], made["raylog_compaction_records_dropped"]) == (1, 10)
    assert made["raylog_compaction_bytes_read"] > made["raylog_compaction_bytes_written"] > 0
    assert (made["raylog_compaction_max_dirty_ratio"], made["raylog_compaction_uncleanable"]) == (
        0,
        0,
    )
    assert made["raylog_compaction_last_round_seconds"] == T0 / 1000


def test_without_an_order_nothing_is_touched_and_an_order_replaces_the_one_before(
    node: Node,
) -> None:
    node.add(A, 12)
    node.add(B, 12)
    one = compactor(node)
    assert not one.turn()
    assert (node.written, node.retained) == ([], [])
    one.order(upkeep_order([ordered_log(A, CONFIG, TOPIC_ID)]))
    assert one.turn()
    assert not one.turn()
    assert {partition for partition, _, _ in node.written} == {A}
    assert set(node.retained) == {A}
    one.order(upkeep_order([ordered_log(B, CONFIG, TOPIC_ID)]))
    node.retained.clear()
    assert one.turn()
    assert set(node.retained) == {B}


def test_a_log_that_was_left_out_for_a_moment_keeps_its_verdict(node: Node) -> None:
    node.add(A, 12)
    damage(node, A)
    one = compactor(node)
    assert not turn(one, node)
    one.order(upkeep_order([]))
    assert not turn(one, node)
    assert told(one, A).uncleanable is not None
