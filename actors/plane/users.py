"""Who may come in by a listener that asks for a user, and how each mechanism asks."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeAlias

from raylog.actors.errors import InvalidRequest
from raylog.actors.listeners import PLAIN, Listener
from raylog.actors.plane.sasl.gate import Exchange
from raylog.actors.plane.sasl.plain import PlainServer
from raylog.actors.plane.sasl.scram import (
    HASHES,
    ScramServer,
    Verifier,
    is_password,
    verifier,
)

# A user's verifier of a mechanism; None where there is no such user. It may raise a RaylogError,
# where users cannot be asked for now: the connection ends, and the client tries again.
VerifierOf: TypeAlias = Callable[[str, str], Verifier | None]
# A password is compared with what is kept for this one.
SCRAM_MECHANISMS: Final = tuple(HASHES)
_OF_PLAIN: Final = "SCRAM-SHA-256"


def exchanges(listener: Listener, verifier_of: VerifierOf) -> Mapping[str, Callable[[], Exchange]]:
    """The beginning of an exchange, by mechanism. ``verifier_of``: of a mechanism and a user."""
    return {name: partial(_begin, name, verifier_of) for name in listener.mechanisms}


def _begin(mechanism: str, verifier_of: VerifierOf) -> Exchange:
    if mechanism == PLAIN:
        return PlainServer(partial(_is_password, verifier_of))
    assert mechanism in HASHES, "the config has no other one"
    return ScramServer(mechanism, partial(verifier_of, mechanism))


def _is_password(verifier_of: VerifierOf, user: str, password: str) -> bool:
    kept = verifier_of(_OF_PLAIN, user)
    return kept is not None and is_password(kept, password)


def verifiers_of(password: str, mechanisms: Collection[str]) -> tuple[Verifier, ...]:
    """What is kept of a password. Raises InvalidRequest."""
    if not isinstance(password, str) or not password:
        raise InvalidRequest("password", "of the user", "must be text, and not empty")
    unknown = [name for name in mechanisms if name not in HASHES]
    if unknown or not mechanisms or isinstance(mechanisms, str):
        why = f"must be a list of {', '.join(HASHES)}"
        raise InvalidRequest("mechanisms", mechanisms, why)
    return tuple(verifier(name, password) for name in dict.fromkeys(mechanisms))
