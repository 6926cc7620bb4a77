"""Messages of Kafka's schemas as its tools show them in JSON.

Fields come in the schema's order. Bytes are base64, uuids Kafka's 22 characters, text that is no
UTF-8 has U+FFFD in its place as Java would have it. Fields that the version does not have are left
out, and so are tagged fields at their default and tags that the schema does not know. Source:
Kafka's JSON converters, which its message generator writes.
"""

import base64
from typing import Any

from raylog.storage.schemas.scalars import Bytes, String, Uuid
from raylog.storage.schemas.schema import Schema
from raylog.storage.schemas.types import Array, Field, StructType, Type, Value
from raylog.storage.state.properties import id_text
from raylog.storage.tools.dump.java_text import utf8_text


def message_json(schema: Schema, value: Value, version: int) -> dict[str, Any]:
    """A message that was read, as JSON can say it."""
    return _struct(schema.struct, value, version)


def _struct(struct: StructType, value: Value, version: int) -> dict[str, Any]:
    return {
        field.name: _any(field.type, value[field.name], version)
        for field in struct.fields
        if _is_shown(field, value[field.name], version)
    }


def _is_shown(field: Field, value: Any, version: int) -> bool:
    return field.is_in(version) and (field.tag is None or value != field.default)


def _any(kind: Type, value: Any, version: int) -> Any:
    if value is None:
        return None
    if isinstance(kind, StructType):
        return _struct(kind, value, version)
    if isinstance(kind, Array):
        return [_any(kind.entry, entry, version) for entry in value]
    if isinstance(kind, String):
        return utf8_text(value.encode(errors="surrogateescape"))
    if isinstance(kind, Bytes):
        return base64.b64encode(value).decode()
    if isinstance(kind, Uuid):
        return id_text(value)
    return value
