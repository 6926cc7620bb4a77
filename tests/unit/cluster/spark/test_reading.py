"""What a task of Spark reads of a range that has transactions: rows, and no loss."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.cluster.spark import reading
from raylog.cluster.spark.options import parse
from raylog.cluster.spark.plan import Range
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import of_producer
from tests.harness.consuming import FakeConnection


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> FakeConnection:
    """A topic t: offsets 0 and 1 are aborted, by the marker 2; 3 is committed, by the marker 4."""
    made = FakeConnection(t=1)
    log = made.topics["t"][0].partition.log
    with log.locks.end:
        for first, count, is_abort in ((0, 2, True), (2, 1, False)):
            log.append(of_producer(first, count, transactional=True))
            marker = encode_marker(Marker(is_abort, 0, T0), producer_id=7, producer_epoch=0)
            log.append(marker, origin="coordinator")
    broker = SimpleNamespace(client_connection=lambda: made)
    monkeypatch.setattr(reading, "broker_of", lambda options: broker)
    return made


def offsets(wanted: Range, level: str) -> list[int]:
    options = parse({"subscribe": "t", "isolationLevel": level}, "batch")
    batches = reading.read(options, wanted, ["offset"])
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_aborted_records_and_markers_are_no_rows(connection: Any) -> None:
    assert offsets(Range("t", 0, 0, 5), "read_committed") == [3]
    assert offsets(Range("t", 0, 0, 5), "read_uncommitted") == [0, 1, 3]
    assert {fetch.isolation for fetch in connection.fetches} == {0, 1}


def test_a_range_of_aborted_records_alone_is_empty_and_no_loss(connection: Any) -> None:
    for wanted in (Range("t", 0, 0, 1), Range("t", 0, 0, 3), Range("t", 0, 1, 2)):
        assert offsets(wanted, "read_committed") == []


def test_what_a_read_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "raylog.spark"):
        reading.report_undecided([Range("t", 0, 5, 9)])
    assert "t-0: offsets [5, 9) are not decided" in caplog.text
