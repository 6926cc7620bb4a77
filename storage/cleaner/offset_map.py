"""The last offset of every key of the dirty section, in memory that the config bounds.

Keys are told apart by a hash of 128 bits alone (a keyed one, so that no producer can make two keys
collide); a slot is that and an offset, 24 bytes. When ``log.cleaner.io.buffer.load.factor`` of the
slots are taken the map is full: what it knows ends there, and the next round goes on behind. The
table is the kernel's (``OffsetTable``); this is its size. Source: ``SkimpyOffsetMap`` of Kafka,
which hashes with MD5.
"""

import secrets

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidConfig
from raylog.storage.records import kernel

SLOT_BYTES = 24
SECRET_BYTES = 16


class OffsetMap:
    """Keys to offsets. ``latest_offset``: up to here the map knows every key."""

    def __init__(self, memory_bytes: int, load_factor: float, most_keys: int | None = None) -> None:
        """``most_keys``: more will not come, so no more memory is taken than for them."""
        slots = memory_bytes // SLOT_BYTES
        if most_keys is not None:
            slots = min(slots, int(most_keys / max(load_factor, 0.01)) + 2)
        capacity = min(int(slots * load_factor), slots - 1)
        if capacity < 1:
            factor = f"log.cleaner.io.buffer.load.factor={load_factor}"
            why = f"too small for one key with {factor}; raise one of the two"
            raise InvalidConfig("log.cleaner.dedupe.buffer.size", memory_bytes, why)
        self._slots = slots
        self.table = kernel.ops.OffsetTable(slots, capacity, secrets.token_bytes(SECRET_BYTES))
        self.latest_offset = -1

    def __len__(self) -> int:
        return self.table.size

    def get(self, key: Buffer) -> int:
        """The last offset of a key, -1 if it has none."""
        return self.table.get(key)

    @property
    def utilization(self) -> float:
        """The share of the slots that are taken."""
        return self.table.size / self._slots
