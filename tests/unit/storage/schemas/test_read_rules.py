"""A schema reads bytes of a disk and bytes of a peer by different rules, and neither allocates for
a count that its bytes cannot hold."""

from typing import Any

import pytest

from raylog.storage.errors import InvalidRecord, UnwritableValue
from raylog.storage.schemas.binary import ByteReader, ReadRules
from raylog.storage.schemas.schema import Schema, schema
from raylog.storage.schemas.types import UNKNOWN_TAGS

SENT = ReadRules("strict", keeps_unknown_tags=False, max_entries=3)


def read(own: Schema, content: str, version: int = 0) -> dict[str, Any]:
    return own.read(ByteReader(bytes.fromhex(content), rules=SENT), version)


def refusal(own: Schema, content: str, version: int = 0) -> str:
    with pytest.raises(InvalidRecord) as raised:
        read(own, content, version)
    return str(raised.value)


def test_a_string_of_a_peer_must_be_utf8() -> None:
    own = schema("Own", "a string")
    assert refusal(own, "0001 ff") == "Own.a: a string that is no UTF-8"
    assert own.read(bytes.fromhex("0001 ff"), 0) == {"a": "\udcff"}


def test_unknown_tags_of_a_peer_are_passed_over() -> None:
    own = schema("Own", "a int8", flexible=0)
    assert read(own, "05 01 63 02 0102") == {"a": 5}
    assert own.read(bytes.fromhex("05 01 63 02 0102"), 0) == {"a": 5, UNKNOWN_TAGS: {99: b"\1\2"}}


@pytest.mark.parametrize(
    "content",
    [
        "00000004 01 02 03 04",
        "00000002 01 02 00000002 01 02",
        "00000001 01 00000001 01 00000002 6161",
    ],
)
def test_the_entries_of_a_peers_message_are_counted_together(content: str) -> None:
    own = schema("Own", "a []int8\nb []int8\nc []int8")
    assert refusal(own, content).endswith("more than 3 entries in one message")
    assert read(own, "00000001 01 00000001 02 00000001 03")["c"] == [3]


def test_tagged_fields_are_counted_too_also_inside_of_one() -> None:
    own = schema("Own", "a [] 0+ tag=0\n b int8", flexible=0)
    assert refusal(own, "04 6300 6400 6500 6600") == "Own: more than 3 entries in one message"
    assert read(own, "01 00 05 03 01 00 02 00")["a"] == [{"b": 1}, {"b": 2}]
    why = "more than 3 entries in one message"
    assert refusal(own, "01 00 07 04 0100 0200 0300") == f"Own.a: {why}"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("a []int64", "00000003" + "00" * 23),
        ("a []uuid", "00000002" + "00" * 31),
        ("a []string", "00000002 000000"),
        ("a [][]int8", "00000002 00000000000000"),
        ("a []\n b int32\n c bytes", "00000002" + "00" * 15),
        ("a []\n b int8 1+", "00000002 00"),
    ],
)
def test_a_count_of_more_than_the_bytes_can_hold_is_refused_before_an_entry_is_read(
    text: str, content: str
) -> None:
    count, left = int(content[:8]), len(bytes.fromhex(content)) - 4
    assert (
        refusal(schema("Own", text), content)
        == f"Own.a: an array of {count} entries in {left} bytes"
    )


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("a []?string", "03 01"),
        ("a []\n b int32", "02 00000000"),
        ("a []\n b ?struct\n  c int64", "03 ff00 ff"),
        ("a []\n b int8 0+ tag=0", "03 00"),
    ],
)
def test_so_it_is_in_flexible_versions_with_their_smaller_lengths(text: str, content: str) -> None:
    own = schema("Own", text, flexible=0)
    assert "entries in" in refusal(own, content)
    own.read(bytes.fromhex(content) + bytes(20), 0)


def test_a_count_of_tags_is_checked_against_the_bytes_that_are_left() -> None:
    own = schema("Own", "a int8", flexible=0)
    assert refusal(own, "05 ffffffff07 6300") == "Own: 2147483647 tagged fields in 2 bytes"


def test_a_tagged_field_ends_where_its_size_says_and_what_follows_is_read() -> None:
    own = schema("Own", "a string 0+ tag=0\nb int8 0+ tag=1", flexible=0)
    assert read(own, "02 00 02 02 78 01 01 07") == {"a": "x", "b": 7}
    assert refusal(own, "02 00 02 03 78 01 01 07") == "the message ends 1 bytes too early"


def test_records_are_a_part_of_the_buffer_that_they_came_in() -> None:
    own = schema("Own", "a ?records")
    content = bytearray.fromhex("00000002 0102")
    records = own.read(content, 0)["a"]
    content[4] = 9
    assert isinstance(records, memoryview)
    assert bytes(records) == b"\x09\x02"
    assert own.write({"a": records}, 0) == content
    assert own.read(own.write({"a": None}, 0), 0) == {"a": None}


def test_null_may_be_a_value_from_a_version_on() -> None:
    own = schema("Own", "a ?string null=1+\nb ?[]int8 null=2+", last_version=2)
    assert own.write({"a": None, "b": []}, 1) == bytes.fromhex("ffff 00000000")
    assert own.write({"a": None, "b": None}, 2) == bytes.fromhex("ffff ffffffff")
    for version, value in ((0, {"a": None, "b": []}), (1, {"a": "", "b": None})):
        with pytest.raises(UnwritableValue, match="the field is not nullable"):
            own.write(value, version)
    assert refusal(own, "ffff 00000000") == "Own.a: the field is not nullable"
    assert refusal(own, "ffff ffffffff", 1) == "Own.b: the field is not nullable"


def test_an_ignorable_field_is_left_out_of_a_version_that_does_not_have_it() -> None:
    own = schema("Own", "a int8\nb int8 1+ default=-1 ignorable", last_version=1)
    assert own.write({"a": 1, "b": 2}, 0) == b"\1"
    assert own.write({"a": 1, "b": 2}, 1) == b"\1\2"
    assert own.read(b"\1", 0) == {"a": 1, "b": -1}


def test_a_bool_may_be_true_by_default() -> None:
    own = schema("Own", "a bool 1+ default=true", last_version=1)
    assert own.read(b"", 0) == {"a": True}
    assert own.write({"a": True}, 0) == b""
