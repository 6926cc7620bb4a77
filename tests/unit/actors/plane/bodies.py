"""Every API in every version, bodies of them for hypothesis, and requests that hold a body."""

import struct
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import strategies as st

from raylog.actors.plane import frames
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.groups import GROUP_APIS
from raylog.actors.plane.apis.table import APIS
from raylog.actors.plane.apis.transactions import TRANSACTION_APIS
from raylog.storage.schemas.scalars import Bytes, String, Version
from raylog.storage.schemas.schema import Schema
from raylog.storage.schemas.types import Array, StructType
from tests.unit.storage.schemas.messages import SENT, messages

# Also the APIs that are described and not served. One that is served by now is here once.
DESCRIBED: Final = tuple(dict.fromkeys((*APIS.values(), *GROUP_APIS, *TRANSACTION_APIS)))
DESCRIBED_VERSIONS: Final = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in DESCRIBED
    for version in range(api.first_version, api.last_version + 1)
]
VERSIONS: Final = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in range(api.first_version, api.last_version + 1)
]
MESSAGES: Final = [
    pytest.param(schema, version, id=f"{schema.name}-{version}")
    for api in DESCRIBED
    for schema in (api.request, api.answer)
    for version in range(api.first_version, api.last_version + 1)
]


@cache
def bodies(schema: Schema, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies as a peer may send them: texts are UTF-8, and no tag is unknown."""
    return messages(schema, version, SENT)


def header(api: Api, version: int) -> bytes:
    """A request's header: correlation id 7, client id "c"."""
    tags = b"\0" if api.is_flexible(version) else b""
    return struct.pack(">hhih", api.key, version, 7, 1) + b"c" + tags


def request_of(api: Api, version: int, body: bytes = b"") -> frames.Request:
    return frames.parse(header(api, version) + body)


def filled(struct_type: StructType, **fields: Any) -> dict[str, Any]:
    """A struct with these fields, and defaults for the others."""
    value = struct_type.default
    assert value is not None
    assert fields.keys() <= value.keys()
    return {**value, **fields}


def entries(struct_type: StructType, name: str) -> StructType:
    """The struct of the entries that the array of this name has."""
    (field,) = (field for field in struct_type.fields if field.name == name)
    assert isinstance(field.type, Array)
    assert isinstance(field.type.entry, StructType)
    return field.type.entry


def full(kind: Any, version: Version) -> Any:
    """A value with two entries in each array, something in each string, and all of its tags."""
    if isinstance(kind, StructType):
        present = (field for field in kind.fields if field.is_in(version.number))
        return {field.name: full(field.type, version) for field in present}
    if isinstance(kind, Array):
        return [full(kind.entry, version)] * 2
    if isinstance(kind, String):
        return "text"
    return b"bytes" if isinstance(kind, Bytes) else kind.default


def full_frame(api: Api, version: int) -> bytes:
    value = full(api.request.struct, Version(version, api.is_flexible(version)))
    return header(api, version) + api.request.write(value, version)
