"""What compaction reads and rewrites. See ``_kernel_clean.pxi``."""

from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord
from raylog.storage.records._kernel_py_bytes import Malformed, wrap
from raylog.storage.records._kernel_py_decode import parse_records
from raylog.storage.records._kernel_py_encode import put_record
from raylog.storage.records.batch import BatchHeader, iter_batches
from raylog.storage.records.batch import check_crc as _check_crc
from raylog.storage.records.layout import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MIN_BATCH_LENGTH,
    MIN_RECORD_SIZE,
)

_SLOT: Final = Struct("16sq")


def leading_headers(chunk: Buffer) -> list[BatchHeader]:
    """See ``_kernel_clean.pxi``."""
    headers = []
    try:
        for position, header in iter_batches(chunk):
            _check_crc(chunk, position, header)
            headers.append(header)
    except CorruptRecord:
        pass
    return headers


class OffsetTable:
    """See ``_kernel_clean.pxi``; only the hash is another."""

    def __init__(self, slots: int, capacity: int, secret: bytes) -> None:
        if not 0 < capacity < slots:
            raise ValueError(f"capacity {capacity} of {slots} slots: a search ends at a free one")
        if len(secret) != 16:
            raise ValueError(f"a secret of {len(secret)} bytes: give 16")
        self.capacity, self.size = capacity, 0
        self._slots, self._secret, self._bytes = slots, secret, bytearray(slots * _SLOT.size)

    def _find(self, key: bytes) -> tuple[int, bytes, int]:
        """(position, hash, last offset + 1) of the key's slot.

        If the key has none, of the free slot that it would take.
        """
        wanted = blake2b(key, digest_size=16, key=self._secret).digest()
        slot = int.from_bytes(wanted[:8], "little") % self._slots
        while True:
            digest, next_offset = _SLOT.unpack_from(self._bytes, slot * _SLOT.size)
            if not next_offset or digest == wanted:
                return slot * _SLOT.size, wanted, next_offset
            slot = (slot + 1) % self._slots

    def put_records(
        self, plain: Buffer, count: int, base_offset: int, start_offset: int
    ) -> tuple[int, int, bool]:
        _check_start(start_offset)
        last, keyless = -1, 0
        for offset, _, key, _, _ in _whole_records(plain, count, base_offset):
            if offset < start_offset:
                continue
            if key is None:
                keyless += 1
                continue
            if self.size >= self.capacity:
                return last, keyless, True
            position, digest, next_offset = self._find(key)
            self.size += next_offset == 0
            _SLOT.pack_into(self._bytes, position, digest, wrap(offset + 1))
            last = offset
        return last, keyless, False

    def put_batches(
        self,
        chunk: Buffer,
        headers: list[BatchHeader],
        first: int,
        position: int,
        start_offset: int,
    ) -> tuple[int, int, int, bool]:
        last, view = -1, memoryview(chunk)
        _check_start(start_offset)
        if first < 0 or not 0 <= position <= len(view):
            raise ValueError(f"header {first} at position {position} of {len(view)} bytes")
        while first < len(headers) and _is_plain(header := headers[first]):
            plain = _records_of(view, position, header)
            last_put, _, is_full = self.put_records(
                plain, header.count, header.base_offset, start_offset
            )
            last = max(last, last_put)
            if is_full:
                return first, position, last, True
            first, position = first + 1, position + header.size_bytes
        return first, position, last, False

    def get(self, key: Buffer) -> int:
        return wrap(self._find(bytes(memoryview(key)))[2] - 1)

    def judge_records(
        self, plain: Buffer, count: int, base_offset: int, latest_offset: int, drop_tombstones: bool
    ) -> tuple[int, int, int, bytearray]:
        if not 0 <= count <= len(plain) // MIN_RECORD_SIZE:
            raise CorruptRecord(
                f"offset {base_offset}", "its bytes cannot hold its count of records"
            )
        flags, tombstones, keyless = bytearray(), 0, 0
        for offset, _, key, value, _ in _whole_records(plain, count, base_offset):
            if offset > latest_offset:
                keep = True
            elif key is None:
                keep = False
                keyless += 1
            else:
                keep = offset >= self.get(key) and not (drop_tombstones and value is None)
            flags.append(keep)
            tombstones += keep and value is None
        return sum(flags), tombstones, keyless, flags

    def judge_batches(
        self, chunk: Buffer, headers: list[BatchHeader], latest_offset: int
    ) -> tuple[bytearray, int]:
        verdicts = bytearray(len(headers))
        view = memoryview(chunk)
        all_keyless = position = 0
        for number, header in enumerate(headers):
            plain = _records_of(view, position, header)
            if _is_plain(header):
                kept, tombstones, keyless, _ = self.judge_records(
                    plain, header.count, header.base_offset, latest_offset, False
                )
                if not tombstones and kept in (0, header.count):
                    verdicts[number] = 1 if kept else 2
                    all_keyless += keyless
            position += header.size_bytes
        return verdicts, all_keyless


def _is_plain(header: BatchHeader) -> bool:
    return not header.attributes & ~LOG_APPEND_TIME and header.count > 0


def _records_of(chunk: memoryview, position: int, header: BatchHeader) -> memoryview:
    if not MIN_BATCH_LENGTH <= header.batch_length <= len(chunk) - position - LOG_OVERHEAD:
        raise CorruptRecord(f"offset {header.base_offset}", "its batch is not within the chunk")
    return chunk[position + HEADER_SIZE : position + header.size_bytes]


def _check_start(start_offset: int) -> None:
    if start_offset < 0:
        raise ValueError(f"start offset {start_offset}: a record's offset is 0 or more")


def _whole_records(plain: Buffer, count: int, base_offset: int) -> Iterator[tuple]:
    """(offset, timestamp delta, key, value, headers) of each."""
    try:
        for delta, offset_delta, key, value, headers in parse_records(plain, count):
            yield wrap(base_offset + offset_delta), delta, key, value, headers
    except Malformed as error:
        raise CorruptRecord(f"offset {base_offset}", str(error)) from None


def rebuild_records(
    plain: Buffer,
    kept: Buffer,
    base_timestamp: int,
    new_base_timestamp: int | None,
    append_time: int | None,
) -> tuple[bytearray, int, int]:
    out, base, max_timestamp = bytearray(HEADER_SIZE), new_base_timestamp, -1
    for keep, record in zip(memoryview(kept), _whole_records(plain, len(kept), 0), strict=False):
        if keep:
            offset_delta, delta, key, value, headers = record
            timestamp = wrap(base_timestamp + delta) if append_time is None else append_time
            base = timestamp if base is None else base
            max_timestamp = max(max_timestamp, timestamp)
            put_record(out, wrap(timestamp - base), offset_delta, key, value, headers)
    return out, base or 0, max_timestamp
