"""A broker one of whose disks is really full: it is read, restarted, made room on, and moved away
from."""

import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import ray

import raylog
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.broker import Broker
from raylog.storage.errors import DiskFull
from raylog.storage.names import TopicPartition
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.waiting import wait_for
from tests.harness.removing import delete_old_segments

ORDERS = TopicPartition("orders", 0)
VALUE = b"x" * 80_000  # the disk is full in the middle of a segment
DEADLINE_S = 60.0


class Cluster:
    """A broker over a roomy dir, which has the metadata, and one of 4 MB with the topic "orders" in
    it."""

    def __init__(self, roomy: Path, small: Path) -> None:
        self.roomy, self.small = roomy, small
        (small / "reserve").write_bytes(b"x" * (1 << 20))
        self.broker: Broker = raylog.start(
            [str(roomy / "log"), str(small / "log")], namespace=f"full-{uuid.uuid4().hex[:8]}"
        )
        self.broker.create_topic("orders", 1, {"segment.bytes": 1 << 20, "file.delete.delay.ms": 0})
        if not self.folder().is_relative_to(small):
            self.broker.move_partition("orders", 0, str(small / "log"))
        assert self.folder().is_relative_to(small)

    def folder(self) -> Path:
        return Path(str(self.broker.describe_topic("orders").partitions[0].folder))

    def append(self) -> int:
        """One record; returns its offset. Straight to the actor: a producer would try again."""
        handle = find(log_actor_name(ORDERS), self.broker.namespace)
        assert handle is not None
        try:
            records = bytes(encode_records([(int(time.time() * 1000), None, VALUE, ())]))
            answer = ray.get(handle.append.remote(records), timeout=60)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        return int(answer.base_offset)

    def fill(self) -> int:
        """Until nothing at all fits any more; returns the log's end."""
        end = 0
        with suppress(DiskFull):
            while True:
                end = self.append() + 1
        self.take_the_rest()
        return end

    def take_the_rest(self) -> None:
        """Not a page is left on the small disk."""
        with (self.small / "ballast").open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"x" * 4096):
                pass

    def make_room(self) -> None:
        for name in ("ballast", "reserve"):
            (self.small / name).unlink()

    def values(self) -> list[bytes | None]:
        with self.broker.consumer("orders", from_="earliest", to="latest") as consumer:
            return [record.value for record in consumer]

    def pid(self) -> int:
        handle = find(log_actor_name(ORDERS), self.broker.namespace)
        assert handle is not None
        return int(ray.get(handle.status.remote(), timeout=60).pid)

    def kill(self) -> None:
        """SIGKILL to the partition's process; returns when the next one serves."""
        before = self.pid()
        psutil.Process(before).kill()

        def is_another() -> bool:
            try:
                return self.pid() != before
            except ray.exceptions.RayError:
                return False

        wait_for(is_another, DEADLINE_S, "another process serves the partition")


@pytest.fixture
def cluster(local_ray: None, tmp_path: Path) -> Iterator[Cluster]:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        made = Cluster(tmp_path, small)
        yield made
        made.broker.stop()
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_a_partition_on_a_full_disk_is_read_restarted_and_written_to_when_there_is_room(
    cluster: Cluster,
) -> None:
    end = cluster.fill()
    cluster.kill()
    assert cluster.values() == [VALUE] * end
    with pytest.raises(DiskFull):
        cluster.append()
    cluster.make_room()
    assert cluster.append() == end
    cluster.kill()
    assert cluster.values() == [VALUE] * (end + 1)


def test_retention_makes_room_on_a_full_disk(cluster: Cluster) -> None:
    end = cluster.fill()
    cluster.kill()
    assert cluster.broker.delete_records("orders", 0) == end
    assert delete_old_segments(cluster.broker.namespace, "orders").segments > 1

    def has_room() -> bool:
        try:
            return cluster.append() == end
        except DiskFull:
            return False

    wait_for(has_room, DEADLINE_S, "the segments are removed")


def test_a_partition_moves_away_from_a_full_disk(cluster: Cluster) -> None:
    end = cluster.fill()
    moved = cluster.broker.move_partition("orders", 0, str(cluster.roomy / "log"))
    assert Path(str(moved.folder)).is_relative_to(cluster.roomy / "log")
    assert cluster.append() == end
    assert cluster.values() == [VALUE] * (end + 1)


def test_a_move_to_a_disk_that_is_full_leaves_nothing_in_the_way_of_the_next(
    cluster: Cluster,
) -> None:
    cluster.append()
    cluster.broker.move_partition("orders", 0, str(cluster.roomy / "log"))
    cluster.take_the_rest()
    with pytest.raises(raylog.RaylogError):
        cluster.broker.move_partition("orders", 0, str(cluster.small / "log"))
    assert cluster.append() == 1
    cluster.make_room()
    cluster.broker.move_partition("orders", 0, str(cluster.small / "log"))
    assert cluster.values() == [VALUE] * 2
