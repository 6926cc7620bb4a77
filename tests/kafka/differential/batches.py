"""What Produce requests carry: batches as they should be, and batches with one thing wrong.

A batch is a recipe: its producer's id is each side's own, and so is its CRC.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import pack_into
from typing import Any, Final

from raylog.storage.records.batch import read_header, seal
from raylog.storage.records.encode import Row, encode_records
from raylog.storage.records.layout import (
    AT_ATTRIBUTES,
    AT_CRC,
    AT_LENGTH,
    AT_MAGIC,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
)
from tests.kafka.differential.question import Draw, Knowledge

# Of the first record: the same on both sides, and young enough for every default.
T0: Final = int(time.time()) * 1000 - 600_000
DAY_MS: Final = 86_400_000
NO_PRODUCER: Final = -1
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Spoiling = Callable[[bytearray], bytes]


def _with_header(**fields: int) -> Spoiling:
    """Other fields of the header, under a CRC that fits them."""
    return lambda batch: bytes(seal(batch, read_header(batch)._replace(**fields)))


def _with_attributes(bits: int) -> Spoiling:
    def spoil(batch: bytearray) -> bytes:
        header = read_header(batch)
        return bytes(seal(batch, header._replace(attributes=header.attributes | bits)))

    return spoil


def _put(form: str, at: int, *numbers: int) -> Spoiling:
    """Other bytes, under the CRC of before."""

    def spoil(batch: bytearray) -> bytes:
        pack_into(form, batch, at, *numbers)
        return bytes(batch)

    return spoil


def _with_record_byte(batch: bytearray) -> bytes:
    """The first record's length is another one, under a CRC that fits."""
    batch[HEADER_SIZE] = 0x7E
    return bytes(seal(batch, read_header(batch)))


SPOILT: Final[Mapping[str, Spoiling]] = {
    "good": bytes,
    "bad CRC": _put(">I", AT_CRC, 1),
    "magic 0": _put(">b", AT_MAGIC, 0),
    "magic 1": _put(">b", AT_MAGIC, 1),
    "magic 3": _put(">b", AT_MAGIC, 3),
    "too long": _put(">i", AT_LENGTH, 10_000),
    "too short": _put(">i", AT_LENGTH, 20),
    "negative length": _put(">i", AT_LENGTH, -5),
    "cut": lambda batch: bytes(batch[:-3]),
    "header alone": lambda batch: bytes(batch[:HEADER_SIZE]),
    "half a header": lambda batch: bytes(batch[:30]),
    "one byte": lambda batch: bytes(batch[:1]),
    "no byte": lambda batch: b"",
    "two batches": lambda batch: bytes(batch) * 2,
    "a tail": lambda batch: bytes(batch) + b"tail",
    "larger count": lambda batch: _with_header(count=read_header(batch).count + 1)(batch),
    "smaller count": lambda batch: _with_header(count=read_header(batch).count - 1)(batch),
    "negative count": _with_header(count=-1),
    "no records": _with_header(count=0),
    "wrong last offset": _with_header(last_offset_delta=7),
    "negative last offset": _with_header(last_offset_delta=-1),
    "other base offset": _with_header(base_offset=77),
    "other leader epoch": _with_header(leader_epoch=9),
    "unknown codec": _with_attributes(7),
    "claims gzip": _with_attributes(1),
    "control": _with_attributes(CONTROL),
    "unused attribute": _with_attributes(0x80),
    "log append time": _with_attributes(LOG_APPEND_TIME),
    "wrong largest time": _with_header(max_timestamp=T0 + 3),
    "broken record": _with_record_byte,
    "attributes without CRC": _put(">h", AT_ATTRIBUTES, 1),
}


@dataclass(frozen=True)
class Batch:
    """A recipe. ``producer``: its number; ``how``: of SPOILT."""

    rows: tuple[Row, ...]
    how: str = "good"
    codec: str = "none"
    producer: int = NO_PRODUCER
    epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False

    def of(self, side: Knowledge) -> bytes:
        producer_id = -1 if self.producer == NO_PRODUCER else side.producer_id(self.producer)
        batch = encode_records(self.rows, compression_type=self.codec)
        header = read_header(batch)
        header = header._replace(
            producer_id=producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            attributes=header.attributes | (TRANSACTIONAL if self.is_transactional else 0),
        )
        return SPOILT[self.how](seal(batch, header))

    def __repr__(self) -> str:
        """Short: what is as usual is left out."""
        said = [f"{len(self.rows)} records", self.how, self.codec]
        if self.producer != NO_PRODUCER or self.epoch != -1 or self.sequence != -1:
            said.append(f"producer {self.producer} epoch {self.epoch} from {self.sequence}")
        if self.is_transactional:
            said.append("transactional")
        times = sorted({row[0] - T0 for row in self.rows})
        keys = {row[1] for row in self.rows}
        return f"<Batch {', '.join(said)}, times T0+{times}, keys {keys}>"


def rows(draw: Draw) -> tuple[Row, ...]:
    """One to five records."""
    size = draw.usually(10, 0, 300, 1200)
    time_ms = T0 + draw.usually(draw.random.randrange(1000), DAY_MS, -DAY_MS)
    step_ms = draw.one(0, 0, 1, -1)
    key = draw.usually(b"k", None, b"")
    headers: list[tuple[str, Any]] = draw.usually([], [("h", b"1"), ("h", None)])
    return tuple(
        (time_ms + n * step_ms, key, b"x" * size, headers) for n in range(draw.one(1, 1, 2, 5))
    )
