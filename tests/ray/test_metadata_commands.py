"""`raylog metadata` and `raylog topic adopt` on a broker of one node."""

import shutil
from pathlib import Path

import pytest

import raylog
from raylog.actors.errors import BrokerRunning, InvalidRequest, MetadataMissing
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.broker import Broker
from raylog.cluster.machines import RayMachines, log_dirs_of
from raylog.cluster.metadata_work import MetadataWork

NAMESPACE = "mended"
METADATA = "__cluster_metadata-0"


@pytest.fixture
def work(local_ray: None, log_dir: str) -> MetadataWork:
    return MetadataWork(RayMachines(NAMESPACE, BrokerConfig.parse({"log.dirs": log_dir})))


def started(log_dir: str, *, new_cluster: bool = False) -> Broker:
    return raylog.start([log_dir], namespace=NAMESPACE, new_cluster=new_cluster)


def fill(broker: Broker) -> None:
    broker.create_topic("t", partitions=2, config={"retention.ms": 1000 * 86_400_000})
    with broker.producer() as producer:
        for n in range(20):
            producer.send("t", b"%d" % n, partition=n % 2)


def count(broker: Broker) -> int:
    return len(list(broker.consumer("t", from_="earliest", to="latest")))


@pytest.mark.timeout(240)
def test_the_copies_are_shown_and_metadata_that_is_lost_is_made_of_the_folders(
    work: MetadataWork, log_dir: str
) -> None:
    with started(log_dir) as broker:
        fill(broker)
        assert log_dirs_of(NAMESPACE) == log_dir
        (shown,) = work.status()
        assert (shown.state, shown.path, shown.topics) == ("newest", log_dir, 1)
        with pytest.raises(InvalidRequest, match="is served by a Controller"):
            work.restore(shown.node)
    assert not work.restore(shown.node).found.is_needed
    with pytest.raises(InvalidRequest, match="can be read"):
        work.rebuild()
    shutil.rmtree(Path(log_dir, METADATA))
    assert work.status() == []
    with pytest.raises(MetadataMissing):
        started(log_dir)
    made = work.rebuild()
    assert (made.topics, made.partitions) == (1, 2)
    with started(log_dir) as broker:
        assert count(broker) == 20
        shown_config = {entry.name: entry.value for entry in broker.topic_config("t")}
        assert shown_config["retention.ms"] == -1
        broker.create_topic("another", partitions=1)


@pytest.mark.timeout(240)
def test_folders_that_a_new_cluster_has_set_aside_are_partitions_again(
    work: MetadataWork, log_dir: str
) -> None:
    with started(log_dir) as broker:
        fill(broker)
        topic_id = broker.describe_topic("t").topic_id
    shutil.rmtree(Path(log_dir, METADATA))
    with started(log_dir, new_cluster=True) as broker:
        broker.create_topic("other", partitions=1)
        assert broker.list_topics() == ["other"]
        with pytest.raises(BrokerRunning):
            work.adopt([])
    strays = sorted(str(path) for path in Path(log_dir).glob("t-*-stray"))
    assert len(strays) == 2
    with pytest.raises(InvalidRequest, match="give the folders before it"):
        work.adopt([path for path in strays if "t-1." in path])
    assert [str(partition) for partition in work.adopt(strays).partitions] == ["t-0", "t-1"]
    with started(log_dir) as broker:
        assert broker.list_topics() == ["other", "t"]
        assert broker.describe_topic("t").topic_id == topic_id
        assert count(broker) == 20
