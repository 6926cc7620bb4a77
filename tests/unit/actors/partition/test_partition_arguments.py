"""What a caller may hand to a partition: whatever it is, the answer is a result or an error with a
name.

An error without one would end the LogActor's process.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from raylog.actors.errors import InvalidRequest
from raylog.actors.partition import partition as module
from raylog.actors.partition.partition import Partition
from raylog.storage.errors import InvalidRecord
from raylog.storage.testing.logs import Disk, batch, offsets_of
from raylog.storage.testing.waiting import DEADLINE_S, wait_for

BATCH = bytes(batch(2))
ARRAY = np.frombuffer(BATCH, np.uint8)


@pytest.mark.parametrize(
    "records",
    [
        bytearray(BATCH),
        memoryview(BATCH),
        pa.py_buffer(BATCH),
        ARRAY.view(np.int8),
        ARRAY.reshape(1, -1),
    ],
    ids=["bytearray", "memoryview", "Arrow", "signed", "two dimensions"],
)
def test_a_batch_in_any_contiguous_buffer_is_a_batch(disk: Disk, records: Any) -> None:
    partition = Partition(disk.open(), disk.clock)
    assert partition.append(records).last_offset == 1


@pytest.mark.parametrize(
    "records",
    [
        np.repeat(ARRAY, 2)[::2],
        ARRAY[::-1],
        memoryview(BATCH + BATCH)[::2],
        np.asfortranarray(np.stack([ARRAY, ARRAY])),
        np.zeros((0, 3), np.uint8),
        np.zeros(20, "datetime64[ms]"),
        BATCH.hex(),
        list(BATCH),
        7,
        None,
    ],
    ids=[
        "every second",
        "reversed",
        "stepped",
        "columns",
        "no rows",
        "times",
        "str",
        "list",
        "int",
        "None",
    ],
)
def test_what_is_no_contiguous_buffer_is_refused_and_nothing_is_written(
    disk: Disk, records: Any
) -> None:
    partition = Partition(disk.open(), disk.clock)
    with pytest.raises(InvalidRecord, match="give bytes or a buffer"):
        partition.append(records)
    partition.append(BATCH)
    assert offsets_of(partition.log) == [0, 1]


def test_a_poll_waits_no_longer_than_the_cap(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAIT_MS", 1)
    partition = Partition(disk.open(), disk.clock)
    with ThreadPoolExecutor(1) as pool:
        assert (
            pool.submit(partition.fetch, 0, max_wait_ms=300_000).result(DEADLINE_S).records is None
        )
    assert partition.waiting == 0


def test_a_wait_beyond_what_a_clock_can_count_is_a_wait(disk: Disk) -> None:
    partition = Partition(disk.open(), disk.clock)
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(partition.fetch, 0, max_wait_ms=2**62)
        wait_for(lambda: partition.waiting == 1 or poll.done())
        partition.append(BATCH)
        assert poll.result(DEADLINE_S).records is not None


@pytest.mark.parametrize("timestamp", [-7, "yesterday", None])
def test_a_time_that_is_none_is_refused(disk: Disk, timestamp: Any) -> None:
    with pytest.raises(InvalidRequest, match="timestamp"):
        Partition(disk.open(), disk.clock).offset_for_timestamp(timestamp)
