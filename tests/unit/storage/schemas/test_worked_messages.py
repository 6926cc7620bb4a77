"""Messages made by hand, to the byte: as Kafka lays them out, and as our text describes them."""

import struct
import uuid
from typing import Any

import pytest

from raylog.storage.errors import InvalidRecord
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.schemas.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, read_latest
from raylog.storage.schemas.groups import GROUP_RECORDS
from raylog.storage.schemas.metadata import MetadataRecord, read_record, write_record
from raylog.storage.schemas.schema import Schema, schema
from raylog.storage.schemas.transactions import TRANSACTION_KEY, TRANSACTION_VALUE
from raylog.storage.schemas.types import UNKNOWN_TAGS
from raylog.storage.testing.clock import T0

ID = uuid.UUID(bytes=bytes(range(16)))
ID_HEX = ID.hex


def agrees(schema: Schema, version: int, value: dict[str, Any], content: str) -> None:
    """Written, ``value`` is ``content``; read, ``content`` is ``value`` and defaults."""
    assert schema.write_versioned(value, version).hex() == content.replace(" ", "")
    read_version, read = schema.read_versioned(bytes.fromhex(content))
    assert read_version == version
    assert {name: read[name] for name in value} == value
    defaults = schema.struct.default
    assert defaults is not None
    for name in read.keys() - value.keys():
        assert read[name] == defaults[name]


OFFSET = {"offset": 42, "metadata": "", "commitTimestamp": T0}


@pytest.mark.parametrize(
    ("version", "value", "content"),
    [
        (0, OFFSET, "0000 000000000000002a 0000 0000018bcfe56800"),
        (
            1,
            {**OFFSET, "expireTimestamp": T0 + 5},
            "0001 000000000000002a 0000 0000018bcfe56800 0000018bcfe56805",
        ),
        (2, OFFSET, "0002 000000000000002a 0000 0000018bcfe56800"),
        (
            3,
            {**OFFSET, "leaderEpoch": -1},
            "0003 000000000000002a ffffffff 0000 0000018bcfe56800",
        ),
        (
            4,
            {**OFFSET, "leaderEpoch": 7, "metadata": "m"},
            "0004 000000000000002a 00000007 02 6d 0000018bcfe56800 00",
        ),
    ],
)
def test_a_committed_offset(version: int, value: dict[str, Any], content: str) -> None:
    agrees(GROUP_RECORDS[1].value, version, value, content)


@pytest.mark.parametrize(
    ("record_type", "key", "content"),
    [
        (1, {"group": "g", "topic": "t", "partition": 0}, "0001 0001 67 0001 74 00000000"),
        (2, {"group": "g"}, "0002 0001 67"),
        (3, {"groupId": "g"}, "0003 0001 67"),
        (5, {"groupId": "g", "memberId": "m"}, "0005 0001 67 0001 6d"),
        (8, {"groupId": "g", "memberId": "m"}, "0008 0001 67 0001 6d"),
    ],
)
def test_keys_of_consumer_offsets(record_type: int, key: dict[str, Any], content: str) -> None:
    agrees(GROUP_RECORDS[record_type].key, record_type, key, content)


def test_a_classic_group_and_what_its_consumer_says() -> None:
    topics = [{"topic": "t", "partitions": [0, 1]}]
    subscription = SUBSCRIPTION.write_versioned(
        {"topics": ["t"], "userData": None, "ownedPartitions": []}, 1
    )
    assignment = ASSIGNMENT.write_versioned({"assignedPartitions": topics, "userData": None}, 1)
    member = {
        "memberId": "c-1",
        "groupInstanceId": None,
        "clientId": "c",
        "clientHost": "/127.0.0.1",
        "rebalanceTimeout": 300_000,
        "sessionTimeout": 45_000,
        "subscription": subscription,
        "assignment": assignment,
    }
    group = {
        "protocolType": "consumer",
        "generation": 1,
        "protocol": "range",
        "leader": "c-1",
        "currentStateTimestamp": T0,
        "members": [member],
    }
    agrees(
        GROUP_RECORDS[2].value,
        3,
        group,
        "0003 0008636f6e73756d6572 00000001 000572616e6765 0003632d31 0000018bcfe56800 00000001"
        "0003632d31 ffff 000163 000a2f3132372e302e302e31 000493e0 0000afc8"
        "00000011 0001 00000001 000174 ffffffff 00000000"
        "00000019 0001 00000001 000174 00000002 00000000 00000001 ffffffff",
    )
    emptied = {**group, "generation": 3, "protocol": None, "leader": None, "members": []}
    agrees(
        GROUP_RECORDS[2].value,
        3,
        emptied,
        "0003 0008636f6e73756d6572 00000003 ffff ffff 0000018bcfe56800 00000000",
    )


@pytest.mark.parametrize(
    ("version", "content"),
    [
        (0, "0000 00000001 000174 ffffffff"),
        (1, "0001 00000001 000174 ffffffff 00000000"),
        (2, "0002 00000001 000174 ffffffff 00000000 ffffffff"),
        (3, "0003 00000001 000174 ffffffff 00000000 ffffffff ffff"),
    ],
)
def test_a_subscription_of_every_version(version: int, content: str) -> None:
    value = {
        "topics": ["t"],
        "userData": None,
        "ownedPartitions": [],
        "generationId": -1,
        "rackId": None,
    }
    agrees(SUBSCRIPTION, version, value, content)
    assert read_latest(SUBSCRIPTION, bytes.fromhex(content)) == (version, value)


def test_a_later_subscription_is_read_as_the_last_one_known() -> None:
    content = bytes.fromhex("0009 00000001 000174 ffffffff 00000000 ffffffff ffff 1234")
    version, value = read_latest(SUBSCRIPTION, content)
    assert (version, value["topics"]) == (3, ["t"])
    with pytest.raises(InvalidRecord, match="ConsumerProtocolSubscription of version -1"):
        read_latest(SUBSCRIPTION, b"\xff\xff")


@pytest.mark.parametrize(
    ("record_type", "value", "content"),
    [
        (3, {"epoch": 5}, "0000 00000005 00"),
        (
            5,
            {
                "instanceId": None,
                "rackId": None,
                "clientId": "c",
                "clientHost": "/h",
                "subscribedTopicNames": ["t"],
                "subscribedTopicRegex": None,
                "rebalanceTimeoutMs": 300_000,
                "serverAssignor": None,
                "classicMemberMetadata": None,
            },
            "0000 00 00 0263 032f68 02 0274 00 000493e0 00 00",
        ),
        (6, {"assignmentEpoch": 5}, "0000 00000005 00"),
        (
            7,
            {"topicPartitions": [{"topicId": ID, "partitions": [0, 1]}]},
            f"0000 02 {ID_HEX} 03 00000000 00000001 00 00",
        ),
        (
            8,
            {
                "memberEpoch": 5,
                "previousMemberEpoch": 4,
                "state": 0,
                "assignedPartitions": [{"topicId": ID, "partitions": [0, 1]}],
                "partitionsPendingRevocation": [],
            },
            f"0000 00000005 00000004 00 02 {ID_HEX} 03 00000000 00000001 00 01 00",
        ),
    ],
)
def test_groups_of_the_new_protocol(record_type: int, value: dict[str, Any], content: str) -> None:
    agrees(GROUP_RECORDS[record_type].value, 0, value, content)


def test_a_nullable_struct_is_a_byte_and_its_fields() -> None:
    member: dict[str, Any] = {
        "instanceId": None,
        "rackId": None,
        "clientId": "",
        "clientHost": "",
        "subscribedTopicNames": [],
        "subscribedTopicRegex": None,
        "rebalanceTimeoutMs": 1,
        "serverAssignor": None,
        "classicMemberMetadata": {
            "sessionTimeoutMs": 2,
            "supportedProtocols": [{"name": "r", "metadata": b"\x09"}],
        },
    }
    tagged = "01 00000002 02 0272 0209 00 00"
    agrees(
        GROUP_RECORDS[5].value,
        0,
        member,
        f"0000 00 00 01 01 01 00 00000001 00 01 00 {len(bytes.fromhex(tagged)):02x} {tagged}",
    )
    own = schema("Own", "a ?struct\n  b int8")
    assert own.write({"a": None}, 0) == b"\xff"
    assert own.read(b"\xff", 0) == {"a": None}
    assert own.write({"a": {"b": 3}}, 0) == own.write(own.read(b"\1\3", 0), 0) == b"\1\3"


TRANSACTION = {
    "producerId": 1000,
    "producerEpoch": 0,
    "transactionTimeoutMs": 60_000,
    "transactionStatus": 0,
    "transactionPartitions": None,
    "transactionLastUpdateTimestampMs": T0,
    "transactionStartTimestampMs": -1,
}
ONGOING = {
    **TRANSACTION,
    "transactionStatus": 1,
    "transactionPartitions": [{"topic": "t", "partitionIds": [0, 1]}],
    "transactionLastUpdateTimestampMs": T0 + 5,
    "transactionStartTimestampMs": T0 + 5,
}


@pytest.mark.parametrize(
    ("version", "value", "content"),
    [
        (
            0,
            TRANSACTION,
            "0000 00000000000003e8 0000 0000ea60 00 ffffffff 0000018bcfe56800 ffffffffffffffff",
        ),
        (
            0,
            ONGOING,
            "0000 00000000000003e8 0000 0000ea60 01 00000001 000174 00000002 00000000 00000001"
            "0000018bcfe56805 0000018bcfe56805",
        ),
        (
            1,
            TRANSACTION,
            "0001 00000000000003e8 0000 0000ea60 00 00 0000018bcfe56800 ffffffffffffffff 00",
        ),
        (
            1,
            {**ONGOING, "clientTransactionVersion": 2},
            "0001 00000000000003e8 0000 0000ea60 01 02 0274 03 00000000 00000001 00"
            "0000018bcfe56805 0000018bcfe56805 01 02 02 0002",
        ),
        (
            1,
            {
                **ONGOING,
                "producerEpoch": 1,
                "transactionStatus": 2,
                "transactionLastUpdateTimestampMs": T0 + 9,
                "previousProducerId": 1000,
                "clientTransactionVersion": 2,
            },
            "0001 00000000000003e8 0001 0000ea60 02 02 0274 03 00000000 00000001 00"
            "0000018bcfe56809 0000018bcfe56805 02 00 08 00000000000003e8 02 02 0002",
        ),
    ],
)
def test_a_transaction(version: int, value: dict[str, Any], content: str) -> None:
    agrees(TRANSACTION_VALUE, version, value, content)


def test_a_transactions_key() -> None:
    agrees(TRANSACTION_KEY, 0, {"transactionalId": "tx"}, "0000 0002 7478")


def test_a_metadata_record_behind_its_frame() -> None:
    content = bytes.fromhex(
        "01 05 00 00000000" + ID_HEX + "02 00 09 03 00000001 00000002 01 04 00000001"
    )
    record = read_record(content)
    assert record.schema.name == "PartitionChangeRecord"
    assert record.value == {
        "partitionId": 0,
        "topicId": ID,
        "isr": [1, 2],
        "leader": 1,
        "replicas": None,
        "removingReplicas": None,
        "addingReplicas": None,
        "leaderRecoveryState": -1,
        "directories": None,
        "eligibleLeaderReplicas": None,
        "lastKnownElr": None,
    }
    assert write_record(record) == content
    topic = MetadataRecord(type=2, version=0, value={"name": "t", "topicId": ID})
    assert write_record(topic) == b"\1\2\0\2t" + ID.bytes + b"\0"


EVERY = schema(
    "Every",
    """
    flag bool
    tiny int8
    small int16
    port uint16
    number int32
    large int64
    ratio float64
    id uuid
    text string
    content bytes
    list []string
    inner struct
        a int8
    """,
    last_version=1,
    flexible=1,
)
EVERY_VALUE = {
    "flag": True,
    "tiny": -2,
    "small": -3,
    "port": 65535,
    "number": -4,
    "large": -5,
    "ratio": 1.5,
    "id": ID,
    "text": "é",
    "content": b"\0\xff",
    "list": ["a", ""],
    "inner": {"a": 7},
}
NUMBERS_HEX = "01 fe fffd ffff fffffffc fffffffffffffffb 3ff8000000000000" + ID_HEX


@pytest.mark.parametrize(
    ("version", "content"),
    [
        (0, "0002 c3a9 00000002 00ff 00000002 0001 61 0000 07"),
        (1, "03 c3a9 03 00ff 03 02 61 01 07 00 00"),
    ],
)
def test_every_type_in_both_ways(version: int, content: str) -> None:
    expected = bytes.fromhex(NUMBERS_HEX + content)
    assert EVERY.write(EVERY_VALUE, version) == expected
    assert EVERY.read(expected, version) == EVERY_VALUE


def test_a_length_of_128_has_two_bytes() -> None:
    own = schema("Own", "a string", flexible=0)
    assert own.write({"a": "x" * 127}, 0)[:3] == b"\x80\x01x"
    assert own.read(own.write({"a": "x" * 127}, 0), 0) == {"a": "x" * 127}


# -- tagged fields ---------------------------------------------------------------------------------

TAGGED = schema(
    "Tagged",
    """
    a int8
    late ?string 0+ tag=3
    b int8 0+ tag=1 default=5
    entries [] 0+ tag=4
        c int8
    d int8
    """,
    flexible=0,
)


def test_tagged_fields_are_written_by_rising_tag_and_only_where_not_the_default() -> None:
    assert TAGGED.write({"a": 1, "d": 4}, 0) == bytes.fromhex("01 04 00")
    assert TAGGED.write({"a": 1, "d": 4, "b": 5, "late": None, "entries": []}, 0) == bytes.fromhex(
        "01 04 00"
    )
    content = TAGGED.write({"a": 1, "late": "x", "b": 6, "entries": [{"c": 9}], "d": 4}, 0)
    assert content == bytes.fromhex("01 04  03  01 01 06  03 02 0278  04 03 02 09 00")


def test_tags_that_are_not_known_are_kept_and_written_between_the_known_ones() -> None:
    content = bytes.fromhex("01 04  04  01 01 06  02 02 aabb  03 02 02 78  8001 00")
    value = TAGGED.read(content, 0)
    assert value == {
        "a": 1,
        "late": "x",
        "b": 6,
        "entries": [],
        "d": 4,
        UNKNOWN_TAGS: {2: b"\xaa\xbb", 128: b""},
    }
    assert TAGGED.write(value, 0) == content


def test_tags_that_are_not_known_are_kept_in_inner_structs_too() -> None:
    own = schema("Own", "list []\n  a int8", flexible=0)
    content = bytes.fromhex("02 07 01 63 01 ff 00")
    assert own.read(content, 0) == {"list": [{"a": 7, UNKNOWN_TAGS: {99: b"\xff"}}]}
    assert own.write(own.read(content, 0), 0) == content


def test_a_tag_at_its_default_and_tags_out_of_order_are_written_as_kafka_would() -> None:
    at_default = TAGGED.read(bytes.fromhex("01 04  01  01 01 05"), 0)
    assert TAGGED.write(at_default, 0) == bytes.fromhex("01 04 00")
    turned = TAGGED.read(bytes.fromhex("01 04  02  03 02 0278  01 01 06"), 0)
    assert TAGGED.write(turned, 0) == bytes.fromhex("01 04  02  01 01 06  03 02 0278")


def test_what_the_version_does_not_have_is_read_as_the_default() -> None:
    own = schema(
        "Own",
        """
        a int8
        b int8 1+ default=-1
        c ?string 1+
        d [] 1+
            e int8
        f struct 1+
            g int8
        """,
        last_version=1,
    )
    value = own.read(b"\7", 0)
    assert value == {"a": 7, "b": -1, "c": None, "d": [], "f": {"g": 0}}
    assert own.write(value, 1) == bytes.fromhex("07 ff ffff 00000000 00")
    value["d"].append({"e": 1})
    assert own.read(b"\7", 0)["d"] == []


# -- text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"\xff", b"a\xed\xa0\x80b", b"\xc0\xaf", b"\xe2\x82", b"\0"])
@pytest.mark.parametrize("version", [0, 1])
def test_text_that_is_no_utf8_survives(content: bytes, version: int) -> None:
    own = schema("Own", "a string", last_version=1, flexible=1)
    size = struct.pack(">h", len(content)) if version == 0 else bytes([len(content) + 1])
    message = size + content + b"\0" * version
    assert own.write(own.read(message, version), version) == message


# -- nulls -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "content", "flexible"),
    [
        ("a ?string", "ffff", "00 00"),
        ("a ?bytes", "ffffffff", "00 00"),
        ("a ?[]int32", "ffffffff", "00 00"),
        ("a ?struct\n  b int8", "ff", "ff 00"),
    ],
)
def test_nulls(text: str, content: str, flexible: str) -> None:
    own = schema("Own", text, last_version=1, flexible=1)
    for version, expected in enumerate((content, flexible)):
        assert own.write({"a": None}, version) == bytes.fromhex(expected)
        assert own.read(bytes.fromhex(expected), version) == {"a": None}


def test_a_reader_stands_behind_the_message_it_read() -> None:
    own = schema("Own", "a int8")
    reader = ByteReader(b"\1\2\3")
    assert [own.read(reader, 0)["a"], own.read(reader, 0)["a"]] == [1, 2]
    assert (reader.position, reader.left) == (2, 1)
