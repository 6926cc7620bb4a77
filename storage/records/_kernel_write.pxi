"""The common append: one batch is stamped, written, and noted in the indexes' memory."""

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
    OFFSET_ENTRY_SIZE = 8
    TIME_ENTRY_SIZE = 12

# The fields of a Bound, by their places in the tuple
cdef enum:
    BOUND_OFFSET = 0
    BOUND_SEGMENT_BASE = 1
    BOUND_POSITION = 2
    BOUND_APPENDED_BYTES = 3


cdef inline void put_big_endian(uint8_t* to, int64_t number, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        to[i] = <uint8_t>(<uint64_t>number >> (8 * (size - 1 - i)))


def write_stamped(int descriptor, stamp, batch):
    """Write ``batch`` with ``stamp`` in the place of its first bytes; returns its size.

    One call of the system, if it takes all. Raises OSError.
    """
    cdef View head = View(stamp)
    cdef View body = View(batch)
    cdef iovec pieces[2]
    cdef ssize_t written
    cdef Py_ssize_t total = 0
    cdef int first = 0
    cdef uint8_t whole[SMALL_SIZE]
    if head.size > body.size:
        raise ValueError(f"a stamp of {head.size} bytes is longer than a batch of {body.size}")
    pieces[0].iov_base = <void*>head.data
    pieces[0].iov_len = head.size
    pieces[1].iov_base = <void*>(body.data + head.size)
    pieces[1].iov_len = body.size - head.size
    if body.size <= SMALL_SIZE:  # in one piece: cheaper than to have the system gather two
        memcpy(whole, body.data, body.size)
        memcpy(whole, head.data, head.size)
        pieces[1].iov_base, pieces[1].iov_len = whole, body.size
        first = 1
    while total < body.size:
        with nogil:
            if first:
                written = write(descriptor, pieces[1].iov_base, pieces[1].iov_len)
            else:
                written = writev(descriptor, pieces, 2)
        if written < 0:
            if errno == EINTR:
                continue
            PyErr_SetFromErrno(OSError)
        total += written
        while first < 2 and <size_t>written >= pieces[first].iov_len:
            written -= pieces[first].iov_len
            first += 1
        if first < 2:
            pieces[first].iov_base = <uint8_t*>pieces[first].iov_base + written
            pieces[first].iov_len -= written
    return total


cdef class Appender:
    """Appends batches that need no decision: no new segment, and room for entries in memory.

    The segment's writer arms it, and does itself what is refused. ``write``: takes a stamp and the
    batch's bytes; raises with nothing written. ``offsets``, ``times``: the entries of both indexes,
    in memory. ``moment``: makes what ``largest`` is, of a timestamp and an offset.
    """

    cdef object write
    cdef type moment
    cdef int64_t base_offset
    cdef int64_t largest_timestamp
    cdef int64_t timed
    cdef bytearray offsets
    cdef bytearray times
    cdef int64_t max_bytes, last_offset, last_timestamp, interval, entries_left
    cdef readonly object largest
    cdef readonly int64_t since_entry

    def __init__(self, write, type moment not None, int64_t base_offset):
        self.write, self.moment, self.base_offset = write, moment, base_offset
        self.entries_left = -1

    def arm(self, bytearray offsets not None, bytearray times not None, int64_t entries_left,
            limits, int64_t interval, int64_t since_entry, largest, int64_t timed):
        """Take over: the state of the indexes, and the limits of the segment.

        ``limits``: its bytes, the last offset, and the largest timestamp that need no look.
        ``entries_left``: so many entries go into either index before it must be written or is full.
        ``timed``: the largest timestamp that the time index has.
        """
        self.offsets, self.times, self.entries_left = offsets, times, entries_left
        self.max_bytes, self.last_offset, self.last_timestamp = limits
        self.interval, self.since_entry = interval, since_entry
        self.largest, self.largest_timestamp = largest, largest[0]
        self.timed = timed

    def append(self, batch, header, int64_t base_offset, int64_t epoch, int64_t position):
        """Whether the batch was written at ``position``, the file's end; ``header`` is its own.

        What the write raises is raised with nothing changed.
        """
        if self.entries_left < 0:
            return False
        cdef int64_t size = number_at(header, FIELD_BATCH_LENGTH) + LOG_OVERHEAD
        cdef int64_t last_offset = base_offset + number_at(header, FIELD_LAST_OFFSET_DELTA)
        cdef int64_t timestamp = number_at(header, FIELD_MAX_TIMESTAMP)
        if not self._takes(size, last_offset, timestamp, position):
            return False
        self._write(batch, size, base_offset, last_offset, timestamp, epoch, position)
        return True

    def check_and_append(self, records, rules, int64_t now_ms, end, int64_t epoch):
        """As ``check_batch``, and then ``append`` at ``end``, of a batch without a producer.

        Returns the log's new end, another ``Bound``, if it was written; else what ``check_batch``
        returns.
        """
        cdef View view
        cdef Checked checked
        if self.entries_left < 0:
            return check_batch(records, rules, now_ms)
        try:
            view = View(records)
        except (TypeError, ValueError, BufferError):
            return None
        if not is_plain_batch(view, rules, now_ms, &checked):
            return None
        cdef int64_t base_offset = number_at(end, BOUND_OFFSET)
        cdef int64_t position = number_at(end, BOUND_POSITION)
        cdef int64_t last_offset = base_offset + checked.last_offset_delta
        if checked.attributes or big_endian(view.data + AT_PRODUCER_ID, 8) != -1 or not self._takes(
            view.size, last_offset, checked.max_timestamp, position
        ):
            return header_of(view.data, &checked)
        self._write(
            records, view.size, base_offset, last_offset, checked.max_timestamp, epoch, position
        )
        return named_tuple(type(end), (
            last_offset + 1,
            <object>PyTuple_GetItem(end, BOUND_SEGMENT_BASE),
            position + view.size,
            number_at(end, BOUND_APPENDED_BYTES) + view.size,
        ))

    cdef bint _takes(self, int64_t size, int64_t last_offset, int64_t timestamp, int64_t position):
        if self.since_entry > self.interval and self.entries_left == 0:
            return False
        if position + size > self.max_bytes or last_offset > self.last_offset:
            return False
        return timestamp <= self.last_timestamp and position > 0

    cdef int _write(self, batch, int64_t size, int64_t base_offset, int64_t last_offset,
                    int64_t timestamp, int64_t epoch, int64_t position) except -1:
        cdef uint8_t stamp[STAMP_SIZE]
        put_big_endian(stamp, base_offset, 8)
        put_big_endian(stamp + 8, size - LOG_OVERHEAD, 4)
        put_big_endian(stamp + 12, epoch, 4)
        self.write(PyBytes_FromStringAndSize(<const char*>stamp, STAMP_SIZE), batch)
        if timestamp > self.largest_timestamp:
            self.largest = named_tuple(self.moment, (timestamp, last_offset))
            self.largest_timestamp = timestamp
        if self.since_entry > self.interval:
            self._add_entries(last_offset - self.base_offset, position)
        self.since_entry += size
        return 0

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

    @property
    def timed_timestamp(self):
        """The largest timestamp that the time index has."""
        return self.timed
