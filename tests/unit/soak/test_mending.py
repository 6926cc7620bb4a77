"""A log dir that was put back is used again by command, until it is in use."""

from pathlib import Path

from raylog.actors.errors import NotController
from raylog.actors.messages import LogDirStatus
from raylog.cluster.controller.log_dir_states import LogDirDescription
from raylog.storage.errors import LogDirOffline, RaylogError
from tests.soak.mending import Mender


class Broker:
    """It says of each dir what it is told to, and takes the commands down."""

    def __init__(self, *paths: Path) -> None:
        self.offline = {str(path) for path in paths}
        self.asked: list[str] = []
        self.error: RaylogError | None = None

    def log_dirs(self) -> list[LogDirStatus]:
        return [LogDirStatus.offline("node", path, "id", "gone") for path in sorted(self.offline)]

    def log_dir_online(self, log_dir: str, *, timeout_s: float) -> list[LogDirDescription]:
        self.asked.append(log_dir)
        if self.error is not None:
            raise self.error
        self.offline.discard(log_dir)
        return [LogDirDescription(log_dir, "id", "node", "returning", log_dir)]


def mender(broker: Broker, restarted: list[Path]) -> Mender:
    return Mender(broker, restarted.append)


def test_only_what_was_put_back_is_used_again(tmp_path: Path) -> None:
    lost, other = tmp_path / "a", tmp_path / "b"
    lost.mkdir()
    other.mkdir()
    broker = Broker(lost, other)
    mending = mender(broker, [])
    mending.look()
    assert broker.asked == []
    mending.watch(lost)
    mending.look()
    mending.look()
    assert broker.asked == [str(lost)]
    assert broker.offline == {str(other)}


def test_a_dir_that_is_away_once_more_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"in its place")
    broker = Broker(tmp_path / "a")
    mending = mender(broker, [])
    mending.watch(tmp_path / "a")
    mending.look()
    assert broker.asked == []


def test_where_its_node_began_without_it_the_node_begins_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.error = LogDirOffline(str(tmp_path), "this is a file")
    restarted: list[Path] = []
    mending = mender(broker, restarted)
    mending.watch(tmp_path)
    mending.look()
    assert restarted == [tmp_path]


def test_without_a_controller_it_is_asked_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.error = NotController("the cluster", "it begins")
    restarted: list[Path] = []
    mending = mender(broker, restarted)
    mending.watch(tmp_path)
    mending.look()
    broker.error = None
    mending.look()
    assert broker.asked == [str(tmp_path)] * 2
    assert (restarted, broker.offline) == ([], set())
