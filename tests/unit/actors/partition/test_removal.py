"""Records are removed only under the config that the log obeys and the Controller has confirmed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.control import Confirmed, LogId
from raylog.actors.errors import ConfigUnconfirmed
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.removal import PATIENCE_S, Permit, once_confirmed, permit
from raylog.storage.config import LogConfig
from raylog.storage.errors import CleaningAborted
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0, ManualClock
from raylog.storage.testing.logs import PARTITION, TOPIC_ID, Disk

KEYS: dict[str, Any] = {
    "segment_bytes": 200,
    "retention_ms": 1000,
    "cleanup_policy": "compact,delete",
}
OLD = LogConfig(**KEYS)
LOG = LogId(partition=PARTITION, topic_id=TOPIC_ID)
RIGHT = Confirmed(log=LOG, config_version=1, until_ms=20_000)


def partition_of(disk: Disk) -> Partition:
    """A partition that obeys version 1 of its config, under which all of it is too old."""
    partition = Partition(disk.open(**KEYS), disk.clock, 1)
    for _ in range(6):
        partition.append(encode_records([(T0, b"key", b"value", ())]))
    partition.roll()
    disk.clock.advance(10_000)
    return partition


REMOVALS: dict[str, Callable[[Partition, Permit], object]] = {
    "retention": lambda partition, may: partition.delete_old_segments(may),
    "delete_records": lambda partition, may: partition.delete_records(3, may),
    "a round of compaction": lambda partition, may: partition.cleaning_view(may),
    "its swap": lambda partition, may: partition.replace_segments(
        [partition.log.segments[0].id], partition.cleaning_view().round_id, may
    ),
}


@pytest.mark.parametrize("removal", REMOVALS)
@pytest.mark.parametrize(
    ("right", "now_ms", "why"),
    [
        (None, 0, "not confirmed"),
        (replace(RIGHT, log=replace(LOG, topic_id="of another topic")), 0, "not confirmed"),
        (replace(RIGHT, config_version=0), 0, "obeys version 1 of its config, and version 0"),
        (replace(RIGHT, config_version=2), 0, "obeys version 1 of its config, and version 2"),
        (RIGHT, 20_000, "too old"),
    ],
)
def test_nothing_is_removed_without_the_right(
    disk: Disk, removal: str, right: Confirmed | None, now_ms: int, why: str
) -> None:
    partition = partition_of(disk)
    may_remove = permit(LOG, right, ManualClock(now_ms))
    with pytest.raises(ConfigUnconfirmed, match=why) as raised:
        REMOVALS[removal](partition, may_remove)
    assert raised.value.retriable
    assert partition.offsets().log_start_offset == 0
    assert not partition.is_offline


@pytest.mark.parametrize("removal", ["retention", "delete_records"])
def test_under_the_confirmed_config_records_are_removed(disk: Disk, removal: str) -> None:
    partition = partition_of(disk)
    may_remove = permit(LOG, RIGHT, ManualClock(19_999))
    REMOVALS[removal](partition, may_remove)
    assert partition.offsets().log_start_offset > 0


def test_a_right_that_ends_while_retention_waits_for_its_turn_is_no_right(disk: Disk) -> None:
    partition, clock = partition_of(disk), ManualClock(0)
    may_remove = permit(LOG, RIGHT, clock)
    assert partition.reconfigure(LogConfig(segment_bytes=200, retention_ms=-1), 2) == 2
    with pytest.raises(ConfigUnconfirmed):
        partition.delete_old_segments(may_remove)
    assert partition.reconfigure(OLD, 1) == 2, "an older version never comes back"


def test_a_round_of_compaction_does_not_swap_under_another_config_than_it_began_with(
    disk: Disk,
) -> None:
    partition = partition_of(disk)
    view = partition.cleaning_view()
    first = [partition.log.segments[0].id]
    partition.check_unchanged(first, view.round_id)
    partition.reconfigure(replace(OLD, min_compaction_lag_ms=1), 2)
    newer = permit(LOG, replace(RIGHT, config_version=2), ManualClock(0))
    with pytest.raises(CleaningAborted, match="config has changed"):
        partition.check_unchanged(first, view.round_id)
    with pytest.raises(CleaningAborted, match="config has changed"):
        partition.replace_segments(first, view.round_id, newer)
    again = partition.cleaning_view(newer)
    partition.check_unchanged(first, again.round_id)


def test_a_removal_waits_a_while_for_its_config_to_be_confirmed() -> None:
    refusals = 3

    def remove() -> int:
        nonlocal refusals
        refusals -= 1
        if refusals >= 0:
            raise ConfigUnconfirmed("t-0", "not yet")
        return 7

    slept: list[float] = []
    assert once_confirmed(remove, lambda: 0.0, slept.append) == 7
    assert len(slept) == 3


def test_a_removal_whose_config_stays_unconfirmed_is_refused() -> None:
    time_s = 0.0

    def remove() -> int:
        raise ConfigUnconfirmed("t-0", "the Controller is away")

    def sleep(seconds: float) -> None:
        nonlocal time_s
        time_s += seconds

    with pytest.raises(ConfigUnconfirmed):
        once_confirmed(remove, lambda: time_s, sleep)
    assert PATIENCE_S <= time_s < PATIENCE_S + 1
