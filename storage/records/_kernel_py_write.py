"""A batch on its way to the file. See ``_kernel_write.pxi``."""

import os
from collections.abc import Callable
from typing import Any

from raylog.storage.buffers import Buffer
from raylog.storage.records._kernel_py_check import check_batch
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.rules import RecordRules


def write_stamped(descriptor: int, stamp: Buffer, batch: Buffer) -> int:
    """Write ``batch`` with ``stamp`` in the place of its first bytes; returns its size.

    One call of the system, if it takes all. Raises OSError.
    """
    head, body = memoryview(stamp), memoryview(batch)
    if len(head) > len(body):
        raise ValueError(f"a stamp of {len(head)} bytes is longer than a batch of {len(body)}")
    written = os.writev(descriptor, (head, body[len(head) :]))
    rest = memoryview(b"".join((head, body[len(head) :])) if written < len(body) else b"")
    while written < len(rest):
        written += os.write(descriptor, rest[written:])
    return len(body)


class Appender:
    """See ``_kernel_write.pxi``. Refuses everything: the writer is in Python already."""

    largest: Any = None
    since_entry = 0

    def __init__(
        self, write: Callable[[bytes, Buffer], None], moment: type, answer: type, base_offset: int
    ):
        pass

    def arm(
        self,
        offsets: bytearray,
        times: bytearray,
        entries_left: int,
        limits: tuple[int, int, int],
        interval: int,
        since_entry: int,
        largest: Any,
        timed: int,
        rules: RecordRules,
    ) -> None:
        self.largest, self.since_entry = largest, since_entry
        self._rules = rules

    def append(
        self,
        batch: Buffer,
        header: BatchHeader,
        end: tuple[int, int, int, int],
        epoch: int,
        log_start_offset: int,
    ) -> Any:  # (the end's own kind, answer), or None
        return None

    def check_and_append(
        self,
        records: Any,
        now_ms: int,
        end: tuple[int, int, int, int],
        epoch: int,
        log_start_offset: int,
    ) -> Any:  # (the end's own kind, answer), a BatchHeader, or None
        return check_batch(records, self._rules, now_ms)
