"""A broker's life: topics, handles, what it refuses, and what it finds again."""

import time
import uuid
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.errors import (
    BrokerNotFound,
    BrokerRunning,
    InvalidRequest,
    NotInTransaction,
    NotLeader,
    TopicExists,
    UnknownTopicOrPartition,
)
from raylog.actors.messages import PartitionOffsets
from raylog.actors.runtime.handles import find
from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.broker import Broker
from raylog.storage.errors import (
    CorruptRecord,
    InconsistentClusterId,
    InvalidConfig,
    InvalidLogDir,
    InvalidPartitions,
    InvalidRecord,
    InvalidTopic,
    LogLocked,
    LogMissing,
    OffsetOutOfRange,
    RaylogError,
    RecordTooLarge,
)
from raylog.storage.names import TopicPartition
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.waiting import wait_for

NOW = int(time.time() * 1000)


def batch(*values: bytes, **options: Any) -> bytearray:
    return encode_records([(NOW, None, value, ()) for value in values], **options)


def test_a_batch_appended_through_the_handle_is_fetched_through_it(
    broker: Broker, topic: str
) -> None:
    log = broker.partition(topic, 0)
    written = ray.get(log.append.remote(bytes(batch(b"one", b"two"))))
    assert (written.base_offset, written.last_offset) == (0, 1)
    answer = ray.get(log.fetch.remote(offset=0, max_bytes=1 << 20))
    assert [record.value for record in decode_records(answer.records)] == [b"one", b"two"]
    assert ray.get(log.fetch.remote(offset=2)).records is None


def test_partitions_are_spread_over_the_log_dirs(broker: Broker) -> None:
    created = broker.create_topic(f"spread-{uuid.uuid4().hex[:6]}", partitions=4)
    dirs = [Path(place.folder or "").parent for place in created.partitions]
    assert len(set(dirs)) == 2
    assert {dirs.count(folder) for folder in dirs} == {2}


def test_a_deleted_topic_is_gone_and_its_name_is_free(broker: Broker) -> None:
    name = f"gone-{uuid.uuid4().hex[:6]}"
    place = broker.create_topic(name).partitions[0]
    broker.delete_topic(name)
    assert name not in broker.list_topics()
    assert not Path(place.folder or "").exists()
    with pytest.raises(UnknownTopicOrPartition):
        broker.partition(name, 0)
    broker.create_topic(name)
    assert ray.get(broker.partition(name, 0).offsets.remote()).log_end_offset == 0


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("",), InvalidTopic, "is empty"),
        (("..",), InvalidTopic, "folder"),
        (("a" * 250,), InvalidTopic, "250 characters"),
        (("a/b",), InvalidTopic, "a/b"),
        (("good", 0), InvalidPartitions, "number of partitions 0"),
        (("good", "three"), InvalidPartitions, "'three'"),
        (("good", 1, {"segment.byte": 1}), InvalidConfig, "unknown key"),
        (("good", 1, {"segment.bytes": "much"}), InvalidConfig, "segment.bytes='much'"),
        (("good", 1, {"segment.bytes": 10}), InvalidConfig, "from 1048576"),
        (
            ("good", 1, {"cleanup.policy": "keep"}),
            InvalidConfig,
            "must be delete, compact, or both",
        ),
        (("good", 1, "config"), InvalidRequest, "must be a dict"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_leaves_nothing(
    broker: Broker, arguments: tuple[Any, ...], error: type[RaylogError], says: str
) -> None:
    before = broker.list_topics()
    with pytest.raises(error, match=says.replace(".", "\\.")):
        broker.create_topic(*arguments)
    assert broker.list_topics() == before


def test_a_topic_exists_once_dots_and_underscores_alike(broker: Broker) -> None:
    broker.create_topic("metrics.cpu")
    with pytest.raises(TopicExists):
        broker.create_topic("metrics.cpu")
    with pytest.raises(TopicExists, match=r"'metrics\.cpu' already exists"):
        broker.create_topic("metrics_cpu")


@pytest.mark.parametrize("partition", [2, -1, "0"])
def test_a_partition_that_is_not_there_is_named(broker: Broker, topic: str, partition: Any) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="has 2 partitions"):
        broker.partition(topic, partition)
    with pytest.raises(UnknownTopicOrPartition, match="the topic does not exist"):
        broker.partition("nowhere", 0)


def flipped(content: bytearray, at: int) -> bytes:
    content[at] ^= 1
    return bytes(content)


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (flipped(batch(b"x"), -1), CorruptRecord),
        (bytes(batch(b"x"))[:-1], CorruptRecord),
        (bytes(batch(b"x")) + b"tail", InvalidRecord),
        (b"", CorruptRecord),
        (bytes(batch(b"x"))[:16] + b"\x01" + bytes(batch(b"x"))[17:], CorruptRecord),
        (bytes(batch(b"x"))[:16] + b"\x05" + bytes(batch(b"x"))[17:], CorruptRecord),
        (bytes(batch(b"x" * (1 << 20) + b"more")), RecordTooLarge),
        (None, InvalidRecord),
        (
            bytes(
                batch(b"x", transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
            ),
            NotInTransaction,
        ),
    ],
    ids=[
        "crc",
        "cut",
        "tail",
        "nothing",
        "magic 1",
        "magic 5",
        "too large",
        "None",
        "transactional",
    ],
)
def test_a_bad_batch_is_refused_and_nothing_is_written(
    broker: Broker, topic: str, records: Any, error: type[RaylogError]
) -> None:
    log = broker.partition(topic, 1)
    with pytest.raises(error):
        ray.get(log.append.remote(records))
    assert ray.get(log.offsets.remote()).log_end_offset == 0
    ray.get(log.append.remote(bytes(batch(b"good"))))
    assert ray.get(log.offsets.remote()).log_end_offset == 1


def test_a_handle_that_is_asked_for_again_is_the_actors_of_now(broker: Broker, topic: str) -> None:
    before = broker.partition(topic, 0)
    ray.get(before.append.remote(bytes(batch(b"one"))))
    name = log_actor_name(TopicPartition(topic, 0))
    ray.kill(before, no_restart=True)
    wait_for(lambda: find(name, broker.namespace) not in (None, before), 60, "there is another")

    def log_end_offset() -> int | None:
        try:
            offsets: PartitionOffsets = ray.get(broker.partition(topic, 0).offsets.remote())
        except NotLeader:
            return None
        return offsets.log_end_offset

    wait_for(lambda: log_end_offset() == 1, 60, "the other has opened the log")
    [status] = [one for one in broker.status() if one.partition == f"{topic}-0"]
    assert status.offsets.log_end_offset == 1


def test_an_offset_out_of_range_names_both_bounds(broker: Broker, topic: str) -> None:
    log = broker.partition(topic, 0)
    ray.get(log.append.remote(bytes(batch(b"one"))))
    with pytest.raises(OffsetOutOfRange, match=r"offset 7 is out of range: the log holds \[0, 1\)"):
        ray.get(log.fetch.remote(offset=7))
    with pytest.raises(InvalidRequest, match="offset='1'"):
        ray.get(log.fetch.remote(offset="1"))


def test_a_long_poll_is_answered_by_the_append_it_waits_for(broker: Broker, topic: str) -> None:
    log = broker.partition(topic, 0)
    parked = [log.poll.remote(0, max_wait_ms=60_000) for _ in range(20)]
    assert ray.wait(parked, timeout=0.3)[0] == []
    # parked polls do not hold it up
    ray.get(log.append.remote(bytes(batch(b"at last"))), timeout=10)
    for answer in ray.get(parked, timeout=20):
        assert decode_records(answer.records)[0].value == b"at last"
    assert ray.get(log.poll.remote(1, max_wait_ms=50), timeout=10).records is None


def test_a_broker_is_reached_from_a_task(broker: Broker, topic: str) -> None:
    @ray.remote(num_cpus=0)
    def elsewhere(given: Broker, namespace: str) -> tuple[int, list[str]]:
        with given.producer() as producer:
            producer.send(topic, b"from a task", partition=1)
        return given.list_offsets({(topic, 1): -1})[(topic, 1)] or 0, raylog.connect(
            namespace=namespace
        ).list_topics()

    end, topics = ray.get(elsewhere.remote(broker, broker.namespace))
    assert end == 1
    assert topic in topics


def test_one_broker_a_namespace(broker: Broker, log_dir: str) -> None:
    with pytest.raises(BrokerRunning):
        raylog.start([log_dir], namespace=broker.namespace)
    with pytest.raises(BrokerNotFound, match="nobody"):
        raylog.connect(namespace="nobody")


def test_a_log_dir_that_cannot_be_used_is_named_and_nothing_is_left_running(
    local_ray: None, broker: Broker, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidLogDir, match="nor its parent exists"):
        raylog.start([str(tmp_path / "no" / "such")], namespace="refused")
    with pytest.raises(RaylogError, match="file"):
        raylog.start([str(tmp_path / "file")], namespace="refused")
    with pytest.raises(InvalidConfig, match=r"log\.dirs"):
        raylog.start(namespace="refused")
    with pytest.raises(InvalidConfig, match="unknown key"):
        raylog.start([str(tmp_path / "good")], config={"log.folder": "x"}, namespace="refused")
    with pytest.raises(BrokerNotFound):
        raylog.connect(namespace="refused")


def test_a_broker_starts_without_a_log_dir_that_cannot_be_used_and_says_so(
    local_ray: None, tmp_path: Path
) -> None:
    bad = str(tmp_path / "no" / "such")
    with raylog.start([str(tmp_path / "good"), bad], namespace="without-one") as broker:
        assert [(one.path, one.is_online) for one in broker.log_dirs()] == [
            (str(tmp_path / "good"), True),
            (bad, False),
        ]
        [finding] = broker.health()
        assert finding.severity == "error"
        assert bad in finding.subject
        assert "nor its parent exists" in finding.what
        broker.create_topic("goes-to-the-other")


def test_two_brokers_do_not_share_a_log_dir(broker: Broker, tmp_path: Path) -> None:
    used = str(
        Path(broker.create_topic(f"own-{uuid.uuid4().hex[:6]}").partitions[0].folder or "").parent
    )
    with pytest.raises((LogLocked, InconsistentClusterId)):
        raylog.start([str(tmp_path / "other"), used], namespace="second")
    with pytest.raises(BrokerNotFound):
        raylog.connect(namespace="second")


def test_a_new_broker_on_the_same_dirs_finds_every_topic_and_record(
    local_ray: None, tmp_path: Path
) -> None:
    log_dirs = [str(tmp_path / "a"), str(tmp_path / "b")]
    first = raylog.start(log_dirs, namespace="life-1")
    first.create_topic("kept", partitions=3, config={"segment.bytes": 1 << 20, "retention.ms": -1})
    with first.producer() as producer:
        for number in range(3000):
            producer.send("kept", b"%d" % number, partition=number % 3)
    identity = first.cluster_id()
    assert first.stop()
    for folder in log_dirs:
        assert (Path(folder) / ".kafka_cleanshutdown").exists()
        assert "kept" in (Path(folder) / "recovery-point-offset-checkpoint").read_text()
    second = raylog.start(log_dirs, namespace="life-2")
    try:
        assert second.cluster_id() == identity
        assert second.describe_topic("kept").config == {
            "segment.bytes": 1 << 20,
            "retention.ms": -1,
        }
        found = list(second.consumer("kept", from_="earliest", to="latest"))
        assert sorted(int(record.value or b"") for record in found) == list(range(3000))
        assert not (Path(log_dirs[0]) / ".kafka_cleanshutdown").exists()
    finally:
        second.stop()


def test_a_partition_whose_folder_is_gone_is_an_error_never_an_empty_log(
    local_ray: None, tmp_path: Path
) -> None:
    first = raylog.start([str(tmp_path / "a")], namespace="lost-1")
    place = first.create_topic("half", partitions=2).partitions[1]
    first.stop()
    Path(place.folder or "").rename(tmp_path / "elsewhere")
    second = raylog.start([str(tmp_path / "a")], namespace="lost-2")
    try:
        with pytest.raises(LogMissing, match="does not exist"):
            second.partition("half", 1)
        assert second.describe_topic("half").partitions[1].problem
        assert ray.get(second.partition("half", 0).offsets.remote()).log_end_offset == 0
        assert not Path(place.folder or "").exists()
    finally:
        second.stop()
