"""What actors log reaches Ray's files of their processes."""

from pathlib import Path

import ray

from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.broker import Broker
from raylog.storage.names import TopicPartition


def test_events_of_a_log_actor_are_in_its_workers_file(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    name = log_actor_name(partition)
    pid = ray.get(ray.get_actor(name, namespace=broker.namespace).status.remote()).pid
    logs = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs"
    text = "".join(path.read_text() for path in logs.glob(f"worker-*-{pid}.err"))
    [line] = [each for each in text.splitlines() if "event=log-opened" in each]
    assert f"actor={name} pid={pid} event=log-opened partition={partition}" in line
