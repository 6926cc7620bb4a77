"""The head is lost, and all of Ray with it: the broker is started again over the same disks."""

from collections.abc import Callable
from typing import Any

import pytest

import raylog
from raylog.actors.errors import MetadataIncomplete
from raylog.storage.testing.waiting import wait_for
from tests.harness.copies import in_sync
from tests.harness.nodes import HEAD

NAMESPACE = "lost-head"
WITHIN_S = 90
RECORDS = 200


@pytest.mark.timeout(400)
def test_what_was_answered_directly_before_the_head_was_lost_is_there(
    start_nodes: Callable[..., Any],
) -> None:
    """A start when only the head is there is refused: the other copy may have more."""
    nodes = start_nodes()
    nodes.add("one")
    broker = raylog.start(nodes.log_dirs(HEAD), namespace=NAMESPACE)
    wait_for(lambda: list(broker.nodes().values()) == [None] * 2, WITHIN_S, "two LogManagers")
    wait_for(lambda: in_sync(broker) == 2, WITHIN_S, "two copies are in sync")
    broker.create_topic("before", partitions=4)
    with broker.producer() as producer:
        for n in range(RECORDS):
            producer.send("before", b"%d" % n, partition=n % 4)
    broker.create_topic("last")
    nodes.lose_head()
    nodes.crash("one")
    nodes.end()

    nodes.begin()
    with pytest.raises(MetadataIncomplete):
        raylog.start(nodes.log_dirs(HEAD), namespace=NAMESPACE)
    nodes.add("one")
    broker = raylog.start(nodes.log_dirs(HEAD), namespace=NAMESPACE)
    assert broker.list_topics() == ["before", "last"]
    found = broker.consumer("before", from_="earliest", to="latest")
    assert sorted(int(record.value or b"") for record in found) == list(range(RECORDS))
    assert broker.stop()
