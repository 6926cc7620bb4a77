"""The kernel in plain Python, some 30 times slower.

It has the functions, checks and results of ``_kernel.pyx``.

It serves where no compiler was found, and it is the oracle that the compiled kernel is tested
against. The format is drawn in ``_kernel.pyx``.

Its parts are ``_kernel_py_*.py``, by topic as the ``.pxi`` files.
"""

from typing import Final

from raylog.storage.records._kernel_py_accumulate import (
    BATCH_IS_FULL,
    MEMORY_IS_FULL,
    TOPIC_HAS_CHANGED,
    Accumulator,
    OpenBatch,
    OpenTopic,
    Receipt,
    record_size,
)
from raylog.storage.records._kernel_py_check import RecordWalk, check_batch
from raylog.storage.records._kernel_py_clean import OffsetTable, leading_headers, rebuild_records
from raylog.storage.records._kernel_py_decode import Columns, Text, decode_columns, decode_rows
from raylog.storage.records._kernel_py_encode import (
    TableEncoder,
    TextColumn,
    encode_rows,
    murmur2,
    partition_column,
)
from raylog.storage.records._kernel_py_readers import RowReader, TableReader
from raylog.storage.records._kernel_py_scan import (
    WALK_FOUND,
    WALK_MORE,
    WALK_ODD,
    count_up_to,
    scan_batches,
    walk,
)
from raylog.storage.records._kernel_py_write import Appender, write_stamped

__all__ = [
    "Accumulator",
    "Appender",
    "BATCH_IS_FULL",
    "Columns",
    "KERNEL",
    "MEMORY_IS_FULL",
    "OffsetTable",
    "OpenBatch",
    "OpenTopic",
    "Receipt",
    "RecordWalk",
    "RowReader",
    "TOPIC_HAS_CHANGED",
    "TableEncoder",
    "TableReader",
    "Text",
    "TextColumn",
    "WALK_FOUND",
    "WALK_MORE",
    "WALK_ODD",
    "check_batch",
    "count_up_to",
    "decode_columns",
    "decode_rows",
    "encode_rows",
    "leading_headers",
    "murmur2",
    "partition_column",
    "rebuild_records",
    "record_size",
    "scan_batches",
    "walk",
    "write_stamped",
]

KERNEL: Final = "pure Python"
