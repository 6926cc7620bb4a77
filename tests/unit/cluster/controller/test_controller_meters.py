"""What a Controller tells Prometheus: what no node can tell, since it may be away."""

from typing import Any

from raylog.actors.control import DirReport, Report
from raylog.actors.errors import OlderMetadata
from raylog.actors.metrics import BY_NAME
from raylog.cluster.controller.describe import UPKEEP_PATIENCE_MS, Snapshot
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.meters import numbers
from raylog.cluster.controller.observed import SUSPECT_MS, Observed
from raylog.cluster.controller.records import (
    ControllerRecord,
    DirRecord,
    PartitionRecord,
    TopicRecord,
)
from raylog.storage.errors import DiskFull, StorageError
from tests.harness.control_nodes import entry, log_id

NOW_MS = 1_000_000
SERVING, OPENING, AWAY, REMOVING = (log_id("t", number) for number in range(4))


def desired() -> Desired:
    """Three partitions in the log dir of node a and one in that of node b, at epoch 7."""
    made = Desired()
    made.apply(ControllerRecord(epoch=7, node="a"))
    made.apply(TopicRecord(name="t", topic_id="id-t", config={}, version=0))
    for node in ("a", "b"):
        path, id = f"/{node}", f"dir-{node}"
        made.apply(DirRecord(directory_id=id, node=node, path=path, state="online"))
    for number, log in enumerate((SERVING, OPENING, AWAY, REMOVING)):
        made.apply(
            PartitionRecord(
                log=log,
                state="removing" if log == REMOVING else "online",
                node="b" if log == AWAY else "a",
                directory="dir-b" if log == AWAY else "dir-a",
                kafka_id=number,
            )
        )
    return made


def seen(heard_ms: int = NOW_MS, why: str = "") -> Observed:
    """Node a, which serves one partition and opens another."""
    logs = (entry(SERVING, "dir-a"), entry(OPENING, "dir-a", "opening"))
    own = DirReport(directory_id="dir-a", path="/a", state="online", why=why)
    report = Report(
        node="a", life="l", number=1, controller_epoch=7, dirs=(own,), logs=logs, orders=1
    )
    return Observed(report=report, heard_ms=heard_ms)


def told(observed: Observed | None = None, **fields: Any) -> dict[str, float]:
    """The numbers of a cluster of which node b is away."""
    return numbers(
        Snapshot(desired=desired(), observed={"a": observed or seen()}, now_ms=NOW_MS, **fields)
    )


def test_partitions_of_a_node_that_is_away_are_told_though_nobody_is_there_to_tell() -> None:
    found = told()
    assert (found["raylog_partitions_away"], found["raylog_partitions_opening"]) == (1, 1)
    assert found["raylog_controller_epoch"] == 7


def test_a_controller_without_problems_says_so_with_zeros() -> None:
    found = told()
    problems = {
        name: value
        for name, value in found.items()
        if name
        not in ("raylog_controller_epoch", "raylog_partitions_away", "raylog_partitions_opening")
    }
    assert problems
    assert set(problems.values()) == {0}


def test_every_number_is_a_gauge_of_the_list() -> None:
    assert {BY_NAME[name].kind for name in told()} == {"gauge"}


def test_a_node_that_is_silent_and_a_disk_that_may_hang_are_told() -> None:
    assert told(seen(heard_ms=NOW_MS - SUSPECT_MS - 1))["raylog_nodes_silent"] == 1
    assert told(seen(why="its disk may hang"))["raylog_log_dirs_suspect"] == 1


def test_upkeep_that_is_missing_for_long_is_told() -> None:
    late = {"a": NOW_MS - UPKEEP_PATIENCE_MS - 1}
    assert told(without_upkeep=late)["raylog_nodes_without_upkeep"] == 1
    assert told(without_upkeep={"a": NOW_MS})["raylog_nodes_without_upkeep"] == 0


def test_problems_of_the_metadata_are_told_apart() -> None:
    failed = told(failure=StorageError("/a", "Input/output error"))
    assert (failed["raylog_metadata_failed"], failed["raylog_metadata_older"]) == (1, 0)
    older = told(failure=OlderMetadata("/a", 3, {"/b": 5}))
    assert (older["raylog_metadata_failed"], older["raylog_metadata_older"]) == (0, 1)
    assert told(reserve_problem=DiskFull("/a"))["raylog_metadata_reserve_missing"] == 1
