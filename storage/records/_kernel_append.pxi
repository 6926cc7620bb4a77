"""The look that every append takes: is this one plain batch, whole and unharmed?"""

from raylog.storage.records.batch import BatchHeader

cdef type _BATCH_HEADER = BatchHeader


def plain_header(records, int64_t max_bytes, int64_t now_ms, int64_t max_ahead_ms):
    """The header of the batch that ``records`` is, if its CRC-32C is right and it is plain.

    None if anything about it needs a closer look: whoever asks finds out what, and whether it is
    wrong.
    """
    cdef View view
    try:
        view = View(records)
    except (TypeError, ValueError, BufferError):
        return None
    cdef const uint8_t* p = view.data
    if not HEADER_SIZE <= view.size <= max_bytes or p[AT_MAGIC] != MAGIC:
        return None
    cdef int64_t length = big_endian(p + AT_LENGTH, 4)
    cdef int64_t attributes = big_endian(p + AT_ATTRIBUTES, 2)
    cdef int64_t last_offset_delta = big_endian(p + AT_LAST_OFFSET_DELTA, 4)
    cdef int64_t max_timestamp = big_endian(p + AT_MAX_TIMESTAMP, 8)
    cdef int64_t count = big_endian(p + AT_COUNT, 4)
    cdef uint32_t crc = <uint32_t>big_endian(p + AT_CRC, 4)
    if length + LOG_OVERHEAD != view.size or not 0 <= attributes <= LAST_CODEC:
        return None
    if count <= 0 or count != last_offset_delta + 1:
        return None
    if subtract(max_timestamp, now_ms) > max_ahead_ms:
        return None
    if crc != <uint32_t>_crc32c(view_of(p + CRC_START, p + view.size)):
        return None
    return named_tuple(_BATCH_HEADER, (
        big_endian(p + AT_BASE_OFFSET, 8),
        length,
        big_endian(p + AT_LEADER_EPOCH, 4),
        MAGIC,
        crc,
        attributes,
        last_offset_delta,
        big_endian(p + AT_BASE_TIMESTAMP, 8),
        max_timestamp,
        big_endian(p + AT_PRODUCER_ID, 8),
        big_endian(p + AT_PRODUCER_EPOCH, 2),
        big_endian(p + AT_BASE_SEQUENCE, 4),
        count,
    ))
