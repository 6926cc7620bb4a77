"""Batches for tests are what they are said to be."""

import pytest

from raylog.storage.records.batch import read_header
from raylog.storage.testing.logs import batch_of_size

# Of a batch of one record: the record's length has one byte below, and two bytes above.
SKIPPED_BYTES = 126


@pytest.mark.parametrize("count", [1, 2, 10])
@pytest.mark.parametrize("size_bytes", [150, 1000, 8300, 16_450, 1_048_589])
def test_a_batch_has_the_size_that_was_asked_for(size_bytes: int, count: int) -> None:
    made = batch_of_size(size_bytes, count)
    assert (len(made), read_header(made).count) == (size_bytes, count)


@pytest.mark.parametrize(("size_bytes", "count"), [(SKIPPED_BYTES, 1), (0, 1), (60, 1), (100, 30)])
def test_a_batch_that_cannot_be_is_refused(size_bytes: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"no batch of {count} records has {size_bytes} bytes"):
        batch_of_size(size_bytes, count)


def test_every_size_is_made_or_refused() -> None:
    refused = []
    for size_bytes in range(68, 400):
        try:
            assert len(batch_of_size(size_bytes)) == size_bytes
        except ValueError:
            refused.append(size_bytes)
    assert refused[0] == SKIPPED_BYTES
    assert len(refused) <= 2
