"""What partitions count is to be read where Prometheus reads it. Needs the agent of
``ray[default]``."""

import urllib.request
from typing import Any

import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families

from raylog.actors.metrics import METRICS
from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for


def scraped(topic: str) -> dict[str, float]:
    """Sample -> value, of partition 0 of a topic, from the endpoint of this node's Ray."""
    [node] = ray.nodes()
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    try:
        text = urllib.request.urlopen(url, timeout=10).read().decode()
    except OSError:  # the agent is starting
        return {}
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("topic") == topic and sample.labels.get("partition") == "0"
        if sample.labels.get("le", "+Inf") == "+Inf"
    }


@pytest.mark.timeout(180)
def test_a_partitions_metrics_are_served_by_ray_with_right_values(
    broker: Broker, topic: str
) -> None:
    with broker.producer() as producer:
        for n in range(10):
            producer.send(topic, b"x" * 100, partition=0, key=b"%d" % n).result()
    handle = broker.partition(topic, 0)
    ray.get(handle.flush.remote())
    fetched = ray.get(handle.fetch.remote(0)).records.nbytes
    status = ray.get(handle.status.remote())

    def has_all() -> bool:
        return scraped(topic).get("ray_raylog_bytes_out_total") == fetched

    wait_for(has_all, 120, "the metrics are exported")
    found: dict[str, Any] = scraped(topic)
    assert found["ray_raylog_records_in_total"] == 10
    assert found["ray_raylog_bytes_in_total"] == status.size_bytes
    assert found["ray_raylog_append_seconds_count"] == 10
    assert 0 < found["ray_raylog_append_seconds_sum"] < 10
    assert found["ray_raylog_fsync_seconds_count"] == 1
    assert found["ray_raylog_log_end_offset"] == 10
    assert found["ray_raylog_log_size_bytes"] == status.size_bytes
    assert found["ray_raylog_unflushed_records"] == 0
    assert found["ray_raylog_offline"] == 0
    known = {metric.exported_name for metric in METRICS}
    for name in found:
        assert name.removesuffix("_count").removesuffix("_sum").removesuffix("_bucket") in known
