"""Requests of Kafka's protocol that get no answer: the connection is closed, as Kafka does.

Each becomes one line of a log, so it says which request it was, or what became of the peer. (What
is wrong with the content of a request is answered by an error code, and is no business of these.)
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


class PeerGone(RaylogError):
    """The peer has ended the connection, or has fallen silent in the middle of something."""

    code, error_name = 13, "NETWORK_EXCEPTION"
    why: str
    template = "the peer is gone: {why}"


class PeerAway(RaylogError):
    """Another process of the cluster was asked, and has not answered."""

    code, error_name = 13, "NETWORK_EXCEPTION"
    fields = ("peer", "why")
    peer: str
    why: str
    template = "{peer} does not answer: {why}; it is asked again. If it lasts, see `raylog health`"


class AnswerCut(RaylogError):
    """A file is shorter than the range of it that an answer has promised."""

    fields = ("path", "position", "end")
    path: str
    position: int
    end: int
    template = (
        "{path} ends at {position}, and an answer has promised its bytes up to {end}; the "
        "connection was closed. If it happens again, look at the disk"
    )


class FrameTooLarge(RaylogError):
    """The size of a frame is more than is taken (Kafka's socket.request.max.bytes), or below 0."""

    code, error_name = 42, "INVALID_REQUEST"
    fields = ("size_bytes", "most_bytes", "hint")
    size_bytes: int
    most_bytes: int
    hint: str
    template = (
        "a frame of {size_bytes} bytes, where {most_bytes} are taken at most{hint}; the connection "
        "was closed"
    )


class StrangeUser(RaylogError):
    """Somebody else than this process's user, or root, has connected by the Unix socket."""

    code, error_name = 31, "CLUSTER_AUTHORIZATION_FAILED"
    fields = ("user",)
    user: int
    template = (
        "user {user} has connected by the Unix socket, which is for this broker's user alone; run "
        "the client as the broker's user, or connect by TCP"
    )


class AcceptFailed(RaylogError):
    """The system gives no connection."""

    why: str
    template = (
        "no connection can be accepted: {why}; it is tried again. Raise the limit of open files "
        "(ulimit -n), or that of processes and threads, if there are too many"
    )


class AddressTaken(RaylogError):
    """Somebody else listens at an address."""

    code, error_name = 8, "BROKER_NOT_AVAILABLE"
    fields = ("address", "why")
    address: str
    why: str
    template = "cannot listen at {address}: {why}; end who listens there, or choose another address"


class AnswerUnwritable(RaylogError):
    """An answer has a value that its schema does not: raylog's own error, and no peer's."""

    fields = ("api", "version", "why")
    api: str
    version: int
    why: str
    template = (
        "raylog could not write its answer to {api} of version {version}: {why}; this is an error "
        "of raylog, and not of the peer: please report it"
    )


class NotAcknowledged(RaylogError):
    """A producer that asks for no answer (``acks=0``) has sent what cannot be appended."""

    fields = ("topic", "partition", "error_code")
    topic: str
    partition: int
    error_code: int
    template = (
        "records for {topic}-{partition} were not appended (error code {error_code}), and their "
        "producer asks for no answer; the connection was closed, so that it looks again where the "
        "partition is"
    )


class RelayAway(RaylogError):
    """A request concerns the cluster, and the node's LogManager cannot be asked."""

    code, error_name = 8, "BROKER_NOT_AVAILABLE"
    fields = ("what", "why")
    what: str
    why: str
    template = (
        "the node's LogManager cannot be asked ({what}): {why}; the connection was closed, and the "
        "client asks another broker. Ray starts the LogManager again"
    )


class ClusterUnknown(RaylogError):
    """A request concerns the cluster, and the LogManager has not been told of it yet."""

    code, error_name = 8, "BROKER_NOT_AVAILABLE"
    fields = ("what",)
    what: str
    template = (
        "{what} cannot be answered yet: the Controller has not told this LogManager what there is; "
        "the connection was closed, and the client asks again. If it lasts, see `raylog health`"
    )


class AuthenticationFailed(RaylogError):
    """A peer has not proven who it is. Nobody is told whether there is such a user."""

    code, error_name = 58, "SASL_AUTHENTICATION_FAILED"
    why: str
    template = (
        "authentication failed: {why}; the connection was closed. Check the user, the password and "
        "the mechanism of the client"
    )


class IllegalSaslState(RaylogError):
    """A request that has no place where it comes: before authentication, or in its middle."""

    code, error_name = 34, "ILLEGAL_SASL_STATE"
    fields = ("api",)
    api: str
    template = (
        "{api} came before its peer had said who it is; the connection was closed. Set "
        "security.protocol of the client to SASL_PLAINTEXT, or SASL_SSL with TLS"
    )


class UnsupportedSaslMechanism(RaylogError):
    """A client asks for a mechanism that this listener does not know."""

    code, error_name = 33, "UNSUPPORTED_SASL_MECHANISM"
    fields = ("mechanism", "known")
    mechanism: str
    known: str
    template = (
        "the mechanism {mechanism!r} is not known here; the connection was closed. Set "
        "sasl.mechanism of the client to one of {known}"
    )


class TlsFailed(RaylogError):
    """A peer and this side did not agree on TLS."""

    code, error_name = 13, "NETWORK_EXCEPTION"
    why: str
    template = (
        "the TLS handshake failed: {why}; the connection was closed. Set security.protocol of the "
        "client to SSL or SASL_SSL, as `listeners` says, and its ssl.ca.location, or "
        "ssl.truststore.location, to the authority of this broker's certificate"
    )


class CertificateUnusable(RaylogError):
    """A file of keys or certificates cannot be used: nobody comes in by TLS until it can."""

    fields = ("path", "why")
    path: str
    why: str
    template = (
        "{path} cannot be used for TLS: {why}; put a PEM file there that the broker's user can "
        "read. It is looked at again for each connection"
    )
