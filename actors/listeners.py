"""Where Kafka's clients come in: listeners, in Kafka's spelling, and what they ask of them.

``listeners`` names them: ``NAME://HOST:PORT,...``, and ``listener.security.protocol.map`` says of
which protocol each name is. Each process of a broker has all of them: the first at a port of its
own (``port_of`` in ``cluster/controller/desired.py``), and each further one as far behind that port
as its PORT is behind the first one's, so that a process is known by one port. A client is told the
ports of the listener by which it came. Who comes from another machine must say who it is:

==============  =================================================================================
PLAINTEXT       asks nobody, so it is on the loopback alone
SASL_PLAINTEXT  asks for a user (``sasl.enabled.mechanisms``), and what is said is not encrypted
SSL             asks for a certificate that an authority of ``ssl.truststore.location`` has signed
SASL_SSL        asks for a user, and encrypts all of it
==============  =================================================================================
"""

import os
import re
from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

from raylog.storage.wire import message

# The environment variable of a node's Ray: under which name other machines reach the node.
ADVERTISED_HOST_VARIABLE: Final = "RAYLOG_ADVERTISED_HOST"
LOOPBACK: Final = "127.0.0.1"
EVERYWHERE: Final = "0.0.0.0"
PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SASL_PLAINTEXT", "SSL", "SASL_SSL")
# Kafka's default of ``listener.security.protocol.map``: a listener has the name of its protocol.
OWN_NAMES: Final = ",".join(f"{protocol}:{protocol}" for protocol in PROTOCOLS)
SASL_PROTOCOLS: Final = frozenset(PROTOCOLS[1::2])
PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
# Where the ports begin, unless ``listeners`` says otherwise, and where they end: behind are those
# that Linux gives to anybody who connects.
FIRST_PORT, LAST_PORT = 19_092, 32_767
# Between the ports of two listeners. Kafka's own example has the next one for its controller.
LEAST_DISTANCE: Final = 100
MOST_LISTENERS: Final = 9
# Each connection is a thread and a descriptor. Kafka has no such limit by default; a container's
# limit of processes, which counts threads, is often 4,096, and a node has many of raylog's.
MAX_CONNECTIONS: Final = 1000
# Kafka's defaults.
MAX_IDLE_MS: Final = 600_000
MAX_FRAME_BYTES: Final = 100 * 1024 * 1024
_LISTENER: Final = re.compile(
    r"([A-Za-z0-9_.-]+)://([A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", re.ASCII
)
_ON_LOOPBACK: Final = re.compile(r"127\.\d+\.\d+\.\d+|localhost|\[?::1\]?", re.ASCII)


class Address(NamedTuple):
    """What ``listeners`` says of one. ``host``: empty for the node's own address."""

    name: str
    host: str
    port: int


@message
class Listener(NamedTuple):
    """What each process of a node opens for Kafka's clients, at a port of its own.

    ``name``: as in ``listeners``. ``distance``: by how many ports it is behind the first listener.
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
    name: str = PLAINTEXT
    distance: int = 0

    @property
    def asks_for_a_user(self) -> bool:
        return self.protocol in SASL_PROTOCOLS

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    def address(self, host: str, port: int) -> tuple[str, int]:
        """Where clients find a process by this listener.

        ``host``: its node's, as of ``advertised_host``. ``port``: that of its first listener.
        """
        return (self.host if is_loopback(self.host) else host, port + self.distance)


ON_LOOPBACK: Final = Listener()


def advertised_host(listeners: Sequence[Listener], own_host: str) -> str:
    """Where clients are told to come to: as the node's environment says, or where it listens.

    One name for all listeners that are not on the loopback.
    """
    outer = [one.host for one in listeners if not is_loopback(one.host)]
    if not outer:
        return listeners[0].host
    given = os.environ.get(ADVERTISED_HOST_VARIABLE, "").strip()
    return given or (own_host if outer[0] == EVERYWHERE else outer[0])


def parse_addresses(text: str) -> tuple[Address, ...]:
    """What ``listeners`` says. Raises ValueError."""
    if not text.strip():
        return ()
    addresses = tuple(_parse_address(part.strip()) for part in text.split(","))
    are_alike = len({one.name for one in addresses}) < len(addresses)
    if are_alike or len(addresses) > MOST_LISTENERS:
        raise ValueError
    return addresses


def _parse_address(text: str) -> Address:
    found = _LISTENER.fullmatch(text)
    if found is None or not 0 < int(found[3]) <= LAST_PORT:
        raise ValueError
    host = LOOPBACK if found[2] == "localhost" else found[2].strip("[]")
    return Address(found[1].upper(), host, int(found[3]))


def parse_protocols(text: str) -> dict[str, str]:
    """Name -> protocol, as ``listener.security.protocol.map`` says it. Raises ValueError.

    The protocols are names, too, unless it says otherwise.
    """
    given = {}
    for part in text.split(","):
        name, colon, protocol = (word.strip().upper() for word in part.partition(":"))
        if not name or not colon or protocol not in PROTOCOLS or name in given:
            raise ValueError
        given[name] = protocol
    return {protocol: protocol for protocol in PROTOCOLS} | given


def why_not_together(addresses: Sequence[Address]) -> str:
    """Why a process cannot have all of these listeners; empty where it can."""
    for one, other in combinations(addresses, 2):
        if abs(one.port - other.port) < LEAST_DISTANCE:
            return (
                f"each process has a port of each listener, so keep {LEAST_DISTANCE} ports or more "
                f"between {one.name} and {other.name}: as many as there will be nodes and "
                "partitions"
            )
    hosts = sorted({one.host for one in addresses if not is_loopback(one.host)})
    if len(hosts) > 1:
        return (
            "listeners for other machines have the same HOST, since each node tells one name of "
            "itself: leave it empty, or use 0.0.0.0"
        )
    return ""


def protocols_of(listeners: str, names: str) -> set[str]:
    """Of all listeners, by ``listener.security.protocol.map``. Raises ValueError."""
    protocols = parse_protocols(names)
    return {protocols[address.name] for address in parse_addresses(listeners)}


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
