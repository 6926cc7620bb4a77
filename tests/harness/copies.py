"""Copies of the metadata, as the Controller sees them."""

import raylog
from raylog.cluster.broker import Broker
from raylog.cluster.controller.stub import find_controller


def in_sync(broker: Broker) -> int:
    """How many copies of the metadata are in sync and have everything."""
    found = find_controller(broker.namespace)
    assert found is not None
    try:
        copies = found.metadata_copies().get(5)
    except raylog.errors.RaylogError:
        return 0
    return sum(copy.is_in_sync and not copy.problem for copy in copies)
