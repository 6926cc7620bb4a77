"""What a schema cannot say is refused by the field's name; what is no message, as invalid."""

import uuid
from typing import Any

import pytest

from raylog.storage.errors import InvalidRecord, UnwritableValue
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.schemas.groups import GROUP_RECORDS
from raylog.storage.schemas.metadata import read_record
from raylog.storage.schemas.schema import schema
from raylog.storage.schemas.types import UNKNOWN_TAGS

OWN = schema(
    "Own",
    """
    flag bool
    number int32
    port uint16
    ratio float64
    id uuid
    text string
    content bytes
    list []
        a int8
    late int8 1+ default=-1
    tagged ?string 2+ tag=7
    """,
    last_version=2,
    flexible=2,
)
GOOD: dict[str, Any] = {
    "flag": False,
    "number": 1,
    "port": 2,
    "ratio": 0.5,
    "id": uuid.UUID(int=0),
    "text": "",
    "content": b"",
    "list": [{"a": 1}],
    "late": -1,
}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_value_of_these_tests_can_be_written(version: int) -> None:
    OWN.write(GOOD, version)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        ({"flag": 1}, "Own.flag of version V: 1 is no bool"),
        ({"number": True}, "Own.number of version V: True is no int32"),
        ({"number": 2**31}, "Own.number of version V: 2147483648 is no int32"),
        ({"number": 1.0}, "Own.number of version V: 1.0 is no int32"),
        ({"number": None}, "Own.number of version V: None is no int32"),
        ({"port": -1}, "Own.port of version V: -1 is no uint16"),
        ({"ratio": "1"}, "Own.ratio of version V: '1' is no float64"),
        ({"id": "x"}, "Own.id of version V: 'x' is no uuid"),
        ({"text": b"x"}, "Own.text of version V: b'x' is no string"),
        ({"text": None}, "Own.text of version V: the field is not nullable"),
        ({"text": "\ud800"}, r"Own.text of version V: '\ud800' contains an unpaired surrogate"),
        ({"text": "x" * 32768}, "Own.text of version V: a string of 32768 bytes, more than 32767"),
        ({"text": "é" * 16384}, "Own.text of version V: a string of 32768 bytes, more than 32767"),
        ({"content": "x"}, "Own.content of version V: 'x' is no bytes"),
        ({"content": None}, "Own.content of version V: the field is not nullable"),
        ({"list": None}, "Own.list of version V: the field is not nullable"),
        ({"list": {"a": 1}}, "Own.list of version V: {'a': 1} is no array"),
        ({"list": [{"a": 1}, {"a": 128}]}, "Own.list[1].a of version V: 128 is no int8"),
        ({"list": [{"a": 1}, {}]}, "Own.list[1].a of version V: is missing"),
        ({"list": [3]}, "Own.list[0] of version V: 3 is no struct"),
        ({"nmber": 1}, "Own.nmber of version V: no field has this name"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_written(change: dict[str, Any], refusal: str, version: int) -> None:
    with pytest.raises(UnwritableValue) as raised:
        OWN.write({**GOOD, **change}, version)
    assert str(raised.value).startswith(refusal.replace("V", str(version)))


def test_a_string_of_32767_bytes_can_be_written() -> None:
    for version in (0, 2):
        value = {**GOOD, "text": "x" * 32767}
        assert OWN.read(OWN.write(value, version), version)["text"] == value["text"]


@pytest.mark.parametrize(
    ("version", "change", "refusal"),
    [
        (0, {"late": 3}, "Own.late of version 0: 3, but version 0 has no such field"),
        (1, {"tagged": "x"}, "Own.tagged of version 1: 'x', but version 1 has no such field"),
        (1, {UNKNOWN_TAGS: {9: b""}}, "Own.unknown_tags of version 1: version 1 is not flexible"),
        (2, {UNKNOWN_TAGS: {7: b""}}, "Own.unknown_tags of version 2: tag 7 is the field tagged"),
        (2, {UNKNOWN_TAGS: {-1: b""}}, "Own.unknown_tags of version 2: -1 is no tag"),
        (2, {UNKNOWN_TAGS: {8: 1}}, "Own.unknown_tags of version 2: tag 8 with 1, which is no by"),
        (2, {UNKNOWN_TAGS: {"8": b""}}, "Own.unknown_tags of version 2: '8' is no tag"),
        (2, {UNKNOWN_TAGS: {True: b""}}, "Own.unknown_tags of version 2: True is no tag"),
        (2, {UNKNOWN_TAGS: {2**31: b""}}, "Own.unknown_tags of version 2: 2147483648 is no tag"),
        (2, {UNKNOWN_TAGS: None}, "Own.unknown_tags of version 2: None is no dict of tags"),
        (2, {UNKNOWN_TAGS: [8]}, "Own.unknown_tags of version 2: [8] is no dict of tags"),
        (0, {UNKNOWN_TAGS: 8}, "Own.unknown_tags of version 0: 8 is no dict of tags"),
        (2, {"tagged": 3}, "Own.tagged of version 2: 3 is no string"),
    ],
)
def test_what_the_version_cannot_say(version: int, change: dict[str, Any], refusal: str) -> None:
    with pytest.raises(UnwritableValue) as raised:
        OWN.write({**GOOD, **change}, version)
    assert str(raised.value).startswith(refusal)


def test_a_field_that_the_version_has_must_be_there_unless_it_is_tagged() -> None:
    value = {name: value for name, value in GOOD.items() if name != "late"}
    OWN.write(value, 0)
    with pytest.raises(UnwritableValue, match=r"Own\.late of version 1: is missing"):
        OWN.write(value, 1)


def test_a_version_that_the_schema_does_not_have_is_our_own_mistake() -> None:
    for version in (-1, 3):
        with pytest.raises(AssertionError, match="Own has no version"):
            OWN.write(GOOD, version)


@pytest.mark.parametrize(
    ("text", "flexible", "content", "why"),
    [
        ("a string", False, "ffff", "Own.a: the field is not nullable"),
        ("a string", True, "00", "Own.a: the field is not nullable"),
        ("a bytes", False, "ffffffff", "Own.a: the field is not nullable"),
        ("a []int8", False, "ffffffff", "Own.a: the field is not nullable"),
        ("a []\n b string", False, "00000001 ffff", "Own.a[0].b: the field is not nullable"),
        ("a []int32", False, "7ffffffe", "Own.a: an array of 2147483646 entries in 0 bytes"),
        ("a string", True, "818002" + "78" * 8, "Own.a: a string of 32768 bytes, more than 32767"),
        ("a string", False, "0002 78", "the message ends 1 bytes too early"),
        ("a string", True, "ffffffff0f", "an unsigned varint of 4294967295 exceeds 2147483647"),
        ("a string", True, "ffffffffff01", "an unsigned varint has more than five bytes"),
        ("a int8 0+ tag=0", True, "01 00 02 0505", "Own.a: a size that is 1 bytes too large"),
        ("a int32 0+ tag=0", True, "01 00 02 0505", "the message ends 2 bytes too early"),
        ("a int8 0+ tag=0", True, "01 63 05 01", "the message ends 4 bytes too early"),
        ("a int8 0+ tag=0", True, "02 000105 000106", "Own: tag 0 occurs twice"),
        ("a int8 0+ tag=0", True, "02 6300 630105", "Own: tag 99 occurs twice"),
        ("a []\n b int8", True, "02 05 02 6300 6300", "Own.a[0]: tag 99 occurs twice"),
        ("a int8", True, "05", "the message ends 1 bytes too early"),
    ],
)
def test_bytes_that_are_no_message(text: str, flexible: bool, content: str, why: str) -> None:
    own = schema("Own", text, flexible=0) if flexible else schema("Own", text)
    with pytest.raises(InvalidRecord) as raised:
        own.read(bytes.fromhex(content), 0)
    assert str(raised.value) == why


def test_a_version_that_is_not_known_is_named() -> None:
    with pytest.raises(
        InvalidRecord, match="OffsetCommitValue of version 9 is unknown; the last one is 4"
    ):
        GROUP_RECORDS[1].value.read_versioned(b"\0\x09")
    with pytest.raises(InvalidRecord, match="unknown metadata record of type 2, version 7"):
        read_record(b"\1\2\7")
    with pytest.raises(InvalidRecord, match="ends 1 bytes too early"):
        ByteReader(b"").take(1)
