"""The nemesis carries its schedule out: what it takes away comes back."""

import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tests.harness.nodes import HEAD, ActorProcess, Nodes, send_signal
from tests.soak.cluster import DIRS_A_NODE, OTHERS
from tests.soak.disks import SmallDisk
from tests.soak.history import DRAIN, START, STOP, UNDRAIN, Fault, Writer, read
from tests.soak.mending import Mender
from tests.soak.nemesis import Nemesis
from tests.soak.node_orders import NodeOrders
from tests.soak.old_metadata import OldMetadata
from tests.soak.outage import Outage
from tests.soak.schedule import KILL_HEAD, Planned
from tests.soak.workers import Workers
from tests.unit.soak import test_node_orders
from tests.unit.soak.test_mending import Broker


class FakeNodes:
    """Nodes by name, and what was done to them."""

    def __init__(self, disks: Path) -> None:
        self.names = list(OTHERS)
        self.ended: set[str] = set()
        self.done: list[str] = []
        self.alive: list[ActorProcess] = []
        self._disks = disks
        for name in (HEAD, *self.names):
            for log_dir in self.log_dirs(name):
                Path(log_dir).mkdir(parents=True)

    def log_dirs(self, name: str) -> list[str]:
        return [str(self._disks / name / dir) for dir in DIRS_A_NODE]

    def node_id(self, name: str) -> str | None:
        return f"id of {name}" if name in (HEAD, *self.names) else None

    def actors(self) -> list[ActorProcess]:
        return self.alive

    def has_ended(self, name: str) -> bool:
        return name in self.ended

    def kill(self, name: str) -> None:
        self.done.append(f"kill {name}")
        self.names.remove(name)

    def forget(self, name: str) -> None:
        self.done.append(f"forget {name}")
        self.names.remove(name)
        self.ended.discard(name)

    def add(self, name: str) -> None:
        self.done.append(f"add {name}")
        self.names.append(name)


class FakeDisk:
    def __init__(self, done: list[str]) -> None:
        self._done = done

    def fill(self) -> None:
        self._done.append("fill")

    def make_room(self) -> None:
        self._done.append("make room")


class FakeOutage:
    """All nodes are lost, and come back."""

    def __init__(self, done: list[str]) -> None:
        self._done = done

    def strike(
        self,
        chance: float,
        for_s: float,
        *,
        can_change: bool,
        returns: Callable[[], None],
        meanwhile: Callable[[], None],
    ) -> str:
        self._done.append("lose all")
        returns()
        meanwhile()
        return "a change" if can_change else "nothing"


class Stage:
    """A nemesis, and all that it can strike."""

    def __init__(self, folder: Path, *planned: Planned, can_fill: bool = True) -> None:
        self.folder, self.nodes = folder, FakeNodes(folder / "disks")
        self.broker = Broker()
        self.mender = Mender(self.broker, lambda _: None)
        self.operator = test_node_orders.Broker()
        self.orders = NodeOrders(
            self.operator, self.nodes.node_id, Writer(folder / "orders.history")
        )
        self.are_in_sync = True
        disks = {"two": cast(SmallDisk, FakeDisk(self.nodes.done))} if can_fill else {}
        self.nemesis = Nemesis(
            cast(Nodes, self.nodes),
            cast(Workers, None),
            list(planned),
            Writer(folder / "w0.history"),
            small_disks=disks,
            mender=self.mender,
            orders=self.orders,
            old_metadata=OldMetadata(folder / "kept"),
            are_in_sync=lambda: self.are_in_sync,
            have_all_copies_all=lambda: True,
            outage=cast(Outage, FakeOutage(self.nodes.done)),
        )

    def obey(self) -> list[str]:
        """What the operator does of what he was told."""
        while self.orders.waiting:
            assert self.orders.obey()
        return self.operator.asked

    def run(self) -> list[tuple[str, str]]:
        """What the history tells of it."""
        self.nemesis.run(threading.Event(), lambda: None)
        told = read(self.folder)
        return [(fault.kind, fault.target) for fault in told if isinstance(fault, Fault)]


def test_a_node_that_was_killed_comes_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Planned(0, "kill-node", 0.6, 60))
    assert stage.run() == [("kill-node", "two"), ("return", "two")]
    assert stage.nodes.done == ["kill two", "add two"]


def test_a_node_whose_raylet_has_ended_by_itself_is_started_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.nodes.ended.add("one")
    stage.nemesis.revive()
    stage.nemesis.revive()
    assert stage.nodes.done == ["forget one", "add one"]


ALL_RETURN = [("return", name) for name in (HEAD, *OTHERS)]


def test_when_the_head_is_lost_all_nodes_return(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Planned(0, KILL_HEAD, 0.5, 0))
    assert stage.run() == [*ALL_RETURN, (KILL_HEAD, "head, behind a change")]
    assert stage.nodes.done == ["lose all"]


def test_a_node_that_was_away_when_the_head_is_lost_is_not_started_twice(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Planned(0, "kill-node", 0.6, 60), Planned(0, KILL_HEAD, 0.5, 0))
    assert stage.run()[0] == ("kill-node", "two")
    assert stage.nodes.done == ["kill two", "lose all"]


def test_a_disk_that_is_full_when_the_head_is_lost_has_room_at_the_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Planned(0, "fill-disk", 0.9, 60), Planned(0, KILL_HEAD, 0.5, 0))
    stage.run()
    assert stage.nodes.done == ["fill", "lose all", "make room"]


def test_nothing_is_changed_before_the_loss_of_the_head_while_the_controller_stands_still(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, Planned(0, "pause-controller", 0.5, 60), Planned(0, KILL_HEAD, 0.5, 0))
    with Controller(stage) as controller:
        told = stage.run()
        send_signal(controller.process.pid, signal.SIGCONT)
    assert told[-1] == (KILL_HEAD, "head, behind nothing")
    assert "resume" not in dict(told), "its process has ended, and its pid may be another one's"


def test_a_disk_that_is_full_has_room_at_the_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Planned(0, "fill-disk", 0.9, 60))
    assert stage.run() == [("fill-disk", "two"), ("make-room", "two")]
    assert stage.nodes.done == ["fill", "make room"]


def test_a_log_dir_that_is_lost_is_put_back_and_used_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Planned(0, "lose-disk", 0.3, 60))
    path = tmp_path / "disks" / "one" / "b"
    (path / "file").write_bytes(b"contents")
    assert stage.run() == [("lose-disk", "one/b"), ("put-back", "one/b")]
    assert (path / "file").read_bytes() == b"contents"
    stage.broker.offline.add(str(path))
    stage.mender.look()
    assert stage.broker.asked == [str(path)]


def test_a_fault_that_meets_nobody_is_counted(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path,
        *(Planned(0, kind, 0.5, 0) for kind in ("kill-log", "kill-pair", "fill-disk")),
        can_fill=False,
    )
    assert stage.run() == []
    assert stage.nemesis.missed == {"kill-log": 1, "kill-pair": 1, "fill-disk": 1}


def test_a_node_that_is_away_is_not_struck_again(tmp_path: Path) -> None:
    strikes = [Planned(0, kind, 0.1, 60) for kind in ("kill-node", "pause-raylet", "kill-node")]
    stage = Stage(tmp_path, *strikes)
    stage.run()
    assert stage.nodes.done == ["kill one", "add one"]
    assert stage.nemesis.missed == {"pause-raylet": 1, "kill-node": 1}


@pytest.mark.parametrize(
    ("kind", "pick", "order", "undo", "name"),
    [
        ("stop-node", 0.1, STOP, START, HEAD),
        ("stop-node", 0.5, STOP, START, "one"),
        ("drain-node", 0.9, DRAIN, UNDRAIN, "two"),
    ],
)
def test_what_is_ordered_of_a_node_is_undone(
    tmp_path: Path, kind: str, pick: float, order: str, undo: str, name: str
) -> None:
    stage = Stage(tmp_path, Planned(0, kind, pick, 60))
    assert stage.run() == [(kind, name), (f"{undo}-node", name)]
    assert stage.obey() == [f"{order} id of {name}", f"{undo} id of {name}"]


def test_while_an_order_has_not_taken_effect_no_node_is_struck(tmp_path: Path) -> None:
    kinds = ("drain-node", "stop-node", "kill-node", "pause-raylet")
    stage = Stage(tmp_path, *(Planned(0, kind, 0.9, 60) for kind in kinds))
    assert stage.run() == [("drain-node", "two"), ("undrain-node", "two")]
    assert stage.nemesis.missed == dict.fromkeys(kinds[1:], 1)


def test_while_a_node_is_away_no_other_one_is_stopped(tmp_path: Path) -> None:
    strikes = [Planned(0, "kill-node", 0.1, 60), Planned(0, "stop-node", 0.9, 60)]
    stage = Stage(tmp_path, *strikes)
    stage.run()
    assert stage.obey() == []
    assert stage.nemesis.missed == {"stop-node": 1}


class Controller:
    """A process that can be stopped and killed, and metadata on the disk of the head."""

    def __init__(self, stage: Stage) -> None:
        self.process = subprocess.Popen(["sleep", "600"])
        self.metadata = Path(stage.nodes.log_dirs(HEAD)[0]) / "__cluster_metadata-0"
        self.metadata.mkdir()
        stage.nodes.alive = [ActorProcess(HEAD, self.process.pid, "Controller")]

    def __enter__(self) -> "Controller":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()


def test_the_metadata_is_that_of_before_and_the_controller_is_killed(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Planned(0, "old-metadata", 0.5, 0))
    with Controller(stage) as controller:
        (controller.metadata / "old").touch()
        stage.nemesis.keep_metadata()
        (controller.metadata / "new").touch()
        ((kind, target),) = stage.run()
        assert (kind, controller.process.wait(60)) == ("old-metadata", -signal.SIGKILL)
        assert target.startswith(f"{controller.metadata}, Controller ")
        assert [path.name for path in controller.metadata.iterdir()] == ["old"]


def test_a_copy_that_was_not_put_in_place_yet_is_kept_for_later(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    with Controller(stage) as controller:
        (controller.metadata / "old").touch()
        stage.nemesis.keep_metadata()
        (controller.metadata / "new").touch()
        stage.nemesis.keep_metadata()
        assert [path.name for path in (tmp_path / "kept").iterdir()] == ["old"]


@pytest.mark.parametrize("kind", ["kill-node", "stop-node", "lose-disk"])
def test_while_anything_is_away_the_metadata_stays(tmp_path: Path, kind: str) -> None:
    stage = Stage(tmp_path, Planned(0, kind, 0.5, 60), Planned(0, "old-metadata", 0.5, 0))
    with Controller(stage) as controller:
        stage.run()
        assert stage.nemesis.missed == {"old-metadata": 1}
        assert controller.process.poll() is None


@pytest.mark.parametrize(("pick", "is_killed"), [(0.2, False), (0.8, True)])
def test_the_log_dir_of_the_metadata_is_lost_and_put_back(
    tmp_path: Path, pick: float, is_killed: bool
) -> None:
    stage = Stage(tmp_path, Planned(0, "lose-metadata", pick, 60))
    with Controller(stage) as controller:
        (controller.metadata / "file").touch()
        (_, target), returned = stage.run()
        assert returned == ("put-back", "head/a")
        assert target.startswith("head/a")
        assert (controller.metadata / "file").exists()
        if is_killed:
            assert controller.process.wait(60) == -signal.SIGKILL
        else:
            assert controller.process.poll() is None


@pytest.mark.parametrize("kind", ["kill-node", "stop-node", "lose-disk", "pause-manager"])
def test_while_anything_is_away_the_metadata_is_not_lost(tmp_path: Path, kind: str) -> None:
    stage = Stage(tmp_path, Planned(0, kind, 0.5, 60), Planned(0, "lose-metadata", 0.5, 0))
    with Controller(stage) as controller:
        stage.nodes.alive.append(ActorProcess(HEAD, controller.process.pid, "LogManager"))
        stage.run()
        assert stage.nemesis.missed == {"lose-metadata": 1}


def test_the_last_copy_of_the_metadata_is_not_lost(tmp_path: Path) -> None:
    stage = Stage(tmp_path, Planned(0, "lose-metadata", 0.5, 60))
    stage.are_in_sync = False
    with Controller(stage) as controller:
        stage.run()
        assert stage.nemesis.missed == {"lose-metadata": 1}
        assert controller.process.poll() is None
