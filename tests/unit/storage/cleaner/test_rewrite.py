"""Which segments become one: by bytes, by bytes of their indexes, by what an int32 can tell of
offsets."""

from typing import Any

import pytest

from raylog.storage.cleaner.rewrite import SegmentSizes, group_segments
from raylog.storage.config import LogConfig
from raylog.storage.limits import MAX_INT


def bases(segments: list[SegmentSizes], **config: Any) -> list[list[int]]:
    limits: dict[str, Any] = {"segment_bytes": 1000, "segment_index_bytes": 1000, **config}
    return [
        [part.base_offset for part in group]
        for group in group_segments(segments, LogConfig(**limits))
    ]


def some(*sizes: int, index: int = 0, time_index: int = 0) -> list[SegmentSizes]:
    return [
        SegmentSizes(
            base_offset=10 * n,
            end_offset=10 * n + 10,
            size_bytes=size,
            index_bytes=index,
            time_index_bytes=time_index,
        )
        for n, size in enumerate(sizes)
    ]


def test_no_segments_make_no_groups() -> None:
    assert bases([]) == []


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ((100, 100, 100), [[0, 10, 20]]),
        ((500, 500, 1), [[0, 10], [20]]),
        ((500, 501, 499), [[0], [10, 20]]),
        ((5000, 1, 5000), [[0], [10], [20]]),
        ((1, 1000, 1), [[0], [10], [20]]),
    ],
)
def test_a_group_stays_within_the_size_of_a_segment(
    sizes: tuple[int, ...], groups: list[list[int]]
) -> None:
    assert bases(some(*sizes)) == groups


def test_a_group_stays_within_the_size_of_each_index() -> None:
    assert bases(some(1, 1, 1, index=400), segment_index_bytes=800) == [[0, 10], [20]]
    assert bases(some(1, 1, 1, time_index=400), segment_index_bytes=800) == [[0, 10], [20]]
    assert bases(some(1, 1, 1, index=0, time_index=0), segment_index_bytes=0) == [[0, 10, 20]]


@pytest.mark.parametrize("base", [0, 10**12])
def test_a_group_stays_within_an_int32_of_offsets_from_its_first_base(base: int) -> None:
    last = base + MAX_INT
    far = [
        SegmentSizes(base, base + 10, 1, 0, 0),
        SegmentSizes(base + 10, last + 1, 1, 0, 0),
        SegmentSizes(last + 1, last + 2, 1, 0, 0),
    ]
    assert bases(far) == [[base, base + 10], [last + 1]]
    too_far = [far[0], far[1]._replace(end_offset=last + 2)]
    assert bases(too_far) == [[base], [base + 10]]


def test_an_empty_segment_joins_whatever_its_offsets() -> None:
    assert bases([SegmentSizes(0, 10, 1, 0, 0), SegmentSizes(10, 2**40, 0, 0, 0)]) == [[0, 10]]
