"""SCRAM: both sides prove that they know a password, and neither sends it.

::

    client                                      server
      | n,,n=USER,r=NONCE ------------------------> |
      | <------- r=NONCE+MORE,s=SALT,i=ITERATIONS   |
      | c=biws,r=NONCE+MORE,p=PROOF --------------> |   the client knows the password
      | <------------------------------ v=SIGNATURE |   the server knows what is kept of it

A server keeps of a password what does not let anybody log in (``Verifier``). A user who is unknown
is sent a challenge as anyone else, and fails at the proof. Source: RFC 5802, RFC 7677;
``ScramSaslServer`` and ``ScramFormatter`` of Kafka: no channel binding, and passwords are UTF-8
without SASLprep.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from raylog.actors.plane.errors import AuthenticationFailed
from raylog.storage.wire import message

# Mechanisms, and the hash of each by Python's name.
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# The least that Kafka and RFC 7677 take.
ITERATIONS: Final = 4096
# The most that Kafka keeps. A client does no more for a server that it does not know.
MOST_ITERATIONS: Final = 16_384
_SALT_BYTES: Final = 16
# No channel binding: what a client says first, and its Base64.
_NO_BINDING: Final = "n,"
_BINDING: Final = "c=biws"
# Authorization id, name, nonce, extensions (Kafka's are ``tokenauth=true``).
_CLIENT_FIRST: Final = re.compile(
    r"n,(a=[^,]+)?,(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)", re.S
)
_CLIENT_FINAL: Final = re.compile(r"((c=[^,]*),r=([^,]+)(?:,.*)?),p=([^,]+)", re.S)
_SERVER_FIRST: Final = re.compile(r"r=([^,]+),s=([^,]+),i=(\d{1,9})(?:,.*)?", re.S)
# For the salts of users who do not exist: the same for the same name, in the life of a process.
_SECRET: Final = secrets.token_bytes(32)


@message
class Verifier(NamedTuple):
    """What a server keeps of a password. ``mechanism``: a key of ``HASHES``."""

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def verifier(
    mechanism: str, password: str, salt: bytes | None = None, iterations: int = ITERATIONS
) -> Verifier:
    """What is kept of a password. ``salt``: random by default."""
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    keys = _Keys(HASHES[mechanism], password, salt, iterations)
    return Verifier(mechanism, salt, iterations, keys.stored, keys.server)


def is_password(kept: Verifier, password: str) -> bool:
    """Whether this is the password of which that is kept."""
    keys = _Keys(HASHES[kept.mechanism], password, kept.salt, kept.iterations)
    return hmac.compare_digest(keys.stored, kept.stored_key)


class ScramServer:
    """The server's side of one exchange. ``user``: the name, once it is known."""

    def __init__(
        self,
        mechanism: str,
        verifier_of: Callable[[str], Verifier | None],
        nonce: str | None = None,
    ) -> None:
        """``verifier_of``: of a user, for this mechanism; None where there is no such user.

        ``nonce``: random by default.
        """
        self._mechanism, self._verifier_of = mechanism, verifier_of
        self._hash = HASHES[mechanism]
        self._nonce = nonce or secrets.token_urlsafe(24)
        self._verifier: Verifier | None = None
        self._first = ""  # both first messages, once they were exchanged
        self.user = ""
        self.is_done = False

    def answer(self, token: bytes) -> bytes:
        """The answer to a token. Raises AuthenticationFailed."""
        message = _text(token)
        return (self._final(message) if self._first else self._challenge(message)).encode()

    def _challenge(self, message: str) -> str:
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            raise AuthenticationFailed("the client's first message is none of SCRAM")
        authorization, bare, name, nonce = found.groups()
        self.user = _plain_name(name)
        if authorization is not None and _plain_name(authorization[2:]) != self.user:
            raise AuthenticationFailed("nobody may act for another user")
        self._verifier = self._verifier_of(self.user)
        self._nonce = nonce + self._nonce
        salt, iterations = self._salt()
        answer = f"r={self._nonce},s={_base64(salt)},i={iterations}"
        self._first = f"{bare},{answer}"
        return answer

    def _salt(self) -> tuple[bytes, int]:
        if self._verifier is not None:
            return self._verifier.salt, self._verifier.iterations
        made_up = hmac.digest(_SECRET, self.user.encode(), self._hash)
        return made_up[:_SALT_BYTES], ITERATIONS

    def _final(self, message: str) -> str:
        found = _CLIENT_FINAL.fullmatch(message)
        if found is None:
            raise AuthenticationFailed("the client's final message is none of SCRAM")
        without_proof, binding, nonce, proof = found.groups()
        if binding != _BINDING or nonce != self._nonce:
            raise AuthenticationFailed("the client's final message is of another exchange")
        kept, said = self._verifier, f"{self._first},{without_proof}".encode()
        if kept is None or not self._is_proof(kept, said, _bytes(proof)):
            raise AuthenticationFailed("the user or the password is wrong")
        self.is_done = True
        return f"v={_base64(hmac.digest(kept.server_key, said, self._hash))}"

    def _is_proof(self, kept: Verifier, said: bytes, proof: bytes) -> bool:
        signature = hmac.digest(kept.stored_key, said, self._hash)
        client_key = _xor(proof, signature)
        is_key = len(proof) == len(signature)
        digest = hashlib.new(self._hash, client_key).digest()
        return hmac.compare_digest(digest, kept.stored_key) and is_key


class ScramClient:
    """The client's side of one exchange."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str | None = None) -> None:
        """``nonce``: random by default."""
        self._hash, self._password = HASHES[mechanism], password
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """The first token."""
        return f"{_NO_BINDING},{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """The second token, which answers the server's first. Raises AuthenticationFailed."""
        message = _text(challenge)
        found = _SERVER_FIRST.fullmatch(message)
        if found is None or not found[1].startswith(self._nonce):
            raise AuthenticationFailed("the server's challenge is none of SCRAM")
        if not ITERATIONS <= int(found[3]) <= MOST_ITERATIONS:
            raise AuthenticationFailed(f"the server asks for {found[3]} iterations")
        without_proof = f"{_BINDING},r={found[1]}"
        said = f"{self._bare},{message},{without_proof}".encode()
        keys = _Keys(self._hash, self._password, _bytes(found[2]), int(found[3]))
        proof = _xor(keys.client, hmac.digest(keys.stored, said, self._hash))
        self._signature = hmac.digest(keys.server, said, self._hash)
        return f"{without_proof},p={_base64(proof)}".encode()

    def check(self, outcome: bytes) -> None:
        """Check the server's last token. Raises AuthenticationFailed."""
        expected = f"v={_base64(self._signature)}".encode()
        if not self._signature or not hmac.compare_digest(outcome, expected):
            raise AuthenticationFailed("the server does not know the password")


class _Keys:
    """The keys that a password makes."""

    def __init__(self, hash_name: str, password: str, salt: bytes, iterations: int) -> None:
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        self.client = hmac.digest(salted, b"Client Key", hash_name)
        self.server = hmac.digest(salted, b"Server Key", hash_name)
        self.stored = hashlib.new(hash_name, self.client).digest()


def _plain_name(name: str) -> str:
    """A user's name without its escapes. Raises AuthenticationFailed."""
    if re.search("=(?!2C|3D)", name):
        raise AuthenticationFailed("the user's name has an escape that is none of SCRAM")
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(token: bytes) -> str:
    try:
        return str(token, "utf-8")
    except UnicodeDecodeError:
        raise AuthenticationFailed("a message is no UTF-8") from None


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise AuthenticationFailed("a message has what is no Base64") from None


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=False))
