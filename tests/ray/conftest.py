"""One Ray, started once, for all tests here; each module runs its own broker in a namespace of its
own."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import raylog
from raylog.cluster.broker import Broker
from tests.harness import clusters

# Ray's default of 10 s is how long a test of metrics would wait.
METRICS_INTERVAL_MS = 2000


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    with clusters.local_ray(_system_config={"metrics_report_interval_ms": METRICS_INTERVAL_MS}):
        yield


@pytest.fixture(scope="module")
def broker(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    log_dirs = [str(tmp_path_factory.mktemp("log") / name) for name in "ab"]
    # Some tests write old records: no round of retention may meet them.
    config = {"log.retention.ms": -1}
    running = raylog.start(log_dirs, config=config, namespace=f"test-{uuid.uuid4().hex[:8]}")
    yield running
    assert running.stop(), "the broker stops in order"


@pytest.fixture
def topic(broker: Broker) -> str:
    """A new topic with two partitions."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=2)
    return name


@pytest.fixture
def log_dir(tmp_path: Path) -> str:
    return str(tmp_path / "log")
