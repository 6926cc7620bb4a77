"""When a new segment begins: by size, by offsets, by time."""

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.limits import MAX_INT, MAX_LONG
from raylog.storage.rolling import Rolling
from raylog.storage.testing.clock import T0


def rolling(now_ms: int = T0, base_offset: int = 0, **config: int) -> Rolling:
    return Rolling(base_offset, LogConfig(**config), now_ms)  # type: ignore[arg-type]


def test_a_segment_is_full_behind_its_last_byte() -> None:
    limits = rolling(segment_bytes=100)
    assert not limits.is_due(60, 40, T0, 5, T0)
    assert limits.is_due(60, 41, T0, 5, T0)


def test_an_offset_must_fit_its_index() -> None:
    limits = rolling(base_offset=7)
    assert not limits.is_due(1, 1, T0, 7 + MAX_INT, T0)
    assert limits.is_due(1, 1, T0, 8 + MAX_INT, T0)


def test_an_empty_segment_has_no_time() -> None:
    limits = rolling(segment_ms=10)
    assert limits.last_timestamp == MAX_LONG
    assert not limits.is_due(0, 1, T0 + 10**6, 0, T0 + 10**6)


def test_time_is_the_records_where_they_have_any() -> None:
    limits = rolling(segment_ms=10)
    limits.begin_at(T0 + 100)
    assert not limits.is_due(1, 1, T0 + 110, 1, T0 + 10**6)
    assert limits.is_due(1, 1, T0 + 111, 1, T0)


def test_time_is_the_brokers_where_records_have_none() -> None:
    limits = rolling(segment_ms=10)
    limits.begin_at(-1)
    assert not limits.is_due(1, 1, T0 + 10**6, 1, T0 + 10)
    assert limits.is_due(1, 1, -1, 1, T0 + 11)


@pytest.mark.parametrize("first", [T0, 0, -1])
def test_a_later_batch_of_one_write_is_judged_as_if_it_came_after_it(first: int) -> None:
    for timestamp in (-1, first + 10, first + 11, T0 + 10**6):
        for now_ms in (T0, T0 + 10, T0 + 11):
            limits = rolling(segment_ms=10)
            together = limits.is_over(first, timestamp, now_ms)
            limits.begin_at(first)
            assert together == limits.is_due(1, 1, timestamp, 1, now_ms)


def test_another_config_is_obeyed_and_the_jitter_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.randrange", lambda below: below - 1)
    limits = rolling(segment_ms=1000, segment_jitter_ms=101)
    limits.begin_at(T0)
    assert limits.last_timestamp == T0 + 900
    limits.reconfigure(LogConfig(segment_ms=500, segment_bytes=77))
    assert (limits.last_timestamp, limits.max_bytes) == (T0 + 400, 77)
    limits.reconfigure(LogConfig(segment_ms=50))
    assert limits.last_timestamp == T0
    empty = rolling(segment_ms=1000)
    empty.reconfigure(LogConfig(segment_ms=500))
    assert empty.last_timestamp == MAX_LONG
    untimed = rolling(segment_ms=1000, segment_jitter_ms=101)
    untimed.begin_at(-1)
    untimed.reconfigure(LogConfig(segment_ms=500))
    assert not untimed.is_due(1, 1, -1, 1, T0 + 400)
    assert untimed.is_due(1, 1, -1, 1, T0 + 401)
