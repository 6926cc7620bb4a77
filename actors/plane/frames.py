"""Frames of Kafka's protocol: a request's header and body by its bytes, and the bytes of an answer.

Every message begins with its size, an int32 that does not count itself. Behind it, big-endian::

    request                                       answer
    +------------------------------------+        +----------------------------------------+
    | API key (2)                        |        | correlation id (4), the request's      |
    | version (2)                        |        | tagged fields: header version 1 only   |
    | correlation id (4)                 |        +----------------------------------------+
    | client id: int16 length, UTF-8     |        | body                                   |
    | tagged fields: header version 2    |        +----------------------------------------+
    +------------------------------------+
    | body                               |        which header has which version: apis/api.py
    +------------------------------------+

The client id has an int16 length in both header versions; null is "". Unknown tagged fields and
bytes behind the body are passed over.

A frame comes from a stranger, perhaps before authentication. So nothing is allocated for a count or
a length that its bytes cannot hold, and a body has at most ``MAX_ENTRIES`` entries: what a frame
takes in memory is bounded by its size. A frame either is a request, or raises one of two errors
(``errors.py``), after which the connection is closed. One request is answered all the same:
``refusal``.

To read the size, to bound it and to wait for the bytes is the connection's business. Produce and
Fetch have readers and writers of their own: ``hot/``. Source: ``RequestHeader.json``,
``ResponseHeader.json`` and ``SocketServer`` of Kafka 4.3; KIP-482, KIP-511.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.connection import API_VERSIONS
from raylog.actors.plane.apis.table import APIS, unsupported_version
from raylog.actors.plane.errors import AnswerUnwritable, MalformedRequest, UnsupportedRequest
from raylog.storage.buffers import Buffer
from raylog.storage.errors import InvalidRecord, UnwritableValue
from raylog.storage.schemas.binary import ByteReader, ReadRules
from raylog.storage.schemas.schema import schema
from raylog.storage.schemas.types import Value

# Of all arrays of one request. An entry of two bytes becomes a dict of 200: without a bound, a
# frame of 100 MB would take 10 GB. With this one a request takes 10 MB at most, besides its texts
# and records. A client of 1,000 partitions needs a tenth of it.
MAX_ENTRIES: Final = 20_000
SENT: Final = ReadRules("strict", keeps_unknown_tags=False, max_entries=MAX_ENTRIES)

_HEAD: Final = Struct(">hhi")
_CLIENT_ID_SIZE: Final = Struct(">h")
_CLIENT_ID: Final = schema("RequestHeader", "clientId ?string")
_TAGS: Final = schema("RequestHeader", flexible=0)
_ANSWER_HEADS: Final = (Struct(">ii"), Struct(">iiB"))  # by header version: size, id, no tags
_SIZE_BYTES: Final = 4


class Request(NamedTuple):
    """A request whose header is read, and whose body is not."""

    api: Api
    version: int
    correlation_id: int
    client_id: str
    frame: memoryview  # without its size
    body_position: int


def parse(frame: Buffer) -> Request:
    """The request in a frame, which is given without its size.

    The buffer must not change while the request is in use. Raises MalformedRequest and
    UnsupportedRequest.
    """
    frame = memoryview(frame)
    if len(frame) < _HEAD.size:
        raise MalformedRequest("unknown", -1, -1, 0, f"a frame of {len(frame)} bytes")
    key, version, correlation_id = _HEAD.unpack_from(frame)
    api = APIS.get(key)
    if api is None or not api.serves(version):
        name = f"API {key}" if api is None else api.name
        raise UnsupportedRequest(name, version, correlation_id)
    is_flexible = api.is_flexible(version)
    rest = _plain_header(frame, is_flexible)
    if rest is not None:
        return Request(api, version, correlation_id, rest[0], frame, rest[1])
    reader = ByteReader(frame, _HEAD.size, SENT)
    try:
        client_id = _CLIENT_ID.read(reader, 0)["clientId"] or ""
        if is_flexible:
            _TAGS.read(reader, 0)
    except InvalidRecord as error:
        raise MalformedRequest(
            api.name, version, correlation_id, reader.position, error.why
        ) from None
    return Request(api, version, correlation_id, client_id, frame, reader.position)


def read_body(request: Request) -> Value:
    """The body of a request, every field by its name. Raises MalformedRequest."""
    reader = ByteReader(request.frame, request.body_position, SENT)
    try:
        return request.api.request.read(reader, request.version)
    except InvalidRecord as error:
        raise MalformedRequest(
            request.api.name,
            request.version,
            request.correlation_id,
            reader.position,
            error.why,
        ) from None


def request_frame(api: Api, version: int, body: Value) -> bytes:
    """The frame of a request of raylog's own, without its size. Raises UnwritableValue."""
    no_client_id = _CLIENT_ID_SIZE.pack(0)
    tags = b"\0" if api.is_flexible(version) else b""
    head = _HEAD.pack(api.key, version, 0) + no_client_id + tags
    return head + api.request.write(body, version)


def read_answer(api: Api, version: int, frame: Buffer) -> Value:
    """The body of the answer to a request of raylog's own. Raises InvalidRecord."""
    head_bytes = _ANSWER_HEADS[api.answer_header_version(version)].size
    return api.answer.read(ByteReader(frame, head_bytes, SENT), version)


def answer(request: Request, body: Value) -> bytes:
    """The frame of an answer, with its size. Raises AnswerUnwritable."""
    try:
        content = request.api.answer.write(body, request.version)
    except UnwritableValue as error:
        raise AnswerUnwritable(request.api.name, request.version, str(error)) from error
    return answer_head(request, len(content)) + content


def answer_head(request: Request, body_bytes: int) -> bytes:
    """Size and header of an answer whose body has this many bytes."""
    version = request.api.answer_header_version(request.version)
    form = _ANSWER_HEADS[version]
    size = form.size - _SIZE_BYTES + body_bytes
    if version == 0:
        return form.pack(size, request.correlation_id)
    return form.pack(size, request.correlation_id, 0)


def refusal(error: UnsupportedRequest) -> bytes | None:
    """The frame that answers a request of an unknown version; None: the connection is closed.

    Only ApiVersions has such an answer, in the form of version 0, which every client can read: the
    code of the error and the versions of ApiVersions itself, so that the client asks again. Nothing
    behind the correlation id was looked at: a newer version may have another header. Source:
    KIP-511.
    """
    if error.api != API_VERSIONS.name:
        return None
    request = Request(API_VERSIONS, 0, error.correlation_id, "", memoryview(b""), 0)
    return answer(request, unsupported_version(error.code))


def _plain_header(frame: memoryview, is_flexible: bool) -> tuple[str, int] | None:
    """The client id, and where the body begins; None for what is rare or wrong.

    Nearly every header has a client id and no tagged fields: a quarter of the schemas' time.
    """
    try:
        (size,) = _CLIENT_ID_SIZE.unpack_from(frame, _HEAD.size)
        start = _HEAD.size + _CLIENT_ID_SIZE.size
        end = start + size
        if size < 0 or end > len(frame):
            return None
        client_id = str(frame[start:end], "utf-8")
        if not is_flexible:
            return client_id, end
        return None if frame[end] else (client_id, end + 1)
    except (StructError, IndexError, UnicodeDecodeError):
        return None
