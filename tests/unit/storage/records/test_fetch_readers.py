"""A fetch read in parts: whatever the budgets, the same records come, in order, once."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.errors import CorruptRecord
from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import read_header, seal
from raylog.storage.records.columns import decoded_batch
from raylog.storage.records.decode import TableReader, decode_records, row_reader
from raylog.storage.records.encode import encode_records
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.records.record import ConsumerRecord

T0 = 1_700_000_000_000
KERNELS = [kernel.ops, _kernel_py] if kernel.ops is not _kernel_py else [_kernel_py]
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)
rows = st.lists(
    st.tuples(
        st.integers(0, 2**40),
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=30),
        headers,
    ),
    min_size=1,
    max_size=5,
)
batches = st.tuples(rows, st.sampled_from(CODECS), st.sampled_from((0, 1, 2, 2, 2)))


@pytest.fixture
def ops() -> Any:
    """The kernel that ``conftest.py`` has put there: each in its turn."""
    return kernel.ops


def encoded(kinds: list[Any], gap: int = 0) -> bytes:
    """A fetch of batches of all versions, with ``gap`` offsets between them."""
    fetch, offset = bytearray(), 0
    for batch_rows, codec, magic in kinds:
        if magic == 2:
            fetch += encode_records(batch_rows, base_offset=offset, compression_type=codec)
        else:
            fetch += encode_legacy(
                [row[:3] for row in batch_rows],
                magic=magic,
                base_offset=offset,
                compression_type="none" if codec == "zstd" else codec,
            )
        offset += len(batch_rows) + gap
    return bytes(fetch)


@given(
    st.lists(batches, max_size=4),
    st.integers(0, 3),
    st.integers(0, 20),
    st.integers(1, 25),
    st.integers(1, 6),
    st.integers(1, 200),
)
def test_the_records_of_all_takes_are_those_of_the_whole_fetch(
    kinds: list, gap: int, start: int, size: int, max_records: int, max_bytes: int
) -> None:
    fetch = encoded(kinds, gap)
    end = start + size
    wanted = [r for r in decode_records(fetch, start_offset=start) if r.offset < end]
    told = []
    for ops in KERNELS:
        reader = ops.RowReader(fetch, "t", 3, start, end)
        found, places = [], []
        while not reader.is_done:
            taken = reader.take(max_records, max_bytes)
            assert len(taken) <= max_records
            if taken:
                assert taken[-1].offset < reader.next_offset <= end
            found += taken
            places.append((len(taken), reader.taken_bytes, reader.next_offset, reader.is_done))
        assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in found] == [
            tuple(r) for r in wanted
        ]
        assert all(type(r) is ConsumerRecord and r[:2] == ("t", 3) for r in found)
        told.append((places, [r.timestamp_type for r in found]))
    assert told == told[:1] * len(KERNELS)


@given(st.lists(batches, max_size=4), st.integers(0, 20), st.integers(1, 25), st.integers(1, 200))
def test_the_tables_of_all_takes_are_the_rows(
    kinds: list, start: int, size: int, max_bytes: int
) -> None:
    fetch = encoded(kinds)
    for ops in KERNELS:
        (rows,) = [ops.RowReader(fetch, "t", 0, start, start + size).take(1000, 1 << 30)]
        reader, found = ops.TableReader(fetch, start, start + size), []
        while not reader.is_done:
            table = decoded_batch(reader.take(max_bytes))
            table.validate(full=True)
            found += table.to_pylist()
            if found:
                assert reader.next_offset > found[-1]["offset"]
        assert [
            (r["offset"], r["timestamp"], r["timestampType"], r["key"], r["value"]) for r in found
        ] == [tuple(r[2:7]) for r in rows]
        assert [[tuple(h.values()) for h in r["headers"]] for r in found] == [
            [tuple(h) for h in r.headers] for r in rows
        ]


@given(st.lists(batches, min_size=1, max_size=3), st.data())
def test_damage_is_raised_behind_everything_before_it_and_again(
    kinds: list, data: st.DataObject
) -> None:
    fetch = bytearray(encoded(kinds))
    fetch[data.draw(st.integers(0, len(fetch) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    told = []
    for ops in KERNELS:
        reader = ops.RowReader(bytes(fetch), "t", 0, 0)
        table = ops.TableReader(bytes(fetch), 0)
        story, columns = [], 0
        why: str | None = None
        while not reader.is_done and why is None:
            try:
                story += reader.take(2, 1 << 20)
            except CorruptRecord as error:
                why = error.where  # type: ignore[attr-defined]
                with pytest.raises(CorruptRecord):
                    reader.take(2, 1 << 20)
        where: str | None = None
        while not table.is_done:
            try:
                columns += table.take(50)[0]
            except CorruptRecord as error:
                where = error.where  # type: ignore[attr-defined]
                break
        assert where == why
        assert columns == len(story)
        told.append((story, why, reader.next_offset, table.next_offset))
    assert told == told[:1] * len(KERNELS)


def test_a_record_that_is_larger_than_the_budget_comes_alone(ops: Any) -> None:
    fetch = bytes(encode_records([(T0, None, bytes(1000), ()), (T0, None, bytes(1000), ())]))
    reader = ops.RowReader(fetch, "t", 0, 0)
    assert [len(reader.take(9, 1)) for _ in range(2)] == [1, 1]
    assert reader.is_done
    assert ops.TableReader(fetch, 0).take(1)[0] == 1
    for budget in ((0, 1), (1, 0), (-1, 5)):
        with pytest.raises(ValueError, match="at least one"):
            ops.RowReader(fetch, "t", 0, 0).take(*budget)
    with pytest.raises(ValueError, match="at least one"):
        ops.TableReader(fetch, 0).take(0)


def test_the_position_behind_a_batch_is_behind_the_offsets_that_compaction_left_empty(
    ops: Any,
) -> None:
    batch = encode_records([(T0, None, b"a", ()), (T0, None, b"b", ())], base_offset=10)
    header = read_header(batch)
    fetch = bytes(seal(batch, header._replace(last_offset_delta=9)))
    reader = ops.RowReader(fetch, "t", 0, 0)
    assert (reader.take(1, 99)[0].offset, reader.next_offset) == (10, 11)
    assert (reader.take(1, 99)[0].offset, reader.next_offset) == (11, 20)
    assert reader.is_done
    bounded = ops.RowReader(fetch, "t", 0, 0, 15)
    assert len(bounded.take(9, 99)) == 2
    assert bounded.next_offset == 15, "everything before the end was read"


def test_batches_that_hold_nothing_for_a_reader_are_passed_over(ops: Any) -> None:
    row = (T0, bytes(4), bytes(6), ())
    fetch = bytes(
        encode_records(
            [row], base_offset=5, producer_id=1, producer_epoch=0, transactional=True, control=True
        )
    )
    reader = ops.RowReader(fetch, "t", 0, 0)
    assert reader.take(9, 99) == []
    assert (reader.is_done, reader.next_offset) == (True, 6)
    partial = fetch[:-1]
    reader = ops.RowReader(partial, "t", 0, 3)
    assert (reader.take(9, 99), reader.is_done, reader.next_offset) == ([], True, 3)


def test_one_batch_is_decompressed_at_a_time() -> None:
    """0.1 MB that hold 64 MB are read in parts, and never are all of them there."""
    fetch = bytes(
        b"".join(
            encode_records(
                [(T0, None, bytes(1 << 20), ())] * 4, base_offset=4 * n, compression_type="zstd"
            )
            for n in range(16)
        )
    )
    assert len(fetch) < 100_000
    reader = row_reader(fetch, "t", 0)
    sizes = []
    while not reader.is_done:
        sizes.append(len(reader.take(500, 2 << 20)))
    assert sum(sizes) == 64
    assert max(sizes) <= 3
    table, rows = TableReader(fetch), []
    while not table.is_done:
        rows.append(table.take(3 << 20).num_rows)
    assert sum(rows) == 64
    assert max(rows) <= 4
