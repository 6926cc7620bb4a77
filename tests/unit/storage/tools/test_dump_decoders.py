"""Keys and values as the records of Kafka's own topics, as numbers, as text."""

import struct
from typing import Any

import msgpack
import pytest

from raylog.storage.errors import InvalidRecord
from raylog.storage.schemas.metadata import METADATA_RECORDS, type_name
from raylog.storage.schemas.schema import schema
from raylog.storage.testing.clock import T0
from raylog.storage.tools.dump import decoders
from raylog.storage.tools.dump.java_text import double_text
from raylog.storage.tools.dump.json_text import json_text
from raylog.storage.tools.dump.message_json import message_json

OFFSET_KEY = bytes.fromhex("0001 0003 677270 0005 746f706963 00000003")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("0000 00000000000004d2 0000 0000018bcfe56800", '"0","data":{"offset":1234,"metadata":"",'),
        (
            "0001 00000000000004d2 0000 0000018bcfe56800 ffffffffffffffff",
            '"1","data":{"offset":1234,"metadata":"",',
        ),
        (
            "0003 00000000000004d2 00000007 0000 0000018bcfe56800",
            '"3","data":{"offset":1234,"leaderEpoch":7,"metadata":"",',
        ),
        (
            "0004 00000000000004d2 00000007 01 0000018bcfe56800 00",
            '"4","data":{"offset":1234,"leaderEpoch":7,"metadata":"",',
        ),
    ],
)
def test_committed_offsets_of_every_version(value: str, told: str) -> None:
    key, payload = decoders.offsets(9, OFFSET_KEY, bytes.fromhex(value))
    assert key == '{"type":"1","data":{"group":"grp","topic":"topic","partition":3}}'
    expiry = ',"expireTimestamp":-1' if value.startswith("0001") else ""
    assert payload == f'{{"version":{told}"commitTimestamp":{T0}{expiry}}}}}'


def test_a_tombstone_of_an_offset() -> None:
    assert decoders.offsets(9, OFFSET_KEY, None)[1] == "<DELETE>"


def test_what_is_not_known_is_told_in_the_keys_place_and_skipped() -> None:
    assert decoders.offsets(9, b"\0\x63", b"") == (
        "Unknown record type 99 at offset 9, skipping.",
        None,
    )
    key, payload = decoders.offsets(9, OFFSET_KEY, b"\0\x09")
    assert (key or "").startswith("Error at offset 9, skipping. OffsetCommitValue of version 9")
    assert payload is None
    assert (decoders.offsets(9, OFFSET_KEY[:-1], None)[0] or "").startswith(
        "Error at offset 9, skipping. "
    )


def test_a_record_without_a_key_is_none_of_consumer_offsets() -> None:
    with pytest.raises(InvalidRecord, match="offset 9 has no key"):
        decoders.offsets(9, None, b"")


def group(protocol_type: str, subscription: bytes) -> str:
    def text(content: str) -> bytes:
        return struct.pack(">h", len(content)) + content.encode()

    value = (
        struct.pack(">h", 1)
        + text(protocol_type)
        + struct.pack(">i", 2)
        + text("range")
        + b"\xff\xff"
    )
    value += (
        struct.pack(">i", 1) + text("m") + text("c") + text("h") + struct.pack(">ii", 1000, 2000)
    )
    value += struct.pack(">i", len(subscription)) + subscription + struct.pack(">i", 0)
    return decoders.offsets(0, bytes.fromhex("0002 0003 677270"), value)[1] or ""


def test_consumers_subscriptions_are_decoded_and_others_left_as_bytes() -> None:
    subscription = bytes.fromhex(
        "0001 00000001 0001 74 ffffffff 00000001 0001 74 00000002 00000000 00000001"
    )
    told = (
        '"subscription":{"topics":["t"],"userData":null,"ownedPartitions":[{"topic":"t","partitions":[0,1]}]},'
        '"assignment":""'
    )
    assert told in group("consumer", subscription)
    assert '"protocol":"range","leader":null,"members":[{"memberId":"m","clientId":"c"' in group(
        "consumer", b""
    )
    assert '"subscription":"AAEAAAABAAF0' in group("connect", subscription)
    assert '"subscription":"AAE=","assignment":""' in group("consumer", b"\0\1"), (
        "cut short: its bytes stay"
    )


def test_a_transactions_partitions_are_told_in_their_order() -> None:
    value = struct.pack(">hqhibi", 0, 7, 1, 60_000, 1, 2)
    for topic, partitions in ((b"b", (2, 0)), (b"a", (1,))):
        value += (
            struct.pack(">h", len(topic))
            + topic
            + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
        )
    value += struct.pack(">qq", T0, T0)
    key = struct.pack(">hh", 0, 2) + b"tx"
    assert decoders.transactions(0, key, value) == (
        "transaction_metadata::transactionalId=tx",
        (
            f"producerId:7,producerEpoch:1,state=Ongoing,partitions=[b-2,b-0,a-1],txnLastUpdateTimestamp={T0},txnTimeoutMs=60000"
        ),
    )
    assert decoders.transactions(0, key, None)[1] == "<DELETE>"
    assert decoders.transactions(0, b"\0\5", None) == ("unknown::version=5", None)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (
            "01 02 00 02 74" + "00" * 16 + "00",
            '{"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":"AAAAAAAAAAAAAAAAAAAAAA"}}',
        ),
        ("01 14 00 00", '{"type":"NO_OP_RECORD","version":0,"data":{}}'),
        (
            "01 05 00 00000000" + "00" * 16 + "02 00 09 03 00000001 00000002 01 04 00000001",
            '{"type":"PARTITION_CHANGE_RECORD","version":0,"data":{"partitionId":0,"topicId":"AAAAAAAAAAAAAAAAAAAAAA",'
            '"isr":[1,2],"leader":1}}',
        ),
        (
            "01 63 00 00",
            "Error at 9, skipping. unknown metadata record of type 99, version 0",
        ),
        (
            "01 02 07 00",
            "Error at 9, skipping. unknown metadata record of type 2, version 7",
        ),
        ("01 02 00 05 74", "Error at 9, skipping. the message ends 3 bytes too early"),
        (
            "09 02 00",
            "Error at 9, skipping. Could not deserialize metadata record due to unknown frame "
            "version 9"
            "(only frame version 1 is supported)",
        ),
    ],
)
def test_metadata_records(value: str, told: str) -> None:
    key, payload = decoders.cluster_metadata(9, None, bytes.fromhex(value))
    assert key is None
    assert payload == told


def test_a_quotas_value_is_written_as_java_writes_doubles() -> None:
    value = (
        bytes([1, 14, 0, 2, 5])
        + b"user"
        + bytes([0, 0, 2])
        + b"k"
        + struct.pack(">d", 1048576.5)
        + bytes([0, 0])
    )
    assert decoders.cluster_metadata(0, None, value)[1] == (
        '{"type":"CLIENT_QUOTA_RECORD","version":0,"data":{"entity":[{"entityType":"user","entityName":null}],'
        '"key":"k","value":1048576.5,"remove":false}}'
    )


def test_raylogs_own_metadata_records_are_read_too() -> None:
    record: dict[str, Any] = {"kind": "cluster", "v": 1, "id": "x"}
    assert (
        decoders.cluster_metadata(0, None, msgpack.packb(record))[1]
        == '{"kind":"cluster","v":1,"id":"x"}'
    )


def test_bytes_in_raylogs_own_records_are_base64_as_kafka_prints_bytes() -> None:
    record = {"kind": "snapshot-end", "v": 1, "count": 1, "digest": b"\x00\xff"}
    assert (
        decoders.cluster_metadata(0, None, msgpack.packb(record))[1]
        == '{"kind":"snapshot-end","v":1,"count":1,"digest":"AP8="}'
    )


def test_every_metadata_record_has_a_name_as_kafka_prints_it() -> None:
    assert type_name(METADATA_RECORDS[21]) == "ZK_MIGRATION_STATE_RECORD"
    assert (
        len({type_name(record) for record in METADATA_RECORDS.values()})
        == len(METADATA_RECORDS)
        == 25
    )


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("string", "grüß".encode(), "grüß"),
        ("string", b"\xff\xe2\x82a\xc0\xaf", "\ufffd\ufffda\ufffd\ufffd"),
        ("string", b"\xed\xa0\x80a\xed\xa0a\xed\xa0", "\ufffda\ufffda\ufffd"),
        ("bytes", b"\0\xff", "00ff"),
        ("long", struct.pack(">q", -5), "-5"),
        ("integer", struct.pack(">i", 7), "7"),
        ("org.apache.kafka.tools.api.LongDecoder", struct.pack(">q", 5), "5"),
        ("kafka.serializer.StringDecoder", b"x", "x"),
    ],
)
def test_keys_and_values_as_what_they_are(name: str, content: bytes, told: str) -> None:
    decoder = decoders.decoder(name)
    assert decoder is not None
    assert decoder(content) == told
    assert decoders.plain(decoder, decoder)(0, None, content) == (None, told)


def test_a_number_of_another_size_is_named() -> None:
    decoder = decoders.decoder("long")
    assert decoder is not None
    with pytest.raises(InvalidRecord, match="3 bytes are not a 8-byte number"):
        decoder(b"abc")
    assert decoders.decoder("com.example.Own") is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.25, "1.2345678925E8"),
        (-1.5e300, "-1.5E300"),
        (float("inf"), '"Infinity"'),
    ],
)
def test_doubles(number: float, text: str) -> None:
    assert double_text(number) == text


def test_json_escapes_as_java_does() -> None:
    assert json_text({"a": ['"\n\x1f\x7fé']}) == '{"a":["\\"\\n\\u001F\x7fé"]}'


def test_tags_that_are_not_known_and_defaults_are_left_out() -> None:
    own = schema("Own", "a int8\nb int8 0+ tag=1 default=5\nc ?string 0+ tag=3\nd int8", flexible=0)

    def shown(content: str) -> dict[str, Any]:
        return message_json(own, own.read(bytes.fromhex(content), 0), 0)

    assert shown("01 04  03  01 01 06  02 02 aabb  03 02 02 78") == {
        "a": 1,
        "b": 6,
        "c": "x",
        "d": 4,
    }
    assert shown("01 04  01  01 01 05") == {"a": 1, "d": 4}


def test_text_that_is_no_utf8_is_shown_as_java_shows_it() -> None:
    key, _ = decoders.offsets(9, bytes.fromhex("0002 0005 61 eda080 ff"), None)
    assert key == '{"type":"2","data":{"group":"a\ufffd\ufffd"}}'
