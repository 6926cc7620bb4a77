"""What the headers of batches say, a row for each: for recovery, indexes, and producers' states."""

cdef enum:
    SCAN_COLUMNS = 6


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
