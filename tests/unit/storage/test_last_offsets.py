"""The last offsets that there are: 2^63-2 is the last record's."""

import pytest

from raylog.storage.errors import InvalidRecord
from raylog.storage.limits import MAX_LONG
from raylog.storage.log import Log
from raylog.storage.testing.logs import Disk, batch, of_producer, offsets_of


def ending_at(disk: Disk, base: int) -> Log:
    """A log whose one segment begins there."""
    for suffix in ("log", "index", "timeindex"):
        old = disk.path(f"{0:020d}.{suffix}")
        disk.fs.rename(old, disk.path(f"{base:020d}.{suffix}"))
    return disk.open()


@pytest.mark.parametrize("make", [batch, lambda count: of_producer(0, count)])
def test_a_log_ends_at_the_last_offset_and_says_so(make: object) -> None:
    disk = Disk()
    log = ending_at(disk, MAX_LONG - 4)
    assert log.append(batch(2)).last_offset == MAX_LONG - 3
    for _ in range(2):
        with pytest.raises(InvalidRecord, match="no offsets are left for 3 records"):
            log.append(make(3))  # type: ignore[operator]
    assert log.append(make(2)).last_offset == MAX_LONG - 1  # type: ignore[operator]
    with pytest.raises(InvalidRecord, match="no offsets are left"):
        log.append(batch())
    log.close()
    log = disk.open()
    assert log.log_end_offset == MAX_LONG
    assert offsets_of(log) == [MAX_LONG - 4 + n for n in range(4)]
