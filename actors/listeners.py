"""Where Kafka's clients come in: one listener, in Kafka's spelling, and what it asks of them.

``listeners`` names it: ``PROTOCOL://HOST:PORT``. Each process of a broker has one, at a port of its
own (``port_of`` in ``cluster/controller/desired.py``), and all are of one kind. Who comes from
another machine must say who it is:

==============  =================================================================================
PLAINTEXT       asks nobody, so it is on the loopback alone
SASL_PLAINTEXT  asks for a user (``sasl.enabled.mechanisms``), and what is said is not encrypted
SSL             asks for a certificate that an authority of ``ssl.truststore.location`` has signed
SASL_SSL        asks for a user, and encrypts all of it
==============  =================================================================================
"""

import os
import re
from typing import Final, NamedTuple

from raylog.storage.wire import message

# The environment variable of a node's Ray: under which name other machines reach the node.
ADVERTISED_HOST_VARIABLE: Final = "RAYLOG_ADVERTISED_HOST"
LOOPBACK: Final = "127.0.0.1"
EVERYWHERE: Final = "0.0.0.0"
PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SASL_PLAINTEXT", "SSL", "SASL_SSL")
PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
# Where the ports begin, unless ``listeners`` says otherwise, and where they end: behind are those
# that Linux gives to anybody who connects.
FIRST_PORT, LAST_PORT = 19_092, 32_767
# Each connection is a thread and a descriptor. Kafka has no such limit by default; a container's
# limit of processes, which counts threads, is often 4,096, and a node has many of raylog's.
MAX_CONNECTIONS: Final = 1000
# Kafka's defaults.
MAX_IDLE_MS: Final = 600_000
MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
_LISTENER: Final = re.compile(
    rf"({'|'.join(PROTOCOLS)})://([A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):(\d{{1,5}})", re.ASCII
)
_ON_LOOPBACK: Final = re.compile(r"127\.\d+\.\d+\.\d+|localhost|\[?::1\]?", re.ASCII)


class Address(NamedTuple):
    """What ``listeners`` says. ``host``: empty for the node's own address."""

    protocol: str
    host: str
    port: int


@message
class Listener(NamedTuple):
    """What each process of a node opens for Kafka's clients, at a port of its own.

    ``host``: where it listens. ``mechanisms``: of SASL, of which a client uses one. ``keystore``: a
    PEM file with the key and its certificates. ``truststore``: a PEM file with the authorities that
    sign clients' certificates. ``client_auth``: whether these are asked for: ``ssl.client.auth``.
    """

    protocol: str = PLAINTEXT
    host: str = LOOPBACK
    mechanisms: tuple[str, ...] = ()
    keystore: str = ""
    truststore: str = ""
    client_auth: str = "none"
    max_connections: int = MAX_CONNECTIONS
    max_idle_ms: int = MAX_IDLE_MS
    max_frame_bytes: int = MAX_FRAME_BYTES

    @property
    def asks_for_a_user(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")


ON_LOOPBACK: Final = Listener()


def advertised_host(listener: Listener, own_host: str) -> str:
    """Where clients are told to come to: as the node's environment says, or where it listens."""
    if is_loopback(listener.host):
        return listener.host
    given = os.environ.get(ADVERTISED_HOST_VARIABLE, "").strip()
    return given or (own_host if listener.host == EVERYWHERE else listener.host)


def parse_address(text: str) -> Address | None:
    """What ``listeners`` says; None where it is empty. Raises ValueError."""
    text = text.strip()
    if not text:
        return None
    found = _LISTENER.fullmatch(text)
    if found is None or not 0 < int(found[3]) <= LAST_PORT:
        raise ValueError
    host = LOOPBACK if found[2] == "localhost" else found[2].strip("[]")
    return Address(found[1], host, int(found[3]))


def is_loopback(host: str) -> bool:
    """Whether nobody comes to this address from another machine."""
    return _ON_LOOPBACK.fullmatch(host) is not None


def why_not_open(listener: Listener) -> str:
    """Why nobody may listen like this; empty where he may."""
    if listener.protocol == PLAINTEXT and not is_loopback(listener.host):
        return (
            "PLAINTEXT asks nobody who he is, so it is for 127.0.0.1 alone; for other machines, "
            "use SASL_SSL"
        )
    if listener.is_encrypted and not listener.keystore:
        return f"{listener.protocol} needs ssl.keystore.location, a PEM file with a key"
    if listener.client_auth != "none" and not listener.truststore:
        return (
            f"ssl.client.auth={listener.client_auth} needs ssl.truststore.location, a PEM file "
            "with the authorities that sign clients' certificates"
        )
    asks_nobody = listener.protocol == "SSL" and listener.client_auth != "required"
    if asks_nobody and not is_loopback(listener.host):
        return "SSL asks nobody who he is, unless ssl.client.auth=required; or use SASL_SSL"
    is_plain = PLAIN in listener.mechanisms and listener.protocol == "SASL_PLAINTEXT"
    if is_plain and not is_loopback(listener.host):
        return "with SASL_PLAINTEXT, PLAIN would send passwords as they are: use SCRAM, or SASL_SSL"
    return ""
