"""TLS of a connection: what is encrypted outside is plain inside, and nothing inside knows of it.

::

    client <== TLS ==> pump <-- a pair of sockets --> connection.py, sending.py, parking.py

A connection of the plane reads with flags, sends files by ``sendfile`` and sees its peer's end:
none of that has a socket of the ssl module. So the bytes pass through a pair of sockets of the
system, and one thread encrypts and decrypts (``_Pump``). It holds at most one buffer in each
direction, so a peer that takes nothing is as slow inside as it is outside.

Files with keys are read again when they have changed: a certificate that is about to end is
replaced without a restart. Sources: Kafka's ``ssl.*`` keys, RFC 8446.
"""

import logging
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from raylog.actors.events import event, warn
from raylog.actors.listeners import Listener
from raylog.actors.plane.connection import Connection
from raylog.actors.plane.errors import AcceptFailed, CertificateUnusable, TlsFailed
from raylog.storage.errors import RaylogError

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 30.0
# For the last bytes of an answer, once the connection has ended here.
FLUSH_MS: Final = 10_000
BUFFER_BYTES: Final = 256 << 10
_WAITS: Final = {ssl.SSLWantReadError: select.POLLIN, ssl.SSLWantWriteError: select.POLLOUT}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class Certificates:
    """The keys and authorities of a listener, as its files have them. Safe for threads."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._seen: object = None

    def context(self) -> ssl.SSLContext:
        """What a handshake needs. Raises CertificateUnusable, unless earlier files are known."""
        with self._lock:
            seen = [_stamp(path) for path in self._files()]
            if self._context is None or seen != self._seen:
                self._read_again(seen)
            assert self._context is not None, "else an error was raised"
            return self._context

    def _files(self) -> list[str]:
        return [path for path in (self._listener.keystore, self._listener.truststore) if path]

    def _read_again(self, seen: object) -> None:
        try:
            context = _context_of(self._listener)
        except CertificateUnusable as error:
            if self._context is None:
                raise
            warn(logger, "certificates-not-read", why=error)
        else:
            if self._context is not None:
                event(logger, "certificates-read", files=",".join(self._files()))
            self._context = context
        self._seen = seen


def _stamp(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_size, found.st_ino


def _context_of(listener: Listener) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(listener.keystore, password=_no_password)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        raise CertificateUnusable(listener.keystore, _why(error)) from None
    if listener.client_auth != "none":
        try:
            context.load_verify_locations(listener.truststore)
        except OSError as error:
            raise CertificateUnusable(listener.truststore, _why(error)) from None
        context.verify_mode = _CLIENT_AUTH[listener.client_auth]
    return context


def _no_password() -> bytes:
    raise ValueError("its key is encrypted")


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        reason = f" ({error.reason})" if error.reason else ""
        return f"it has no key and certificate in PEM that belong together{reason}"
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


class Secured:
    """A connection behind TLS: ``Served`` of ``listener.py``."""

    def __init__(
        self,
        accepted: socket.socket,
        certificates: Certificates,
        begin: Callable[[socket.socket], Connection],
    ) -> None:
        """``begin``: makes the connection of its end of a pair of sockets."""
        self._accepted, self._certificates = accepted, certificates
        self._inner, self._outer = socket.socketpair()
        self._connection = begin(self._inner)

    def serve(self) -> RaylogError | None:
        """Answer requests until the connection ends; returns what ended it, if that is an error."""
        try:
            encrypted = self._shake_hands()
        except RaylogError as error:
            self._close(self._accepted)
            return error
        pump = threading.Thread(
            target=_Pump(encrypted, self._outer).run, name="plane-tls", daemon=True
        )
        try:
            pump.start()
        except RuntimeError as error:  # the system has no more threads
            self._close(encrypted)
            return AcceptFailed(str(error))
        try:
            return self._connection.serve()
        finally:
            self._inner.close()
            pump.join()
            self._close(encrypted)

    def _close(self, peer: socket.socket) -> None:
        for one in (peer, self._inner, self._outer):
            one.close()

    def _shake_hands(self) -> ssl.SSLSocket:
        """Raises TlsFailed and CertificateUnusable."""
        context = self._certificates.context()
        self._accepted.settimeout(HANDSHAKE_S)
        try:
            return context.wrap_socket(self._accepted, server_side=True)
        except TimeoutError:
            raise TlsFailed(f"it did not come to an end within {HANDSHAKE_S:.0f} s") from None
        except ssl.SSLError as error:
            raise TlsFailed(_said(error)) from None
        except OSError as error:
            raise TlsFailed(os.strerror(error.errno or 0)) from None

    def stop(self) -> None:
        """Read no further request. Any thread may call it."""
        self._connection.stop()
        with suppress(OSError):
            self._accepted.shutdown(socket.SHUT_RD)  # who shakes hands is not waited for


def _said(error: ssl.SSLError) -> str:
    """What an error of the handshake means."""
    reason = error.reason or str(error)
    if reason in ("HTTP_REQUEST", "WRONG_VERSION_NUMBER", "UNEXPECTED_MESSAGE"):
        return f"the peer does not speak TLS ({reason})"
    if reason in ("PEER_DID_NOT_RETURN_A_CERTIFICATE",):
        return "the peer has no certificate, and ssl.client.auth=required"
    return reason


class _Pump:
    """Carries bytes between a TLS socket and a plain one, in one thread, until both have ended."""

    def __init__(self, encrypted: ssl.SSLSocket, plain: socket.socket) -> None:
        self._encrypted, self._plain = encrypted, plain
        encrypted.setblocking(False)
        plain.setblocking(False)
        self._inward = memoryview(b"")  # decrypted, and not taken yet
        self._outward = memoryview(b"")  # to be encrypted
        self._peer_has_ended = self._we_have_ended = False
        self._waits_for = {encrypted.fileno(): 0, plain.fileno(): 0}

    def run(self) -> None:
        with suppress(OSError):  # who is gone needs no word
            while self._carry():
                self._wait()
            self._encrypted.unwrap()
        # What waits inside sees the end.
        with suppress(OSError):
            self._plain.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._encrypted.shutdown(socket.SHUT_RDWR)

    def _carry(self) -> bool:
        """Carry what can be carried now; whether there is more to come."""
        self._waits_for = dict.fromkeys(self._waits_for, 0)
        is_moving = True
        while is_moving:
            is_moving = self._inwards() | self._outwards()
        return not (self._we_have_ended and not self._outward)

    def _inwards(self) -> bool:
        """From the peer to this side; whether something was carried."""
        if self._we_have_ended:
            return False
        if not self._inward and not self._peer_has_ended:
            received = self._receive()
            if received is None:
                return False
            self._inward = memoryview(received)
            if not received:
                self._peer_has_ended = True
                self._plain.shutdown(socket.SHUT_WR)
        if not self._inward:
            return False
        try:
            sent = self._plain.send(self._inward)
        except BlockingIOError:
            self._waits_for[self._plain.fileno()] |= select.POLLOUT
            return False
        except BrokenPipeError:  # nobody inside reads any more
            self._inward, self._peer_has_ended = memoryview(b""), True
            return False
        self._inward = self._inward[sent:]
        return True

    def _receive(self) -> bytes | None:
        """What the peer has sent; empty at its end, None for nothing yet."""
        try:
            return self._encrypted.recv(BUFFER_BYTES)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wait:
            self._waits_for[self._encrypted.fileno()] |= _WAITS[type(wait)]
            return None
        except ssl.SSLEOFError:  # it has ended without a word of TLS
            return b""

    def _outwards(self) -> bool:
        """From this side to the peer; whether something was carried."""
        if not self._outward and not self._we_have_ended:
            try:
                self._outward = memoryview(self._plain.recv(BUFFER_BYTES))
            except BlockingIOError:
                self._waits_for[self._plain.fileno()] |= select.POLLIN
                return False
            if not self._outward:
                self._we_have_ended = True
        if not self._outward:
            return False
        try:
            sent = self._encrypted.send(self._outward)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wait:
            self._waits_for[self._encrypted.fileno()] |= _WAITS[type(wait)]
            return False
        self._outward = self._outward[sent:]
        return True

    def _wait(self) -> None:
        """Raises TimeoutError where the last bytes are not taken."""
        poll = select.poll()
        for descriptor, events in self._waits_for.items():
            if events:
                poll.register(descriptor, events)
        if not poll.poll(FLUSH_MS if self._we_have_ended else None):
            raise TimeoutError
