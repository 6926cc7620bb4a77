"""A frame is a request of the table, or one of two errors that say which request it was."""

import struct
import uuid
from typing import Any

import pytest

from raylog.actors.plane import frames
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import DESCRIBE_CLUSTER, METADATA
from raylog.actors.plane.apis.connection import API_VERSIONS, SASL_HANDSHAKE
from raylog.actors.plane.apis.records import PRODUCE
from raylog.actors.plane.errors import AnswerUnwritable, MalformedRequest, UnsupportedRequest
from raylog.actors.plane.frames import Request, answer


def header(api: Api, version: int, client: bytes = b"\0\1c", tags: str = "00") -> bytes:
    head = struct.pack(">hhi", api.key, version, 7) + client
    return head + bytes.fromhex(tags) if api.is_flexible(version) else head


@pytest.mark.parametrize("client", ["c", "", "ü" * 40])
def test_a_header_of_either_version_has_a_client_id_with_a_length_of_two_bytes(client: str) -> None:
    text = client.encode()
    for version in (1, 9):
        frame = header(METADATA, version, struct.pack(">h", len(text)) + text) + b"body"
        request = frames.parse(frame)
        assert (request.api, request.version, request.correlation_id) == (METADATA, version, 7)
        assert request.client_id == client
        assert bytes(request.frame[request.body_position :]) == b"body"


@pytest.mark.parametrize("length", ["ffff", "fffe", "8000"])
def test_a_client_id_that_is_null_is_empty(length: str) -> None:
    for version in (1, 9):
        request = frames.parse(header(METADATA, version, bytes.fromhex(length)) + b"body")
        assert request.client_id == ""
        assert bytes(request.frame[request.body_position :]) == b"body"


def test_unknown_tags_of_a_header_are_passed_over() -> None:
    request = frames.parse(header(METADATA, 9, tags="02 00 00 63 02 0102") + b"body")
    assert bytes(request.frame[request.body_position :]) == b"body"


def test_a_correlation_id_is_any_int32() -> None:
    for number in (-(2**31), -1, 2**31 - 1):
        frame = struct.pack(">hhihh", 17, 0, number, -1, 0)
        assert frames.parse(frame).correlation_id == number
        assert frames.answer(frames.parse(frame), {"errorCode": 0, "mechanisms": []})[4:8] == (
            struct.pack(">i", number)
        )


def test_unknown_tags_and_bytes_behind_the_body_are_passed_over() -> None:
    body = bytes.fromhex("02 00000000000000000000000000000000 0274 01 63 01 ff 01 00 00 00")
    value = frames.read_body(frames.parse(header(METADATA, 12) + body + b"more"))
    assert value["topics"] == [{"topicId": uuid.UUID(int=0), "name": "t"}]
    assert value["allowAutoTopicCreation"] is True


@pytest.mark.parametrize(
    ("frame", "position", "why"),
    [
        ("", 0, "a frame of 0 bytes"),
        ("0003 0009 000000", 0, "a frame of 7 bytes"),
        ("0003 0009 00000007", 8, "the message ends 2 bytes too early"),
        ("0003 0001 00000007 0001", 10, "the message ends 1 bytes too early"),
        ("0003 0001 00000007 0001 ff", 11, "RequestHeader.clientId: a string that is no UTF-8"),
        ("0003 0009 00000007 0000", 10, "the message ends 1 bytes too early"),
        ("0003 0009 00000007 0000 01 00", 11, "RequestHeader: 1 tagged fields in 1 bytes"),
        ("0003 0009 00000007 0000 01 00 05 00", 13, "the message ends 4 bytes too early"),
        ("0003 0009 00000007 0000 8080808080", 15, "an unsigned varint has more than five bytes"),
    ],
)
def test_a_header_that_is_none_is_told_with_its_place(frame: str, position: int, why: str) -> None:
    with pytest.raises(MalformedRequest) as raised:
        frames.parse(bytes.fromhex(frame))
    assert (raised.value.position, raised.value.why) == (position, why)


def test_a_malformed_request_is_one_sentence_for_the_log() -> None:
    request = frames.parse(header(METADATA, 1) + bytes.fromhex("00000002 0001 74"))
    with pytest.raises(MalformedRequest) as raised:
        frames.read_body(request)
    assert str(raised.value).startswith(
        "Metadata request of version 1, correlation id 7, cannot be read at byte 15: "
        "MetadataRequest.topics: an array of 2 entries in 3 bytes"
    )


@pytest.mark.parametrize(
    ("body", "position", "why"),
    [
        ("00000001 0001 ff", 18, "MetadataRequest.topics[0].name: a string that is no UTF-8"),
        ("00000001 ffff", 17, "MetadataRequest.topics[0].name: the field is not nullable"),
        ("000001", 11, "the message ends 1 bytes too early"),
    ],
)
def test_a_body_that_is_none_is_told_with_its_place(body: str, position: int, why: str) -> None:
    with pytest.raises(MalformedRequest) as raised:
        frames.read_body(frames.parse(header(METADATA, 1) + bytes.fromhex(body)))
    assert (raised.value.position, raised.value.why) == (position, why)


def test_a_request_has_a_bounded_number_of_entries() -> None:
    def metadata_of(count: int) -> bytes:
        return header(METADATA, 1) + struct.pack(">i", count) + b"\0\1t" * count

    many = frames.MAX_ENTRIES
    assert len(frames.read_body(frames.parse(metadata_of(many)))["topics"]) == many
    with pytest.raises(MalformedRequest, match="more than 20000 entries in one message"):
        frames.read_body(frames.parse(metadata_of(many + 1)))


@pytest.mark.parametrize(
    ("key", "version", "name"),
    [
        (999, 0, "API 999"),
        (4, 0, "API 4"),
        (52, 0, "API 52"),
        (-1, 0, "API -1"),
        (71, 0, "API 71"),
        (METADATA.key, 14, "Metadata"),
        (METADATA.key, -1, "Metadata"),
        (PRODUCE.key, 0, "Produce"),
        (PRODUCE.key, 2, "Produce"),
        (1, 3, "Fetch"),
    ],
)
def test_an_unknown_api_or_version_has_no_answer(key: int, version: int, name: str) -> None:
    with pytest.raises(UnsupportedRequest) as raised:
        frames.parse(struct.pack(">hhi", key, version, 9))
    assert raised.value.args == (name, version, 9)
    assert frames.refusal(raised.value) is None


@pytest.mark.parametrize("version", [5, 32767, -1])
@pytest.mark.parametrize("rest", ["", "ff", "ffff 00 aabb"])
def test_apiversions_of_an_unknown_version_is_answered_as_version_0(
    version: int, rest: str
) -> None:
    """Error 35, and the versions of ApiVersions. What follows the correlation id is not read."""
    with pytest.raises(UnsupportedRequest) as raised:
        frames.parse(struct.pack(">hhi", 18, version, 9) + bytes.fromhex(rest))
    assert frames.refusal(raised.value) == bytes.fromhex(
        "00000010 00000009 0023 00000001 0012 0000 0004"
    )


def test_an_answer_begins_with_its_size_and_the_correlation_id() -> None:
    request = frames.parse(header(SASL_HANDSHAKE, 1) + b"\0\5PLAIN")
    assert frames.read_body(request) == {"mechanism": "PLAIN"}
    assert frames.answer(request, {"errorCode": 33, "mechanisms": ["PLAIN"]}) == bytes.fromhex(
        "00000011 00000007 0021 00000001 0005 504c41494e"
    )


def test_an_answer_of_a_flexible_version_has_tags_in_its_header_but_of_apiversions() -> None:
    answered: dict[str, Any] = {
        "throttleTimeMs": 0,
        "errorCode": 0,
        "errorMessage": None,
        "clusterId": "c",
        "controllerId": 1,
        "brokers": [],
        "clusterAuthorizedOperations": -(2**31),
    }
    request = frames.parse(header(DESCRIBE_CLUSTER, 0) + bytes.fromhex("00 00"))
    assert frames.answer(request, answered) == bytes.fromhex(
        "00000018 00000007 00  00000000 0000 00 0263 00000001 01 80000000 00"
    )
    request = frames.parse(header(API_VERSIONS, 3) + bytes.fromhex("0261 0262 00"))
    value: dict[str, Any] = {"errorCode": 0, "apiKeys": [], "throttleTimeMs": 0}
    assert frames.answer(request, value) == bytes.fromhex("0000000c 00000007 0000 01 00000000 00")


def test_an_answer_that_cannot_be_written_is_no_fault_of_the_peers() -> None:
    request = Request(DESCRIBE_CLUSTER, 0, 1, "", memoryview(b""), 0)
    with pytest.raises(AnswerUnwritable, match=r"DescribeCluster of version 0.*error of raylog"):
        answer(request, {"errorCode": "not a number"})
    assert AnswerUnwritable.code == -1
