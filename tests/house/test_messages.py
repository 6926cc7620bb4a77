"""What actors and their callers send each other can be read by the release before and after."""

import inspect
import typing
from dataclasses import is_dataclass
from typing import Any

import pytest

from raylog.actors.messages import AppendResult, FetchResult
from raylog.actors.node.log_manager import LogManagerImpl
from raylog.actors.partition.living import LivingLog
from raylog.actors.partition.log_actor import LogActorImpl
from raylog.actors.upkeep.compaction_actor import CompactionActorImpl
from raylog.actors.upkeep.retention_actor import RetentionActorImpl
from raylog.cluster.controller.controller_actor import ControllerImpl
from raylog.cluster.controller.ray_reach import read_copy, set_copy_aside, survey_node
from raylog.cluster.machines import look_at_folders
from raylog.storage.cleaner.cleanable import SegmentTimes
from raylog.storage.errors import RaylogError
from raylog.storage.indexes.time_index import TimestampOffset
from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.names import TopicPartition
from raylog.storage.records.rules import RecordRules
from raylog.storage.segment import SegmentId
from raylog.storage.state.epochs import EpochEnd
from raylog.storage.state.producers import LastRecord

ACTORS = (
    ControllerImpl,
    LogManagerImpl,
    LogActorImpl,
    CompactionActorImpl,
    RetentionActorImpl,
)
TASKS = (survey_node, read_copy, set_copy_aside, look_at_folders)
# These travel as pickle writes them, since there are many of them or they are on the path of
# records. Their fields never change: what needs others is another class, and another method.
FIXED = {
    AbortedTransaction: ("producer_id", "first_offset", "last_offset", "last_stable_offset"),
    AppendResult: (
        "base_offset",
        "last_offset",
        "log_append_time",
        "log_start_offset",
        "leader_epoch",
        "is_duplicate",
    ),
    EpochEnd: ("epoch", "offset"),
    FetchResult: (
        "records",
        "high_watermark",
        "log_start_offset",
        "end_offset",
        "last_stable_offset",
        "aborted",
        "leader_epoch",
        "diverging",
    ),
    LastRecord: ("offset", "epoch"),
    SegmentId: ("base_offset", "inode"),
    SegmentTimes: ("base_offset", "size_bytes", "largest_timestamp", "first_timestamp"),
    TimestampOffset: ("timestamp", "offset"),
    TopicPartition: ("topic", "partition"),
}
# These never leave their process.
AT_HOME = {LivingLog, RecordRules}


def crossing() -> list[type]:
    """Every class of raylog in an argument or an answer of an actor, or in a field of one."""
    found: dict[type, None] = {}

    def walk(hint: Any) -> None:
        for part in typing.get_args(hint):
            walk(part)
        if not inspect.isclass(hint) or not hint.__module__.startswith("raylog"):
            return
        if hint in found or hint in AT_HOME or issubclass(hint, RaylogError):
            return
        found[hint] = None
        for field in typing.get_type_hints(hint).values():
            walk(field)

    methods: list[Any] = [
        method
        for actor in ACTORS
        for name, method in inspect.getmembers(actor, inspect.isfunction)
        if name == "__init__" or not name.startswith("_")
    ]
    for function in (*methods, *TASKS):
        for hint in typing.get_type_hints(inspect.unwrap(function)).values():
            walk(hint)
    return sorted(found, key=lambda cls: cls.__qualname__)


def is_message(cls: type) -> bool:
    return "__reduce__" in vars(cls)


def test_the_classes_that_cross_between_processes_are_found() -> None:
    names = {cls.__name__ for cls in crossing()}
    assert {"Report", "Orders", "Serve", "LogSays", "BrokerConfig", "LogSpec"} <= names


@pytest.mark.parametrize("cls", crossing())
def test_a_class_that_crosses_travels_by_its_fields_names_or_never_changes(cls: type) -> None:
    assert is_message(cls) != (cls in FIXED), "mark it with raylog.storage.wire.message"


@pytest.mark.parametrize("cls", FIXED)
def test_what_travels_as_pickle_writes_it_has_the_fields_that_it_always_had(cls: Any) -> None:
    assert issubclass(cls, tuple)
    assert not is_dataclass(cls)
    assert cls._fields == FIXED[cls]
