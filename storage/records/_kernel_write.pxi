"""The common append: one batch is stamped, written, and noted in the indexes' memory."""

from cython cimport final

from cpython.bytearray cimport PyByteArray_Resize, PyByteArray_Size
from cpython.exc cimport PyErr_SetFromErrno

from libc.errno cimport EINTR, errno

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t writev(int descriptor, const iovec* pieces, int count)

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int descriptor, const void* data, size_t size)

cdef enum:
    # what the log writes over a batch's first bytes: base offset, length, leader epoch
    STAMP_SIZE = 16
    # bytes: below, a copy costs less than a second piece
    SMALL_SIZE = 4096
    NO_TIMESTAMP = -1
    OFFSET_ENTRY_SIZE = 8
    TIME_ENTRY_SIZE = 12

# The fields of a Bound, by their places in the tuple
cdef enum:
    BOUND_OFFSET = 0
    BOUND_SEGMENT_BASE = 1
    BOUND_POSITION = 2
    BOUND_APPENDED_BYTES = 3
    BOUND_FIELDS = 4

# The fields of an AppendInfo, likewise
cdef enum:
    ANSWER_BASE_OFFSET = 0
    ANSWER_LAST_OFFSET = 1
    ANSWER_LOG_APPEND_TIME = 2
    ANSWER_LOG_START_OFFSET = 3
    ANSWER_IS_DUPLICATE = 4
    ANSWER_FIELDS = 5


cdef inline int put_item(object made, Py_ssize_t at, object item) except -1:
    """Set an item of a tuple that nobody else has."""
    Py_INCREF(item)  # the tuple takes one
    PyTuple_SetItem(made, at, item)
    return 0


cdef inline void put_big_endian(uint8_t* to, int64_t number, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        to[i] = <uint8_t>(<uint64_t>number >> (8 * (size - 1 - i)))


def write_stamped(int descriptor, bytes stamp not None, batch):
    """Write ``batch`` with ``stamp`` in the place of its first bytes; returns its size.

    One call of the system, if it takes all. Raises OSError.
    """
    cdef Span head, body
    cdef View held = span_of(batch, &body)
    span_of(stamp, &head)
    if head.size > body.size:
        raise ValueError(f"a stamp of {head.size} bytes is longer than a batch of {body.size}")
    cdef iovec pieces[2]
    cdef uint8_t whole[SMALL_SIZE]
    if body.size > SMALL_SIZE:
        pieces[0].iov_base, pieces[0].iov_len = <void*>head.data, head.size
        pieces[1].iov_base = <void*>(body.data + head.size)
        pieces[1].iov_len = body.size - head.size
        write_pieces(descriptor, pieces, 2)
    else:  # in one piece: cheaper than to have the system gather two
        memcpy(whole, body.data, body.size)
        memcpy(whole, head.data, head.size)
        pieces[0].iov_base, pieces[0].iov_len = whole, body.size
        write_pieces(descriptor, pieces, 1)
    return body.size


cdef int write_pieces(int descriptor, iovec* pieces, int count) except -1:
    """Write all of the pieces, which are changed, in as few calls as the system needs."""
    cdef ssize_t written
    while count > 0:
        with nogil:
            if count == 1:
                written = write(descriptor, pieces[0].iov_base, pieces[0].iov_len)
            else:
                written = writev(descriptor, pieces, count)
        if written < 0:
            if errno != EINTR:
                PyErr_SetFromErrno(OSError)
            continue
        while count > 0 and <size_t>written >= pieces[0].iov_len:
            written -= pieces[0].iov_len
            pieces += 1
            count -= 1
        if count > 0:
            pieces[0].iov_base = <uint8_t*>pieces[0].iov_base + written
            pieces[0].iov_len -= written
    return 0


@final
cdef class Appender:
    """Appends batches that need no decision: no new segment, and room for entries in memory.

    The segment's writer arms it, and does itself what is refused. ``write``: takes a stamp and the
    batch's bytes; raises with nothing written. ``offsets``, ``times``: the entries of both indexes,
    in memory. ``moment``: the type of ``largest``, a timestamp with an offset. ``answer``: the type
    that tells where a batch went.
    """

    cdef object write
    cdef type moment
    cdef type answer
    cdef Rules rules
    cdef int64_t base_offset
    cdef int64_t largest_timestamp
    cdef int64_t timed
    cdef bytearray offsets
    cdef bytearray times
    cdef int64_t max_bytes, last_offset, last_timestamp, interval, entries_left
    cdef readonly object largest
    cdef readonly int64_t since_entry

    def __init__(self, write, type moment not None, type answer not None, int64_t base_offset):
        self.write, self.moment, self.answer, self.base_offset = write, moment, answer, base_offset
        self.entries_left = -1

    def arm(self, bytearray offsets not None, bytearray times not None, int64_t entries_left,
            limits, int64_t interval, int64_t since_entry, largest, int64_t timed, rules):
        """Take over: the state of the indexes, and the limits of the segment.

        ``limits``: its bytes, the last offset, and the largest timestamp that need no look.
        ``entries_left``: so many entries go into either index before it must be written or is full.
        ``timed``: the largest timestamp that the time index has. ``rules``: a RecordRules.
        """
        self.offsets, self.times, self.entries_left = offsets, times, entries_left
        self.max_bytes, self.last_offset, self.last_timestamp = limits
        self.interval, self.since_entry = interval, since_entry
        self.largest, self.largest_timestamp = largest, largest[0]
        self.timed = timed
        read_rules(&self.rules, rules)

    def append(self, batch, header, end, int64_t epoch, log_start_offset):
        """Write a batch at ``end``, a ``Bound``; ``header`` is the batch's own.

        Returns the log's new end and what ``answer`` makes of the append; None if the batch is
        refused. What the write raises is raised with nothing changed.
        """
        cdef int64_t size = number_at(header, FIELD_BATCH_LENGTH) + LOG_OVERHEAD
        cdef int64_t delta = number_at(header, FIELD_LAST_OFFSET_DELTA)
        cdef int64_t last_offset = bounded_add(number_at(end, BOUND_OFFSET), delta)
        cdef int64_t timestamp = number_at(header, FIELD_MAX_TIMESTAMP)
        if not self._takes(size, last_offset, timestamp, number_at(end, BOUND_POSITION)):
            return None
        return self._write(batch, size, end, last_offset, timestamp, epoch, log_start_offset)

    def check_and_append(self, records, int64_t now_ms, end, int64_t epoch, log_start_offset):
        """As ``check_batch``, and then as ``append``, of a batch without a producer.

        Returns what ``append`` returns; if the batch is refused, what ``check_batch`` returns.
        """
        cdef Span batch
        cdef View held
        cdef Checked checked
        try:
            held = span_of(records, &batch)
        except (TypeError, ValueError, BufferError):
            return None
        if not is_plain_batch(&batch, &self.rules, now_ms, &checked):
            return None
        cdef int64_t timestamp = checked.max_timestamp
        cdef int64_t delta = checked.last_offset_delta
        cdef int64_t last_offset = bounded_add(number_at(end, BOUND_OFFSET), delta)
        cdef bint is_common = (
            checked.attributes == 0
            and big_endian(batch.data + AT_PRODUCER_ID, 8) == -1
            and self._takes(batch.size, last_offset, timestamp, number_at(end, BOUND_POSITION))
        )
        if not is_common:
            return header_of(batch.data, &checked)
        return self._write(
            records, batch.size, end, last_offset, timestamp, epoch, log_start_offset
        )

    cdef bint _takes(self, int64_t size, int64_t last_offset, int64_t timestamp, int64_t position):
        if self.since_entry > self.interval and self.entries_left == 0:
            return False
        if self.entries_left < 0:
            return False
        if position + size > self.max_bytes or last_offset > self.last_offset:
            return False
        return timestamp <= self.last_timestamp and position > 0

    cdef tuple _write(self, batch, int64_t size, end, int64_t last_offset, int64_t timestamp,
                      int64_t epoch, log_start_offset):
        cdef int64_t base_offset = number_at(end, BOUND_OFFSET)
        cdef int64_t position = number_at(end, BOUND_POSITION)
        cdef uint8_t stamp[STAMP_SIZE]
        put_big_endian(stamp, base_offset, 8)
        put_big_endian(stamp + 8, size - LOG_OVERHEAD, 4)
        put_big_endian(stamp + 12, epoch, 4)
        self.write(PyBytes_FromStringAndSize(<const char*>stamp, STAMP_SIZE), batch)
        if timestamp > self.largest_timestamp:
            self.largest = named_tuple(self.moment, (timestamp, last_offset))
            self.largest_timestamp = timestamp
        if self.since_entry > self.interval:
            try:
                self._add_entries(last_offset - self.base_offset, position)
            except (BufferError, MemoryError):
                # The batch is written: it counts. The next one gets the entry.
                pass
        self.since_entry += size
        new_end = PyType_GenericAlloc(type(end), BOUND_FIELDS)
        put_item(new_end, BOUND_OFFSET, last_offset + 1)
        put_item(new_end, BOUND_SEGMENT_BASE, <object>PyTuple_GetItem(end, BOUND_SEGMENT_BASE))
        put_item(new_end, BOUND_POSITION, position + size)
        put_item(new_end, BOUND_APPENDED_BYTES, number_at(end, BOUND_APPENDED_BYTES) + size)
        answer = PyType_GenericAlloc(self.answer, ANSWER_FIELDS)
        put_item(answer, ANSWER_BASE_OFFSET, base_offset)
        put_item(answer, ANSWER_LAST_OFFSET, last_offset)
        put_item(answer, ANSWER_LOG_APPEND_TIME, NO_TIMESTAMP)
        put_item(answer, ANSWER_LOG_START_OFFSET, log_start_offset)
        put_item(answer, ANSWER_IS_DUPLICATE, False)
        return new_end, answer

    cdef int _add_entries(self, int64_t relative_offset, int64_t position) except -1:
        cdef Py_ssize_t end = PyByteArray_Size(self.offsets)
        cdef int64_t offset
        PyByteArray_Resize(self.offsets, end + OFFSET_ENTRY_SIZE)
        cdef uint8_t* to = <uint8_t*>PyByteArray_AsString(self.offsets) + end
        put_big_endian(to, relative_offset, 4)
        put_big_endian(to + 4, position, 4)
        self.since_entry = 0
        self.entries_left -= 1
        if self.largest_timestamp <= self.timed:
            return 0
        offset = self.largest[1]
        end = PyByteArray_Size(self.times)
        PyByteArray_Resize(self.times, end + TIME_ENTRY_SIZE)
        to = <uint8_t*>PyByteArray_AsString(self.times) + end
        put_big_endian(to, self.largest_timestamp, 8)
        put_big_endian(to + 8, offset - self.base_offset, 4)
        self.timed = self.largest_timestamp
        return 0
