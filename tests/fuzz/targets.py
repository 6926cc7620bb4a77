"""What is fuzzed: every function that reads bytes from a disk, a wire or a person.

A target takes any bytes. It may raise RaylogError, which is the answer to bytes that are wrong;
whatever else it raises is a find. Where there are two kernels both are asked, and a find, too, is
where they do not agree: other records, or an error from one alone.
"""

import os
import struct
from array import array
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from crc32c import crc32c

from raylog.actors.node.broker_config import BrokerConfig
from raylog.storage.buffers import Buffer
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.indexes.offset_index import OffsetIndex
from raylog.storage.indexes.time_index import TimeIndex
from raylog.storage.indexes.transaction_index import TransactionIndex
from raylog.storage.log import Log
from raylog.storage.records import compression, kernel, legacy
from raylog.storage.records.batch import BatchHeader, iter_batches, read_header, seal
from raylog.storage.records.columns import decoded_batch
from raylog.storage.records.compression import compress, decompress
from raylog.storage.records.control import read_marker
from raylog.storage.records.decode import decode_records
from raylog.storage.records.layout import HEADER_SIZE
from raylog.storage.records.scan import next_offset, scan_batches
from raylog.storage.schemas.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from raylog.storage.schemas.groups import GROUP_RECORDS
from raylog.storage.schemas.metadata import METADATA_RECORDS
from raylog.storage.schemas.schema import Schema
from raylog.storage.schemas.transactions import TRANSACTION_VALUE
from raylog.storage.state.checkpoints import read_epochs, read_offsets
from raylog.storage.state.producers import ProducerStates
from raylog.storage.state.properties import (
    META_PROPERTIES,
    PARTITION_METADATA,
    read_meta,
    read_topic_id,
)
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, Disk
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.validation import check_append
from tests.fuzz.clients import accumulated, taken
from tests.fuzz.frames import frames, requests
from tests.fuzz.kernels import KERNELS, Disagreement, agreed, with_kernel

__all__ = ["KERNELS", "TARGETS", "Disagreement", "agreed", "limit_bombs"]

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
MAX_PLAIN_BYTES: Final = 1 << 22
APPENDS: Final = LogConfig(max_plain_batch_bytes=MAX_PLAIN_BYTES)
SCHEMAS: Final = (
    SUBSCRIPTION,
    ASSIGNMENT,
    TRANSACTION_VALUE,
    *(group_schemas.value for group_schemas in GROUP_RECORDS.values()),
    *METADATA_RECORDS.values(),
)


def limit_bombs() -> None:
    """Let bombs be refused by a smaller size in this process: a run has more to do than to fill
    memory."""
    compression.decompress.__defaults__ = (MAX_PLAIN_BYTES,)
    compression.plain_chunks.__defaults__ = (MAX_PLAIN_BYTES,)
    legacy.MAX_SET_BYTES = MAX_PLAIN_BYTES  # type: ignore[misc]


def headers(data: bytes) -> None:
    agreed(lambda: [scan_batches(data, verify=verify).rows.tolist() for verify in (False, True)])
    agreed(lambda: repr(check_append(data, APPENDS, T0)))
    for ask in (
        lambda: read_header(data),
        lambda: list(iter_batches(data)),
        lambda: next_offset(data, 0),
    ):
        with_kernel(kernel.ops, ask)


def records(data: Buffer) -> None:
    """Batches as they are; their CRCs are not looked at, or hardly a mutation would get beyond
    them."""
    data = memoryview(
        array("B", list(data))
    )  # exactly of its size: ``bytes`` have a zero behind them
    rows = agreed(lambda: kernel.ops.decode_rows(data, 0, False, True, MAX_PLAIN_BYTES))
    table = agreed(lambda: columns(data, MIN_INT64, MAX_INT64))
    plain = with_kernel(
        kernel.ops,
        lambda: kernel.ops.decode_rows(data, MIN_INT64, False, False, MAX_PLAIN_BYTES),
    )
    if "an error" not in (plain, table) and [tuple(row[:2]) for row in plain] != table[0]:
        raise Disagreement(f"rows {plain!r} are not columns {table!r}")
    if rows != "an error":
        agreed(lambda: columns(data, 1, 3))
        agreed(lambda: kernel.ops.decode_rows(data, 0, True, False, MAX_PLAIN_BYTES))
    agreed(lambda: in_parts(kernel.ops.RowReader(data, "t", 0, 0, MAX_INT64, False), 2, 50))
    agreed(lambda: in_parts(kernel.ops.TableReader(data, 0, MAX_INT64, False), 50))


def in_parts(reader: Any, *budget: int) -> Any:
    """Rows, or how many a table has, of all takes up to one that is refused, and the place then."""
    rows: list[Any] = []
    count = 0
    while not reader.is_done:
        try:
            taken = reader.take(*budget)
        except RaylogError:
            return rows, count, "an error", reader.next_offset
        if isinstance(taken, list):
            rows += taken
        else:
            count += taken[0]
    return rows, count, "the end", reader.next_offset


def columns(data: Buffer, start: int, end: int) -> Any:
    table = decoded_batch(kernel.ops.decode_columns(data, start, end, False, True, MAX_PLAIN_BYTES))
    table.validate(full=True)
    found = table.to_pydict()
    return list(zip(found["offset"], found["timestamp"], strict=True)), found


def sealed(data: bytes) -> None:
    """The bytes as the records of a batch whose header is sound, with the codec that the first byte
    says."""
    if len(data) >= 2:
        records(sealed_batch(data))


def appends(data: bytes) -> None:
    """As ``sealed``, for an append: what is let in can be read, and is what its header says."""
    if len(data) < 2:
        return
    batch = sealed_batch(data)
    for config in (APPENDS, replace(APPENDS, cleanup_policy="compact")):
        answer = agreed(partial(appended, batch, config))
        if answer == "an error":
            continue
        header, content = answer
        rows = decode_records(content)
        if [row.offset for row in rows] != list(range(header.count)):
            raise Disagreement(f"{header} lets in {rows}")
        if header.max_timestamp != max(-1, *(row.timestamp for row in rows)):
            raise Disagreement(f"{header} has another maximum timestamp than {rows}")


def appended(batch: bytes, config: LogConfig) -> tuple[BatchHeader, bytes]:
    header, content = check_append(batch, config, T0)
    return header, bytes(content)


def several(data: bytes) -> None:
    """Batches that clients send in one call, some with a header that lies: they are what they are
    one by one, and nothing but what was let in can be read."""
    checked = []
    for batch in batches_of(data):
        answer = with_kernel(kernel.ops, partial(check_append, batch, APPENDS, T0))
        if answer != "an error":
            checked.append(answer)
    if not checked:
        return
    disks = Disk(), Disk()
    together, one_by_one = (disk.open(**SMALL_LOG) for disk in disks)
    answers = together.append_all(checked, T0, 0)
    expected = [one_by_one.append_all([one], T0, 0)[0] for one in checked]
    if [repr(answer) for answer in answers] != [repr(answer) for answer in expected]:
        raise Disagreement(f"{answers!r} together is not {expected!r} one by one")
    end = together.log_end_offset
    for disk, log in zip(disks, (together, one_by_one), strict=True):
        check_readable(log)
        log.close()
        assert disk.open(is_clean=False, **SMALL_LOG).log_end_offset == end, "recovered"
    for name in disks[0].names():
        assert disks[0].read(name) == disks[1].read(name), name


SMALL_LOG: Final[dict[str, Any]] = {"segment_bytes": 600, "index_interval_bytes": 60}


def batches_of(data: bytes) -> list[bytes]:
    """Batches, each behind six bytes: codec, count, producer, sequence, what lies, and its size."""
    batches: list[bytes] = []
    at = 0
    while at + 6 <= len(data) and len(batches) < 8:
        codec, count, producer, sequence, lie, size_bytes = data[at : at + 6]
        body = data[at + 6 : at + 6 + size_bytes]
        batches.append(batch_that_may_lie(codec, count % 8, producer % 4, sequence, lie, body))
        at += 6 + size_bytes
    return batches


def batch_that_may_lie(
    codec: int, count: int, producer: int, sequence: int, lie: int, body: bytes
) -> bytes:
    has_producer = producer > 0
    header = BatchHeader(
        base_offset=lie >> 6,
        batch_length=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec % 5 | (16 if lie & 32 and has_producer else 0),  # transactional
        last_offset_delta=max(count - 1, 0) + (lie & 1),
        base_timestamp=T0,
        max_timestamp=T0 + (lie & 2),
        producer_id=producer if has_producer else -1,
        producer_epoch=0 if has_producer else -1,
        base_sequence=sequence if has_producer else -1,
        count=count + (lie >> 2 & 1),
    )
    batch = bytearray(seal(bytearray(HEADER_SIZE) + body, header))
    if lie & 8:
        batch[-1] ^= 1  # its CRC is wrong now
    return bytes(batch)


def check_readable(log: Log) -> None:
    """Every offset from the start to the end is read once, or was left out by no one."""
    offset = log.log_start_offset
    while (found := log.read(offset, 300)).size_bytes:
        content = found.read()
        rows = decode_records(content, start_offset=offset, control=True)
        following = next_offset(content, offset)
        assert [row.offset for row in rows] == list(range(offset, following)), "dense"
        offset = following
    assert offset == log.log_end_offset


def sealed_batch(data: bytes) -> bytes:
    codec, count = data[0] % 5, data[1] % 8
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=T0,
        max_timestamp=T0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )
    return bytes(seal(bytearray(HEADER_SIZE) + data[2:], header))


def messages(data: bytes) -> None:
    """The bytes as the messages in a compressed set of version 0 or 1."""
    if len(data) < 2:
        return
    magic, codec = data[0] % 2, data[0] // 2 % 4
    stream = bytes(compress(codec, data[2:])) if codec and data[1] % 2 else data[2:]
    body = struct.pack(">bb", magic, codec) + (struct.pack(">q", T0) if magic else b"")
    body += struct.pack(">ii", -1, len(stream)) + stream
    records(struct.pack(">qiI", data[1] // 2, len(body) + 4, 0) + body)


def codecs(data: bytes) -> None:
    if not data:
        return
    codec, stream = data[0] % 6, data[1:]
    plain = with_kernel(kernel.ops, lambda: bytes(decompress(codec, stream)))
    if plain != "an error" and bytes(decompress(codec, compress(codec, plain))) != plain:
        raise Disagreement("it does not come back from a second compression")


def markers(data: bytes) -> None:
    agreed(lambda: read_marker(data))


def schemas(data: bytes) -> None:
    """The bytes as a message of the schema and the version that the first two bytes say."""
    if len(data) < 2:
        return
    schema = SCHEMAS[data[0] % len(SCHEMAS)]
    version = data[1] % (schema.last_version + 1)
    value = with_kernel(kernel.ops, lambda: schema.read(data[2:], version))
    if value != "an error":
        check_written(schema, value, version)


def check_written(schema: Schema, value: dict[str, Any], version: int) -> None:
    written = schema.write(value, version)
    if schema.write(schema.read(written, version), version) != written:
        raise Disagreement(f"{value!r} is written as other bytes the second time")


def indexes(data: bytes) -> None:
    fs = MemoryFileSystem()
    fs.write_file("/index", data)
    for kind in (OffsetIndex, TimeIndex):
        with_kernel(kernel.ops, partial(use_index, kind(fs, "/index", 5, 1 << 20)))
    with_kernel(kernel.ops, lambda: TransactionIndex(fs, "/index", 5).collect(3, 100))


def use_index(index: OffsetIndex | TimeIndex) -> None:
    index.check()
    for wanted in (-1, 0, 5, 7, 1000, T0, MAX_INT64):
        found = index.lookup(wanted)
        assert found[0] <= max(wanted, 5, -1), (wanted, found)


def walks(data: bytes) -> None:
    """The bytes as a block of batches and as entries of an index, asked for what they begin with.

    Neither may lead out of what there is.
    """
    if len(data) < 32:
        return
    offset, limit, next_offset, wanted = struct.unpack_from(">qqqq", data)
    block = data[32:]
    for wants in (
        (offset, limit, next_offset, wanted),
        (offset, MAX_INT64, 0),
        (MAX_INT64, limit, 0),
    ):
        agreed(partial(walk, block, *wants))
    for entry_size, at, width in ((8, 0, 4), (8, 4, 4), (12, 0, 8), (12, 8, 4)):
        for warm_bytes in (0, 8192, limit & MAX_INT64):
            ask = partial(count_up_to, block, entry_size, at, width, wanted, warm_bytes)
            assert 0 <= agreed(ask) <= len(block) // entry_size


def walk(*arguments: Any) -> Any:
    return kernel.ops.walk(*arguments)


def count_up_to(*arguments: Any) -> Any:
    return kernel.ops.count_up_to(*arguments)


def snapshots(data: bytes) -> None:
    for content in (data, b"\0\1" + crc32c(data).to_bytes(4, "big") + data):
        states = ProducerStates("fuzz-0")
        if with_kernel(kernel.ops, partial(states.decode, "/x", content, 5, T0)) is None:
            assert len(states.encode()) <= len(content)


def checkpoints(data: bytes) -> None:
    fs = MemoryFileSystem()
    for path in ("/c", f"/{META_PROPERTIES}", f"/{PARTITION_METADATA}"):
        fs.write_file(path, data)
    for ask in (
        lambda: read_offsets(fs, "/c"),
        lambda: read_epochs(fs, "/c"),
        lambda: read_meta(fs, "/"),
        lambda: read_topic_id(fs, "/"),
    ):
        with_kernel(kernel.ops, ask)


def configs(data: bytes) -> None:
    """Lines of key=value, for topics and for brokers."""
    lines = data.decode(errors="replace").splitlines()
    pairs = dict(line.split("=", 1) for line in lines if "=" in line)
    for kind in (LogConfig, BrokerConfig):
        with_kernel(kernel.ops, partial(kind.parse, pairs))


def logs(data: bytes) -> None:
    """A folder with these bytes as its log and its indexes, opened in both ways, and read."""
    if len(data) < 2:
        return
    cut = min(data[0] * 4, len(data))
    for is_clean in (True, False):
        disk = Disk()
        disk.write("00000000000000000000.index", data[2:cut])
        disk.write("00000000000000000000.log", data[cut:])
        with_kernel(kernel.ops, partial(use_log, disk, is_clean))


def use_log(disk: Disk, is_clean: bool) -> None:
    log = disk.open(is_clean=is_clean, index_interval_bytes=60)
    for asked in (T0, 0, -2, -1, -3):
        log.offset_for_timestamp(asked)
    offset = log.log_start_offset
    while (found := log.read(offset, 300)).size_bytes:
        content = found.read()
        assert all(row.offset >= offset for row in decode_records(content, start_offset=offset))
        offset = next_offset(content, offset)
    log.close()
    assert disk.open().log_end_offset == log.log_end_offset, os.path.join(FOLDER, "reopened")


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target
    for target in (
        headers,
        records,
        sealed,
        appends,
        several,
        messages,
        codecs,
        markers,
        schemas,
        indexes,
        walks,
        snapshots,
        checkpoints,
        configs,
        logs,
        accumulated,
        taken,
        frames,
        requests,
    )
}
