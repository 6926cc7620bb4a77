"""The compiled kernel and its twin give the same answers, to good bytes and to bad ones."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.errors import CorruptRecord, InvalidRecord
from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import read_header, seal
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.records.rules import RecordRules

_kernel = pytest.importorskip("raylog.storage.records._kernel")
BOTH = (_kernel, _kernel_py)
T0 = 1_700_000_000_000

headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
rows = st.tuples(
    st.integers(-1, 2**63 - 1),
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=200),
    headers,
)
int64 = st.integers(-(2**63), 2**63 - 1)


def answer(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except CorruptRecord as error:
        return error.where  # type: ignore[attr-defined]


@given(st.lists(rows, min_size=1, max_size=8), st.none() | int64)
def test_rows_encode_to_the_same_bytes(batch_rows: list, base_timestamp: int | None) -> None:
    ours, twins = (ops.encode_rows(batch_rows, base_timestamp, None, 0) for ops in BOTH)
    assert ours[0][HEADER_SIZE:] == twins[0][HEADER_SIZE:]
    assert ours[1:] == twins[1:]


@given(st.lists(rows, min_size=1, max_size=8), int64, int64, st.booleans())
def test_batches_decode_to_the_same_records(
    batch_rows: list, start: int, end: int, with_headers: bool
) -> None:
    fetch = bytes(
        encode_records(batch_rows, base_offset=5) + encode_records(batch_rows, base_offset=2**62)
    )
    assert _kernel.decode_rows(fetch, start, True, False) == _kernel_py.decode_rows(
        fetch, start, True, False
    )
    ours, twins = (ops.decode_columns(fetch, start, end, True, with_headers) for ops in BOTH)
    assert ours == twins


@given(st.lists(rows, min_size=1, max_size=4), st.data())
def test_damaged_batches_get_the_same_answer(batch_rows: list, data: st.DataObject) -> None:
    batch = encode_records(batch_rows)
    for _ in range(data.draw(st.integers(1, 3))):
        # the records mostly, but also lengths, offsets and timestamps of the header
        position = data.draw(
            st.integers(21, len(batch) - 1) | st.integers(HEADER_SIZE, len(batch) - 1)
        )
        batch[position] = data.draw(st.integers(0, 255))
    fetch = bytes(encode_records(batch_rows) + seal(batch, read_header(batch)))
    ours, twins = (
        answer(ops.decode_columns, fetch, -(2**63), 2**63 - 1, True, True) for ops in BOTH
    )
    assert ours == twins
    ours, twins = (answer(ops.decode_rows, fetch, -(2**63), True, True) for ops in BOTH)
    assert ours == twins


@given(st.lists(st.lists(rows, min_size=1, max_size=2), max_size=4), st.booleans(), st.data())
def test_a_scan_sees_the_same_batches(
    batches: list[list], check_crc: bool, data: st.DataObject
) -> None:
    fetch = bytearray()
    for batch_rows in batches:
        fetch += encode_records(
            batch_rows, base_offset=len(fetch), producer_id=7, producer_epoch=0, base_sequence=1
        )
    fetch = fetch[: data.draw(st.integers(0, len(fetch)))]
    if fetch and data.draw(st.booleans()):
        fetch[data.draw(st.integers(0, len(fetch) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    (ours, our_end), (twins, twin_end) = (ops.scan_batches(fetch, 0, check_crc) for ops in BOTH)
    assert (bytes(ours), our_end) == (bytes(twins), twin_end)


@given(
    st.lists(rows, min_size=1, max_size=8),
    st.integers(0, 6),
    st.integers(0, 9),
    st.booleans(),
    st.data(),
)
def test_compaction_gives_the_same_answers(
    batch_rows: list, capacity: int, start: int, drop: bool, data: st.DataObject
) -> None:
    plain = bytes(encode_records(batch_rows))[HEADER_SIZE:]
    damaged = bytearray(plain)
    damaged[data.draw(st.integers(0, len(plain) - 1))] ^= data.draw(st.sampled_from([0, 1, 128]))
    told = []
    for ops in BOTH:
        table = ops.OffsetTable(capacity + 2, capacity + 1, b"0123456789abcdef")
        count, keys = len(batch_rows), [row[1] for row in batch_rows if row[1] is not None]
        answers = [answer(table.put_records, plain, count, 5, start)]
        answers += [table.size, [table.get(key) for key in keys]]
        kept = answer(table.judge_records, plain, count, 5, start + 3, drop)
        answers += [kept, answer(table.judge_records, damaged, count, 0, start, drop)]
        flags = bytes(n % 3 > 0 for n in range(count))
        for base in (None, 7):
            made = answer(ops.rebuild_records, plain, flags, T0, base, None)
            answers.append((made[0][HEADER_SIZE:], made[1:]) if any(flags) else None)
        told.append(answers)
    assert told[0] == told[1]


kinds = st.sampled_from(
    [
        {},
        {"compression_type": "lz4"},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0},
        {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True},
    ]
)


@given(
    st.lists(st.tuples(st.lists(rows, min_size=1, max_size=3), kinds), max_size=6),
    st.integers(0, 6),
    int64,
)
def test_compaction_gives_the_same_answers_for_many_batches(
    batches: list, capacity: int, latest: int
) -> None:
    chunk, offset = bytearray(), 5
    for batch_rows, kind in batches:
        chunk += encode_records(batch_rows, base_offset=offset, **kind)
        offset += len(batch_rows) + 1
    told: list[list[Any]] = []
    for ops in BOTH:
        headers = ops.leading_headers(chunk)
        table = ops.OffsetTable(capacity + 2, capacity + 1, b"0123456789abcdef")
        answers: list[Any] = [len(headers)]
        number, position, is_full = 0, 0, False
        while number < len(headers) and not is_full:
            number, position, last, is_full = table.put_batches(chunk, headers, number, position, 6)
            answers.append((number, position, last, is_full, table.size))
            if number < len(headers):
                number, position = number + 1, position + headers[number].size_bytes
        answers += [table.judge_batches(chunk, headers, end) for end in (latest, 9, 2**62)]
        told.append(answers)
    assert told[0] == told[1]
    assert told[0][0] == len(batches)


@given(st.lists(rows, min_size=1, max_size=2), st.integers(0, 400), st.integers(0, 7))
def test_the_same_batches_of_a_chunk_are_led_by_headers(
    batch_rows: list, position: int, bit: int
) -> None:
    chunk = encode_records(batch_rows) + encode_records(
        batch_rows, base_offset=5, compression_type="lz4"
    )
    assert len(_kernel.leading_headers(chunk)) == 2
    assert _kernel.leading_headers(chunk) == _kernel_py.leading_headers(chunk)
    damaged = bytearray(chunk)
    damaged[position % len(chunk)] ^= 1 << bit
    for some in (damaged, chunk[: position % len(chunk)]):
        assert _kernel.leading_headers(some) == _kernel_py.leading_headers(some)


@given(st.lists(rows, min_size=1, max_size=4), st.booleans(), st.data())
def test_a_walk_over_damaged_records_finds_the_same(
    batch_rows: list, needs_keys: bool, data: st.DataObject
) -> None:
    rules = RecordRules(1 << 20, data.draw(st.integers(0, 2**63 - 1)), 5, True, needs_keys)
    records = bytearray(encode_records(batch_rows)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(0, 3))):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    count = data.draw(st.integers(0, 5))
    base_timestamp = data.draw(st.just(batch_rows[0][0]) | int64)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(records)), max_size=4)))
    told = []
    for ops in BOTH:
        for ends in ([len(records)], [*cuts, len(records)]):
            walk = ops.RecordWalk(count, base_timestamp, rules, T0)
            told.append(walked(walk, bytes(records), ends))
    assert told == told[:1] * 4


def walked(walk: Any, records: bytes, ends: list[int]) -> Any:
    start = 0
    try:
        for end in ends:
            walk.feed(records[start:end])
            start = end
        walk.finish()
    except InvalidRecord as error:
        return str(error)
    return walk.largest_timestamp, walk.outside, walk.keyless, list(walk.named)


@given(st.lists(rows, min_size=1, max_size=4), int64, st.booleans(), st.data())
def test_the_glance_lets_nothing_pass_that_the_walk_refuses(
    batch_rows: list, now_ms: int, needs_keys: bool, data: st.DataObject
) -> None:
    rules = RecordRules(1 << 20, 1 << 40, 1 << 40, True, needs_keys)
    batch = encode_records(batch_rows)
    batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    header = read_header(seal(batch, read_header(batch)))
    glance = _kernel.check_batch(bytes(batch), rules, now_ms)
    walk = _kernel_py.RecordWalk(header.count, header.base_timestamp, rules, now_ms)
    found = walked(walk, bytes(batch)[HEADER_SIZE:], [len(batch)])
    is_true = found == (header.max_timestamp, None, 0, [])
    is_late = header.max_timestamp - now_ms > 1 << 40
    assert (glance == header) == (is_true and not is_late)


def test_they_have_the_same_functions() -> None:
    for name in (
        "check_batch",
        "encode_rows",
        "decode_rows",
        "decode_columns",
        "murmur2",
        "partition_column",
    ):
        assert callable(getattr(_kernel, name))
        assert inspect.isfunction(getattr(_kernel_py, name))
    assert kernel.ops in BOTH


def test_a_process_can_ask_for_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYLOG_PURE_PYTHON", "1")
    assert kernel._choose() is _kernel_py
    monkeypatch.delenv("RAYLOG_PURE_PYTHON")
    assert kernel._choose() is _kernel


def test_a_missing_extension_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYLOG_PURE_PYTHON", raising=False)
    monkeypatch.setitem(__import__("sys").modules, "raylog.storage.records._kernel", None)
    monkeypatch.delattr("raylog.storage.records._kernel")
    with pytest.warns(RuntimeWarning, match="compiled kernel is missing"):
        assert kernel._choose() is _kernel_py
