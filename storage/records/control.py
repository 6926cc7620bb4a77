"""Control records: what the log itself writes between the records of applications.

A control batch holds one record, uncompressed, with a sequence of -1. Its key tells the kind, and
for the two that end a transaction its value tells which coordinator wrote it::

    key    int16 version = 0 | int16 type
    value  int16 version = 0 | int32 coordinator epoch

A higher version is read as version 0, what follows the known fields is skipped, and a kind that is
not known is for others. Source: ``ControlRecordType`` and ``EndTransactionMarker`` of Kafka;
KIP-98.
"""

from struct import Struct
from typing import Final, NamedTuple

from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records

ABORT: Final = 0
COMMIT: Final = 1
# Others that Kafka writes, in its metadata log.
CONTROL_TYPES: Final = {
    ABORT: "ABORT",
    COMMIT: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


class Marker(NamedTuple):
    """The end of a transaction."""

    is_abort: bool
    coordinator_epoch: int
    timestamp: int


def control_type(key: bytes | None) -> int:
    """The kind of a control record by its key; InvalidRecord if it has none."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord(f"a control record needs a key of {_KEY.size} bytes, not {key!r}")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"unknown version {version} of a control record's key")
    return int(kind)


def read_marker(batch: Buffer) -> Marker | None:
    """The marker in a control batch; None in one of another kind, or emptied by compaction."""
    records = decode_records(batch, control=True, check_crc=False)
    if not records:
        return None
    kind = control_type(records[0].key)
    if kind not in (ABORT, COMMIT):
        return None
    return read_marker_record(kind, records[0].timestamp, records[0].value)


def read_marker_record(kind: int, timestamp: int, value: bytes | None) -> Marker:
    """The marker of a record of the kind ABORT or COMMIT, by its value.

    Raises InvalidRecord if the value is no marker.
    """
    if value is None or len(value) < _VALUE.size:
        raise InvalidRecord(
            f"a transaction marker needs a value of {_VALUE.size} bytes, not {value!r}"
        )
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"unknown version {version} of a transaction marker")
    return Marker(kind == ABORT, coordinator_epoch, timestamp)


def encode_marker(
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a producer's transaction: 78 bytes."""
    key = _KEY.pack(0, ABORT if marker.is_abort else COMMIT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return encode_records(
        [(marker.timestamp, key, value, ())],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
