"""PLAIN: a name and a password as they are, for connections that nobody can listen to.

One token: ``authorization id NUL name NUL password``, in UTF-8. The first may be empty, or the name
once more, as Python's clients have it. Source: RFC 4616, ``PlainSaslServer`` of Kafka.
"""

from collections.abc import Callable

from raylog.actors.plane.errors import AuthenticationFailed


class PlainServer:
    """The server's side of one exchange. ``user``: the name, once it is known."""

    def __init__(self, is_password: Callable[[str, str], bool]) -> None:
        """``is_password``: whether this is the user's."""
        self._is_password = is_password
        self.user = ""
        self.is_done = False

    def answer(self, token: bytes) -> bytes:
        """The answer to the token: none. Raises AuthenticationFailed."""
        try:
            authorization, user, password = str(token, "utf-8").split("\0")
        except ValueError:
            raise AuthenticationFailed("the token is none of PLAIN") from None
        if not user or authorization not in ("", user) or not self._is_password(user, password):
            raise AuthenticationFailed("the user or the password is wrong")
        self.user, self.is_done = user, True
        return b""
