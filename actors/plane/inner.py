"""The listeners for raylog's own clients that do not come by name, and what lets them in.

One is at the node's address, for clients on other machines, and one on the loopback, for those of
the node that cannot use the Unix socket: a process that hangs may have its name. Each is opened
when the first of them asks for it (``LogActorImpl.data_address``). The token is made
anew by each process, and is told by Ray call alone, so whoever may call actors of the Ray cluster
may come in, and nobody else. Neither side sends it (``sasl/scram.py``); what follows goes as it is,
as between Ray's own processes.
"""

import secrets
from typing import Final

from raylog.actors.plane.sasl.scram import ScramServer, Verifier, verifier

MECHANISM: Final = "SCRAM-SHA-256"
USER: Final = "raylog"
_TOKEN_BYTES: Final = 32


class Token:
    """The secret of one process. ``text``: what a client is told."""

    def __init__(self) -> None:
        self.text = secrets.token_urlsafe(_TOKEN_BYTES)
        self._verifier = verifier(MECHANISM, self.text)

    def exchange(self) -> ScramServer:
        """The server's side of an entry."""
        return ScramServer(MECHANISM, self._verifier_of)

    def _verifier_of(self, user: str) -> Verifier | None:
        return self._verifier if user == USER else None
