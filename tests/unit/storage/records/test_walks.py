"""The two walks of every read: over the headers of batches, and over the entries of an index."""

import sys
from struct import Struct
from types import FrameType
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import read_header, stamp
from raylog.storage.records.layout import (
    AT_BASE_OFFSET,
    AT_LAST_OFFSET_DELTA,
    AT_LENGTH,
    AT_MAGIC,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MIN_BATCH_LENGTH,
)
from raylog.storage.testing.logs import batch, batch_of_size

MAX_LONG = 2**63 - 1
FOUND, MORE, ODD = 0, 1, 2
# Three batches of ten records: offsets 0-9, 10-19, 20-29 at positions 0, 200, 500; 1,000 bytes.
SIZES = (200, 300, 500)


def block_of(sizes: tuple[int, ...] = SIZES, first_offset: int = 0) -> bytearray:
    content = bytearray()
    for number, size in enumerate(sizes):
        content += stamped(batch_of_size(size, 10), first_offset + 10 * number)
    return content


def stamped(content: bytearray, base_offset: int) -> bytearray:
    stamp(content, base_offset, 0)
    return content


def changed(at: int, value: int, size: int) -> bytearray:
    """The three batches, with another number in the header of the second."""
    content = block_of()
    content[200 + at : 200 + at + size] = value.to_bytes(size, "big", signed=True)
    return content


# -- batches ---------------------------------------------------------------------------------------


def test_the_states_are_the_same_numbers_in_both_kernels() -> None:
    states = (kernel.ops.WALK_FOUND, kernel.ops.WALK_MORE, kernel.ops.WALK_ODD)
    assert states == (FOUND, MORE, ODD)
    assert states == (_kernel_py.WALK_FOUND, _kernel_py.WALK_MORE, _kernel_py.WALK_ODD)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (-1, (FOUND, 0, 200, 0)),
        (0, (FOUND, 0, 200, 0)),
        (9, (FOUND, 0, 200, 0)),
        (10, (FOUND, 200, 300, 10)),
        (19, (FOUND, 200, 300, 10)),
        (20, (FOUND, 500, 500, 20)),
        (29, (FOUND, 500, 500, 20)),
        (30, (MORE, 1000, 0, 30)),
        (MAX_LONG, (MORE, 1000, 0, 30)),
    ],
)
def test_the_first_batch_that_reaches_an_offset_is_found(
    offset: int, expected: tuple[int, ...]
) -> None:
    assert kernel.ops.walk(block_of(), offset, MAX_LONG, 0) == expected


@pytest.mark.parametrize(
    ("limit", "position"),
    [(-5, 0), (0, 0), (199, 0), (200, 200), (499, 200), (500, 500), (999, 500), (1000, 1000)],
)
def test_the_first_batch_that_ends_behind_a_limit_is_found(limit: int, position: int) -> None:
    state, at, _, _ = kernel.ops.walk(block_of(), MAX_LONG, limit, 0)
    assert (state, at) == (FOUND if position < 1000 else MORE, position)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, (MORE, 0, 0, 0)),
        (HEADER_SIZE - 1, (MORE, 0, 0, 0)),
        (HEADER_SIZE, (MORE, 200, 0, 10)),
        (200 + HEADER_SIZE - 1, (MORE, 200, 0, 10)),
        (200 + HEADER_SIZE, (FOUND, 200, 300, 10)),
    ],
)
def test_only_headers_have_to_be_in_the_block(size: int, expected: tuple[int, ...]) -> None:
    assert kernel.ops.walk(bytes(block_of()[:size]), 15, MAX_LONG, 0) == expected


@pytest.mark.parametrize(
    ("at", "size", "value"),
    [
        (AT_MAGIC, 1, 1),
        (AT_MAGIC, 1, 3),
        (AT_MAGIC, 1, -1),
        (AT_LENGTH, 4, MIN_BATCH_LENGTH - 1),
        (AT_LENGTH, 4, 0),
        (AT_LENGTH, 4, -1),
        (AT_LENGTH, 4, -(2**31)),
        (AT_BASE_OFFSET, 8, 9),
        (AT_BASE_OFFSET, 8, -1),
        (AT_BASE_OFFSET, 8, MAX_LONG),
        (AT_LAST_OFFSET_DELTA, 4, -1),
        (AT_LAST_OFFSET_DELTA, 4, -(2**31)),
    ],
)
def test_a_header_that_cannot_stand_there_is_odd(at: int, size: int, value: int) -> None:
    assert kernel.ops.walk(changed(at, value, size), 25, MAX_LONG, 0) == (ODD, 200, 0, 10)


def test_the_first_batch_must_not_begin_before_the_next_offset() -> None:
    assert kernel.ops.walk(block_of(first_offset=5), 5, MAX_LONG, 5)[0] == FOUND
    assert kernel.ops.walk(block_of(first_offset=5), 5, MAX_LONG, 6) == (ODD, 0, 0, 6)


@pytest.mark.parametrize(("end_offset", "state"), [(31, MORE), (30, MORE), (29, ODD), (0, ODD)])
def test_a_batch_that_reaches_the_end_offset_is_odd(end_offset: int, state: int) -> None:
    found = kernel.ops.walk(block_of(), MAX_LONG, MAX_LONG, 0, end_offset)
    assert found[0] == state


def test_a_length_that_leads_out_of_the_block_ends_the_walk_there() -> None:
    lying = changed(AT_LENGTH, 2**31 - 1, 4)
    assert kernel.ops.walk(lying, 25, MAX_LONG, 0) == (MORE, 200 + 2**31 - 1 + LOG_OVERHEAD, 0, 20)
    assert kernel.ops.walk(lying, 15, MAX_LONG, 0) == (FOUND, 200, 2**31 - 1 + LOG_OVERHEAD, 10)


def test_gaps_between_batches_are_no_fault() -> None:
    block = stamped(batch_of_size(100), 5) + stamped(batch_of_size(100), 50)
    assert kernel.ops.walk(block, 6, MAX_LONG, 0) == (FOUND, 100, 100, 6)


class Walked(NamedTuple):
    state: int
    position: int
    size: int
    next_offset: int


def plain_walk(
    block: bytes, offset: int, limit: int, next_offset: int, end_offset: int = MAX_LONG
) -> Walked:
    """The same by slices of bytes and plain integers."""
    position = 0
    while len(block) - position >= HEADER_SIZE:
        length = int.from_bytes(block[position + 8 : position + 12], "big", signed=True)
        base = int.from_bytes(block[position : position + 8], "big", signed=True)
        delta = int.from_bytes(block[position + 23 : position + 27], "big", signed=True)
        last = (base + delta + 2**63) % 2**64 - 2**63
        is_rising = next_offset <= base <= last < end_offset
        if block[position + 16] != 2 or length < 49 or not is_rising:
            return Walked(ODD, position, 0, next_offset)
        if last >= offset or position + 12 + length > limit:
            return Walked(FOUND, position, 12 + length, next_offset)
        position, next_offset = position + 12 + length, last + 1
    return Walked(MORE, position, 0, next_offset)


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    content, offset = bytearray(), 0
    for size in draw(st.lists(st.integers(0, 300), max_size=5)):
        content += stamped(batch(3, value=b"v" * size), offset)
        offset += draw(st.integers(3, 5))
    return bytes(content)


int64 = st.integers(-(2**63), MAX_LONG)


@given(
    blocks(),
    st.integers(-1, 27),
    st.integers(-1, 2000),
    st.integers(0, 12),
    st.integers(0, 30) | st.just(MAX_LONG),
    st.data(),
)
@example(bytes(block_of()), 25, MAX_LONG, 0, MAX_LONG, None)
def test_a_walk_agrees_with_a_plain_one(
    block: bytes,
    offset: int,
    limit: int,
    next_offset: int,
    end_offset: int,
    data: st.DataObject | None,
) -> None:
    damaged = bytearray(block)
    if block and data is not None:
        damaged = damaged[: data.draw(st.integers(0, len(block)))]
        for _ in range(data.draw(st.integers(0, 2)) if damaged else 0):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    for content in (bytes(damaged), bytearray(damaged), memoryview(damaged)):
        answer = kernel.ops.walk(content, offset, limit, next_offset, end_offset)
        assert answer == plain_walk(bytes(damaged), offset, limit, next_offset, end_offset)


@given(st.binary(max_size=300), int64, int64, int64, int64)
def test_any_bytes_and_any_numbers_get_the_plain_answer(
    block: bytes, offset: int, limit: int, next_offset: int, end_offset: int
) -> None:
    assert kernel.ops.walk(block, offset, limit, next_offset, end_offset) == plain_walk(
        block, offset, limit, next_offset, end_offset
    )


def test_a_walk_found_is_a_header_that_can_be_read() -> None:
    block = bytes(block_of())
    _, position, size, _ = kernel.ops.walk(block, 12, MAX_LONG, 0)
    assert read_header(block, position).size_bytes == size


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**200])
def test_numbers_that_no_file_holds_are_refused(number: int, kernel_in_use: str) -> None:
    if kernel_in_use != "compiled":
        pytest.skip("integers have no bounds there")
    block = bytes(block_of())
    for arguments in ((number, 0, 0), (0, number, 0), (0, 0, number), (0, 0, 0, number)):
        with pytest.raises(OverflowError):
            kernel.ops.walk(block, *arguments)


def test_what_is_no_buffer_is_refused() -> None:
    no_buffer: Any = "text" * 20
    with pytest.raises(TypeError):
        kernel.ops.walk(no_buffer, 0, 0, 0)
    with pytest.raises(TypeError):
        kernel.ops.count_up_to(no_buffer, 8, 0, 4, 0, 0)


def test_entries_can_be_added_to_while_they_are_counted() -> None:
    """The writer adds to the very bytes that readers look into."""
    entries = bytearray(OFFSETS.pack(1, 1) * 200)

    def add(frame: FrameType, event: str, _: Any) -> Any:
        entries.extend(b"12345678")
        del entries[-8:]
        return add

    sys.settrace(add)
    try:
        kernel.ops.count_up_to(entries, 8, 0, 4, 0, 16)
    finally:
        sys.settrace(None)


# -- entries ---------------------------------------------------------------------------------------

OFFSETS, TIMES = Struct(">ii"), Struct(">qi")


def test_entries_up_to_a_number_are_counted() -> None:
    entries = b"".join(OFFSETS.pack(10 * n, 100 * n) for n in range(1, 6))
    for wanted, count in {9: 0, 10: 1, 11: 1, 49: 4, 50: 5, 51: 5, 2**40: 5, -(2**40): 0}.items():
        for warm_bytes in (0, 8, 16, 8192):
            assert kernel.ops.count_up_to(entries, 8, 0, 4, wanted, warm_bytes) == count
            assert kernel.ops.count_up_to(entries, 8, 4, 4, 10 * wanted, warm_bytes) == count


def test_no_entries_are_none() -> None:
    assert kernel.ops.count_up_to(b"", 8, 0, 4, 5, 8192) == 0
    assert kernel.ops.count_up_to(b"\0" * 7, 8, 0, 4, 5, 8192) == 0


rising = st.lists(st.integers(-(2**31), 2**31 - 1), unique=True, max_size=60).map(sorted)


@given(rising, st.integers(-(2**31) - 2, 2**31 + 2), st.integers(0, 300), st.integers(0, 7))
def test_a_count_agrees_with_a_plain_one(
    column: list[int], wanted: int, warm_bytes: int, torn_bytes: int
) -> None:
    expected = sum(number <= wanted for number in column)
    as_offsets = b"".join(OFFSETS.pack(number, 0) for number in column) + b"\0" * torn_bytes
    as_positions = b"".join(OFFSETS.pack(0, number) for number in column)
    as_times = b"".join(TIMES.pack(number << 31, 0) for number in column)
    ops = kernel.ops
    assert ops.count_up_to(as_offsets, 8, 0, 4, wanted, warm_bytes) == expected
    assert ops.count_up_to(as_positions, 8, 4, 4, wanted, warm_bytes) == expected
    assert ops.count_up_to(as_times, 12, 0, 8, wanted << 31, warm_bytes) == expected
    if column:
        for number in (column[0], column[-1], column[len(column) // 2]):
            count = column.index(number) + 1
            assert ops.count_up_to(as_offsets, 8, 0, 4, number, warm_bytes) == count
            assert ops.count_up_to(as_offsets, 8, 0, 4, number - 1, warm_bytes) == count - 1


@given(st.binary(max_size=200), int64, st.integers(0, 100))
def test_a_count_of_any_bytes_is_within_them(entries: bytes, wanted: int, warm_bytes: int) -> None:
    """A lying index does not rise: what is answered may be wrong, but never beyond its entries."""
    for size, at, width in ((8, 0, 4), (8, 4, 4), (12, 0, 8), (12, 8, 4)):
        count = kernel.ops.count_up_to(entries, size, at, width, wanted, warm_bytes)
        assert 0 <= count <= len(entries) // size
        assert count == _kernel_py.count_up_to(entries, size, at, width, wanted, warm_bytes)


@pytest.mark.parametrize(
    ("entry_size", "at", "width"),
    [(0, 0, 4), (-8, 0, 4), (8, -1, 4), (8, 5, 4), (8, 0, 3), (8, 0, 0), (8, 1, 8), (4, 0, 8)],
)
def test_a_column_that_is_not_in_the_entries_is_refused(
    entry_size: int, at: int, width: int
) -> None:
    with pytest.raises(ValueError, match="no column"):
        kernel.ops.count_up_to(b"\0" * 64, entry_size, at, width, 5, 8192)


@pytest.mark.parametrize("warm_bytes", [-1, -8192, -(2**63)])
def test_a_warm_end_below_zero_is_refused(warm_bytes: int) -> None:
    with pytest.raises(ValueError, match="warm"):
        kernel.ops.count_up_to(b"\0" * 64, 8, 0, 4, 5, warm_bytes)
