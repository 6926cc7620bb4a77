"""A digest is the same for the same records in the same order, and for nothing else."""

from typing import Any

import pyarrow as pa
import pytest

from examples.demo.digest import Digest, agree, digest_of, expected_digests

ROWS = [(b"UA", b'{"n":1}', 10), (b"AA", b'{"n":22}', 20), (b"UA", b"", 30)]


def table(rows: Any) -> pa.Table:
    keys, values, times = zip(*rows, strict=True)
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "timestamp": list(times),
        }
    )


def test_how_records_were_cut_into_batches_does_not_matter() -> None:
    whole = table(ROWS)
    parts = [whole.slice(0, 1), whole.slice(1, 0), whole.slice(1, 2)]
    assert digest_of(parts).hexdigest() == digest_of([whole]).hexdigest()
    assert digest_of(parts).count == 3
    assert digest_of(parts).content_bytes == 6 + 15


def test_timestamps_count_as_milliseconds_whatever_their_type() -> None:
    plain = table(ROWS)
    times = plain.column("timestamp").cast(pa.timestamp("ms", "UTC"))
    typed = plain.set_column(2, "timestamp", times)
    assert digest_of([typed]).hexdigest() == digest_of([plain]).hexdigest()


@pytest.mark.parametrize(
    "other",
    [
        [ROWS[1], ROWS[0], ROWS[2]],
        ROWS[:2],
        [*ROWS, ROWS[0]],
        [(b"UA", b'{"n":1}', 11), *ROWS[1:]],
        [(b"U", b'{"n":1}', 10), (b"AAA", b'{"n":22}', 20), ROWS[2]],
    ],
    ids=[
        "another order",
        "one lost",
        "one twice",
        "another time",
        "bytes moved from one key to the next",
    ],
)
def test_any_other_records_have_another_digest(other: Any) -> None:
    assert digest_of([table(other)]).hexdigest() != digest_of([table(ROWS)]).hexdigest()


def test_what_partitions_must_hold_is_the_source_split_by_key() -> None:
    digests = expected_digests(table(ROWS), 4)
    assert sum(digest.count for digest in digests) == 3
    assert agree(digests, expected_digests(table(ROWS), 4))
    assert not agree(digests, [Digest()] * 4)
