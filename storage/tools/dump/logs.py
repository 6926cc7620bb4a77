"""The lines of a file of batches.

It is a segment's ``.log``, or a snapshot of the metadata log (``.checkpoint``).

A batch is a line; with a deep look so is each of its records, behind a bar. Records of versions 0
and 1 have their CRC there, and a closing brace that nothing opened: it is Kafka's. Source:
``DumpLogSegments`` of Kafka 3.9.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from raylog.storage.errors import CorruptRecord
from raylog.storage.files import File
from raylog.storage.limits import MAX_INT
from raylog.storage.names import LOG_SUFFIX
from raylog.storage.records import kernel
from raylog.storage.records.batch import BatchHeader, check_crc, increment_sequence, read_header
from raylog.storage.records.compression import CODECS
from raylog.storage.records.control import (
    ABORT,
    COMMIT,
    CONTROL_TYPES,
    control_type,
    read_marker_record,
)
from raylog.storage.records.layout import (
    AT_LENGTH,
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    LENGTH,
    LOG_OVERHEAD,
    MAGIC,
    MIN_MESSAGE_LENGTH,
)
from raylog.storage.records.legacy import Message, read_messages
from raylog.storage.records.record import Record
from raylog.storage.schemas.control import CONTROL_VALUES
from raylog.storage.tools.dump.decoders import Parser
from raylog.storage.tools.dump.findings import Findings
from raylog.storage.tools.dump.json_text import json_text
from raylog.storage.tools.dump.message_json import message_json

BOOTSTRAP_SNAPSHOT: Final = "bootstrap.checkpoint"

_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CODEC_NAMES: Final = {number: name for name, number in CODECS.items()}


class LogOptions(NamedTuple):
    """How much of a log is told."""

    is_deep: bool = False  # records too
    parser: Parser | None = None  # their keys and values too
    skip_metadata: bool = False  # nothing but those
    max_bytes: int = MAX_INT  # of the file


class FileBatch(NamedTuple):
    """A whole batch of a file. Its content is read when it is asked for."""

    file: File
    position: int
    header: BatchHeader

    def content(self) -> bytes:
        return self.file.read(self.header.size_bytes, self.position)

    def check_crc(self) -> None:
        """Raise CorruptRecord unless the batch is what its CRC says."""
        with _at(self.position):
            check_crc(self.content(), 0, self.header)


class _Line(NamedTuple):
    """What the line of a record tells of it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    about: str  # what differs between the versions: sequence and headers, or CRC


def dump_log(
    path: str, file: File, options: LogOptions, findings: Findings, shown_path: str
) -> Iterator[str]:
    """The lines of the file at ``path``.

    ``shown_path``: how findings name it. Raises CorruptRecord.
    """
    yield _head(os.path.basename(path))
    end, last_offset = 0, -1
    for batch in file_batches(file, 0, options.max_bytes):
        yield batch_line(batch)
        end = batch.position + batch.header.size_bytes
        if not options.is_deep:
            continue
        for record in _records(batch):
            if last_offset not in (-1, record.offset - 1):
                findings.gap(shown_path, last_offset, record.offset)
            last_offset = record.offset
            yield _record_line(record, batch.header, options)
    left = file.size - end
    if left and options.max_bytes == MAX_INT:
        yield f"Found {left} invalid bytes at the end of {os.path.basename(path)}"


def is_snapshot(name: str) -> bool:
    """Whether a file of this name is a snapshot of KRaft's metadata log."""
    return name == BOOTSTRAP_SNAPSHOT or _SNAPSHOT_NAME.fullmatch(name) is not None


def _head(name: str) -> str:
    snapshot = _SNAPSHOT_NAME.fullmatch(name)
    if snapshot:
        return f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}"
    if name == BOOTSTRAP_SNAPSHOT:
        return "KRaft bootstrap snapshot"
    return f"Log starting offset: {int(name.removesuffix(LOG_SUFFIX))}"


def file_batches(file: File, position: int = 0, max_bytes: int = MAX_INT) -> Iterator[FileBatch]:
    """Every whole batch of ``max_bytes`` from ``position`` on, as Kafka's reader of files has it.

    It stops at a tail that holds no whole batch. Raises CorruptRecord for what is no batch.
    """
    end = min(file.size, position + max_bytes)
    while (left := end - position) > HEADER_SIZE_UP_TO_MAGIC:
        head = file.read(min(HEADER_SIZE, left), position)
        if len(head) <= HEADER_SIZE_UP_TO_MAGIC:
            return  # it was cut meanwhile
        (length,) = LENGTH.unpack_from(head, AT_LENGTH)
        if length >= MIN_MESSAGE_LENGTH and length + LOG_OVERHEAD > left:
            return
        with _at(position):
            header = read_header(head)
        yield FileBatch(file, position, header)
        position += header.size_bytes


@contextmanager
def _at(position: int) -> Iterator[None]:
    """Let a CorruptRecord of a batch's own bytes say where in the file the batch is."""
    try:
        yield
    except CorruptRecord as error:
        raise CorruptRecord(f"position {position}", error.args[1]) from None


def batch_line(batch: FileBatch) -> str:
    """The line of a batch."""
    position, header = batch.position, batch.header
    codec = _CODEC_NAMES.get(header.codec)
    if codec is None:
        raise CorruptRecord(f"position {position}", f"unknown codec {header.codec}")
    if header.magic >= MAGIC:
        horizon = header.delete_horizon_ms
        head = (
            f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: "
            f"{header.count} "
            f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
            f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
            f"partitionLeaderEpoch: {header.leader_epoch} isTransactional: "
            f"{_bool(header.is_transactional)} "
            f"isControl: {_bool(header.is_control)} deleteHorizonMs: {optional(horizon)}"
        )
    else:
        head = f"offset: {header.last_offset}"
    return (
        f"{head} position: {position} {header.timestamp_type}: {header.max_timestamp} "
        f"size: {header.size_bytes} magic: {header.magic} compresscodec: {codec} crc: {header.crc} "
        f"isvalid: {_bool(_is_valid(batch))}"
    )


def _is_valid(batch: FileBatch) -> bool:
    try:
        batch.check_crc()
    except CorruptRecord:
        return False
    return True


def _bool(value: bool) -> str:
    return "true" if value else "false"


def optional(number: int | None) -> str:
    """As Java prints an ``OptionalLong``."""
    return "OptionalLong.empty" if number is None else f"OptionalLong[{number}]"


def decoded(batch: FileBatch) -> Sequence[Record]:
    """The records of one batch of version 2, whatever its CRC says. Raises CorruptRecord."""
    with _at(batch.position):
        return kernel.ops.decode_rows(batch.content(), -(2**63), False, True)


def messages(batch: FileBatch) -> Sequence[Message]:
    """The messages of one batch of version 0 or 1. Raises CorruptRecord."""
    with _at(batch.position):
        return read_messages(batch.content(), 0, batch.header)


def _records(batch: FileBatch) -> Iterator[_Line]:
    header = batch.header
    if header.magic < MAGIC:
        for message in messages(batch):
            about = f" isValid: {_bool(message.is_valid)} crc: {message.crc}}}"
            key, value = (
                None if field is None else bytes(field) for field in (message.key, message.value)
            )
            yield _Line(
                offset=message.offset,
                timestamp=message.timestamp,
                key=key,
                value=value,
                about=about,
            )
        return
    for record in decoded(batch):
        sequence = -1
        if header.base_sequence >= 0:
            sequence = increment_sequence(header.base_sequence, record.offset - header.base_offset)
        names = ",".join(name for name, _ in record.headers)
        about = f" sequence: {sequence} headerKeys: [{names}]"
        yield _Line(
            offset=record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            about=about,
        )


def _record_line(record: _Line, header: BatchHeader, options: LogOptions) -> str:
    line = ""
    if not options.skip_metadata:
        line = (
            f"| offset: {record.offset} {header.timestamp_type}: {record.timestamp} "
            f"keySize: {_size(record.key)} valueSize: {_size(record.value)}{record.about}"
        )
        if header.is_control:
            line += _control(record)
    if options.parser is None or header.is_control:
        return line
    key, payload = options.parser(record.offset, record.key, record.value)
    if key is not None:
        line += f"{' ' if line else '| '}key: {key}"
    return line if payload is None else f"{line} payload: {payload}"


def _size(field: bytes | None) -> int:
    return -1 if field is None else len(field)


def _control(record: _Line) -> str:
    kind = control_type(record.key)
    if kind in (ABORT, COMMIT):
        marker = read_marker_record(kind, record.timestamp, record.value)
        return f" endTxnMarker: {CONTROL_TYPES[kind]} coordinatorEpoch: {marker.coordinator_epoch}"
    if kind in CONTROL_VALUES:
        name, schema = CONTROL_VALUES[kind]
        content = schema.read(record.value or b"", 0)
        return f" {name} {json_text(message_json(schema, content, 0))}"
    return f" controlType: {CONTROL_TYPES.get(kind, 'UNKNOWN')}({kind})"
