"""How near encoding and decoding come to what the machine allows, in one thread.

The limit is memcpy and CRC-32C of the same bytes: no codec that makes a checked copy can be faster.
Each round runs limit and measured code in turn, on the same data and with memory that both have
used before; what counts is the median of the ratios of processor time, since the machine may be
busy with other things.

Encoding cuts 16 batches of 1 MB out of a table; decoding makes one table of a fetch of 8 MB in
batches of 1 MB, with CRC and headers. Keys are null at 16 B and 10 bytes otherwise. ``aiokafka`` is
its compiled codec, encoding the same rows and decoding the same fetch; it makes objects, record by
record, as it must.

Run: ``python -m benchmarks.codec [--quick]``.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from raylog.storage.records.decode import decode_table
from raylog.storage.records.encode import TableEncoder
from raylog.storage.records.kernel import KERNEL

T0 = 1_700_000_000_000
BATCH_BYTES = 1_000_000
ENCODED_BATCHES = 16
FETCHED_BATCHES = 8
# (value bytes, key bytes): least ratio to the limit when encoding, when decoding
TARGETS = {(1024, 10): (0.75, 0.55), (100, 10): (0.35, 0.33), (16, 0): (0.10, 0.15)}
AIOKAFKA_TARGET = 5.0


def run(quick: bool = False) -> list[dict[str, Any]]:
    """One dict for each figure: name, value, unit, limit_name, limit_value, ratio, target."""
    rounds = 5 if quick else 31
    return [
        figure
        for (value_size, key_size), targets in TARGETS.items()
        for figure in _measure(value_size, key_size, *targets, rounds)
    ]


def _measure(
    value_size: int, key_size: int, encode_target: float, decode_target: float, rounds: int
) -> Iterator[dict[str, Any]]:
    what = f"{value_size} B values, {f'{key_size} B' if key_size else 'null'} keys"
    table = _table(value_size, key_size, ENCODED_BATCHES * BATCH_BYTES)
    batches = list(_encode(table))
    fetch = b"".join(batches[:FETCHED_BATCHES])
    rows = table.num_rows
    fetched = decode_table(fetch).num_rows

    def figure(
        name: str, target: float, run: Callable[[], Any], limit: Callable[[], Any], size: int
    ) -> dict:
        seconds, limit_seconds, ratio = _alternate(run, limit, rounds)
        return {
            "name": f"{name}, {what}",
            "value": size / seconds / 1e9,
            "unit": "GB/s",
            "limit_name": "memcpy + crc32c",
            "limit_value": size / limit_seconds / 1e9,
            "ratio": ratio,
            "target": target,
        }

    yield figure(
        "Arrow to batches",
        encode_target,
        lambda: sum(len(batch) for batch in _encode(table)),
        _limit(batches),
        sum(map(len, batches)),
    )
    yield figure(
        "batches to Arrow", decode_target, lambda: decode_table(fetch), _limit([fetch]), len(fetch)
    )
    yield _against_aiokafka(
        f"Arrow to batches, {what}",
        rows,
        lambda: sum(map(len, _encode(table))),
        _aiokafka_encoder(table),
        rounds,
    )
    yield _against_aiokafka(
        f"batches to Arrow, {what}",
        fetched,
        lambda: decode_table(fetch),
        _aiokafka_decoder(fetch),
        rounds,
    )


def _against_aiokafka(
    name: str, records: int, run: Callable[[], Any], theirs: Callable[[], int], rounds: int
) -> dict[str, Any]:
    seconds, their_seconds, _ = _alternate(run, theirs, max(3, rounds // 10))
    their_records = theirs()
    value, limit = records / seconds / 1e6, their_records / their_seconds / 1e6
    return {
        "name": name,
        "value": value,
        "unit": "million records/s",
        "limit_name": "aiokafka",
        "limit_value": limit,
        "ratio": value / limit,
        "target": AIOKAFKA_TARGET,
    }


def _alternate(
    run: Callable[[], Any], limit: Callable[[], Any], rounds: int
) -> tuple[float, float, float]:
    """Median seconds of both, and the median of limit over run, round by round."""
    pairs = [(_seconds(run), _seconds(limit)) for _ in range(rounds + 1)][1:]
    return (
        statistics.median(mine for mine, _ in pairs),
        statistics.median(least for _, least in pairs),
        statistics.median(least / mine for mine, least in pairs),
    )


def _seconds(function: Callable[[], Any]) -> float:
    """Of this thread's processor time: what other processes take of the machine is not counted."""
    start = time.thread_time()
    function()
    return time.thread_time() - start


def _table(value_size: int, key_size: int, size: int) -> pa.Table:
    rows = size // (value_size + key_size + 9)
    values = pa.array([(b"%d " % i * value_size)[:value_size] for i in range(rows)], pa.binary())
    keys = pa.array(
        [b"%0*d" % (key_size, i) if key_size else None for i in range(rows)], pa.binary()
    )
    timestamps = pa.array(T0 + np.arange(rows) // 100)
    return pa.table({"timestamp": timestamps, "key": keys, "value": values})


def _encode(table: pa.Table) -> Iterator[bytearray]:
    encoder = TableEncoder(table, default_timestamp=T0)
    start = 0
    while start < table.num_rows:
        batch, count = encoder.encode(start, max_bytes=BATCH_BYTES, base_offset=start)
        yield batch
        start += count


def _limit(buffers: list[Any]) -> Callable[[], None]:
    """memcpy into memory that is used again and again, and CRC-32C of the copy."""
    sources = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
    target = np.empty(max(map(len, sources)), np.uint8)

    def copy_and_check() -> None:
        for source in sources:
            copied = target[: len(source)]
            np.copyto(copied, source)
            crc32c(copied)

    return copy_and_check


def _aiokafka_encoder(table: pa.Table) -> Callable[[], int]:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    part = table.slice(0, table.num_rows // ENCODED_BATCHES)
    rows = list(
        zip(*(part[name].to_pylist() for name in ("timestamp", "key", "value")), strict=True)
    )

    def encode() -> int:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2 * BATCH_BYTES)
        for i, (timestamp, key, value) in enumerate(rows):
            builder.append(i, timestamp, key, value, [])
        builder.build()
        return len(rows)

    return encode


def _aiokafka_decoder(fetch: bytes) -> Callable[[], int]:
    from aiokafka.record.memory_records import MemoryRecords

    def decode() -> int:
        batches, count = MemoryRecords(fetch), 0
        while batches.has_next():
            batch = batches.next_batch()
            batch.validate_crc()
            for _ in batch:
                count += 1
        return count

    return decode


def main() -> None:
    print(f"kernel: {KERNEL}")
    for figure in run(quick="--quick" in sys.argv):
        verdict = "ok" if figure["ratio"] >= figure["target"] else "BELOW"
        print(
            f"{figure['name']:46} {figure['value']:7.2f} {figure['unit']:17} "
            f"{figure['limit_name']:15} {figure['limit_value']:7.2f}  "
            f"ratio {figure['ratio']:6.2f}  target {figure['target']:5.2f}  {verdict}"
        )


if __name__ == "__main__":
    main()
