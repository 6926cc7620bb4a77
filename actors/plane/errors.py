"""Requests of Kafka's protocol that get no answer: the connection is closed, as Kafka does.

Each becomes one line of a log, so it says which request it was. (What is wrong with the content of
a request is answered by an error code, and is no business of these.)
"""

from raylog.storage.errors import RaylogError


class MalformedRequest(RaylogError):
    """The bytes of a frame are no request of the API and the version that they name.

    ``api``: its name, or "unknown" where the frame is too short to say it; version and correlation
    id are -1 then. ``position``: counted from behind the frame's size.
    """

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("api", "version", "correlation_id", "position", "why")
    api: str
    version: int
    correlation_id: int
    position: int
    why: str
    template = (
        "{api} request of version {version}, correlation id {correlation_id}, cannot be read at "
        "byte {position}: {why}; check that the peer is a client of Kafka's protocol, and that "
        "both sides use TLS, or neither does"
    )


class UnsupportedRequest(RaylogError):
    """No such API, or no such version of it, is served. ``api``: its name, or its key."""

    code, error_name = 35, "UNSUPPORTED_VERSION"
    fields = ("api", "version", "correlation_id")
    api: str
    version: int
    correlation_id: int
    template = (
        "{api} request of version {version}, correlation id {correlation_id}: not served; use a "
        "client that asks for ApiVersions first, or set it to Kafka 4.0"
    )
