"""Frames that real clients sent are read, and written again as the same bytes."""

from typing import NamedTuple

import pytest

from raylog.actors.plane import frames
from raylog.actors.plane.apis.records import FETCH, PRODUCE
from raylog.actors.plane.hot.fetch import read_fetch
from raylog.actors.plane.hot.produce import read_produce
from raylog.storage.records.decode import decode_records
from tests.harness.paths import GOLDEN
from tests.unit.actors.plane.hot_values import fetch_body, produce_body


class Sent(NamedTuple):
    client: str
    api: str
    version: int
    frame: bytes  # without its size


def sent() -> list[Sent]:
    lines = (GOLDEN / "client-frames" / "frames.txt").read_text().splitlines()
    rows = [line.split(" | ") for line in lines]
    return [
        Sent(client, api, int(version), bytes.fromhex(frame))
        for client, api, version, frame in rows
    ]


SENT = [pytest.param(one, id=f"{one.client}-{one.api}-{one.version}") for one in sent()]


@pytest.mark.parametrize("one", SENT)
def test_a_frame_of_a_client_is_read_and_written_as_the_same_bytes(one: Sent) -> None:
    request = frames.parse(one.frame)
    assert (request.api.name, request.version) == (one.api, one.version)
    assert request.client_id in ("golden", "rdkafka")
    value = frames.read_body(request)
    header = one.frame[: request.body_position]
    assert header + request.api.request.write(value, request.version) == one.frame


@pytest.mark.parametrize("one", SENT)
def test_the_structs_read_produce_and_fetch_of_clients(one: Sent) -> None:
    request = frames.parse(one.frame)
    value = frames.read_body(request)
    if request.api is PRODUCE:
        assert read_produce(request) == produce_body(value)
    if request.api is FETCH:
        assert read_fetch(request) == fetch_body(value)


def test_the_records_of_a_produce_request_are_a_batch() -> None:
    for one in sent():
        if one.api == "Produce":
            (topic,) = read_produce(frames.parse(one.frame)).topics
            (part,) = topic.partitions
            assert topic.name == "topic"
            assert part.records is not None
            assert decode_records(part.records)[0].value in (b"v0", b"value")
