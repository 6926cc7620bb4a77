"""The structs of Produce and Fetch read what the schemas read, and refuse what they refuse."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.actors.plane import frames
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.records import FETCH, PRODUCE
from raylog.actors.plane.errors import MalformedRequest
from raylog.actors.plane.hot import fetch, produce
from raylog.actors.plane.hot.fetch import read_fetch
from raylog.actors.plane.hot.produce import read_produce
from tests.unit.actors.plane.bodies import bodies, header, request_of
from tests.unit.actors.plane.hot_values import (
    FETCHED,
    PRODUCED,
    fetch_body,
    fetch_value,
    produce_body,
    produce_value,
)

READERS: dict[Api, tuple[Callable[..., Any], Callable[..., Any]]] = {
    PRODUCE: (read_produce, produce_body),
    FETCH: (read_fetch, fetch_body),
}
HOT = [
    *(pytest.param(PRODUCE, version, id=f"Produce-{version}") for version in PRODUCED),
    *(pytest.param(FETCH, version, id=f"Fetch-{version}") for version in FETCHED),
]
# What clients send: a topic with a partition, several, none, and as many as one byte counts.
COUNTS = [(1,), (3,), (1, 2, 0), (), (126,), (127,), (1,) * 127]


def value_of(api: Api, version: int, counts: tuple[int, ...]) -> Any:
    return (produce_value if api is PRODUCE else fetch_value)(version, counts)


def answers(api: Api, version: int, body: bytes) -> tuple[Any, Any]:
    """What the structs say, and what the schema says: a body, or the place and the reason."""
    read, from_value = READERS[api]
    request = request_of(api, version, body)
    found: list[Any] = []
    for ask in (lambda: read(request), lambda: from_value(frames.read_body(request))):
        try:
            found.append(ask())
        except MalformedRequest as error:
            found.append((error.position, error.why))
    return found[0], found[1]


@pytest.mark.parametrize(("api", "version"), HOT)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_request_is_read_as_the_schema_reads_it(
    api: Api, version: int, data: st.DataObject
) -> None:
    body = api.request.write(data.draw(bodies(api.request, version)), version)
    by_structs, by_schema = answers(api, version, body)
    assert by_structs == by_schema


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize(("api", "version"), HOT)
def test_a_plain_request_of_any_number_of_partitions_is_read(
    api: Api, version: int, counts: tuple[int, ...]
) -> None:
    value = value_of(api, version, counts)
    by_structs, by_schema = answers(api, version, api.request.write(value, version))
    assert by_structs == by_schema == READERS[api][1](value)


@pytest.mark.parametrize("counts", [(1,), (3,), (1, 2, 0), (126,)])
@pytest.mark.parametrize(("api", "version"), HOT)
def test_the_schema_is_not_asked_for_a_plain_request(
    api: Api, version: int, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = value_of(api, version, counts)
    request = request_of(api, version, api.request.write(value, version))
    for module in (produce, fetch):
        monkeypatch.delattr(module, "read_body")
    assert READERS[api][0](request) == READERS[api][1](value)


@pytest.mark.parametrize(("api", "version"), HOT)
def test_a_request_cut_at_any_byte_is_refused_as_the_schema_refuses_it(
    api: Api, version: int
) -> None:
    body = api.request.write(value_of(api, version, (1, 2)), version)
    for size in range(len(body)):
        by_structs, by_schema = answers(api, version, body[:size])
        assert by_structs == by_schema
        assert isinstance(by_structs[1], str), "a cut body is no request"


@pytest.mark.parametrize(("api", "version"), HOT)
def test_a_request_with_any_byte_changed_is_read_or_refused_as_by_the_schema(
    api: Api, version: int
) -> None:
    body = api.request.write(value_of(api, version, (1, 2)), version)
    for place in range(len(body)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF):
            changed = body[:place] + bytes([byte]) + body[place + 1 :]
            by_structs, by_schema = answers(api, version, changed)
            assert by_structs == by_schema, (place, byte)


@pytest.mark.parametrize(("api", "version"), HOT)
def test_bytes_behind_the_body_are_passed_over(api: Api, version: int) -> None:
    value = value_of(api, version, (1, 2))
    by_structs, by_schema = answers(api, version, api.request.write(value, version) + b"more")
    assert by_structs == by_schema == READERS[api][1](value)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 16_382, 16_383, 1 << 20])
@pytest.mark.parametrize("version", PRODUCED)
def test_records_are_a_part_of_the_received_buffer(version: int, size: int) -> None:
    value = produce_value(version, (1,), bytes(size))
    frame = bytearray(header(PRODUCE, version) + PRODUCE.request.write(value, version))
    part = read_produce(frames.parse(frame)).topics[0].partitions[0]
    assert isinstance(part.records, memoryview)
    assert part.records == bytes(size)
    assert part.records.obj is frame


@pytest.mark.parametrize("version", PRODUCED)
def test_null_records_and_a_transactional_id_are_read(version: int) -> None:
    value = {**produce_value(version, (2,)), "transactionalId": "t"}
    value["topicData"][0]["partitionData"][1]["records"] = None
    by_structs, by_schema = answers(PRODUCE, version, PRODUCE.request.write(value, version))
    assert by_structs == by_schema == produce_body(value)


@pytest.mark.parametrize("version", range(15, 19))
def test_a_follower_tells_its_id_in_a_tag(version: int) -> None:
    value = fetch_value(version, (1,))
    value["replicaState"] = {"replicaId": 4, "replicaEpoch": 9}
    body = read_fetch(request_of(FETCH, version, FETCH.request.write(value, version)))
    assert body.replica_id == 4
