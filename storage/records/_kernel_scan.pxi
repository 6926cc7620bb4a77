"""What the headers of batches say, a row for each: for recovery, indexes, and producers' states."""

cdef enum:
    SCAN_COLUMNS = 6

WALK_FOUND, WALK_MORE, WALK_ODD = range(3)


cdef inline int64_t size_of_whole(const uint8_t* p, int64_t left) noexcept nogil:
    """The bytes of the v2 batch at ``p``; 0 if there is none that is whole."""
    if left < HEADER_SIZE or p[AT_MAGIC] != MAGIC:
        return 0
    cdef int64_t length = big_endian(p + AT_LENGTH, 4)
    if not MIN_BATCH_LENGTH <= length <= left - LOG_OVERHEAD:
        return 0
    return length + LOG_OVERHEAD


def scan_batches(buffer, int64_t position, bint check_crc):
    """(rows, end): six int64 for each v2 batch from ``position`` on.

    ``end`` is the first place where there is none.
    """
    cdef View view = View(buffer)
    cdef Vector out = Vector()
    cdef const uint8_t* p
    cdef int64_t* row
    cdef int64_t size, used = 0
    if not 0 <= position <= view.size:
        return bytearray(), position
    while True:
        p = view.data + position
        size = size_of_whole(p, view.size - position)
        if not size:
            break
        if check_crc and <uint32_t>big_endian(p + AT_CRC, 4) != <uint32_t>_crc32c(
            view_of(p + CRC_START, p + size)
        ):
            break
        if used + SCAN_COLUMNS * 8 > out.capacity:
            out.reserve(max(2 * out.capacity, 64 * SCAN_COLUMNS * 8))
        row = <int64_t*>(out.data + used)
        row[0] = position
        row[1] = big_endian(p + AT_BASE_OFFSET, 8)
        row[2] = add(row[1], big_endian(p + AT_LAST_OFFSET_DELTA, 4))
        row[3] = big_endian(p + AT_MAX_TIMESTAMP, 8)
        row[4] = big_endian(p + AT_PRODUCER_ID, 8)
        row[5] = big_endian(p + AT_COUNT, 4)
        used += SCAN_COLUMNS * 8
        position += size
    return out.take(used), position


def walk(block, int64_t offset, int64_t limit, int64_t next_offset,
         int64_t end_offset=INT64_MAX):
    """(state, position, size, next offset) of the first v2 batch that reaches ``offset`` or ends
    behind ``limit``.

    The first batch begins at the block's begin; positions count from there. Offsets must rise from
    ``next_offset`` on, and stay below ``end_offset``. Only headers have to be in the block. The
    state is WALK_FOUND; WALK_MORE: the header at ``position`` is not whole in the block; or
    WALK_ODD: it is no header of version 2 that can stand there.
    """
    cdef View view = View(block)
    cdef const uint8_t* p
    cdef int64_t length, base, last, position = 0
    cdef int64_t size = view.size
    while position <= size - HEADER_SIZE:
        p = view.data + position
        length = big_endian(p + AT_LENGTH, 4)
        base = big_endian(p + AT_BASE_OFFSET, 8)
        last = add(base, big_endian(p + AT_LAST_OFFSET_DELTA, 4))
        if p[AT_MAGIC] != MAGIC or length < MIN_BATCH_LENGTH:
            return WALK_ODD, position, 0, next_offset
        if base < next_offset or last < base or last >= end_offset:
            return WALK_ODD, position, 0, next_offset
        if last >= offset or position + length + LOG_OVERHEAD > limit:
            return WALK_FOUND, position, length + LOG_OVERHEAD, next_offset
        next_offset = last + 1
        position += length + LOG_OVERHEAD
    return WALK_MORE, position, 0, next_offset


def count_up_to(entries, Py_ssize_t entry_size, Py_ssize_t at, int width, int64_t wanted,
                Py_ssize_t warm_bytes):
    """How many entries have at most ``wanted`` in the column of ``width`` bytes at byte ``at``.

    The column rises. The last ``warm_bytes`` are looked at first: see ``sparse.py``.
    """
    cdef View view = View(entries)
    if entry_size <= 0 or at < 0 or width not in (4, 8) or at + width > entry_size:
        raise ValueError(f"no column of {width} bytes at {at} in entries of {entry_size}")
    if warm_bytes < 0:
        raise ValueError(f"a warm end of {warm_bytes} bytes")
    cdef int64_t count = view.size // entry_size
    cdef int64_t first = 0
    cdef int64_t end = count
    cdef int64_t middle = count - 1 - warm_bytes // entry_size
    if middle > 0:
        if big_endian(view.data + middle * entry_size + at, width) <= wanted:
            first = middle + 1
        else:
            end = middle
    while first < end:
        middle = first + (end - first) // 2
        if big_endian(view.data + middle * entry_size + at, width) <= wanted:
            first = middle + 1
        else:
            end = middle
    return first
