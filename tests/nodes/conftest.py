"""Ray clusters of several nodes on one machine, each node with a log dir of its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.harness.nodes import Frozen, Nodes, running_nodes


@pytest.fixture(scope="module")
def start_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Nodes]]:
    """Start the head of a cluster; it ends with the module. Options are those of
    ``running_nodes``."""
    with ExitStack() as started:

        def start(**options: bool) -> Nodes:
            disks = tmp_path_factory.mktemp("nodes")
            return started.enter_context(running_nodes(disks, **options))  # type: ignore[arg-type]

        yield start


@pytest.fixture
def frozen() -> Iterator[Frozen]:
    made = Frozen()
    yield made
    made.go_on()
