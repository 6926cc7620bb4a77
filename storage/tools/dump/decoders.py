"""What a record's key and value say: as text, as numbers, or as the records of Kafka's own topics.

A *parser* makes of a record the text of its key and of its value, None where nothing is to be
printed. Source: ``DumpLogSegments`` and ``TransactionLog`` of Kafka 3.9.
"""

import base64
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias

import msgpack

from raylog.storage.errors import InvalidRecord
from raylog.storage.schemas.groups import (
    ASSIGNMENT,
    CONSUMER_PROTOCOL,
    GROUP_RECORDS,
    SUBSCRIPTION,
    TRANSACTION_KEY,
    TRANSACTION_STATES,
    TRANSACTION_VALUE,
)
from raylog.storage.schemas.metadata import METADATA_RECORDS, type_name
from raylog.storage.schemas.schema import Reader
from raylog.storage.tools.dump.java_text import utf8_text
from raylog.storage.tools.dump.json_text import json_text

Parsed: TypeAlias = tuple[str | None, str | None]
# (offset, key, value) -> text of the key, text of the value
Parser: TypeAlias = Callable[[int, bytes | None, bytes | None], Parsed]
Decoder: TypeAlias = Callable[[bytes], str]

DELETED: Final = "<DELETE>"
_FRAME_VERSION: Final = 1


def _number(form: Struct) -> Decoder:
    def decode(content: bytes) -> str:
        if len(content) != form.size:
            raise InvalidRecord(
                f"{len(content)} bytes are no number of {form.size}: choose another decoder"
            )
        return str(form.unpack(content)[0])

    return decode


DECODERS: Final[dict[str, Decoder]] = {
    "string": utf8_text,
    "bytes": bytes.hex,
    "integer": _number(Struct(">i")),
    "long": _number(Struct(">q")),
}
# The classes that kafka-dump-log takes; its DefaultDecoder prints where Java keeps the bytes, which
# helps nobody.
_CLASSES: Final = {
    "StringDecoder": "string",
    "DefaultDecoder": "bytes",
    "IntegerDecoder": "integer",
    "LongDecoder": "long",
}


def decoder(name: str) -> Decoder | None:
    """A decoder by its name, or by that of Kafka's class, with or without the package; None if
    there is none."""
    return DECODERS.get(_CLASSES.get(name.rpartition(".")[2], name))


def plain(key_decoder: Decoder, value_decoder: Decoder) -> Parser:
    """The parser of an application's topic."""

    def parse(_: int, key: bytes | None, value: bytes | None) -> Parsed:
        return (
            None if key is None else key_decoder(key),
            None if value is None else value_decoder(value),
        )

    return parse


def offsets(offset: int, key: bytes | None, value: bytes | None) -> Parsed:
    """The parser of ``__consumer_offsets``."""
    if key is None:
        raise InvalidRecord(
            f"the record at offset {offset} has no key: this is no __consumer_offsets, try "
            "--print-data-log"
        )
    try:
        reader = Reader(key)
        kind = reader.number("int16")
        if kind not in GROUP_RECORDS:
            return f"Unknown record type {kind} at offset {offset}, skipping.", None
        key_schema, value_schema = GROUP_RECORDS[kind]
        key_text = json_text({"type": str(kind), "data": reader.message(key_schema, kind)})
        if value is None:
            return key_text, DELETED
        version, data = Reader(value).versioned(value_schema)
        if kind == 2:
            _decode_members(data)
        return key_text, json_text({"version": str(version), "data": data})
    except InvalidRecord as error:
        return f"Error at offset {offset}, skipping. {error}", None


def _decode_members(group: dict[str, Any]) -> None:
    """Put what consumers subscribed to, and what they were assigned, in the place of its bytes."""
    if group["protocolType"] != CONSUMER_PROTOCOL:
        return
    for member in group["members"]:
        for name, schema in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
            try:
                reader = Reader(base64.b64decode(member[name]))
                member[name] = reader.message(schema, reader.number("int16"))
            except InvalidRecord:
                pass  # the bytes stay


def transactions(offset: int, key: bytes | None, value: bytes | None) -> Parsed:
    """The parser of ``__transaction_state``."""
    reader = Reader(key or b"")
    version = reader.number("int16")
    if version != 0:
        return f"unknown::version={version}", None
    transactional_id = reader.message(TRANSACTION_KEY, version)["transactionalId"]
    return f"transaction_metadata::transactionalId={transactional_id}", _transaction(value)


def _transaction(value: bytes | None) -> str:
    if value is None:
        return DELETED
    _, found = Reader(value).versioned(TRANSACTION_VALUE)
    status = found["transactionStatus"]
    if not 0 <= status < len(TRANSACTION_STATES):
        raise InvalidRecord(f"a transaction's status {status} that is none")
    partitions = [
        f"{topic['topic']}-{partition}"
        for topic in found["transactionPartitions"] or ()
        for partition in topic["partitionIds"]
    ]
    return (
        f"producerId:{found['producerId']},producerEpoch:{found['producerEpoch']},"
        f"state={TRANSACTION_STATES[status]},partitions=[{','.join(partitions)}],"
        f"txnLastUpdateTimestamp={found['transactionLastUpdateTimestampMs']},"
        f"txnTimeoutMs={found['transactionTimeoutMs']}"
    )


def cluster_metadata(offset: int, _: bytes | None, value: bytes | None) -> Parsed:
    """The parser of ``__cluster_metadata``: of Kafka's records, and of raylog's own, which are
    msgpack maps."""
    try:
        return None, json_text(_metadata_record(value or b""))
    except InvalidRecord as error:
        return None, f"Error at {offset}, skipping. {error}"


def _metadata_record(value: bytes) -> dict[str, Any]:
    own = _own_record(value)
    if own is not None:
        return own
    reader = Reader(value)
    frame_version = reader.unsigned()
    if frame_version != _FRAME_VERSION:
        raise InvalidRecord(
            f"Could not deserialize metadata record due to unknown frame version {frame_version}"
            f"(only frame version {_FRAME_VERSION} is supported)"
        )
    kind, version = reader.unsigned(), reader.unsigned()
    schema = METADATA_RECORDS.get(kind)
    if schema is None or version > schema.last_version:
        raise InvalidRecord(
            f"a metadata record of type {kind}, version {version}, which is not known"
        )
    return {"type": type_name(schema), "version": version, "data": reader.message(schema, version)}


def _own_record(value: bytes) -> dict[str, Any] | None:
    try:
        found = msgpack.unpackb(value)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
