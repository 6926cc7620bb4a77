"""Who is let in by a listener that asks, and what becomes of the others."""

from collections.abc import Sequence
from typing import Any

import pytest

from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import METADATA
from raylog.actors.plane.apis.connection import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from raylog.actors.plane.connection import LastAnswer
from raylog.actors.plane.errors import (
    AuthenticationFailed,
    IllegalSaslState,
    UnsupportedRequest,
    UnsupportedSaslMechanism,
)
from raylog.actors.plane.sasl.gate import Gate
from raylog.actors.plane.sasl.plain import PlainServer
from raylog.actors.plane.sasl.scram import ScramClient, ScramServer, verifier
from raylog.storage.schemas.binary import ByteReader
from tests.unit.actors.plane.bodies import header

TOKEN = b"\0ann\0secret"
ALL_TOPICS = {
    "topics": None,
    "allowAutoTopicCreation": False,
    "includeTopicAuthorizedOperations": False,
}


def request_frame(api: Api, version: int, **body: Any) -> bytes:
    return header(api, version) + api.request.write(body, version)


class Guarded:
    """A gate; what it let through, and what happened in which order."""

    def __init__(self) -> None:
        self.passed: list[bytes] = []
        self.events: list[str] = []
        kept = {"ann": verifier("SCRAM-SHA-256", "secret")}
        self.gate = Gate(
            self._answer,
            {
                "PLAIN": lambda: PlainServer(
                    lambda user, password: (user, password) == ("ann", "secret")
                ),
                "SCRAM-SHA-256": lambda: ScramServer("SCRAM-SHA-256", kept.get),
            },
            lambda: self.events.append("open"),
            pause=lambda: self.events.append("pause"),
        )

    def _answer(self, frames: Sequence[bytearray], parking: object) -> list[bytes]:
        self.passed += map(bytes, frames)
        return [b"answered"]

    def ask(self, api: Api, version: int, **body: Any) -> Any:
        frame = request_frame(api, version, **body)
        return self.read(api, version, self.gate([bytearray(frame)], None))  # type: ignore[arg-type]

    def read(self, api: Api, version: int, pieces: Sequence[Any] | None) -> Any:
        assert pieces is not None
        content = b"".join(pieces)
        if content == b"answered":
            return content
        head = 4 + 4 + api.answer_header_version(version)
        return api.answer.read(ByteReader(memoryview(content), head), version)

    def refused(self, api: Api, version: int, **body: Any) -> tuple[Any, Exception]:
        with pytest.raises(LastAnswer) as last:
            self.ask(api, version, **body)
        return self.read(api, version, last.value.pieces), last.value.error

    def token(self, content: bytes) -> bytes:
        pieces = self.gate([bytearray(content)], None)  # type: ignore[arg-type]
        assert pieces is not None
        said = b"".join(pieces)  # type: ignore[arg-type]
        assert int.from_bytes(said[:4], "big") == len(said) - 4
        return said[4:]


def test_who_says_who_it_is_may_ask_anything() -> None:
    guarded = Guarded()
    assert (
        guarded.ask(API_VERSIONS, 3, clientSoftwareName="c", clientSoftwareVersion="1")
        == b"answered"
    )
    shaken = guarded.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert shaken == {"errorCode": 0, "mechanisms": ["PLAIN", "SCRAM-SHA-256"]}
    assert guarded.events == []
    answer = guarded.ask(SASL_AUTHENTICATE, 2, authBytes=TOKEN)
    assert answer == {
        "errorCode": 0,
        "errorMessage": None,
        "authBytes": b"",
        "sessionLifetimeMs": 0,
    }
    assert guarded.events == ["open"]
    assert guarded.gate.user == "ann"
    assert guarded.ask(METADATA, 12, **ALL_TOPICS) == b"answered"
    assert len(guarded.passed) == 2


def test_an_exchange_of_several_tokens() -> None:
    guarded, client = Guarded(), ScramClient("SCRAM-SHA-256", "ann", "secret")
    guarded.ask(SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256")
    challenge = guarded.ask(SASL_AUTHENTICATE, 0, authBytes=client.first())["authBytes"]
    assert guarded.gate.user == ""
    client.check(guarded.ask(SASL_AUTHENTICATE, 1, authBytes=client.final(challenge))["authBytes"])
    assert guarded.gate.user == "ann"


def test_old_clients_send_bare_tokens() -> None:
    guarded = Guarded()
    guarded.ask(SASL_HANDSHAKE, 0, mechanism="PLAIN")
    assert guarded.token(TOKEN) == b""
    assert guarded.ask(METADATA, 12, **ALL_TOPICS) == b"answered"


@pytest.mark.parametrize("token", [b"\0ann\0wrong", b"\0bob\0secret", b"nonsense"])
def test_a_failure_is_answered_after_a_pause_and_ends_the_connection(token: bytes) -> None:
    guarded = Guarded()
    guarded.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    answer, error = guarded.refused(SASL_AUTHENTICATE, 2, authBytes=token)
    assert answer["errorCode"] == 58
    assert answer["errorMessage"] == str(error)
    assert isinstance(error, AuthenticationFailed)
    assert guarded.events == ["pause"]
    assert guarded.gate.user == ""


def test_a_bare_token_that_fails_just_ends_it() -> None:
    guarded = Guarded()
    guarded.ask(SASL_HANDSHAKE, 0, mechanism="PLAIN")
    with pytest.raises(AuthenticationFailed):
        guarded.token(b"\0ann\0wrong")
    assert guarded.events == ["pause"]


def test_a_mechanism_that_is_not_known_is_answered_with_those_that_are() -> None:
    answer, error = Guarded().refused(SASL_HANDSHAKE, 1, mechanism="GSSAPI")
    assert answer == {"errorCode": 33, "mechanisms": ["PLAIN", "SCRAM-SHA-256"]}
    assert isinstance(error, UnsupportedSaslMechanism)
    assert "PLAIN, SCRAM-SHA-256" in str(error)


def test_nothing_else_is_answered_before_that() -> None:
    guarded = Guarded()
    with pytest.raises(IllegalSaslState):
        guarded.ask(METADATA, 12, **ALL_TOPICS)
    with pytest.raises(IllegalSaslState):
        Guarded().ask(SASL_AUTHENTICATE, 2, authBytes=TOKEN)
    guarded = Guarded()
    guarded.ask(API_VERSIONS, 0)
    with pytest.raises(IllegalSaslState):
        guarded.ask(API_VERSIONS, 0)
    guarded = Guarded()
    guarded.ask(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    with pytest.raises(IllegalSaslState):
        guarded.ask(METADATA, 12, **ALL_TOPICS)
    assert guarded.passed == []


def test_a_client_of_a_newer_kafka_may_ask_for_the_versions_again() -> None:
    guarded = Guarded()
    newer = request_frame(API_VERSIONS, 3, clientSoftwareName="c", clientSoftwareVersion="1")
    newer = newer[:2] + b"\0\x63" + newer[4:]
    for _ in range(2):
        assert guarded.gate([bytearray(newer)], None) == [b"answered"]  # type: ignore[arg-type]
    assert guarded.ask(API_VERSIONS, 0) == b"answered"
    with pytest.raises(UnsupportedRequest):
        guarded.gate([bytearray(newer)], None)  # type: ignore[arg-type]
