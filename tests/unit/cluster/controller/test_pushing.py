"""Lines to the copies of the metadata: one that hangs holds up only itself."""

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace

import pytest

from raylog.actors.control import MetadataKept, MetadataPush
from raylog.actors.errors import NotLeader
from raylog.actors.levels import CHAINED_LEVEL, LEVELS
from raylog.actors.metadata_snapshot import snapshot_ids
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.events import Kept, PushFailed, SnapshotDamaged, Whether
from raylog.cluster.controller.instructions import AskWhether, Push
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.pushing import LACKS_SNAPSHOT, PUSH_BYTES, Pushing
from raylog.cluster.controller.records import LevelRecord, decode
from raylog.cluster.controller.snapshots import snapshot_of
from raylog.storage.clock import SystemClock
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.testing.waiting import wait_for
from tests.harness.metadata_pushes import began, topic

CLUSTER = "cluster-1"


def push(node: str = "b", token: int = 1, *, life: str = "life", base: int = 0, end: int) -> Push:
    return Push(token=token, node=node, life=life, epoch=3, base=base, digest=b"d", end=end)


class Stage:
    """A Controller's log, and nodes that take what they get, or hang."""

    def __init__(self) -> None:
        self.fs = fs = MemoryFileSystem()
        fs.make_dir("/disk")
        self.log = MetadataLog(fs, SystemClock(), "/disk/log", new_cluster=CLUSTER)
        self.gates: dict[str, Future[None]] = {}
        self.pushed: list[tuple[str, MetadataPush]] = []
        self.entered: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.events: list[Kept | PushFailed | SnapshotDamaged | Whether] = []
        self.is_controller: bool | Exception = True
        self.asked: list[AskWhether] = []
        self.pushing = Pushing(CLUSTER, self.log, self, self._is_it, self.events.append)

    def _is_it(self, question: AskWhether) -> bool:
        self.asked.append(question)
        if isinstance(self.is_controller, Exception):
            raise self.is_controller
        return self.is_controller

    def push(self, node: str, push: MetadataPush, given_up: "Future[None]") -> MetadataKept | None:
        self.entered.append(node)
        gate = self.gates.get(node)
        if gate is not None:
            wait([gate, given_up], return_when=FIRST_COMPLETED)
        if given_up.done():
            return None
        if node in self.errors:
            raise self.errors[node]
        self.pushed.append((node, push))
        return MetadataKept(node=node, life="life", end=push.base + len(push.batches))

    def heard(self) -> list[tuple[str, int]]:
        return [(e.node, e.token) for e in self.events if isinstance(e, Kept | PushFailed)]

    def damages_snapshot(self) -> str:
        """The disk damages the newest snapshot, of all records; returns its file."""
        self.log.append([LevelRecord(level=CHAINED_LEVEL, release="1.0.0")])
        desired, history = Desired(), self.log.history()
        for value in self.log.values():
            desired.apply(decode(value, LEVELS))
        self.log.save(snapshot_of(desired, history.point()))
        (which,) = snapshot_ids(self.fs.list_dir(self.log.folder))
        path = f"{self.log.folder}/{which.file_name}"
        self.fs.write_file(path, self.fs.read_file(path)[:-1])
        return path


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    for gate in made.gates.values():
        if not gate.done():
            gate.set_result(None)
    made.pushing.stop(10)
    made.log.close()


def test_a_push_carries_the_batches_before_its_end(stage: Stage) -> None:
    stage.log.append([began(1)])
    stage.log.append([topic("t"), topic("u")])
    stage.log.append([topic("v")])
    stage.pushing.push(push(base=2, end=5))
    wait_for(lambda: stage.events)
    ((_, message),) = stage.pushed
    assert (message.cluster_id, message.controller_epoch, message.base) == (CLUSTER, 3, 2)
    assert message.digest == b"d"
    assert message.batches == stage.log.batches(2, 5, PUSH_BYTES)
    assert len(message.batches) == 2, "two decisions"
    assert stage.heard() == [("b", 1)]


def test_a_push_without_records_only_asks(stage: Stage) -> None:
    stage.pushing.push(push(base=1, end=1))
    wait_for(lambda: stage.events)
    assert stage.pushed[0][1].batches == ()


def test_what_is_large_goes_in_pieces(stage: Stage) -> None:
    name = "t" * 300_000
    for _ in range(8):
        stage.log.append([topic(name)])
    stage.pushing.push(push(base=0, end=9))
    wait_for(lambda: stage.events)
    sizes = [len(batch) for batch in stage.pushed[0][1].batches]
    assert 1 < len(sizes) < 8
    assert sum(sizes) <= PUSH_BYTES


def test_one_that_hangs_holds_up_no_other(stage: Stage) -> None:
    stage.gates["b"] = Future()
    stage.pushing.push(push("b", 1, end=1))
    stage.pushing.push(push("c", 2, end=1))
    wait_for(lambda: stage.heard() == [("c", 2)])
    stage.gates["b"].set_result(None)
    wait_for(lambda: stage.heard() == [("c", 2), ("b", 1)])


def test_a_push_to_the_next_life_does_not_wait_for_the_answer_of_the_one_before(
    stage: Stage,
) -> None:
    stage.gates["b"] = Future()
    stage.pushing.push(push("b", 1, end=1))
    wait_for(lambda: stage.entered == ["b"])
    stage.pushing.push(push("b", 2, life="next", end=1))
    wait_for(lambda: stage.entered == ["b", "b"])
    stage.gates["b"].set_result(None)
    wait_for(lambda: stage.heard() == [("b", 2)])


def test_a_push_that_fails_is_told_with_its_reason(stage: Stage) -> None:
    stage.errors["b"] = NotLeader("LogManager:b", "it does not run")
    stage.errors["c"] = ValueError("a mistake of ours")
    stage.pushing.push(push("b", 1, end=1))
    stage.pushing.push(push("c", 2, end=1))
    wait_for(lambda: len(stage.events) == 2)
    whys = {event.node: event.why for event in stage.events if isinstance(event, PushFailed)}
    assert "it does not run" in whys["b"]
    assert "a mistake of ours" in whys["c"]


def test_a_damaged_snapshot_is_told_and_not_sent_to_a_copy_that_goes_on_without_it(
    stage: Stage,
) -> None:
    path = stage.damages_snapshot()
    end = stage.log.end
    stage.log.append([topic("t")])
    stage.pushing.push(push(base=end, end=end + 1))
    wait_for(lambda: len(stage.events) == 2)
    found, kept = stage.events
    assert isinstance(found, SnapshotDamaged)
    assert found.end == end
    assert path in found.why
    assert isinstance(kept, Kept)
    ((_, message),) = stage.pushed
    assert (message.snapshot, len(message.batches)) == (b"", 1)


def test_a_copy_that_needs_the_damaged_snapshot_gets_nothing(stage: Stage) -> None:
    stage.damages_snapshot()
    lacks = replace(push(base=1, end=stage.log.end), digest=b"")
    stage.pushing.push(lacks)
    wait_for(lambda: len(stage.events) == 2)
    found, failed = stage.events
    assert isinstance(found, SnapshotDamaged)
    assert isinstance(failed, PushFailed)
    assert failed.why == LACKS_SNAPSHOT
    assert stage.entered == []


def test_nothing_is_pushed_to_nodes_that_are_gone_or_after_the_end(stage: Stage) -> None:
    stage.gates["b"] = Future()
    stage.pushing.push(push("b", 1, end=1))
    wait_for(lambda: stage.entered == ["b"])
    stage.pushing.keep(["c"])
    stage.pushing.stop(10)
    stage.pushing.push(push("c", 2, end=1))
    assert stage.events == []
    assert stage.entered == ["b"]


def test_what_ray_says_of_the_controller_is_told(stage: Stage) -> None:
    question = AskWhether(leaves_out=True)
    for said in (True, False, RuntimeError("the GCS is away")):
        stage.events.clear()
        stage.is_controller = said
        stage.pushing.ask_whether(question)
        wait_for(lambda: stage.events)
        wanted = None if isinstance(said, Exception) else said
        assert stage.events == [Whether(is_still=wanted)]
    assert stage.asked == [question] * 3
