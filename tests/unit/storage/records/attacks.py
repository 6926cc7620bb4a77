"""What pure Python can do to a kernel: objects that change, and numbers that no caller should give.

``python attacks.py NAME`` runs one attack; ``test_kernel_attacks.py`` runs each in a process of
its own, for both kernels. An attack passes if the process lives, and the answer is a right one or a
named error. Small writes behind a buffer do not always end a process: ``./dev sanitize`` runs the
same attacks where they do.

Attacks with ``race`` in their name change memory from another thread while the kernel works without
the GIL. They cannot fail by bad luck; a broken kernel may survive one of them by luck.
"""

import gc
import sys
import threading
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType, ModuleType
from typing import Any

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord, InvalidRecord
from raylog.storage.records import kernel
from raylog.storage.records.batch import read_header, seal
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records as _encode_records
from raylog.storage.records.layout import HEADER_SIZE

ops: Any = kernel.ops
encode_records: Any = _encode_records  # of whatever an attack likes
LARGE = 16 << 20  # bytes: so far behind a buffer is no memory
T0 = 1_700_000_000_000
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
SECRET = b"0123456789abcdef"


def refused(errors: Any, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    try:
        answer = call(*arguments, **named)
    except errors:
        return
    raise AssertionError(f"{call} took {arguments}, {named}: {answer!r}")


def refused_for(why: str, call: Callable[[], Any]) -> None:
    try:
        answer = call()
    except CorruptRecord as error:
        if why not in str(error):
            raise
        return
    raise AssertionError(f"it was taken: {answer!r}")


def exactly(content: Buffer) -> Any:
    """The content in memory of exactly its size; ``bytes`` have a zero behind them."""
    return array("B", list(content))


class Changing:
    """An iterable with other items the second time."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def __iter__(self) -> Iterator[Any]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return iter(answer)


class Acting:
    """A header that does something when it is looked at."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act

    def __iter__(self) -> Iterator[Any]:
        self._act()
        return iter(("h", b"v"))


# -- objects that change ---------------------------------------------------------------------------


def a_header_is_another_the_second_time() -> None:
    batch = encode_records([(T0, None, b"v", [Changing(("h", b""), ("h", bytes(LARGE)))])])
    assert decode_records(batch)[0].headers == (("h", b""),)


def a_headers_name_is_another_the_second_time() -> None:
    batch = encode_records([(T0, None, b"v", [Changing(("h", b"1"), ("h" * LARGE, b"2"))])])
    assert decode_records(batch)[0].headers == (("h", b"1"),)


def a_headers_buffer_grows_during_the_walk() -> None:
    value = bytearray(b"small")
    grow = Acting(lambda: value.extend(bytes(LARGE)))
    batch = encode_records([(T0, None, b"v", [("first", value), grow])])
    assert decode_records(batch)[0].headers == (("first", b"small"), ("h", b"v"))


def a_buffer_answers_other_bytes_the_second_time() -> None:
    class Growing(bytearray):
        def __bytes__(self) -> bytes:
            self.extend(bytes(LARGE))
            return b"x" * len(self)

    headers = [("h", Growing(b"a"))]
    (record,) = decode_records(encode_records([(T0, Growing(b"k"), Growing(b"v"), headers)]))
    assert len(record.key or b"") == 1 + LARGE == len(record.headers[0].value or b"")


def a_list_in_a_header_changes_during_the_walk() -> None:
    first: list[Any] = ["h", b"1"]

    def change() -> None:
        first[1] = bytes(LARGE)

    batch = encode_records([(T0, None, None, [first, Acting(change)])])
    assert decode_records(batch)[0].headers[0] == ("h", b"1")


def headers_lie_about_their_length() -> None:
    class Lying(tuple):
        def __len__(self) -> int:
            return 0

        def __iter__(self) -> Iterator[Any]:
            return iter([("h", bytes(1000))] * 20)

    (record,) = decode_records(encode_records([(T0, None, None, Lying())]))
    assert len(record.headers) == 20


def bytes_lie_about_their_length() -> None:
    class Lying(bytes):
        def __len__(self) -> int:
            return LARGE

    class LyingName(str):
        def __len__(self) -> int:
            return LARGE

        def encode(self, *_: Any) -> bytes:
            return b"x" * LARGE

    row = (T0, Lying(b"k"), Lying(b"v"), [(LyingName("h"), Lying(b"x"))])
    if kernel.KERNEL == "compiled":
        assert decode_records(encode_records([row]))[0][2:] == (b"k", b"v", (("h", b"x"),))


def a_key_goes_while_the_headers_are_walked() -> None:
    row: list[Any] = []
    rows: list[Any] = [(T0, bytearray(b"k" * 100), b"v" * 100, [Acting(row.clear)] * 3)] * 5
    rows[2:] = [(T0, b"k" * 100, b"v" * 100, [Acting(rows.clear)])] * 3
    assert len(decode_records(encode_records(rows))) == 5


def the_list_of_records_shrinks() -> None:
    rows: list[Any] = []
    rows += [(T0, None, b"v", [Acting(rows.clear)])] + [(T0, None, b"%d" % i, ()) for i in range(9)]
    batch = encode_records(rows)
    assert read_header(batch).count == len(decode_records(batch)) == 10


def the_list_of_records_grows() -> None:
    rows: list[Any] = []
    grow = Acting(lambda: rows.extend([(T0, None, b"more", ())] * 1000))
    rows.append((T0, None, b"v", [grow]))
    batch = encode_records(rows)
    assert read_header(batch).count == len(decode_records(batch)) == 1


def records_lie_about_their_length() -> None:
    class Lying(list):
        def __len__(self) -> int:
            return 7

        def __iter__(self) -> Iterator[Any]:
            return iter([(T0, None, b"v", ())] * 3)

    batch = encode_records(Lying())
    assert read_header(batch).count == len(decode_records(batch)) == 3
    empty = type("Empty", (Lying,), {"__iter__": lambda self: iter(())})
    assert encode_records(empty()) == b""


def a_callback_resizes_the_kernels_own_memory() -> None:
    def resize() -> None:
        for holder in gc.get_objects():
            if type(holder).__name__ in ("Vector", "View"):
                for memory in gc.get_referents(holder):
                    if type(memory) is bytearray:
                        refused(BufferError, memory.clear)

    rows: list[Any] = [(T0, None, bytes(5000), [("a", bytes(5000)), Acting(resize)])] * 3
    assert len(decode_records(encode_records(rows))) == 3


def what_is_returned_can_be_resized() -> None:
    batch = encode_records([(T0, b"k", b"v", [("h", b"x")])] * 50)
    columns = ops.decode_columns(batch, 0, MAX_INT64, True, True)
    rows, _ = ops.scan_batches(batch, 0, True)
    for memory in (batch, columns[1], columns[4][0], rows):
        owner = memory.obj if isinstance(memory, memoryview) else memory
        if isinstance(memory, memoryview):
            memory.release()
        if isinstance(owner, bytearray):
            owner.extend(bytes(1000))


def a_pyarrow_that_is_none_gives_memory() -> None:
    class Buffer(bytearray):
        address = 8

    answers = [Buffer(1), bytes(LARGE), object()]
    fake: Any = ModuleType("pyarrow")
    fake.allocate_buffer = lambda _: answers.pop()
    sys.modules["pyarrow"] = fake
    while kernel.KERNEL == "compiled" and answers:
        refused((BufferError, TypeError), encode_records, [(T0, None, b"v" * 100, ())])


def an_error_keeps_no_view_of_memory_that_it_does_not_own() -> None:
    compressed = bytearray(
        encode_records([(T0, None, bytes(1000), ())] * 9, compression_type="gzip")
    )
    compressed[HEADER_SIZE + 20] ^= 0xFF
    fetch = bytes(seal(compressed, read_header(compressed)))
    old = bytes.fromhex(
        "0000000000000000 00000014 00000000 01 01 0000000000000000 ffffffff 00000000"
    )
    for content in (fetch, old):
        try:
            decode_records(content, check_crc=False)
        except CorruptRecord as error:
            views = list(_views_of(error))
            assert views, "the error came from no function with a view"
            assert all(view.obj is content for view in views if view.nbytes > 100), views
            assert all(view.obj is not None for view in views), views
        else:
            raise AssertionError("a malformed stream was read")


def _views_of(error: BaseException | None) -> Iterator[memoryview]:
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            frame: FrameType = trace.tb_frame
            yield from (item for item in frame.f_locals.values() if isinstance(item, memoryview))
            trace = trace.tb_next
        error = error.__cause__


# -- numbers ---------------------------------------------------------------------------------------


def text_column(rows: int = 4, size: int = 8, **changed: Any) -> Any:
    ends = array("i", [size * i for i in range(rows + 1)])
    fields = {"ends": ends, "data": exactly(bytes(rows * size)), "valid": None, "valid_start": 0}
    return ops.TextColumn(*(fields | changed).values(), rows)


def a_column_has_an_impossible_count_of_rows() -> None:
    for rows in (-1, -2, -(2**40), MIN_INT64, 5, 2**31, 2**61 - 1, 2**62 - 1, 2**62, MAX_INT64):
        refused(InvalidRecord, ops.TextColumn, array("i", range(5)), bytes(9), None, 0, rows)
    refused((InvalidRecord, TypeError), ops.TextColumn, None, b"", None, 0, 0)
    for size in range(4):
        refused((InvalidRecord, TypeError), ops.TextColumn, bytes(size), b"", None, 0, 0)
    ops.TextColumn(bytes(4), b"", None, 0, 0)


def a_column_has_impossible_validity() -> None:
    for start in (-1, -(2**40), MIN_INT64, 5, 2**40, MAX_INT64 - 3, MAX_INT64):
        refused(InvalidRecord, text_column, valid=exactly(b"\xff"), valid_start=start)
    refused(InvalidRecord, text_column, valid=b"")
    last_bits = ops.partition_column(text_column(valid=b"\x5f", valid_start=4), 7)
    assert [number < 0 for number in memoryview(last_bits).cast("B").cast("i")] == [0, 1, 0, 1]


def a_column_points_outside_of_its_data() -> None:
    for ends in ([0, 8, 16, 24, 33], [-1, 8, 16, 24, 32], [0, 9, 8, 24, 32], [2**31 - 1] * 5):
        column = text_column(ends=array("i", ends))
        refused(InvalidRecord, ops.partition_column, column, 5)
        for max_bytes in (0, LARGE):
            refused(InvalidRecord, encode_all, table(values=column), max_bytes)
            refused(InvalidRecord, encode_all, table(keys=column), max_bytes)
            refused(InvalidRecord, encode_all, table(header_names=column), max_bytes)
            refused(InvalidRecord, encode_all, table(header_values=column), max_bytes)
    for ends in ([0, 1, 2, 3, 5], [-1, 1, 2, 3, 4], [0, 3, 2, 3, 4], [2**31 - 1] * 5):
        lists = text_column(ends=array("i", ends), data=None)
        for max_bytes in (0, LARGE):
            refused(InvalidRecord, encode_all, table(header_lists=lists), max_bytes)


def table(**changed: Any) -> Any:
    fields: dict[str, Any] = {"rows": 4, "timestamps": None, "default_timestamp": T0, "keys": None}
    fields |= {"values": text_column(), "header_lists": text_column(size=1, data=None)}
    fields |= {"header_names": text_column(), "header_values": text_column()}
    return ops.TableEncoder(*(fields | changed).values())


def encode_all(encoder: Any, max_bytes: int) -> int:
    start = 0
    while start < 4:
        start += ops_rows(encoder.encode(start, max_bytes))
    return start


def ops_rows(encoded: Any) -> int:
    rows: int = encoded[1]
    return rows


def a_table_has_an_impossible_count_of_rows() -> None:
    for rows in (-1, MIN_INT64, 5, 2**31, 2**60, 2**61, MAX_INT64):
        refused(InvalidRecord, table, rows=rows)
    for name in ("keys", "values", "header_lists"):
        refused(InvalidRecord, table, **{name: text_column(3)})
    for name in ("header_names", "header_values"):
        refused(InvalidRecord, table, **{name: None})
        refused(InvalidRecord, encode_all, table(**{name: text_column(3)}), 0)
        refused(InvalidRecord, encode_all, table(**{name: text_column(3)}), LARGE)
    if kernel.KERNEL == "compiled":
        refused(TypeError, table, values=None)


def a_tables_timestamps_are_too_few() -> None:
    for size in (0, 8, 31):
        refused((InvalidRecord, TypeError), table, timestamps=bytes(size))
    times = array("q", [T0] * 2**16)
    refused(InvalidRecord, table, rows=2**61 + 1, timestamps=times)
    assert ops_rows(table(timestamps=times).encode(0, LARGE)) == 4


def a_table_is_encoded_from_an_impossible_row() -> None:
    for start in (-1, MIN_INT64, 4, 5, 2**32, MAX_INT64):
        refused(IndexError, table().encode, start, 1000)
    for max_bytes in (MIN_INT64, -1, 0, 1):
        assert ops_rows(table().encode(3, max_bytes)) == 1
    assert ops_rows(table().encode(0, MAX_INT64)) == 4


def a_table_is_cut_at_every_size() -> None:
    times = array("q", [T0, T0 + 2**40, -1, 2**62])
    for keys in (None, text_column()):
        for max_bytes in range(62, 300):
            encoder = table(keys=keys, timestamps=times)
            for start in range(4):
                batch = encoder.encode(start, max_bytes)[0]
                assert len(batch) <= max_bytes or ops_rows(encoder.encode(start, max_bytes)) == 1


def columns_are_not_aligned() -> None:
    ends = memoryview(bytes(1) + array("i", range(0, 40, 8)).tobytes())[1:]
    times = memoryview(bytes(1) + array("q", [T0] * 4).tobytes())[1:]
    column = text_column(ends=ends)
    assert ops.partition_column(column, 5) == ops.partition_column(text_column(), 5)
    encoder = table(values=column, keys=column, timestamps=times)
    twin = table(values=text_column(), keys=text_column())
    ours, theirs = (bytes(made.encode(0, LARGE)[0][HEADER_SIZE:]) for made in (encoder, twin))
    assert ours == theirs


def keys_go_to_no_partition() -> None:
    for partitions in (0, -1, -(2**31), 2**31, MIN_INT64, MAX_INT64):
        refused(ValueError, ops.partition_column, text_column(), partitions)
    refused((OverflowError, ValueError), ops.partition_column, text_column(), 2**63)
    refused((TypeError, AttributeError), ops.partition_column, None, 1)
    assert bytes(ops.partition_column(text_column(), 1)) == bytes(16)
    assert len(ops.partition_column(text_column(), 2**31 - 1)) == 16


def a_scan_starts_at_an_impossible_position() -> None:
    batch = bytes(encode_records([(T0, None, b"v", ())]))
    for position in (-1, -61, -(2**40), MIN_INT64, len(batch) + 1, 2**40, MAX_INT64):
        for check_crc in (False, True):
            rows, end = ops.scan_batches(batch, position, check_crc)
            assert (len(rows), end) == (0, position)


def a_scan_ends_within_a_batch() -> None:
    batch = bytes(encode_records([(T0, None, b"v", ())]))
    for size in range(len(batch)):
        for check_crc in (False, True):
            cut = exactly(batch[:size])
            rows, end = ops.scan_batches(cut, 0, check_crc)
            assert (len(rows), end) == (0, 0)
            assert ops.leading_headers(cut) == []
    for length in (-(2**31), -13, -12, -1, 0, 48, len(batch) - 11, 2**31 - 1):
        lying = batch[:8] + length.to_bytes(4, "big", signed=True) + batch[12:]
        assert ops.scan_batches(exactly(lying), 0, False)[1] == 0
        assert ops.leading_headers(exactly(lying)) == []


def a_fetch_ends_within_a_batch() -> None:
    for codec in ("none", "gzip"):
        batch = bytes(encode_records([(T0, b"k", b"v", [("h", b"x")])], compression_type=codec))
        for size in range(len(batch)):
            cut = exactly(batch[:size])
            assert ops.decode_rows(cut, 0, True, True) == []
            assert ops.decode_columns(cut, 0, MAX_INT64, True, True)[0] == 0


def plain_records(count: int = 3) -> bytes:
    rows = [(T0, b"key-%d" % i, b"v" * 20, [("h", b"x" * 9)]) for i in range(count)]
    return bytes(encode_records(rows)[HEADER_SIZE:])


def records_are_cut_or_damaged() -> None:
    cut_and_damage(plain_records())


def records_that_end_with_a_number_are_cut_or_damaged() -> None:
    rows = [(T0, b"k" * 70, None, ()), (T0, None, b"v" * 70, ()), (T0 + 2**40, None, None, ())]
    cut_and_damage(bytes(encode_records(rows)[HEADER_SIZE:]))


def a_large_record_is_cut_within_its_length() -> None:
    plain = bytes(encode_records([(T0, None, bytes(10_000), ())])[HEADER_SIZE:])
    for size in range(9):
        walk_records(plain[:size], 1)


def numbers_are_longer_than_their_types() -> None:
    int32, int64 = b"\x80" * 5 + b"\0", b"\x80" * 10 + b"\0"
    for fields in (b"\0" + int64 + bytes(20), b"\0\0" + int32 + bytes(20), b"\0\0\0" + int32):
        record = bytes([2 * len(fields)]) + fields
        offsets = ops.OffsetTable(9, 8, SECRET)
        refused(CorruptRecord, offsets.put_records, record, 1, 0, 0)
    refused(CorruptRecord, offsets.put_records, int32 + bytes(20), 1, 0, 0)


def records_fill_a_buffer_to_its_end() -> None:
    size = 10_000
    for more in range(-16, 20):
        rows = [(T0, None, bytes(size), ()), (T0, None, bytes(size + more), ())]
        assert len(decode_records(encode_records(rows))) == 2
        headers = [("h", bytes(size)), ("h", bytes(size + more))]
        assert len(decode_records(encode_records([(T0, None, None, headers)]))) == 1
        keys: list[Any] = [(T0, bytes((1 << 16) - 5 + more), None, ()), (T0, bytes(5), None, ())]
        named: list[Any] = [
            (T0, None, None, [("h" * ((1 << 16) - 9 + more), bytes(5)), ("hh", b"")])
        ]
        for batch in (keys, named, named * 2):
            fetch = encode_records(batch)
            assert ops.decode_columns(fetch, 0, MAX_INT64, True, True)[0] == len(batch)


def a_count_is_more_than_the_bytes_can_hold() -> None:
    for codec in ("none", "gzip"):
        batch = encode_records([(T0, None, b"v" * 40, ())] * 3, compression_type=codec)
        for count in (-1, -(2**31), 22, 1000, 2**31 - 1):
            fetch = exactly(seal(batch, read_header(batch)._replace(count=count)))
            for decode in (
                partial(ops.decode_rows, fetch, 0, True, True),
                partial(ops.decode_columns, fetch, 0, MAX_INT64, True, True),
            ):
                refused_for("cannot hold its count", decode)


def cut_and_damage(plain: bytes) -> None:
    for position in range(len(plain)):
        walk_records(plain[:position], 3)
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF):
            walk_records(plain[:position] + bytes([byte]) + plain[position + 1 :], 3)


def walk_records(plain: bytes, count: int) -> None:
    """Everything that walks over records, on memory of exactly their size."""
    header = read_header(encode_records([(T0, None, b"", ())] * count))
    batch = exactly(seal(bytearray(HEADER_SIZE) + plain, header))
    new = ops.OffsetTable(9, 8, SECRET)
    for call in (
        lambda: ops.decode_rows(batch, 0, False, True),
        lambda: ops.decode_columns(batch, 0, MAX_INT64, False, True),
        lambda: ops.decode_columns(batch, 0, MAX_INT64, False, False),
        lambda: ops.rebuild_records(exactly(plain), b"\1" * count, T0, None, None),
        lambda: ops.rebuild_records(exactly(plain), b"\1" * count, T0, MIN_INT64, None),
        lambda: new.put_records(exactly(plain), count, 0, 0),
        lambda: new.judge_records(exactly(plain), count, 0, 9, False),
    ):
        try:
            call()
        except CorruptRecord:
            pass


def a_table_of_offsets_has_impossible_sizes() -> None:
    for slots, capacity in ((0, 0), (1, 1), (5, 5), (5, 0), (5, -1), (-5, -6), (MIN_INT64, 1)):
        refused(ValueError, ops.OffsetTable, slots, capacity, SECRET)
    for slots in (2**60, MAX_INT64):
        refused((MemoryError, OverflowError), ops.OffsetTable, slots, 5, SECRET)
    for secret in (b"", SECRET[:15], SECRET + b"x"):
        refused(ValueError, ops.OffsetTable, 5, 4, secret)
    refused(TypeError, ops.OffsetTable, 5, 4, None)
    refused(TypeError, ops.OffsetTable(5, 4, SECRET).get, None)
    assert ops.OffsetTable(5, 4, SECRET).get(b"") == -1


def a_table_of_offsets_is_filled() -> None:
    for slots in (2, 3, 7):
        offsets = ops.OffsetTable(slots, slots - 1, SECRET)
        last, keyless, is_full = offsets.put_records(plain_records(20), 20, 0, 0)
        assert (last, keyless, is_full, offsets.size) == (slots - 2, 0, True, slots - 1)
        assert [offsets.get(b"key-%d" % i) for i in range(slots)] == [*range(slots - 1), -1]


def offsets_are_at_the_ends_of_their_type() -> None:
    offsets = ops.OffsetTable(9, 8, SECRET)
    plain = plain_records(1)
    assert offsets.put_records(plain, 1, MAX_INT64, 0)[0] == MAX_INT64
    assert offsets.get(b"key-0") == MAX_INT64
    assert offsets.judge_records(plain, 1, MAX_INT64, MAX_INT64, False)[0] == 1
    for start in (-1, MIN_INT64):
        refused(ValueError, offsets.put_records, plain, 1, -1, start)
        refused(ValueError, offsets.put_batches, b"", [], 0, 0, start)


def records_are_fewer_than_their_count() -> None:
    offsets = ops.OffsetTable(9, 8, SECRET)
    for count in (-1, MIN_INT64, 4, 2**31, 2**62, MAX_INT64):
        refused(CorruptRecord, offsets.put_records, plain_records(), count, 0, 0)
        refused(CorruptRecord, offsets.judge_records, plain_records(), count, 0, 9, False)
    refused(CorruptRecord, ops.rebuild_records, plain_records(), b"\1" * 4, T0, None, None)
    refused(CorruptRecord, offsets.judge_records, b"", 2**62, 0, 9, False)


def chunk_of(count: int) -> tuple[Any, list[Any]]:
    chunk = b"".join(
        bytes(encode_records([(T0, b"%d" % i, b"v" * 50, ())], base_offset=i)) for i in range(count)
    )
    return exactly(chunk), ops.leading_headers(chunk)


def batches_are_put_from_an_impossible_place() -> None:
    chunk, headers = chunk_of(3)
    put = ops.OffsetTable(9, 8, SECRET).put_batches
    for first in (-1, -3, -(2**40), MIN_INT64):
        refused(ValueError, put, chunk, headers, first, 0, 0)
    for position in (-1, -61, MIN_INT64, len(chunk) + 1, 2**40, MAX_INT64):
        refused(ValueError, put, chunk, headers, 0, position, 0)
    for position in (1, len(chunk) - 60, len(chunk)):
        refused(CorruptRecord, put, chunk, headers, 0, position, 0)
    assert put(chunk, headers, MAX_INT64, 0, 0)[0] == MAX_INT64


def headers_are_others_than_the_chunks() -> None:
    chunk, headers = chunk_of(3)
    offsets = ops.OffsetTable(9, 8, SECRET)
    lengths = (MIN_INT64, -(2**40), -73, -12, 0, 48, len(chunk) - 11, 2**31, MAX_INT64 - 12)
    for length in (*lengths, MAX_INT64):
        for at in range(3):
            lying = list(headers)
            lying[at] = headers[at]._replace(batch_length=length)
            refused(CorruptRecord, offsets.put_batches, chunk, lying, 0, 0, 0)
            refused(CorruptRecord, offsets.judge_batches, chunk, lying, 9)
    refused(CorruptRecord, offsets.judge_batches, chunk, headers * 2, 9)
    for count in (2, 2**31 - 1, MAX_INT64):
        lying = [headers[0]._replace(count=count)]
        refused(CorruptRecord, offsets.put_batches, chunk, lying, 0, 0, 0)
        refused(CorruptRecord, offsets.judge_batches, chunk, lying, 9)


def headers_are_no_headers() -> None:
    chunk, headers = chunk_of(3)
    offsets = ops.OffsetTable(9, 8, SECRET)
    no_header = (TypeError, IndexError, AttributeError, OverflowError, CorruptRecord)
    for thing in (None, 5, "text", [1] * 13, (), (1, 2), (None,) * 13, tuple(range(12)), 2**80):
        refused(no_header, offsets.put_batches, chunk, [thing], 0, 0, 0)
        refused(no_header, offsets.judge_batches, chunk, [headers[0], thing], 9)
    refused(no_header, offsets.put_batches, chunk, [headers[0]._replace(count=2**80)] * 2, 0, 0, 0)


def a_header_shortens_the_list_of_headers() -> None:
    chunk, headers = chunk_of(3)

    class Clearing:
        def __init__(self, into: list[Any]) -> None:
            self._into = into

        def __index__(self) -> int:
            self._into.clear()
            return 1

    for method in ("put_batches", "judge_batches"):
        lying = list(headers)
        lying[0] = headers[0]._replace(count=Clearing(lying))
        offsets = ops.OffsetTable(9, 8, SECRET)
        arguments = (0, 0, 0) if method == "put_batches" else (9,)
        try:
            getattr(offsets, method)(chunk, lying, *arguments)
        except (IndexError, TypeError):
            pass


# -- other threads ---------------------------------------------------------------------------------


def while_changing(change: Callable[[], Any], run: Callable[[], Any], rounds: int) -> None:
    """Run again and again while another thread changes memory; a named error is an answer."""
    sys.setswitchinterval(1e-5)
    is_over = threading.Event()

    def keep_changing() -> None:
        while not is_over.is_set():
            change()

    changer = threading.Thread(target=keep_changing)
    changer.start()
    try:
        for _ in range(rounds):
            try:
                run()
            except (InvalidRecord, CorruptRecord, UnicodeDecodeError):
                pass
    finally:
        is_over.set()
        changer.join()


def a_race_for_the_headers_of_a_table() -> None:
    count, size = (100_000, 80) if kernel.KERNEL == "compiled" else (100, 80)
    small, large = array("i", bytes(4 * (count + 1))), array("i", range(0, size * count + 1, size))
    for changed in ("header_names", "header_values"):
        ends = array("i", small)
        column = ops.TextColumn(ends, bytes(size * count), None, 0, count)
        other = ops.TextColumn(small, b"", None, 0, count)
        lists = ops.TextColumn(array("i", [0, count]), None, None, 0, 1)
        columns = {"header_names": other, "header_values": other} | {changed: column}
        encoder = table(rows=1, values=text_column(1), header_lists=lists, **columns)

        def change(ends: Any = ends) -> None:
            ends[:] = large
            ends[:] = small

        while_changing(change, partial(encoder.encode, 0, 0), 60)


def a_race_for_the_lists_of_headers() -> None:
    count = 100_000 if kernel.KERNEL == "compiled" else 100
    column = ops.TextColumn(
        array("i", range(0, 40 * count + 1, 40)), bytes(40 * count), None, 0, count
    )
    ends = array("i", [0, count])
    lists = ops.TextColumn(ends, None, None, 0, 1)
    fields = {"header_lists": lists, "header_names": column, "header_values": column}
    encoder = table(rows=1, values=text_column(1), **fields)

    def change() -> None:
        ends[1] = count // 2
        ends[1] = count

    while_changing(change, lambda: encoder.encode(0, 0), 60)


def a_race_for_the_values_of_a_table() -> None:
    rows = 100_000 if kernel.KERNEL == "compiled" else 100
    small, large = array("i", bytes(4 * (rows + 1))), array("i", range(0, 80 * rows + 1, 80))
    ends, times = array("i", small), array("q", [T0] * rows)
    column = ops.TextColumn(ends, bytes(80 * rows), None, 0, rows)
    encoder = table(rows=rows, timestamps=times, keys=column, values=column, header_lists=None)
    later = array("q", [2**62] * rows)
    now = array("q", times)

    def change() -> None:
        ends[:] = large
        times[:] = later
        ends[:] = small
        times[:] = now

    while_changing(change, lambda: encoder.encode(0, LARGE), 60)
    while_changing(change, lambda: ops.partition_column(column, 7), 20)


def a_race_for_the_bytes_of_a_fetch() -> None:
    count = 20_000 if kernel.KERNEL == "compiled" else 20
    rows = [(T0, b"k" * 9, b"v" * 9, [("h", b"x" * 9)] * 3)] * count
    whole = encode_records(rows)
    damaged = whole[:HEADER_SIZE] + bytes(byte ^ 0x55 for byte in whole[HEADER_SIZE:])
    fetch = bytearray(whole)

    def change() -> None:
        fetch[HEADER_SIZE:] = damaged[HEADER_SIZE:]
        fetch[HEADER_SIZE:] = whole[HEADER_SIZE:]

    while_changing(change, lambda: ops.decode_columns(fetch, 0, MAX_INT64, False, True), 60)
    while_changing(change, lambda: ops.decode_rows(fetch, 0, False, True), 5)
    while_changing(change, lambda: take_all(ops.RowReader(fetch, "t", 0, 0, 99, False), 9, 99), 5)
    while_changing(change, lambda: take_all(ops.TableReader(fetch, 0, 99, False), 999), 5)


def take_all(reader: Any, *budget: int) -> None:
    try:
        while not reader.is_done:
            reader.take(*budget)
    except (CorruptRecord, RuntimeError):  # as two threads in one reader get it
        pass


def a_reader_is_in_a_cycle_with_its_bytes() -> None:
    for codec in ("none", "gzip"):
        fetch = encode_records([(T0, b"k", b"v", ())] * 9, compression_type=codec)
        for reader in (ops.RowReader, ops.TableReader):
            arguments = ("t", 0, 0) if reader is ops.RowReader else (0,)
            cycle: list[Any] = [reader(memoryview(fetch), *arguments)]
            cycle[0].take(*(2, 99) if reader is ops.RowReader else (9,))
            cycle.append(cycle)
            del cycle
            gc.collect()


def a_race_of_two_readers_in_one_fetch() -> None:
    count = 5_000 if kernel.KERNEL == "compiled" else 50
    rows = [(T0, b"k" * 9, b"v" * 90, ())] * count
    fetch = b"".join(bytes(encode_records(rows, compression_type=codec)) for codec in ("lz4",) * 9)
    for _ in range(5):
        rows_reader, table = ops.RowReader(fetch, "t", 0, 0), ops.TableReader(fetch, 0)
        threads = [
            threading.Thread(target=take_all, args=arguments)
            for arguments in [(rows_reader, 99, 9999), (table, 9999)] * 3
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def a_race_for_records_that_are_rebuilt() -> None:
    count = 20_000 if kernel.KERNEL == "compiled" else 20
    whole = plain_records(count)
    plain, kept = bytearray(whole), b"\1" * count
    long = bytes(byte | 0x80 for byte in whole)

    def change() -> None:
        plain[:] = long
        plain[:] = whole

    while_changing(change, lambda: ops.rebuild_records(plain, kept, T0, None, None), 100)
    offsets = ops.OffsetTable(2 * count, count, SECRET)
    while_changing(change, lambda: offsets.put_records(plain, count, 0, 0), 30)
    while_changing(change, lambda: offsets.judge_records(plain, count, 0, 9, True), 30)


def a_race_for_the_last_free_slot() -> None:
    count = 5_000 if kernel.KERNEL == "compiled" else 50
    plain = plain_records(count)
    for _ in range(20):
        offsets = ops.OffsetTable(count // 2 + 1, count // 2, SECRET)
        threads = [threading.Thread(target=put_quietly, args=(offsets, plain, count)) for _ in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def put_quietly(offsets: Any, plain: bytes, count: int) -> None:
    try:
        offsets.put_records(plain, count, 0, 0)
    except RuntimeError:
        pass


ATTACKS = {
    name: attack
    for name, attack in list(globals().items())
    if getattr(attack, "__module__", None) == __name__
    and getattr(attack, "__annotations__", None) == {"return": None}
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        ATTACKS[name]()
