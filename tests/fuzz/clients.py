"""What clients do with bytes: the producer's accumulator and its split, the consumer's readers."""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from raylog.cluster.client.producer.batches import Batch, Compression, ProducerIdentity, Rows
from raylog.cluster.client.producer.delivery import Delivery
from raylog.storage.errors import RaylogError
from raylog.storage.limits import MAX_LONG
from raylog.storage.records import kernel
from raylog.storage.records.batch import read_header
from raylog.storage.records.decode import decode_records
from raylog.storage.records.layout import HEADER_SIZE, LOG_OVERHEAD
from raylog.storage.testing.clock import T0
from tests.fuzz.kernels import Disagreement, agreed

MOST_ROWS: Final = 16
PLAIN: Final = Compression()
IDENTITY: Final = ProducerIdentity(7, 0)
TIMES: Final = (T0, T0 + 1, 0, MAX_LONG, T0 + (1 << 40), 1, T0 - 70_000, 1 << 62)
MAX_PLAIN_BYTES: Final = 1 << 22

Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


# -- the producer ----------------------------------------------------------------------------------


def accumulated(data: bytes) -> None:
    """Rows into open batches, as the bytes say; what the batches hold, whole and split."""
    if len(data) < 4:
        return
    limit, free_bytes = HEADER_SIZE + data[0] * 4, data[1] * 64
    rows = list(_rows(data[2:]))
    for content, count, base_timestamp, max_timestamp, size_bytes in agreed(
        partial(_batches, rows, limit, free_bytes)
    ):
        written, rows = rows[:count], rows[count:]
        agreed(partial(_split, content, base_timestamp, max_timestamp, size_bytes, written))


def _rows(data: bytes) -> Iterator[Row]:
    """Four bytes say what a row has; the fields are what follows."""
    position = 0
    while position + 4 <= len(data) and position < 4 * MOST_ROWS:
        key, value, headers, at = data[position : position + 4]
        position += 4
        pairs = tuple(
            ("h" * (headers >> 4), _field(data[position:], headers)) for _ in range(headers % 4)
        )
        # its lowest bit says whether it is there
        yield _field(data[position:], key), _field(data[::-1], value * 3), pairs, TIMES[at % 8]


def _field(source: bytes, size: int) -> bytes | None:
    return source[: size >> 1] if size & 1 else None


def _batches(
    rows: list[Row], limit: int, free_bytes: int
) -> list[tuple[bytes, int, int, int, int]]:
    """What an accumulator makes of the rows; a full one is emptied."""
    ops = kernel.ops
    batch = ops.OpenBatch(None, limit)
    topic = ops.OpenTopic([batch])
    accumulator = ops.Accumulator(
        receipt=ops.Receipt,
        new_delivery=lambda _: object(),
        careful=print,
        wake=lambda _: None,
        stick=lambda _: None,
        batch_bytes=100,
        free_bytes=free_bytes,
    )
    accumulator.topics["t"] = topic
    made = []

    def take() -> None:
        size_bytes = batch.size_bytes
        waiting = batch.take()
        assert waiting is not None
        content, count, base_timestamp, max_timestamp, _, charged_bytes = waiting
        accumulator.release(charged_bytes)
        # the first 61 bytes are nobody's yet
        made.append(
            (bytes(content[HEADER_SIZE:]), count, base_timestamp, max_timestamp, size_bytes)
        )

    for key, value, headers, at in rows:
        alone = ops.record_size(key, value, headers)
        put = accumulator.append("t", topic, key, value, headers, at, 0)
        if not isinstance(put, ops.Receipt) and batch.count:
            take()
            put = accumulator.append("t", topic, key, value, headers, at, 0)
        if put == ops.MEMORY_IS_FULL:
            assert alone > free_bytes, "an empty accumulator has room for it"
            accumulator.release(alone - free_bytes)
            put = accumulator.append("t", topic, key, value, headers, at, 0)
            accumulator.release(free_bytes - alone)
        assert isinstance(put, ops.Receipt), put
        assert batch.count > 1 or batch.size_bytes == alone
        assert batch.size_bytes <= limit or batch.count == 1
    if batch.count:
        take()
    assert accumulator.free_bytes == free_bytes, "memory is given back to the last byte"
    return made


def _split(
    content: bytes, base_timestamp: int, max_timestamp: int, size_bytes: int, written: list[Row]
) -> list[bytes]:
    """The bytes of a batch and of all its halves, down to single records."""
    rows = Rows(bytearray(HEADER_SIZE) + content, len(written), base_timestamp, max_timestamp)
    batch = Batch(Delivery(None, 0.0), len(written), rows=rows)  # type: ignore[arg-type]
    batch.identity, batch.sequence = IDENTITY, 2**31 - 3  # the sequences begin anew within it
    sealed = bytes(batch.sealed(PLAIN))
    assert len(sealed) == size_bytes, "its size was exact before it was sealed"
    _check(sealed, written, batch.sequence)
    found = [sealed]
    waiting = [(batch, written)]
    while waiting:
        whole, of_whole = waiting.pop()
        if whole.count == 1:
            continue
        first, second = whole.halves()
        parts = ((first, of_whole[: first.count]), (second, of_whole[first.count :]))
        for half, of_half in parts:
            assert half.rows is not None
            size = memoryview(half.rows.content).nbytes
            found.append(bytes(half.sealed(PLAIN)))
            assert len(found[-1]) == size
            _check(found[-1], of_half, half.sequence)
            waiting.append((half, of_half))
    return found


def _check(sealed: bytes, written: list[Row], sequence: int) -> None:
    header = read_header(sealed)
    assert header.batch_length == len(sealed) - LOG_OVERHEAD
    assert (header.count, header.last_offset_delta) == (len(written), len(written) - 1)
    assert header.base_sequence == sequence
    assert header.max_timestamp == max(row[3] for row in written)
    rows = [
        (record.key, record.value, record.headers, record.timestamp)
        for record in decode_records(sealed)
    ]
    if rows != written:
        raise Disagreement(f"{written!r} is read as {rows!r}")


# -- the consumer ----------------------------------------------------------------------------------


def taken(data: bytes) -> None:
    """A fetch read in parts, by budgets that the first bytes say; all of it is what is there."""
    if len(data) < 4:
        return
    start, records, size_bytes = data[0] % 16, data[1] % 8 + 1, data[2] * 4 + 1
    end = data[3] if data[3] % 4 else MAX_LONG
    fetch = data[4:]
    whole = agreed(partial(_in_rows, fetch, start, end, 1 << 30, 1 << 30))
    for budget in ((records, size_bytes), (1, 1 << 30), (1 << 30, 1)):
        if agreed(partial(_in_rows, fetch, start, end, *budget)) != whole:
            raise Disagreement(f"by parts of {budget} it is not what it is whole: {whole!r}")
    places = [(row[2], row[3], row[5], row[6]) for row in whole[0]]
    for max_bytes in (1 << 30, size_bytes, 1):
        table = agreed(partial(_in_tables, fetch, start, end, max_bytes))
        if table != (places, *whole[1:]):
            raise Disagreement(f"rows {places!r}, {whole[1:]!r} are not columns {table!r}")


def _in_rows(fetch: bytes, start: int, end: int, records: int, size_bytes: int) -> Any:
    reader = kernel.ops.RowReader(fetch, "t", 0, start, end, False, MAX_PLAIN_BYTES)
    rows: list[Any] = []
    while not reader.is_done:
        try:
            some = reader.take(records, size_bytes)
        except RaylogError:
            return rows, "an error", reader.next_offset
        assert len(some) <= records
        rows += some
    return rows, "the end", reader.next_offset


def _in_tables(fetch: bytes, start: int, end: int, size_bytes: int) -> Any:
    from raylog.storage.records.columns import decoded_batch

    reader = kernel.ops.TableReader(fetch, start, end, False, True, MAX_PLAIN_BYTES)
    places: list[Any] = []
    while not reader.is_done:
        try:
            batch = decoded_batch(reader.take(size_bytes))
        except RaylogError:
            return places, "an error", reader.next_offset
        columns = (batch.column(name).to_pylist() for name in ("offset", "timestamp"))
        fields = (batch.column(name).to_pylist() for name in ("key", "value"))
        places += zip(*columns, *fields, strict=True)
    return places, "the end", reader.next_offset
