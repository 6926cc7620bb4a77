"""The look that every append takes: is this one plain batch, whole, unharmed and true?"""

from raylog.storage.records.batch import BatchHeader

cdef type _BATCH_HEADER = BatchHeader


cdef struct Checked:
    int64_t attributes
    int64_t last_offset_delta
    int64_t max_timestamp


cdef bint is_plain_batch(const Span* batch, const Rules* rules, int64_t now_ms,
                         Checked* to) except -1:
    """Whether the bytes are one batch that may be appended as it is; see ``check_batch``."""
    cdef const uint8_t* p = batch.data
    cdef const uint8_t* end = p + batch.size
    cdef Walk walk
    if not HEADER_SIZE <= batch.size <= rules.max_bytes or p[AT_MAGIC] != MAGIC:
        return False
    cdef int64_t count = big_endian(p + AT_COUNT, 4)
    to.attributes = big_endian(p + AT_ATTRIBUTES, 2)
    to.last_offset_delta = big_endian(p + AT_LAST_OFFSET_DELTA, 4)
    to.max_timestamp = big_endian(p + AT_MAX_TIMESTAMP, 8)
    if big_endian(p + AT_LENGTH, 4) + LOG_OVERHEAD != batch.size:
        return False
    if not 0 <= to.attributes <= LAST_CODEC or count <= 0 or count != to.last_offset_delta + 1:
        return False
    if to.max_timestamp > bounded_add(now_ms, rules.after_max_ms):
        return False
    if <uint32_t>big_endian(p + AT_CRC, 4) != <uint32_t>_crc32c(view_of(p + CRC_START, end)):
        return False
    if to.attributes:
        return True
    cdef bint is_plain
    begin_walk(&walk, rules, now_ms, count, big_endian(p + AT_BASE_TIMESTAMP, 8))
    if batch.size >= NOGIL_SIZE:
        with nogil:
            is_plain = are_plain(&walk, p + HEADER_SIZE, end)
    else:
        is_plain = are_plain(&walk, p + HEADER_SIZE, end)
    return is_plain and (not rules.is_create_time or walk.largest == to.max_timestamp)


cdef object header_of(const uint8_t* p, Checked* checked):
    """The BatchHeader of a batch that was checked."""
    return named_tuple(_BATCH_HEADER, (
        big_endian(p + AT_BASE_OFFSET, 8),
        big_endian(p + AT_LENGTH, 4),
        big_endian(p + AT_LEADER_EPOCH, 4),
        MAGIC,
        <uint32_t>big_endian(p + AT_CRC, 4),
        checked.attributes,
        checked.last_offset_delta,
        big_endian(p + AT_BASE_TIMESTAMP, 8),
        checked.max_timestamp,
        big_endian(p + AT_PRODUCER_ID, 8),
        big_endian(p + AT_PRODUCER_EPOCH, 2),
        big_endian(p + AT_BASE_SEQUENCE, 4),
        checked.last_offset_delta + 1,
    ))


def check_batch(records, rules, int64_t now_ms):
    """The header of the batch that ``records`` is, if it may be appended as it is.

    That is: its CRC-32C is right, it is plain, and, unless it is compressed, its records break no
    rule and say the header's maximum timestamp. ``rules`` is a RecordRules. None if anything needs
    a closer look: whoever asks finds out what, and whether it is wrong.
    """
    cdef Span batch
    cdef View held
    cdef Rules limits
    cdef Checked checked
    read_rules(&limits, rules)
    try:
        held = span_of(records, &batch)
    except (TypeError, ValueError, BufferError):
        return None
    if not is_plain_batch(&batch, &limits, now_ms, &checked):
        return None
    return header_of(batch.data, &checked)
