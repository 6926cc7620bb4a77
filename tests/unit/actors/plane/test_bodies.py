"""What is written is read again, for every API and version, both ways."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.actors.plane import frames
from raylog.actors.plane.apis.api import Api
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.schemas.schema import Schema
from tests.unit.actors.plane.bodies import MESSAGES, VERSIONS, bodies, request_of


@pytest.mark.parametrize(("schema", "version"), MESSAGES)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(data=st.data())
def test_what_is_written_is_read_again(schema: Schema, version: int, data: st.DataObject) -> None:
    value: dict[str, Any] = data.draw(bodies(schema, version))
    content = schema.write(value, version)
    reader = ByteReader(content + b"what follows", rules=frames.SENT)
    assert schema.read(reader, version) == value
    assert reader.position == len(content)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
@settings(max_examples=3, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_frame_carries_them(api: Api, version: int, data: st.DataObject) -> None:
    value = data.draw(bodies(api.request, version))
    request = request_of(api, version, api.request.write(value, version))
    assert frames.read_body(request) == value
    value = data.draw(bodies(api.answer, version))
    frame = frames.answer(request, value)
    assert frame[:8] == (len(frame) - 4).to_bytes(4, "big") + b"\0\0\0\7"
    body = 8 + api.answer_header_version(version)
    assert api.answer.read(frame[body:], version) == value
