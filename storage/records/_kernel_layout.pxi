"""``layout.py`` for the compiler: the batch header and its attributes, as drawn in ``batch.py``.

A test holds every name here against the one there.
"""

cdef enum:
    MAGIC = 2
    AT_BASE_OFFSET = 0
    AT_LENGTH = 8
    AT_LEADER_EPOCH = 12
    AT_MAGIC = 16
    AT_CRC = 17
    AT_ATTRIBUTES = 21
    AT_LAST_OFFSET_DELTA = 23
    AT_BASE_TIMESTAMP = 27
    AT_MAX_TIMESTAMP = 35
    AT_PRODUCER_ID = 43
    AT_PRODUCER_EPOCH = 51
    AT_BASE_SEQUENCE = 53
    AT_COUNT = 57
    HEADER_SIZE = 61
    LOG_OVERHEAD = 12
    CRC_START = 21
    MIN_BATCH_LENGTH = 49
    CODEC_MASK = 0x07
    LAST_CODEC = 4
    LOG_APPEND_TIME = 0x08
    CONTROL = 0x20
    MIN_MESSAGE_LENGTH = 14
    MIN_RECORD_SIZE = 7

# The fields of a BatchHeader, by their places in the tuple
cdef enum:
    FIELD_BASE_OFFSET = 0
    FIELD_BATCH_LENGTH = 1
    FIELD_ATTRIBUTES = 5
    FIELD_LAST_OFFSET_DELTA = 6
    FIELD_MAX_TIMESTAMP = 8
    FIELD_COUNT = 12
