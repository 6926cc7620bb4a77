"""All schemas by name, and messages of them for hypothesis."""

import uuid
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from raylog.storage.schemas.consumer_protocol import ASSIGNMENT, SUBSCRIPTION
from raylog.storage.schemas.control import CONTROL_VALUES
from raylog.storage.schemas.groups import GROUP_RECORDS
from raylog.storage.schemas.metadata import METADATA_RECORDS
from raylog.storage.schemas.scalars import Bytes, Number, String, Uuid, Version
from raylog.storage.schemas.schema import Schema
from raylog.storage.schemas.transactions import TRANSACTION_KEY, TRANSACTION_VALUE
from raylog.storage.schemas.types import UNKNOWN_TAGS, StructType, Type

SCHEMAS: Final[dict[str, Schema]] = {
    schema.name: schema
    for schema in (
        SUBSCRIPTION,
        ASSIGNMENT,
        TRANSACTION_KEY,
        TRANSACTION_VALUE,
        *(schemas.key for schemas in GROUP_RECORDS.values()),
        *(schemas.value for schemas in GROUP_RECORDS.values()),
        *(schema for _, schema in CONTROL_VALUES.values()),
        *METADATA_RECORDS.values(),
    )
}
_NUMBERS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
}
_UNKNOWN: Final = st.dictionaries(
    st.integers(1000, 2**31 - 1), st.binary(max_size=5), min_size=1, max_size=3
)


class Kinds(NamedTuple):
    """What values hold where the schema leaves a choice."""

    texts: st.SearchStrategy[str]
    has_unknown_tags: bool


# Any bytes are text on a disk: those that are no UTF-8 are kept as lone surrogates.
STORED: Final = Kinds(
    st.binary(max_size=8).map(lambda content: content.decode(errors="surrogateescape")),
    has_unknown_tags=True,
)
SENT: Final = Kinds(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8), has_unknown_tags=False
)


def values(kind: Type, version: Version, kinds: Kinds = STORED) -> st.SearchStrategy[Any]:
    """Values of a type as reading gives them: whole, with defaults for what the version lacks."""
    if isinstance(kind, Number):
        return _NUMBERS[kind.name]
    if isinstance(kind, Uuid):
        return st.uuids() | st.just(uuid.UUID(int=0))
    if isinstance(kind, StructType):
        structs = _structs(kind, version, kinds)
        return st.none() | structs if kind.is_nullable else structs
    strategy: st.SearchStrategy[Any]
    if isinstance(kind, String):
        strategy = kinds.texts
    elif isinstance(kind, Bytes):
        strategy = st.binary(max_size=8)
    else:
        strategy = st.lists(values(kind.entry, version, kinds), max_size=3)
    return st.none() | strategy if version.number >= kind.null_since else strategy


def _structs(
    struct: StructType, version: Version, kinds: Kinds
) -> st.SearchStrategy[dict[str, Any]]:
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in struct.fields:
        default: st.SearchStrategy[Any] = st.builds(lambda field: field.default, st.just(field))
        if not field.is_in(version.number):
            fields[field.name] = default
        elif field.tag is None:
            fields[field.name] = values(field.type, version, kinds)
        else:
            fields[field.name] = default | values(field.type, version, kinds)
    has_unknown_tags = version.is_flexible and kinds.has_unknown_tags
    optional = {UNKNOWN_TAGS: _UNKNOWN} if has_unknown_tags else {}
    return st.fixed_dictionaries(fields, optional=optional)


def messages(
    schema: Schema, version: int, kinds: Kinds = STORED
) -> st.SearchStrategy[dict[str, Any]]:
    """Messages of one version of a schema."""
    return _structs(schema.struct, Version(version, version >= schema.flexible_version), kinds)
