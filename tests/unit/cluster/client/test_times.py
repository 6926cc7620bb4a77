"""One rule for producers, consumers and the command line: a datetime without a zone is UTC."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from raylog.cluster.client.times import milliseconds


@pytest.fixture
def far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is nine hours ahead."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_east")
def test_a_datetime_without_a_zone_is_utc_wherever_the_program_runs() -> None:
    assert milliseconds(datetime(1970, 1, 2)) == 86_400_000


def test_a_zone_counts_and_no_millisecond_is_rounded() -> None:
    east = timezone(timedelta(hours=2))
    assert milliseconds(datetime(1970, 1, 1, 2, 0, 0, 1999, tzinfo=east)) == 1
    for ms in (1_700_000_000_001, 1_700_000_000_003, 253_402_300_799_999):
        assert milliseconds(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)) == ms
