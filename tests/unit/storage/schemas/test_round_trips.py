"""What is written is read again, for every schema and version; damaged bytes raise nothing else."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.storage.errors import InvalidRecord
from raylog.storage.schemas.binary import ByteReader, put_unsigned
from raylog.storage.schemas.schema import Schema, schema
from raylog.storage.schemas.types import Array, StructType
from tests.unit.storage.schemas.messages import SCHEMAS, messages

ALL = [
    pytest.param(schema, version, id=f"{schema.name}-{version}")
    for schema in SCHEMAS.values()
    for version in range(schema.last_version + 1)
]


@pytest.mark.parametrize(("schema", "version"), ALL)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_is_written_is_read_again(schema: Schema, version: int, data: st.DataObject) -> None:
    value: dict[str, Any] = data.draw(messages(schema, version))
    content = schema.write(value, version)
    reader = ByteReader(content + b"what follows")
    assert schema.read(reader, version) == value
    assert reader.position == len(content)
    assert schema.write(schema.read(content, version), version) == content


@pytest.mark.parametrize(
    ("text", "flexible", "content", "value", "written"),
    [
        ("a string", True, "828000 78 00", "x", "02 78 00"),
        ("a int8 0+ tag=0\nb int8 0+ tag=1", True, "02 010102 000101", 1, "02 000101 010102"),
        ("a int8 0+ tag=0", True, "01 000100", 0, "00"),
        ("a bool", False, "02", True, "01"),
        ("a ?struct\n b int8", False, "00 05", {"b": 5}, "01 05"),
        ("a ?struct\n b int8", False, "05 05", {"b": 5}, "01 05"),
        ("a ?struct\n b int8", False, "fe", None, "ff"),
        ("a ?string", False, "fff0", None, "ffff"),
        ("a ?bytes", False, "fffffff0", None, "ffffffff"),
        ("a ?[]int8", False, "fffffff0", None, "ffffffff"),
    ],
)
def test_forms_that_kafka_reads_and_never_writes(
    text: str, flexible: bool, content: str, value: Any, written: str
) -> None:
    own = schema("Own", text, flexible=0) if flexible else schema("Own", text)
    message = own.read(bytes.fromhex(content), 0)
    assert message["a"] == value
    assert own.write(message, 0) == bytes.fromhex(written)


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_bytes_are_a_message_or_an_invalid_record(schema: Schema, data: st.DataObject) -> None:
    version = data.draw(st.integers(0, schema.last_version))
    content = bytearray(schema.write(data.draw(messages(schema, version)), version))
    if content:
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    try:
        value = schema.read(content, version)
    except InvalidRecord:
        return
    written = schema.write(value, version)  # not compared as values: a NaN equals nothing
    assert schema.write(schema.read(written, version), version) == written


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_a_message_cut_short_is_an_invalid_record(schema: Schema, data: st.DataObject) -> None:
    version = data.draw(st.integers(0, schema.last_version))
    content = schema.write(data.draw(messages(schema, version)), version)
    for size in range(len(content)):
        with pytest.raises(InvalidRecord):
            schema.read(content[:size], version)


@given(st.integers(0, 2**31 - 1))
def test_unsigned_varints(number: int) -> None:
    out = bytearray()
    put_unsigned(out, number)
    assert len(out) <= 5
    assert ByteReader(out).unsigned() == number


def test_tagged_fields_are_of_flexible_versions_alone() -> None:
    def check(struct: StructType, flexible: int) -> None:
        for field in struct.fields:
            assert field.tag is None or field.first_version >= flexible, field.name
            kind = field.type.entry if isinstance(field.type, Array) else field.type
            if isinstance(kind, StructType):
                check(kind, flexible)

    for message in SCHEMAS.values():
        check(message.struct, message.flexible_version)
