"""The walk over the records of an append: what it lets pass, what it refuses, in which words."""

import subprocess
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.errors import InvalidRecord
from raylog.storage.limits import MAX_LONG
from raylog.storage.records import kernel
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.records.rules import RecordRules
from raylog.storage.records.varints import put_varint
from raylog.storage.testing.waiting import DEADLINE_S

T0 = 1_700_000_000_000
RULES = RecordRules(
    max_bytes=1 << 20,
    before_max_ms=MAX_LONG,
    after_max_ms=3_600_000,
    is_create_time=True,
    needs_keys=False,
)
ROWS = [
    (T0, None, b"v" * 300, ()),
    (T0 + 7, b"key", None, [("name", b"x"), ("", None)]),
    (T0 - 5, b"", b"", [("n" * 100, b"y" * 200)]),
]

rows = st.tuples(
    st.integers(T0 - 10**6, T0 + 10**6) | st.just(-1),
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)


def walked(records: bytes, count: int, *cuts: int, rules: RecordRules = RULES) -> tuple:
    """What the walk finds, fed in pieces that end at ``cuts``."""
    walk = kernel.ops.RecordWalk(count, T0, rules, T0)
    start = 0
    for end in (*sorted(cuts), len(records)):
        walk.feed(memoryview(records)[start:end])
        start = end
    walk.finish()
    return walk.largest_timestamp, walk.outside, walk.keyless, list(walk.named)


def records_of(batch_rows: list) -> bytes:
    return bytes(encode_records(batch_rows))[HEADER_SIZE:]


def record(*fields: int | bytes, attributes: int = 0, length: int | None = None) -> bytes:
    """A record of any numbers, each as a varint, and bytes."""
    body = bytearray([attributes])
    for field in fields:
        if isinstance(field, bytes):
            body += field
        else:
            put_varint(body, field)
    out = bytearray()
    put_varint(out, len(body) if length is None else length)
    return bytes(out + body)


@given(st.lists(rows, min_size=1, max_size=8), st.data())
def test_what_the_encoder_writes_passes_whole_or_in_pieces(
    batch_rows: list, data: st.DataObject
) -> None:
    deltas = [(T0, *batch_rows[0][1:]), *batch_rows[1:]]  # the base timestamp of the walk
    records = records_of(deltas)
    largest = max(row[0] for row in deltas)
    cuts = data.draw(st.lists(st.integers(0, len(records)), max_size=5))
    assert walked(records, len(deltas)) == (largest, None, 0, [])
    assert walked(records, len(deltas), *cuts) == (largest, None, 0, [])


def test_a_cut_at_every_byte_changes_nothing() -> None:
    records = records_of(ROWS)
    for cut in range(len(records) + 1):
        assert walked(records, 3, cut) == (T0 + 7, None, 0, [])
    assert walked(records, 3, *range(len(records))) == (T0 + 7, None, 0, [])


@pytest.mark.parametrize(
    ("records", "count", "why"),
    [
        (records_of(ROWS), 2, "record 2: the header has a smaller count of records"),
        (records_of(ROWS), 4, "the batch has 3 records, but its header says 4"),
        (records_of(ROWS)[:-1], 3, "record 2: the batch ends within it"),
        (records_of(ROWS)[:1], 3, "record 0: the batch ends within it"),
        (b"", 2**31 - 1, "the batch has 0 records, but its header says 2147483647"),
        (record(0, 0, -1, -1, 0, attributes=1), 1, "record 0: its attributes are not 0"),
        (record(0, 1, -1, -1, 0), 1, "record 0: its offset delta is not its place"),
        (record(0, -1, -1, -1, 0), 1, "record 0: its offset delta is not its place"),
        (record(0, 0, -1, -1, 0) * 2, 2, "record 1: its offset delta is not its place"),
        (record(0, 0, -1, -1, 0, length=5), 1, "record 0: its length is too small"),
        (record(0, 0, -1, -1, 0, length=-7), 1, "record 0: its length is too small"),
        (record(0, 0, -1, -1, 0, b"\0"), 1, "bytes are left behind its last field"),
        (record(0, 0, 9, -1, 0), 1, "a field is longer than what is left of it"),
        (record(0, 0, 2**31 - 1, -1, 0), 1, "a field is longer than what is left of it"),
        (record(0, 0, -1, 9, 0), 1, "a field is longer than what is left of it"),
        (record(0, 0, -1, -1, -1), 1, "its header count is negative or more than its bytes"),
        (record(0, 0, -1, -1, 1), 1, "its header count is negative or more than its bytes"),
        (record(0, 0, -1, -1, 1, -1, -1), 1, "the name of a header is null"),
        (record(0, 0, -1, -1, 1, 2, b"n", -1), 1, "it is shorter than its fields"),
        (record(0, 0, -1, -1, 1, 3, b"n", -1), 1, "a field is longer than what is left of it"),
        (record(0, 0, -1, -1, 1, 1, b"n", 1), 1, "a field is longer than what is left of it"),
        (record(0, 0, -1, 2, b"vv"), 1, "it is shorter than its fields"),
        (b"\xff" * 5, 1, "a number is longer than its type"),
        (record(b"\xff" * 11), 1, "a number is longer than its type"),
    ],
)
def test_what_is_no_record_is_refused_however_it_comes(
    records: bytes, count: int, why: str
) -> None:
    for cuts in ((), (1,), range(len(records))):
        with pytest.raises(InvalidRecord) as caught:
            walked(records, count, *cuts)
        assert why in str(caught.value)


def test_timestamps_out_of_bounds_are_noted_once() -> None:
    rules = RULES._replace(before_max_ms=1000, after_max_ms=5)
    stamps = (T0, -1, T0 - 1000, T0 + 5)
    records = records_of([(stamp, None, b"v", ()) for stamp in stamps])
    assert walked(records, 4, rules=rules) == (T0 + 5, None, 0, [])
    records = records_of([(stamp, None, b"v", ()) for stamp in (T0, T0 + 6, T0 - 1001)])
    assert walked(records, 3, rules=rules) == (T0 + 6, T0 + 6, 0, [])


@pytest.mark.parametrize("delta", [MAX_LONG, -MAX_LONG - 1])
def test_a_timestamp_wraps_at_64_bits_as_in_java(delta: int) -> None:
    wrapped = (T0 + delta + 2**63) % 2**64 - 2**63
    assert walked(record(delta, 0, -1, -1, 0), 1) == (-1, wrapped, 0, [])


def test_records_without_a_key_are_counted_and_ten_are_named() -> None:
    rules = RULES._replace(needs_keys=True)
    keys = [b"k" if n == 3 else None for n in range(14)]
    records = records_of([(T0, key, b"v", ()) for key in keys])
    expected = (T0, None, 13, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10])
    assert walked(records, 14, rules=rules) == expected
    assert walked(records, 14, *range(len(records)), rules=rules) == expected
    assert walked(records, 14) == (T0, None, 0, [])


def test_a_batch_of_many_records_passes() -> None:
    count = 10_000
    assert walked(records_of([(T0, None, b"v", ())] * count), count)[0] == T0


def test_large_chunks_are_walked_as_small_ones(batch_of: Callable[..., bytearray]) -> None:
    records = records_of([(T0, b"k" * 20_000, b"v" * 100_000, [("h", b"x" * 20_000)])] * 3)
    assert walked(records, 3, 1, 30_000, 200_000) == (T0, None, 0, [])
    with pytest.raises(InvalidRecord, match="record 2: the batch ends within it"):
        walked(records[:-1], 3, 50_000, 330_000)


# In a process of its own, since nothing else in it goes on unless each thread gives way by itself.
GIVES_WAY = """
import sys, threading
from raylog.storage.records import kernel
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.records.rules import RecordRules

records = bytes(encode_records([(0, None, b"v", ())] * 50_000))[HEADER_SIZE:]
rules = RecordRules(1 << 20, 1 << 60, 1 << 60, True, False)
order = []

def walk_often():
    while not order:  # a busy machine may keep the other one waiting
        kernel.ops.RecordWalk(50_000, 0, rules, 0).feed(records)
    order.append("walked")

sys.setswitchinterval(1000)  # no thread is interrupted: one runs when another waits
thread = threading.Thread(target=walk_often)
thread.start()
order.append("meanwhile")
thread.join()
print(*order)
"""


def test_a_long_walk_leaves_the_interpreter_to_other_threads(kernel_in_use: str) -> None:
    if kernel_in_use != "compiled":
        pytest.skip("the twin is Python")
    done = subprocess.run(
        [sys.executable, "-c", GIVES_WAY], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.stdout == "meanwhile walked\n", done.stderr
