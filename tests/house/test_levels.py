"""What a release writes at a level can be read by every release that knows the level.

A new record or order belongs to a new level (``actors/levels.py``), and is written at that one
only.
"""

from typing import get_args

from raylog.actors.control import Order
from raylog.actors.levels import RELEASES
from raylog.cluster.controller.records import _READERS

# A level -> the kinds and versions of records that it brings.
RECORDS = {
    1: {
        ("broker-config", 1),
        ("cluster", 1),
        ("controller", 1),
        ("copies", 1),
        ("level", 1),
        ("log-dir", 1),
        ("node", 1),
        ("node", 2),
        ("partition", 1),
        ("partition-removed", 1),
        ("producer-ids", 1),
        ("producer-ids", 2),
        ("stopped", 1),
        ("topic", 1),
        ("topic", 2),
        ("topic-removed", 1),
        ("topic-removed", 2),
    },
    3: {("user", 1), ("user-removed", 1)},
}
ORDERS = {
    1: {
        "Create",
        "End",
        "KeepOut",
        "Move",
        "ObeyConfig",
        "ReadBack",
        "Remove",
        "Serve",
        "SetAside",
        "Stop",
    },
}


def test_every_kind_of_record_belongs_to_a_level() -> None:
    assert RECORDS.keys() <= RELEASES.keys()
    assert set.union(*RECORDS.values()) == set(_READERS)


def test_every_order_belongs_to_a_level() -> None:
    assert ORDERS.keys() <= RELEASES.keys()
    assert set.union(*ORDERS.values()) == {cls.__name__ for cls in get_args(Order)}
