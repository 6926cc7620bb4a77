"""The accumulator: exact sizes, whole rows, memory that is charged, both kernels alike."""

import gc
import inspect
import threading
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.storage.records import _kernel_py
from raylog.storage.records.batch import BatchHeader, seal
from raylog.storage.records.decode import decode_records
from raylog.storage.records.layout import HEADER_SIZE, MAGIC
from raylog.storage.records.murmur2 import partition_for_key

_kernel: Any = pytest.importorskip("raylog.storage.records._kernel")
BOTH = (_kernel, _kernel_py)
MEMORY = 1 << 30


class Bench:
    """An accumulator of one topic, and what it asked for."""

    def __init__(
        self,
        ops: ModuleType,
        *,
        partitions: int = 1,
        limit: int = 1_000_000,
        batch_bytes: int = 16_384,
        free_bytes: int = MEMORY,
    ) -> None:
        self.ops = ops
        self.careful: list[Any] = []
        self.woken: list[Any] = []
        self.accumulator = ops.Accumulator(
            receipt=ops.Receipt,
            new_delivery=lambda _: object(),
            careful=lambda *row: self.careful.append(row),
            wake=self.woken.append,
            stick=self.stick,
            batch_bytes=batch_bytes,
            free_bytes=free_bytes,
        )
        self.batches = [ops.OpenBatch(number, limit) for number in range(partitions)]
        self.topic = ops.OpenTopic(self.batches)
        self.accumulator.topics["t"] = self.topic

    def stick(self, topic: Any) -> None:
        topic.sticky = (topic.sticky + 1) % len(topic.batches)

    def rows(self, number: int = 0) -> list[tuple[int, bytes | None, bytes | None, Any]]:
        taken = self.batches[number].take()
        return [] if taken is None else rows_of(*taken[:4])


def rows_of(content: bytearray, count: int, base_ms: int, max_ms: int) -> list[Any]:
    header = BatchHeader(0, 0, 0, MAGIC, 0, 0, count - 1, base_ms, max_ms, -1, -1, -1, count)
    records = decode_records(bytes(seal(content, header)))
    return [(r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]


@pytest.fixture(params=BOTH, ids=lambda ops: ops.KERNEL)
def ops(request: pytest.FixtureRequest) -> Any:
    return request.param


_bytes = st.none() | st.binary(max_size=300)
_headers = st.none() | st.lists(st.tuples(st.text(max_size=5), _bytes), max_size=3)
_row = st.tuples(st.integers(0, 2**63 - 1) | st.integers(0, 3), _bytes, _bytes, _headers)


@settings(deadline=None)
@given(rows=st.lists(_row, max_size=30), limit=st.integers(61, 3000))
def test_batches_are_what_was_sent_within_their_limit_and_both_kernels_agree(
    rows: list[Any], limit: int
) -> None:
    taken = []
    for ops in BOTH:
        bench, batches = Bench(ops, limit=limit), []
        for timestamp, key, value, headers in rows:
            row = ("t", bench.topic, key, value, None if headers is None else tuple(headers))
            put = bench.accumulator.append(*row, timestamp, 0)
            if put == ops.BATCH_IS_FULL:
                batches.append(bench.batches[0].take())
                put = bench.accumulator.append(*row, timestamp, 0)
            assert isinstance(put, ops.Receipt)
        batches.append(bench.batches[0].take())
        batches = [batch for batch in batches if batch is not None]
        for content, count, *_, charged in batches:
            assert len(content) <= limit or count == 1
            assert charged >= len(content)
        taken.append([(bytes(b[0][HEADER_SIZE:]), *b[1:4], b[5]) for b in batches])
        sent = [(t, k, v, tuple(h or ())) for t, k, v, h in rows]
        assert [row for batch in batches for row in rows_of(*batch[:4])] == sent
        in_batches = sum(batch[5] for batch in batches)
        assert bench.accumulator.free_bytes == MEMORY - in_batches
    assert taken[0] == taken[1]


@settings(deadline=None)
@given(row=_row)
def test_a_record_has_the_size_of_a_batch_of_its_own(row: Any) -> None:
    timestamp, key, value, headers = row
    pairs = None if headers is None else tuple(headers)
    for ops in BOTH:
        bench = Bench(ops)
        bench.accumulator.append("t", bench.topic, key, value, pairs, timestamp, 0)
        assert bench.batches[0].size_bytes == ops.record_size(key, value, pairs)


def test_what_is_not_plain_is_left_to_the_careful_way(ops: Any) -> None:
    bench = Bench(ops)
    text = type("Text", (str,), {})("t")
    send = bench.accumulator.send
    cases: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((text, b"x"), {}),
        (("another", b"x"), {}),
        (("t", bytearray(b"x")), {}),
        (("t", "x"), {}),
        (("t", b"x"), {"key": memoryview(b"k")}),
        (("t", b"x"), {"timestamp": -1}),
        (("t", b"x"), {"timestamp": 2**63}),
        (("t", b"x"), {"timestamp": True}),
        (("t", b"x"), {"timestamp": 1.0}),
        (("t", b"x"), {"partition": 1}),
        (("t", b"x"), {"partition": -1}),
        (("t", b"x"), {"partition": 2**63}),
        (("t", b"x"), {"partition": False}),
        (("t", b"x"), {"headers": {"a": b"b"}}),
        (("t", b"x"), {"headers": [["a", b"b"]]}),
        (("t", b"x"), {"headers": (("a", "b"),)}),
        (("t", b"x"), {"headers": (("a", b"b", b"c"),)}),
        (("t", b"x"), {"headers": (("\ud800", b"b"),)}),
        (("t", b"x" * 1_000_000), {}),
    ]
    for positional, named in cases:
        assert send(*positional, **named) is None, (positional, named)
    assert len(bench.careful) == len(cases)
    assert bench.rows() == []
    assert bench.accumulator.free_bytes == MEMORY


def test_a_row_goes_where_it_should(ops: Any) -> None:
    bench = Bench(ops, partitions=3, batch_bytes=200)
    send = bench.accumulator.send
    send("t", b"named", partition=2, timestamp=5)
    send("t", b"keyed", key=b"key", timestamp=6, headers=[("a", None), ("b", b"")])
    keyed = partition_for_key(b"key", 3)
    rows = {number: bench.rows(number) for number in range(3)}
    assert (5, None, b"named", ()) in rows[2]
    assert (6, b"key", b"keyed", (("a", None), ("b", b""))) in rows[keyed]
    for _ in range(40):
        send("t", b"x" * 20)
    counts = [batch.count for batch in bench.batches]
    assert sum(counts) == 40
    assert all(counts), "the sticky partition changes after each batch.size"


def test_send_is_called_as_any_function_of_python(ops: Any) -> None:
    bench = Bench(ops)
    send = bench.accumulator.send
    pairs = (("a", b"b"),)
    made = dict.fromkeys(["".join(("he", "aders"))], pairs)  # a name that is not interned
    text = type("Text", (str,), {})
    send("t")
    send("t", b"1", partition=0, headers=pairs, timestamp=5, key=b"k")
    send(value=b"2", topic="t", timestamp=6)
    send("t", b"3", timestamp=7, **made)
    send(*("t", b"4"), **{text("timestamp"): 8})
    send("t", None, key=None, timestamp=None, headers=None, partition=None)
    assert [row[1:] for row in bench.rows()] == [
        (None, None, ()),
        (b"k", b"1", pairs),
        (None, b"2", ()),
        (None, b"3", pairs),
        (None, b"4", ()),
        (None, None, ()),
    ]
    assert bench.careful == []


@pytest.mark.parametrize(
    ("positional", "named", "what"),
    [
        ((), {}, "topic"),
        ((), {"value": b"x"}, "topic"),
        (("t", b"x", b"k"), {}, "positional"),
        (("t", b"x"), {"topic": "t"}, "multiple values for argument 'topic'"),
        (("t", b"x"), {"value": b"y"}, "multiple values for argument 'value'"),
        (("t", b"x"), {"keys": b"k"}, "unexpected keyword argument 'keys'"),
        (("t", b"x"), {"": b"k"}, "unexpected keyword argument ''"),
    ],
)
def test_a_call_of_send_that_does_not_fit_takes_nothing(
    ops: Any, positional: tuple[Any, ...], named: dict[str, Any], what: str
) -> None:
    bench = Bench(ops)
    with pytest.raises(TypeError, match=what):
        bench.accumulator.send(*positional, **named)
    assert bench.rows() == []
    assert bench.careful == []


def test_send_tells_the_same_signature_in_both_kernels() -> None:
    of_compiled, of_twin = (inspect.signature(Bench(ops).accumulator.send) for ops in BOTH)
    assert list(of_compiled.parameters) == list(of_twin.parameters)
    for name, parameter in of_compiled.parameters.items():
        twin = of_twin.parameters[name]
        assert (parameter.kind, parameter.default) == (twin.kind, twin.default)


def test_send_keeps_its_accumulator(ops: Any) -> None:
    bench = Bench(ops)
    send = bench.accumulator.send
    del bench.accumulator
    gc.collect()
    send("t", b"x")
    assert [row[2] for row in bench.rows()] == [b"x"]


def test_a_batch_is_announced_with_its_first_row_and_when_it_is_ready(ops: Any) -> None:
    bench = Bench(ops, batch_bytes=100)
    receipts = [bench.accumulator.send("t", b"x" * 10) for _ in range(10)]
    assert bench.woken == [bench.batches[0]] * 2
    assert [receipt.index for receipt in receipts] == list(range(10))
    assert len({id(receipt.delivery) for receipt in receipts}) == 1
    bench.rows()
    assert bench.accumulator.send("t", b"y").delivery is not receipts[0].delivery


def test_memory_is_charged_by_capacity_and_given_back(ops: Any) -> None:
    bench = Bench(ops, free_bytes=2000)
    state = (bench.accumulator, bench.topic)
    put: Any = None
    while not isinstance(put, int):
        put = state[0].append("t", state[1], None, b"x" * 50, None, 0, 0)
    assert put == ops.MEMORY_IS_FULL
    assert 0 <= state[0].free_bytes < 60
    assert bench.accumulator.send("t", b"x" * 50) is None
    taken = bench.batches[0].take()
    assert taken[5] + state[0].free_bytes == 2000
    state[0].release(taken[5])
    assert isinstance(state[0].append("t", state[1], None, b"x" * 50, None, 0, 0), ops.Receipt)


def test_rows_for_a_topic_that_was_taken_away_are_refused(ops: Any) -> None:
    bench = Bench(ops)
    del bench.accumulator.topics["t"]
    row = (None, b"x", None, 0, 0)
    assert bench.accumulator.append("t", bench.topic, *row) == ops.TOPIC_HAS_CHANGED
    bench.accumulator.topics["t"] = ops.OpenTopic([])
    assert bench.accumulator.append("t", bench.topic, *row) == ops.TOPIC_HAS_CHANGED
    assert bench.accumulator.send("t", b"x") is None
    assert bench.accumulator.send("t", b"x", key=b"k") is None


def test_headers_that_another_finalizer_changes_are_those_of_the_call(ops: Any) -> None:
    """An object's memory may run the garbage collector, and that any code."""
    headers: list[Any] = [("a", b"1")] * 3

    class Meddler:
        def __del__(self) -> None:
            headers.clear()

    bench = Bench(ops)
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(50):
            headers[:] = [("a", b"1" * 100)] * 3
            loop: Any = Meddler()
            loop.itself = loop
            del loop
            bench.accumulator.send("t", b"x", headers=headers)
    finally:
        gc.set_threshold(*threshold)
    assert all(len(row[3]) in (0, 3) for row in bench.rows())


def test_threads_that_send_and_take_at_once_lose_nothing(ops: Any) -> None:
    bench, taken, rows = Bench(ops, limit=2000), [], 3000

    def work(name: int) -> None:
        for number in range(rows):
            row = (None, b"%d %d" % (name, number), None, 0, 0)
            while bench.accumulator.append("t", bench.topic, *row) == ops.BATCH_IS_FULL:
                with lock:
                    taken.append(bench.batches[0].take())

    lock = threading.Lock()
    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken.append(bench.batches[0].take())
    values = [row[2] for batch in taken if batch is not None for row in rows_of(*batch[:4])]
    assert len(values) == 3 * rows
    for name in range(3):
        mine = [value for value in values if value.startswith(b"%d " % name)]
        assert mine == [b"%d %d" % (name, number) for number in range(rows)]
