"""No bytes do more than be refused: no other error, and no memory beyond what the frame has."""

import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.actors.plane import frames
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.records import FETCH, PRODUCE
from raylog.actors.plane.apis.table import APIS
from raylog.actors.plane.errors import MalformedRequest, UnsupportedRequest
from raylog.actors.plane.hot.fetch import read_fetch
from raylog.actors.plane.hot.produce import read_produce
from raylog.storage.schemas.binary import ByteReader
from raylog.storage.schemas.scalars import Sized, Version
from raylog.storage.schemas.types import Array, StructType
from tests.unit.actors.plane.bodies import DESCRIBED, VERSIONS, full_frame, header

MAX_ALLOCATED_BYTES = 1 << 20
SIZES = (0, 1, -1, -2, 2**15 - 1, 2**31 - 1, -(2**31))
UNSIGNED = (0, 1, 2, 127, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1, 2**35 - 1)


class Place(NamedTuple):
    """Where a frame has a length or a count."""

    start: int
    end: int
    form: str  # "" for an unsigned varint


def read(frame: bytes) -> Any:
    """The body of a frame, read by each of its readers."""
    request = frames.parse(frame)
    if request.api is PRODUCE:
        read_produce(request)
    if request.api is FETCH:
        read_fetch(request)
    return frames.read_body(request)


def take(frame: bytes) -> bool:
    """Whether a frame is a request. All other errors, and much memory, are a find."""
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        read(frame)
    except (MalformedRequest, UnsupportedRequest):
        return False
    finally:
        _, peak = tracemalloc.get_traced_memory()
        assert peak - before < MAX_ALLOCATED_BYTES, (peak - before, frame[:100].hex())
    return True


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def places(api: Api, version: int, frame: bytes, monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    """Where a reader finds lengths, counts and tags."""
    found = [Place(8, 10, ">h")]

    def unsigned(reader: ByteReader) -> int:
        start = reader.position
        number = read_unsigned(reader)
        found.append(Place(start, reader.position, ""))
        return number

    def read_size(kind: Sized, reader: ByteReader, version: Version) -> int | None:
        start = reader.position
        size = read_any_size(kind, reader, version)
        if not version.is_flexible:
            found.append(Place(start, reader.position, kind.form.format))
        return size

    read_unsigned, read_any_size = ByteReader.unsigned, Sized.read_size
    with monkeypatch.context() as patched:
        patched.setattr(ByteReader, "unsigned", unsigned)
        patched.setattr(Sized, "read_size", read_size)
        frames.read_body(frames.parse(frame))
    return found


def changes(place: Place) -> Iterator[bytes]:
    if place.form:
        size = struct.calcsize(place.form)
        for number in SIZES:
            yield (number % (1 << 8 * size)).to_bytes(size, "big")
        return
    for number in UNSIGNED:
        yield varint(number)
    yield b"\x80" * 5 + b"\0"
    yield b"\xff" * 10


def varint(number: int) -> bytes:
    """Also one that is larger than any that Kafka writes."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_every_length_and_count_may_be_a_lie(
    api: Api, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = full_frame(api, version)
    assert take(frame)
    found = places(api, version, frame, monkeypatch)
    for place in found:
        for change in changes(place):
            take(frame[: place.start] + change + frame[place.end :])
            take(frame[: place.start] + change)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_request_cut_at_any_byte_is_refused(api: Api, version: int) -> None:
    frame = full_frame(api, version)
    for size in range(len(frame)):
        assert not take(frame[:size]), size


@pytest.mark.parametrize(("api", "version"), VERSIONS)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(body=st.binary(max_size=300))
def test_random_bytes_are_a_request_or_refused(api: Api, version: int, body: bytes) -> None:
    take(header(api, version) + body)
    take(body)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_a_large_body_of_small_entries_is_refused_by_their_number(api: Api) -> None:
    """Wherever the first array is: half a megabyte of zeros claims as many entries as it has."""
    version = api.last_version
    count = varint(1 << 19) if api.is_flexible(version) else struct.pack(">i", 1 << 19)
    for lead in range(32):
        take(header(api, version) + bytes(lead) + count + bytes(1 << 19))


def test_a_count_of_five_bytes_does_not_end_the_process() -> None:
    """The body that makes other decoders reserve 32 GB: Metadata 12, ff ff ff ff 0f."""
    assert not take(struct.pack(">hhih", 3, 12, 7, -1) + bytes.fromhex("00 ffffffff0f"))


@pytest.mark.parametrize("first", ["GET / HT", "\x16\x03\x01\x02\0\x01\0\x01", "\0" * 64])
def test_what_other_protocols_send_is_refused(first: str) -> None:
    assert not take(first.encode("latin-1"))


def test_no_schema_contains_itself() -> None:
    """So a reader goes only as deep as the text of the schema is indented."""

    def depth(kind: Any) -> int:
        if isinstance(kind, Array):
            return depth(kind.entry)
        if isinstance(kind, StructType):
            return 1 + max((depth(field.type) for field in kind.fields), default=0)
        return 0

    schemas = [schema for api in DESCRIBED for schema in (api.request, api.answer)]
    assert max(depth(schema.struct) for schema in schemas) == 4
