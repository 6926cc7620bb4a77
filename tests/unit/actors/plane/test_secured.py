"""A port for other machines: who comes in, by which proof, and what becomes of everybody else."""

import os
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from raylog.actors.cluster_image import Endpoint
from raylog.actors.errors import InvalidRequest, RequestTimedOut
from raylog.actors.listeners import LOOPBACK, MECHANISMS, Listener
from raylog.actors.plane import tls
from raylog.actors.plane.apis.connection import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from raylog.actors.plane.connection import Answering
from raylog.actors.plane.errors import CertificateUnusable
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.sasl.scram import ScramClient, Verifier
from raylog.actors.plane.sending import FileRange, Piece
from raylog.actors.plane.sockets import Entrance, Sockets
from raylog.actors.plane.users import SCRAM_MECHANISMS, verifiers_of
from raylog.storage.descriptors import Descriptor
from raylog.storage.errors import RaylogError
from raylog.storage.testing.waiting import DEADLINE_S, wait_for
from tests.unit.actors.plane.clients import Client
from tests.unit.actors.plane.peers import framed, received

USER, PASSWORD = "ann", "secret, = and more"
ANY = Endpoint(kafka_id=7, port=0)
LARGE = 3 << 20


class Authority:
    """An authority, and the files of a broker whose certificate it has signed."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.keystore, self.truststore = folder / "key.pem", folder / "ca.pem"
        self.sign()
        self.ca.cert_pem.write_to_path(str(self.truststore))

    def sign(self) -> None:
        """The broker gets another certificate."""
        fresh = self.keystore.with_suffix(".new")
        signed = self.ca.issue_cert(LOOPBACK, "localhost")
        signed.private_key_and_cert_chain_pem.write_to_path(str(fresh))
        os.replace(fresh, self.keystore)

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        return context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Served:
    """Sockets that answer each request with its body, twice, or with a file."""

    def __init__(self, listener: Listener) -> None:
        self.failures: list[BaseException] = []
        self.answered = 0
        self.problem: RaylogError | None = None
        self.users = {one.mechanism: one for one in verifiers_of(PASSWORD, SCRAM_MECHANISMS)}
        self.file: FileRange | None = None
        self.sockets = Sockets(
            [Entrance(listener, self._answer)],
            self.failures.append,
            verifier_of=self._verifier_of,
        )
        self.sockets.keep_up(ANY)
        self.port = self.sockets.port

    def _verifier_of(self, mechanism: str, user: str) -> Verifier | None:
        if self.problem is not None:
            raise self.problem
        return self.users[mechanism] if user == USER else None

    def _answer(self, frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        self.answered += 1
        if self.file is not None:
            return [self.file.size_bytes.to_bytes(4, "big"), self.file]
        body = bytes(frames[0])
        return [(2 * len(body)).to_bytes(4, "big"), body, body]


@contextmanager
def serving(**settings: Any) -> Iterator[Served]:
    served = Served(Listener(host=LOOPBACK, **settings))
    yield served
    assert served.sockets.close(DEADLINE_S)
    assert served.failures == []


@contextmanager
def connected(served: Served, context: ssl.SSLContext | None = None) -> Iterator[socket.socket]:
    """A client's end, encrypted by ``context``."""
    peer = socket.create_connection((LOOPBACK, served.port), DEADLINE_S)
    if context is not None:
        peer = context.wrap_socket(peer, server_hostname=LOOPBACK)
    with closing(peer):
        yield peer


def asked(peer: socket.socket, body: bytes = b"hello") -> bytes:
    """The answer to a request."""
    peer.sendall(framed(body))
    return next_answer(peer)


def next_answer(peer: socket.socket) -> bytes:
    return received(peer, int.from_bytes(received(peer, 4), "big"))


def why_ended(caplog: pytest.LogCaptureFixture, count: int = 1) -> str:
    """Why connections ended, as the log has it."""

    def lines() -> list[str]:
        told = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
        return [str(one["why"]) for one in told if one["event"] == "connection-ended"]

    wait_for(lambda: len(lines()) >= count, what="the end is in the log")
    return "\n".join(lines())


# -- TLS -------------------------------------------------------------------------------------------


def test_what_is_said_by_tls_is_answered_by_tls(authority: Authority) -> None:
    with serving(protocol="SSL", keystore=str(authority.keystore)) as served:
        with connected(served, authority.client()) as peer:
            assert asked(peer) == b"hellohello"
            body = os.urandom(LARGE)
            assert asked(peer, body) == body + body
            for number in range(50):  # all at once: pipelined
                peer.sendall(framed(b"%d" % number))
            assert [next_answer(peer) for _ in range(50)] == [b"%d" % n * 2 for n in range(50)]
        wait_for(lambda: served.sockets.connections == 0)


def test_a_file_goes_by_tls_as_it_is(authority: Authority, tmp_path: Path) -> None:
    content = os.urandom(LARGE)
    (tmp_path / "f").write_bytes(content)
    file = Descriptor(str(tmp_path / "f"), os.O_RDONLY)
    with serving(protocol="SSL", keystore=str(authority.keystore)) as served:
        served.file = FileRange(file, 0, LARGE)
        with connected(served, authority.client()) as peer:
            assert asked(peer) == content


def test_a_peer_that_takes_nothing_costs_a_few_buffers_and_ends_with_the_sockets(
    authority: Authority,
) -> None:
    with serving(protocol="SSL", keystore=str(authority.keystore)) as served:
        with connected(served, authority.client()) as peer:
            peer.settimeout(0.2)
            with pytest.raises(TimeoutError):
                peer.sendall(framed(bytes(1 << 20)) * 40)
            assert served.answered < 20, "nothing is read while an answer is sent"
        with connected(served, authority.client()) as other:
            assert asked(other) == b"hellohello"


def test_a_silent_peer_does_not_hold_up_the_end(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "FLUSH_MS", 100)
    with (
        serving(protocol="SSL", keystore=str(authority.keystore)) as served,
        connected(served) as peer,
        connected(served, authority.client()) as other,
    ):
        assert asked(other) == b"hellohello"
        assert served.sockets.close(DEADLINE_S), "one shakes hands, the other is silent"
        assert received(peer, 1) == received(other, 1) == b""


def test_a_process_without_a_thread_left_ends_the_connection_and_lives(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class NoPump(threading.Thread):
        def start(self) -> None:
            if self.name == "plane-tls":
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(threading, "Thread", NoPump)
    with serving(protocol="SSL", keystore=str(authority.keystore)) as served:
        with connected(served, authority.client()) as peer:
            assert is_refused(peer)
        assert "can't start new thread" in why_ended(caplog)


def test_who_does_not_speak_tls_is_told_so_in_the_log(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(protocol="SSL", keystore=str(authority.keystore)) as served:
        with connected(served) as peer:
            peer.sendall(framed(b"\0\x12\0\0"))
            assert received(peer, 1) == b""
        assert "does not speak TLS" in why_ended(caplog)
        with pytest.raises(ssl.SSLError), connected(served, ssl.create_default_context()):
            pass
        assert "UNKNOWN_CA" in why_ended(caplog, 2)
        assert not served.answered


def test_a_tls_client_of_a_plain_port_is_told_so_in_the_log(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with serving() as served:
        context = authority.client()
        with pytest.raises((ssl.SSLError, ConnectionError)), connected(served, context):
            pass
        assert "the peer speaks TLS" in why_ended(caplog)


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_a_client_has_a_certificate_of_an_authority_that_is_trusted(
    authority: Authority, client_auth: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(
        protocol="SSL",
        keystore=str(authority.keystore),
        truststore=str(authority.truststore),
        client_auth=client_auth,
    ) as served:
        known, strange = authority.client(), authority.client()
        authority.ca.issue_cert("ann@example.com").configure_cert(known)
        trustme.CA().issue_cert("eve@example.com").configure_cert(strange)
        with connected(served, known) as peer:
            assert asked(peer) == b"hellohello"
        with connected(served, authority.client()) as peer:
            if client_auth == "requested":
                assert asked(peer) == b"hellohello"
            else:
                assert is_refused(peer)
        with connected(served, strange) as peer:
            assert is_refused(peer)
        assert "CERTIFICATE_VERIFY_FAILED" in why_ended(caplog, 1 + (client_auth == "required"))
        assert ("the peer has no certificate" in why_ended(caplog)) == (client_auth == "required")


def is_refused(peer: socket.socket) -> bool:
    """In TLS 1.3 a client hears of it with its first answer."""
    try:
        peer.sendall(framed(b"hello"))
        return peer.recv(1) == b""
    except OSError:
        return True


def test_another_certificate_is_used_without_a_restart(authority: Authority) -> None:
    def serial() -> object:
        with connected(served, authority.client()) as peer:
            assert asked(peer) == b"hellohello"
            assert isinstance(peer, ssl.SSLSocket)
            return peer.getpeercert()["serialNumber"]  # type: ignore[index]

    with serving(protocol="SSL", keystore=str(authority.keystore)) as served:
        first = serial()
        assert serial() == first
        authority.sign()
        second = serial()
        assert second != first
        authority.keystore.write_text("no key")
        assert serial() == second, "what cannot be used is passed over"
        authority.keystore.unlink()
        assert serial() == second


@pytest.mark.parametrize("content", [None, "", "no key"])
def test_without_a_certificate_nobody_comes_in_and_the_log_says_why(
    tmp_path: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "key.pem"
    if content is not None:
        path.write_text(content)
    with serving(protocol="SSL", keystore=str(path)) as served:
        with connected(served) as peer:
            assert received(peer, 1) == b""
        assert f"{path} cannot be used for TLS" in why_ended(caplog)


def test_a_key_with_a_password_is_no_key_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as pem

    signed = trustme.CA().issue_cert(LOOPBACK)
    key = pem.load_pem_private_key(signed.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(
        pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"secret")
    )
    path = tmp_path / "key.pem"
    path.write_bytes(encrypted + signed.cert_chain_pems[0].bytes())
    listener = Listener(protocol="SSL", keystore=str(path))
    with pytest.raises(CertificateUnusable, match="its key is encrypted"):
        tls.Certificates(listener).context()


# -- SASL ------------------------------------------------------------------------------------------


def proves(client: Client, mechanism: str, user: str = USER, password: str = PASSWORD) -> str:
    """Say who it is; returns why that is not taken, or nothing."""
    shaken = client.ask(SASL_HANDSHAKE, 1, mechanism=mechanism)
    if shaken["errorCode"]:
        return f"{shaken['errorCode']}: {', '.join(shaken['mechanisms'])}"
    if mechanism == "PLAIN":
        told = client.ask(SASL_AUTHENTICATE, 2, authBytes=f"\0{user}\0{password}".encode())
        return told["errorMessage"] or ""
    scram = ScramClient(mechanism, user, password)
    challenge = client.ask(SASL_AUTHENTICATE, 2, authBytes=scram.first())
    outcome = client.ask(SASL_AUTHENTICATE, 2, authBytes=scram.final(challenge["authBytes"]))
    if not outcome["errorCode"]:
        scram.check(outcome["authBytes"])
    return outcome["errorMessage"] or ""


def test_each_listener_asks_what_it_asks_and_has_its_own_answers(authority: Authority) -> None:
    def answering(body: bytes) -> Answering:
        return lambda frames, parking: [len(body).to_bytes(4, "big"), body]

    far = Listener(
        protocol="SASL_SSL",
        name="FAR",
        distance=1_000,
        host=LOOPBACK,
        mechanisms=("PLAIN",),
        keystore=str(authority.keystore),
    )
    failures: list[BaseException] = []
    users = {one.mechanism: one for one in verifiers_of(PASSWORD, SCRAM_MECHANISMS)}
    sockets = Sockets(
        [Entrance(Listener(), answering(b"near")), Entrance(far, answering(b"far"))],
        failures.append,
        verifier_of=lambda mechanism, user: users[mechanism],
    )
    sockets.keep_up(ANY)

    def peer_at(distance: int) -> socket.socket:
        return socket.create_connection((LOOPBACK, sockets.port + distance), DEADLINE_S)

    def encrypted() -> socket.socket:
        return authority.client().wrap_socket(peer_at(1_000), server_hostname=LOOPBACK)

    with closing(peer_at(0)) as near, closing(peer_at(1_000)) as plain:
        assert asked(near) == b"near", "it asks for nothing"
        assert is_refused(plain), "the other one asks for TLS"
    with closing(encrypted()) as stranger, closing(encrypted()) as peer:
        assert is_refused(stranger), "and for a user"
        assert proves(Client(peer), "PLAIN") == ""
        assert asked(peer) == b"far"
    assert sockets.close(DEADLINE_S)
    assert failures == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_user_proves_who_he_is_and_is_let_in(
    authority: Authority, protocol: str, mechanism: str
) -> None:
    keystore = str(authority.keystore)
    context = authority.client() if protocol == "SASL_SSL" else None
    with serving(protocol=protocol, keystore=keystore, mechanisms=MECHANISMS) as served:
        with connected(served, context) as peer:
            assert proves(Client(peer), mechanism) == ""
            assert asked(peer, bytes(1 << 16)) == bytes(2 << 16)
        for user, password in ((USER, PASSWORD + "x"), (USER, ""), ("eve", PASSWORD)):
            with connected(served, context) as peer:
                assert "the user or the password is wrong" in proves(
                    Client(peer), mechanism, user, password
                )
                assert received(peer, 1) == b""
        assert served.answered == 1


def test_a_mechanism_that_the_config_does_not_have_is_refused_with_those_that_it_has() -> None:
    with serving(protocol="SASL_PLAINTEXT", mechanisms=("SCRAM-SHA-512",)) as served:
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "GSSAPI"):
            with connected(served) as peer:
                assert proves(Client(peer), mechanism) == "33: SCRAM-SHA-512"


def test_nothing_is_answered_to_a_stranger_but_what_is_spoken_here() -> None:
    with serving(protocol="SASL_PLAINTEXT", mechanisms=MECHANISMS) as served:
        with connected(served) as peer:
            peer.sendall(framed(b"hello"))
            assert received(peer, 1) == b""
        with connected(served) as peer:  # the door answers this one
            client = Client(peer)
            client.send(API_VERSIONS, 3, clientSoftwareName="x", clientSoftwareVersion="1")
            assert next_answer(peer)


def test_while_users_cannot_be_asked_for_nobody_is_called_wrong() -> None:
    with serving(protocol="SASL_PLAINTEXT", mechanisms=MECHANISMS) as served:
        served.problem = RequestTimedOut("the LogManager", 5000)
        for mechanism, token in (
            ("PLAIN", f"\0{USER}\0{PASSWORD}".encode()),
            ("SCRAM-SHA-256", ScramClient("SCRAM-SHA-256", USER, PASSWORD).first()),
        ):
            with connected(served) as peer:
                client = Client(peer)
                client.ask(SASL_HANDSHAKE, 1, mechanism=mechanism)
                client.send(SASL_AUTHENTICATE, 2, authBytes=token)
                assert received(peer, 1) == b"", "the client tries again"
        served.problem = None
        with connected(served) as peer:
            assert proves(Client(peer), "PLAIN") == ""


def test_the_limits_are_those_of_the_config() -> None:
    with serving(max_connections=1, max_frame_bytes=1024) as served, connected(served) as peer:
        assert asked(peer, bytes(1024)) == bytes(2048)
        with connected(served) as second:
            second.settimeout(0.2)
            second.sendall(framed(b"waits"))
            with pytest.raises(TimeoutError):
                second.recv(1)
            peer.close()
            second.settimeout(DEADLINE_S)
            assert next_answer(second) == b"waitswaits"
            second.sendall(framed(bytes(1025)))
            assert received(second, 1) == b""


def test_what_is_kept_of_a_password_is_not_the_password() -> None:
    kept = verifiers_of(PASSWORD, SCRAM_MECHANISMS)
    assert [one.mechanism for one in kept] == list(SCRAM_MECHANISMS)
    for secret in (PASSWORD.encode(), b64encode(PASSWORD.encode())):
        assert secret not in repr(kept).encode()
    assert verifiers_of(PASSWORD, SCRAM_MECHANISMS) != kept, "each has a salt of its own"


@pytest.mark.parametrize(
    ("password", "mechanisms"),
    [("", SCRAM_MECHANISMS), (7, SCRAM_MECHANISMS), ("x", ()), ("x", ("PLAIN",)), ("x", "SCRAM")],
)
def test_what_is_no_password_or_no_mechanism_is_refused(password: Any, mechanisms: Any) -> None:
    with pytest.raises(InvalidRequest):
        verifiers_of(password, mechanisms)
