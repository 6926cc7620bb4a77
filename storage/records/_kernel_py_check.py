"""The look at each record of an append. See ``_kernel_check.pxi``, ``_kernel_append.pxi``."""

from typing import Any, Final

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord
from raylog.storage.records._kernel_py_bytes import Malformed, wrap
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.layout import MIN_RECORD_SIZE
from raylog.storage.records.rules import RecordRules

_MAX_NAMED: Final = 10

# What a walk reads next, in the order of a record's fields.
(
    _LENGTH,
    _ATTRIBUTES,
    _TIMESTAMP,
    _OFFSET,
    _KEY,
    _VALUE,
    _HEADER_COUNT,
    _NAME,
    _HEADER_VALUE,
) = range(9)


def check_batch(records: Any, rules: RecordRules, now_ms: int) -> BatchHeader | None:
    """See ``_kernel_append.pxi``. Never sure: the closer look that follows is in Python already."""
    return None


class RecordWalk:
    """See ``_kernel_check.pxi``. Byte by byte, but for what is passed over."""

    def __init__(self, count: int, base_timestamp: int, rules: RecordRules, now_ms: int) -> None:
        self._count, self._base_timestamp = count, base_timestamp
        self._rules, self._now_ms = rules, now_ms
        self.largest_timestamp = -1
        self.outside: int | None = None
        self.keyless = 0
        self.named: list[int] = []
        self._seen = 0
        self._field = _LENGTH
        self._varint, self._varint_size = 0, 0
        self._left = self._skip = self._headers = 0

    def feed(self, chunk: Buffer) -> None:
        view = memoryview(chunk).cast("B")
        try:
            self._feed(view)
        except Malformed as error:
            raise InvalidRecord(f"record {self._seen}: {error}") from None

    def _feed(self, view: memoryview) -> None:
        position = 0
        while position < len(view):
            if self._skip:
                passed = min(self._skip, len(view) - position)
                position += passed
                self._skip -= passed
                self._left -= passed
            else:
                if self._field != _LENGTH:
                    self._left -= 1
                self._take_byte(view[position])
                position += 1
            if self._field == _NAME and not self._headers and not self._skip:
                if self._left:
                    raise Malformed("bytes are left behind its last field")
                self._field = _LENGTH
                self._seen += 1
            elif not self._left and self._field != _LENGTH:
                raise Malformed("it is shorter than its fields")

    def _take_byte(self, byte: int) -> None:
        if self._field == _ATTRIBUTES:
            self._field = _TIMESTAMP
            if byte:
                raise Malformed("its attributes are not 0")
            return
        max_size = 10 if self._field == _TIMESTAMP else 5
        self._varint |= (byte & 0x7F) << (7 * self._varint_size)
        self._varint_size += 1
        if byte >= 0x80:
            if self._varint_size == max_size:
                raise Malformed("a number is longer than its type")
            return
        z = self._varint & (2**32 - 1 if max_size == 5 else 2**64 - 1)
        self._varint, self._varint_size = 0, 0
        self._take_number((z >> 1) ^ -(z & 1))

    def _take_number(self, number: int) -> None:
        if self._field == _LENGTH:
            if self._seen == self._count:
                raise Malformed("the header has a smaller count of records")
            if number < MIN_RECORD_SIZE - 1:
                raise Malformed("its length is too small")
            self._left = number
        elif self._field == _TIMESTAMP:
            self._take_timestamp(wrap(self._base_timestamp + number))
        elif self._field == _OFFSET:
            if number != self._seen:
                raise Malformed("its offset delta is not its place in the batch: 0, 1, 2, ...")
        elif self._field == _HEADER_COUNT:
            if not 0 <= number <= self._left:
                raise Malformed("its header count is negative or more than its bytes")
            self._headers = number
        else:
            self._take_size(number)
        if self._field == _HEADER_VALUE:
            self._headers -= 1
            self._field = _NAME
        else:
            self._field += 1

    def _take_timestamp(self, timestamp: int) -> None:
        self.largest_timestamp = max(self.largest_timestamp, timestamp)
        is_early = self._now_ms - timestamp > self._rules.before_max_ms
        is_late = timestamp - self._now_ms > self._rules.after_max_ms
        if timestamp != -1 and self.outside is None and (is_early or is_late):
            self.outside = timestamp

    def _take_size(self, size: int) -> None:
        """Of a key, a value, or a header's name or value."""
        if size > self._left:
            raise Malformed("a field is longer than what is left of it")
        self._skip = max(size, 0)
        if size >= 0:
            return
        if self._field == _NAME:
            raise Malformed("the name of a header is null")
        if self._field == _KEY and self._rules.needs_keys:
            if self.keyless < _MAX_NAMED:
                self.named.append(self._seen)
            self.keyless += 1

    def finish(self) -> None:
        if self._field != _LENGTH or self._varint_size:
            raise InvalidRecord(f"record {self._seen}: the batch ends within it")
        if self._seen != self._count:
            raise InvalidRecord(
                f"the batch has {self._seen} records, but its header says {self._count}"
            )
