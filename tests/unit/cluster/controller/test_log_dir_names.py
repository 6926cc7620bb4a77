"""What is advised for a log dir is what a command takes for it, and for no other one."""

from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.log_dir_names import argument_for
from raylog.cluster.controller.records import DirRecord


def log_dir(directory_id: str, node: str, path: str) -> DirRecord:
    return DirRecord(directory_id=directory_id, node=node, path=path, state="offline")


def argument(record: DirRecord, *others: DirRecord) -> str:
    desired = Desired()
    for each in (record, *others):
        desired.apply(each)
    return argument_for(desired, record)


MINE = log_dir("id-1", "disk-1", "/data/a")


def test_a_path_that_no_other_log_dir_has_is_enough() -> None:
    assert argument(MINE, log_dir("id-2", "disk-1", "/data/b")) == "/data/a"
    assert argument(log_dir("id-1", "disk-1", "/my data")) == "'/my data'"


def test_a_path_that_another_node_has_too_needs_the_node() -> None:
    assert argument(MINE, log_dir("id-2", "disk-2", "/data/a")) == "/data/a --node disk-1"
    unlabelled = log_dir("id-1", "5f" * 28, "/data/a")
    other = log_dir("id-2", "disk-2", "/data/a")
    assert argument(unlabelled, other) == "/data/a --node 5f5f5f5f"


def test_a_path_at_which_its_node_had_another_one_says_nothing_so_it_is_the_id() -> None:
    assert argument(MINE, log_dir("id-2", "disk-1", "/data/a")) == "id-1"
