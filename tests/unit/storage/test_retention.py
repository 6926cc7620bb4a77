"""Which segments may go: decided over numbers."""

from typing import Any

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.retention import SegmentFacts, segments_to_delete

NOW = 1_000_000


def facts(*segments: tuple[int, int]) -> list[SegmentFacts]:
    """(size in bytes, age in ms), ten offsets each."""
    return [SegmentFacts(10 * n + 10, size, NOW - age) for n, (size, age) in enumerate(segments)]


def doomed(
    segments: list[SegmentFacts],
    *,
    start: int = 0,
    high_watermark: int | None = None,
    **config: Any,
) -> int:
    keys: dict[str, Any] = {"retention_ms": -1, **config}
    mark = segments[-1].end_offset if high_watermark is None else high_watermark
    return segments_to_delete(segments, LogConfig(**keys), NOW, start, mark)


THREE = facts((100, 300), (100, 200), (100, 100))


def test_without_limits_all_stays() -> None:
    assert doomed(THREE) == 0


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(0, 3), (1, 2), (99, 2), (100, 2), (101, 1), (200, 1), (201, 0), (300, 0), (10**9, 0)],
)
def test_size_never_takes_a_log_below_its_limit(limit: int, expected: int) -> None:
    assert doomed(THREE, retention_bytes=limit) == expected


@pytest.mark.parametrize(("limit", "expected"), [(300, 0), (299, 1), (199, 2), (99, 3), (0, 3)])
def test_time_takes_what_is_older_than_its_limit(limit: int, expected: int) -> None:
    assert doomed(THREE, retention_ms=limit) == expected


def test_one_segment_from_the_future_blocks_those_behind_it() -> None:
    assert doomed(facts((1, 500), (1, -500), (1, 500)), retention_ms=100) == 1


@pytest.mark.parametrize(
    ("start", "expected"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (30, 2)]
)
def test_what_is_below_the_start_goes_but_never_the_last(start: int, expected: int) -> None:
    assert doomed(THREE, start=start) == expected


def test_the_order_is_start_then_size_then_time() -> None:
    four = facts((100, 50), (100, 40), (100, 30), (100, 20))
    # counted without the one that the start takes
    assert doomed(four, start=10, retention_bytes=200) == 2
    assert doomed(four, start=10, retention_bytes=200, retention_ms=25) == 3


@pytest.mark.parametrize(("mark", "expected"), [(30, 3), (29, 2), (10, 1), (9, 0)])
def test_nothing_goes_that_is_not_replicated(mark: int, expected: int) -> None:
    assert doomed(THREE, high_watermark=mark, retention_ms=0) == expected


def test_an_empty_last_segment_never_goes() -> None:
    assert doomed(facts((100, 9), (0, 9)), retention_ms=0) == 1
    assert doomed(facts((0, 9)), retention_ms=0, retention_bytes=0) == 0


def test_an_empty_segment_in_the_middle_goes() -> None:
    assert doomed(facts((100, 9), (0, 9), (100, 1)), retention_ms=5) == 2


def test_a_log_that_is_only_compacted_loses_what_lies_below_its_start_and_no_more() -> None:
    for limit in ({"retention_bytes": 0}, {"retention_ms": 0}):
        assert doomed(THREE, cleanup_policy="compact", **limit) == 0
        assert doomed(THREE, start=10, cleanup_policy="compact", **limit) == 1
        assert doomed(THREE, start=10, cleanup_policy="compact,delete", **limit) == 3
