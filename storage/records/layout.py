"""Where everything stands in a record batch, and what its numbers mean: each stated once.

``batch.py`` draws the header; these are the drawing's numbers. Positions are bytes from the begin
of the batch. The compiled kernel has the same ones in ``_kernel_layout.pxi``, since C wants
constants when it is compiled; a test holds the two against each other. Source:
``org.apache.kafka.common.record``: ``DefaultRecordBatch``, ``LegacyRecord``.
"""

from struct import Struct
from typing import Final

from raylog.storage.limits import MAX_INT

# -- the header of version 2 -----------------------------------------------------------------------

MAGIC: Final = 2

AT_BASE_OFFSET: Final = 0
AT_LENGTH: Final = 8
AT_LEADER_EPOCH: Final = 12
AT_MAGIC: Final = 16
AT_CRC: Final = 17
AT_ATTRIBUTES: Final = 21
AT_LAST_OFFSET_DELTA: Final = 23
AT_BASE_TIMESTAMP: Final = 27
AT_MAX_TIMESTAMP: Final = 35
AT_PRODUCER_ID: Final = 43
AT_PRODUCER_EPOCH: Final = 51
AT_BASE_SEQUENCE: Final = 53
AT_COUNT: Final = 57
HEADER_SIZE: Final = 61

HEADER: Final = Struct(">qiibIhiqqqhii")
LENGTH: Final = Struct(">i")
CRC: Final = Struct(">I")
TIMESTAMP: Final = Struct(">q")
ATTRIBUTES: Final = Struct(">h")
# What a log writes into a batch, all of it before the CRC: base offset, length, leader epoch.
STAMP: Final = Struct(">qii")

LOG_OVERHEAD: Final = 12  # base offset and batch length, which the length does not count
CRC_START: Final = AT_ATTRIBUTES  # the first byte that the CRC-32C covers
MIN_BATCH_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
# these bytes are alike in every format: enough to tell them apart
HEADER_SIZE_UP_TO_MAGIC: Final = AT_MAGIC + 1

# -- attributes ------------------------------------------------------------------------------------

CODEC_MASK: Final = 0x07
LAST_CODEC: Final = 4  # zstd; ``compression.CODECS`` names all
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

# -- messages of versions 0 and 1 ------------------------------------------------------------------

# A message of version 0 has no timestamp, but never fewer bytes than this either.
LEGACY_HEADER: Final = Struct(">qiIbbq")
LEGACY_PREFIX: Final = Struct(">qiI")  # offset, length, CRC-32
# By the magic: what stands between the CRC-32 and the key.
LEGACY_HEADS: Final = {0: Struct(">bb"), 1: Struct(">bbq")}
LEGACY_FIELD_SIZE: Final = Struct(">i")  # of the key and of the value; -1 is null
LEGACY_CRC_START: Final = AT_MAGIC  # the first byte that the CRC-32 covers
MIN_MESSAGE_LENGTH: Final = 14  # of the smallest message of any format, and of version 0
MIN_V1_MESSAGE_LENGTH: Final = 22
MIN_BATCH_SIZE: Final = LOG_OVERHEAD + MIN_MESSAGE_LENGTH

# -- values ----------------------------------------------------------------------------------------

NO_TIMESTAMP: Final = -1
MAX_SEQUENCE: Final = MAX_INT  # after it comes 0
MIN_RECORD_SIZE: Final = 7  # a record's seven fields, of one byte each
