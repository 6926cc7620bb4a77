"""What a partition counts, and that every metric in the list is what it says."""

import re
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.errors import InvalidRequest
from raylog.actors.messages import AsideFile, LogDirStatus, MendedTotal, OpeningReport
from raylog.actors.metrics import BY_NAME, METRICS, Exporter, Metric
from raylog.actors.node.meters import export_dirs
from raylog.actors.partition import partition as module
from raylog.actors.partition.exports import export_opening, export_partition
from raylog.actors.partition.partition import Partition
from raylog.storage.errors import CorruptRecord, OffsetOutOfRange
from raylog.storage.testing.logs import Disk, batch, batch_of_size, flip, of_producer


class Sink:
    """Takes what Ray's metrics would take."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.tags: dict[str, dict[str, str]] = {}

    def make(self, metric: Metric) -> Any:
        sink = self

        class Made:
            def inc(self, by: float, tags: dict[str, str]) -> None:
                assert metric.kind == "counter"
                assert by > 0, "Ray refuses less"
                self._note(tags, sink.values.get(metric.name, 0) + by)

            def set(self, value: float, tags: dict[str, str]) -> None:
                assert metric.kind == "gauge"
                self._note(tags, value)

            def observe(self, value: float, tags: dict[str, str]) -> None:
                assert metric.kind == "histogram"
                self._note(tags, [*sink.values.get(metric.name, []), value])

            def _note(self, tags: dict[str, str], value: Any) -> None:
                assert set(tags) == set(metric.tags)
                sink.values[metric.name], sink.tags[metric.name] = value, tags

        return Made()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def sink() -> Sink:
    return Sink()


def exporter_to(sink: Sink) -> Exporter:
    return Exporter(sink.make, topic="orders", partition=0)


def test_names_and_units_are_prometheus_own() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"raylog(_[a-z]+)+", metric.name)
        assert metric.doc.endswith(".")
        assert not metric.name.endswith("_total"), "Ray adds it"
        if metric.kind == "histogram":
            assert metric.name.endswith("_seconds")
            assert metric.unit == "s"
    assert BY_NAME["raylog_bytes_in"].exported_name == "ray_raylog_bytes_in_total"
    assert BY_NAME["raylog_log_size_bytes"].exported_name == "ray_raylog_log_size_bytes"


def test_what_happened_is_what_is_exported(disk: Disk, sink: Sink) -> None:
    partition = Partition(disk.open(flush_messages=5), disk.clock)
    sizes = [len(of_producer(0, 2)), len(of_producer(2, 3))]
    partition.append(of_producer(0, 2))
    partition.append(of_producer(2, 3))
    partition.append(of_producer(2, 3))  # again
    with pytest.raises(CorruptRecord):
        partition.append(flip(30)(bytes(batch())))
    partition.fetch(0, max_bytes=1)
    partition.fetch(0)
    with pytest.raises(OffsetOutOfRange):
        partition.fetch(99)
    with pytest.raises(InvalidRequest):
        partition.fetch("0")  # type: ignore[arg-type]
    export_partition(partition, exporter_to(sink))
    values = sink.values
    assert values["raylog_bytes_in"] == sum(sizes)
    assert values["raylog_records_in"] == 5
    assert values["raylog_duplicates"] == 1
    assert len(values["raylog_append_seconds"]) == 3
    assert values["raylog_bytes_out"] == sizes[0] + sum(sizes)
    assert len(values["raylog_fetch_seconds"]) == 2
    assert len(values["raylog_fsync_seconds"]) == 1
    assert (values["raylog_append_errors"], values["raylog_fetch_errors"]) == (1, 2)
    assert sink.tags["raylog_append_errors"] == {
        "topic": "orders",
        "partition": "0",
        "error": "CORRUPT_MESSAGE",
    }
    assert values["raylog_log_size_bytes"] == sum(sizes)
    assert values["raylog_log_end_offset"] == 5
    assert values["raylog_unflushed_records"] == 0
    assert (values["raylog_log_segments"], values["raylog_offline"]) == (1, 0)


def test_nothing_is_exported_twice(disk: Disk, sink: Sink) -> None:
    partition = Partition(disk.open(), disk.clock)
    exporter = exporter_to(sink)
    partition.append(batch(3))
    for _ in range(3):
        export_partition(partition, exporter)
    assert sink.values["raylog_records_in"] == 3
    assert len(sink.values["raylog_append_seconds"]) == 1


def test_sums_are_exact_while_many_add_and_one_exports(disk: Disk, sink: Sink) -> None:
    partition = Partition(disk.open(), disk.clock)
    exporter = exporter_to(sink)
    with ThreadPoolExecutor(8) as pool:
        appends = [pool.submit(partition.append, batch(2)) for _ in range(400)]
        while not all(append.done() for append in appends):
            export_partition(partition, exporter)
    export_partition(partition, exporter)
    assert sink.values["raylog_records_in"] == 800
    assert len(sink.values["raylog_append_seconds"]) == 400


def test_a_total_becomes_what_it_has_grown_by(sink: Sink) -> None:
    exporter = Exporter(sink.make, node="n1")
    for total in (0, 5, 5, 9):
        exporter.total("raylog_retention_segments_deleted", total)
    assert sink.values["raylog_retention_segments_deleted"] == 9


def test_the_time_that_a_fetch_is_parked_is_not_its_own(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = Partition(disk.open(), disk.clock)
    now_s = 0.0

    def look() -> float:
        """Each look at the clock takes a second."""
        nonlocal now_s
        now_s += 1
        return now_s

    def park(*_: object) -> None:
        nonlocal now_s
        now_s += 300

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=look))
    monkeypatch.setattr(partition, "_wait", park)
    partition.fetch(0, max_wait_ms=300_000)
    [fetch] = partition.meters.fetches
    assert 0 < fetch[0] < 5


def test_retentions_lag_is_the_age_of_the_oldest_segment_beyond_its_time(
    disk: Disk, sink: Sink
) -> None:
    partition = Partition(disk.open(segment_bytes=100, retention_ms=10_000), disk.clock)
    for _ in range(2):
        partition.append(batch_of_size(100, timestamp=disk.clock.now_ms()))
        disk.clock.advance(12_000)
    export_partition(partition, exporter_to(sink))
    assert sink.values["raylog_retention_lag_seconds"] == 14
    partition.delete_old_segments()
    export_partition(partition, exporter_to(sink))
    assert sink.values["raylog_retention_lag_seconds"] == 0


def test_what_opening_did_is_told_by_kind(sink: Sink) -> None:
    report = OpeningReport(
        totals=(MendedTotal("cut", 1, 300),),
        asides=(AsideFile("a", 200), AsideFile("b", 100), AsideFile("c", 50, is_unfinished=True)),
    )
    exporter = exporter_to(sink)
    for _ in range(2):
        export_opening(report, exporter)
    values = sink.values
    assert (values["raylog_mended_files"], values["raylog_mended_bytes"]) == (1, 300)
    assert sink.tags["raylog_mended_bytes"]["kind"] == "cut"
    assert (values["raylog_asides"], values["raylog_aside_bytes"]) == (3, 350)
    assert values["raylog_asides_to_decide"] == 2


def test_a_node_tells_of_its_log_dirs(sink: Sink) -> None:
    good = LogDirStatus(
        node_id="n1",
        path="/a",
        directory_id="id",
        is_online=True,
        problem=None,
        partitions=3,
        size_bytes=1000,
        total_bytes=9000,
        usable_bytes=4000,
        loaded=2,
        to_load=5,
    )
    bad = LogDirStatus.offline("n1", "/b", "id2", "Input/output error")
    export_dirs(Exporter(sink.make, node="n1"), [good, bad], 3, 2)
    values = sink.values
    assert (values["raylog_partitions"], values["raylog_partitions_to_load"]) == (3, 3)
    assert (values["raylog_log_dirs_offline"], values["raylog_partitions_offline"]) == (1, 2)
    assert (values["raylog_log_dir_usable_bytes"], values["raylog_log_dir_size_bytes"]) == (
        4000,
        1000,
    )
    assert values["raylog_log_dir_total_bytes"] == 9000


def test_the_size_of_a_disk_that_was_not_measured_yet_is_not_told(sink: Sink) -> None:
    unknown = LogDirStatus.offline("n1", "/a", "id", "")._replace(is_online=True)
    export_dirs(Exporter(sink.make, node="n1"), [unknown], 0, 0)
    assert "raylog_log_dir_total_bytes" not in sink.values
    assert sink.tags["raylog_log_dir_size_bytes"] == {"node": "n1", "log_dir": "/a"}
