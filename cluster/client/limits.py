"""What a client lets one batch cost it, whoever wrote the batch."""

import os
from typing import Final

from raylog.storage.config import MAX_PLAIN_BATCH_BYTES as TOPICS_DEFAULT

# Bytes that a compressed batch may have when it is decompressed: as a topic's limit, for those who
# read a topic with a higher one.
MAX_PLAIN_BATCH_BYTES: Final = int(os.environ.get("RAYLOG_MAX_PLAIN_BATCH_BYTES") or TOPICS_DEFAULT)
