"""The look that every append takes: is this one plain batch, whole, unharmed and true?"""

from raylog.storage.records.batch import BatchHeader

cdef type _BATCH_HEADER = BatchHeader


def check_batch(records, rules, int64_t now_ms):
    """The header of the batch that ``records`` is, if it may be appended as it is.

    That is: its CRC-32C is right, it is plain, and, unless it is compressed, its records break no
    rule and say the header's maximum timestamp. ``rules`` is a RecordRules. None if anything needs
    a closer look: whoever asks finds out what, and whether it is wrong.
    """
    cdef View view
    try:
        view = View(records)
    except (TypeError, ValueError, BufferError):
        return None
    cdef const uint8_t* p = view.data
    cdef Walk walk
    read_rules(&walk.rules, rules, now_ms)
    if not HEADER_SIZE <= view.size <= walk.rules.max_bytes or p[AT_MAGIC] != MAGIC:
        return None
    cdef int64_t length = big_endian(p + AT_LENGTH, 4)
    cdef int64_t attributes = big_endian(p + AT_ATTRIBUTES, 2)
    cdef int64_t last_offset_delta = big_endian(p + AT_LAST_OFFSET_DELTA, 4)
    cdef int64_t base_timestamp = big_endian(p + AT_BASE_TIMESTAMP, 8)
    cdef int64_t max_timestamp = big_endian(p + AT_MAX_TIMESTAMP, 8)
    cdef int64_t count = big_endian(p + AT_COUNT, 4)
    cdef uint32_t crc = <uint32_t>big_endian(p + AT_CRC, 4)
    if length + LOG_OVERHEAD != view.size or not 0 <= attributes <= LAST_CODEC:
        return None
    if count <= 0 or count != last_offset_delta + 1:
        return None
    if max_timestamp > walk.rules.latest:
        return None
    if crc != <uint32_t>_crc32c(view_of(p + CRC_START, p + view.size)):
        return None
    cdef bint is_plain
    if attributes == 0:
        begin_walk(&walk, count, base_timestamp)
        if view.size >= NOGIL_SIZE:
            with nogil:
                is_plain = are_plain(&walk, p + HEADER_SIZE, p + view.size)
        else:
            is_plain = are_plain(&walk, p + HEADER_SIZE, p + view.size)
        if not is_plain or (walk.rules.is_create_time and walk.largest != max_timestamp):
            return None
    return named_tuple(_BATCH_HEADER, (
        big_endian(p + AT_BASE_OFFSET, 8),
        length,
        big_endian(p + AT_LEADER_EPOCH, 4),
        MAGIC,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        big_endian(p + AT_PRODUCER_ID, 8),
        big_endian(p + AT_PRODUCER_EPOCH, 2),
        big_endian(p + AT_BASE_SEQUENCE, 4),
        count,
    ))
