"""What a record's key and value say: as text, as numbers, or as the records of Kafka's own topics.

A *parser* makes of a record the text of its key and of its value, None where nothing is to be
printed. Source: ``DumpLogSegments`` and ``TransactionLog`` of Kafka 3.9.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias

import msgpack

from raylog.storage.errors import InvalidRecord
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.schemas.consumer_protocol import (
    ASSIGNMENT,
    CONSUMER_PROTOCOL,
    SUBSCRIPTION,
    read_latest,
)
from raylog.storage.schemas.groups import GROUP_RECORDS
from raylog.storage.schemas.metadata import read_record, type_name
from raylog.storage.schemas.schema import read_version
from raylog.storage.schemas.transactions import (
    TRANSACTION_KEY,
    TRANSACTION_STATES,
    TRANSACTION_VALUE,
)
from raylog.storage.schemas.types import Value
from raylog.storage.tools.dump.java_text import utf8_text
from raylog.storage.tools.dump.json_text import json_text
from raylog.storage.tools.dump.message_json import message_json

Parsed: TypeAlias = tuple[str | None, str | None]
# (offset, key, value) -> text of the key, text of the value
Parser: TypeAlias = Callable[[int, bytes | None, bytes | None], Parsed]
Decoder: TypeAlias = Callable[[bytes], str]

DELETED: Final = "<DELETE>"
_GROUP_TYPE: Final = 2  # of GROUP_RECORDS: a classic group


def _number(form: Struct) -> Decoder:
    def decode(content: bytes) -> str:
        if len(content) != form.size:
            raise InvalidRecord(
                f"{len(content)} bytes are not a {form.size}-byte number; choose another decoder"
            )
        return str(form.unpack(content)[0])

    return decode


DECODERS: Final[dict[str, Decoder]] = {
    "string": utf8_text,
    "bytes": bytes.hex,
    "integer": _number(Struct(">i")),
    "long": _number(Struct(">q")),
}
# The classes that kafka-dump-log takes, but for DefaultDecoder: it prints an address in Java.
_CLASSES: Final = {
    "StringDecoder": "string",
    "DefaultDecoder": "bytes",
    "IntegerDecoder": "integer",
    "LongDecoder": "long",
}


def decoder(name: str) -> Decoder | None:
    """A decoder by its name or by the name of Kafka's class; None if there is none.

    The class may be with or without its package.
    """
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
            f"the record at offset {offset} has no key, so this is not a log of "
            "__consumer_offsets; use --print-data-log"
        )
    try:
        reader = ByteReader(key)
        record_type = read_version(reader)
        schemas = GROUP_RECORDS.get(record_type)
        if schemas is None:
            return f"Unknown record type {record_type} at offset {offset}, skipping.", None
        key_json = message_json(schemas.key, schemas.key.read(reader, record_type), record_type)
        key_text = json_text({"type": str(record_type), "data": key_json})
        if value is None:
            return key_text, DELETED
        version, content = schemas.value.read_versioned(value)
        value_json = message_json(schemas.value, content, version)
        if record_type == _GROUP_TYPE and content["protocolType"] == CONSUMER_PROTOCOL:
            _show_members(content["members"], value_json["members"])
        return key_text, json_text({"version": str(version), "data": value_json})
    except InvalidRecord as error:
        return f"Error at offset {offset}, skipping. {error}", None


def _show_members(members: list[Value], shown: list[dict[str, Any]]) -> None:
    """Show what consumers subscribed to, and what they were assigned, in the place of its bytes."""
    for member, member_json in zip(members, shown, strict=True):
        for name, schema in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
            try:
                version, content = read_latest(schema, member[name])
            except InvalidRecord:
                continue  # the bytes stay
            member_json[name] = message_json(schema, content, version)


def transactions(offset: int, key: bytes | None, value: bytes | None) -> Parsed:
    """The parser of ``__transaction_state``."""
    reader = ByteReader(key or b"")
    version = read_version(reader)
    if version != 0:
        return f"unknown::version={version}", None
    key_json = message_json(TRANSACTION_KEY, TRANSACTION_KEY.read(reader, version), version)
    transactional_id = key_json["transactionalId"]
    return f"transaction_metadata::transactionalId={transactional_id}", _transaction(value)


def _transaction(value: bytes | None) -> str:
    if value is None:
        return DELETED
    version, content = TRANSACTION_VALUE.read_versioned(value)
    transaction = message_json(TRANSACTION_VALUE, content, version)
    status = transaction["transactionStatus"]
    if not 0 <= status < len(TRANSACTION_STATES):
        raise InvalidRecord(f"unknown transaction status {status}")
    partitions = [
        f"{topic['topic']}-{partition}"
        for topic in transaction["transactionPartitions"] or ()
        for partition in topic["partitionIds"]
    ]
    return (
        f"producerId:{transaction['producerId']},producerEpoch:{transaction['producerEpoch']},"
        f"state={TRANSACTION_STATES[status]},partitions=[{','.join(partitions)}],"
        f"txnLastUpdateTimestamp={transaction['transactionLastUpdateTimestampMs']},"
        f"txnTimeoutMs={transaction['transactionTimeoutMs']}"
    )


def cluster_metadata(offset: int, _: bytes | None, value: bytes | None) -> Parsed:
    """The parser of ``__cluster_metadata``.

    It reads Kafka's records and raylog's own, which are msgpack maps.
    """
    try:
        return None, json_text(_metadata_record(value or b""))
    except InvalidRecord as error:
        return None, f"Error at {offset}, skipping. {error}"


def _metadata_record(value: bytes) -> dict[str, Any]:
    own_record = _own_record(value)
    if own_record is not None:
        return own_record
    record = read_record(value)
    return {
        "type": type_name(record.schema),
        "version": record.version,
        "data": message_json(record.schema, record.value, record.version),
    }


def _own_record(value: bytes) -> dict[str, Any] | None:
    try:
        record = msgpack.unpackb(value)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
