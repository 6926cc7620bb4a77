"""Ray's token: who reaches Ray's ports can run code there, so Ray asks for a secret.

Ray's rules (2.52 and later), which count here, too:

=============================================  =================================================
``RAY_AUTH_MODE``                              token: tokens are used. disabled: they are not
``RAY_AUTH_TOKEN``, ``RAY_AUTH_TOKEN_PATH``,   where the token is: the first of the three that
``~/.ray/auth_token``                          is there
=============================================  =================================================

Where ``RAY_AUTH_MODE`` is set, it counts. Otherwise a process that starts Ray turns tokens on, and
makes one where there is none; and one that joins a Ray cluster turns them on if it has a token. So
all processes of one user find each other. Ray does the same by itself, the first from 2.59 on, and
the second where it is given no address; but it makes the file with the permissions of the umask.

A cluster without tokens takes in those who have one.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path

from raylog.actors.errors import TokenNotMade
from raylog.actors.runtime.ray_private import turn_tokens_on
from raylog.storage.permissions import make_private_dirs, open_private

MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
_TOKEN_MODE = "token"
# As many as Ray's own: 64 hexadecimal digits.
_TOKEN_BYTES = 32
# What a crash leaves of a new token must not be in the way of the next process of its number.
_NAME_BYTES = 8


def default_path() -> Path:
    """Where Ray looks for the token of a user."""
    return Path.home() / ".ray" / "auth_token"


def want_token(turn_on: Callable[[], None] = turn_tokens_on) -> None:
    """Have the Ray that this process starts want a token, unless RAY_AUTH_MODE says otherwise.

    A token is made where there is none; nobody but the user can read it. ``turn_on``: has Ray of
    this process read the environment again. Raises TokenNotMade.
    """
    if MODE in os.environ:
        return
    if not has_token():
        try:
            _make_token()
        except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home folder
            raise TokenNotMade(getattr(error, "strerror", None) or str(error)) from error
    os.environ[MODE] = _TOKEN_MODE
    turn_on()


def use_token_if_there(turn_on: Callable[[], None] = turn_tokens_on) -> None:
    """Have Ray send the token of this user, if there is one and RAY_AUTH_MODE says nothing."""
    if MODE not in os.environ and has_token():
        os.environ[MODE] = _TOKEN_MODE
        turn_on()


def has_token() -> bool:
    """Whether Ray would find a token."""
    if os.environ.get(TOKEN) or os.environ.get(TOKEN_PATH):
        return True
    try:
        return default_path().stat().st_size > 0
    except (OSError, RuntimeError):
        return False


def _make_token() -> None:
    path = default_path()
    make_private_dirs(str(path.parent))
    # Another process may make it at the same time: the name is there only with the whole token.
    new = path.with_name(f"{path.name}.{secrets.token_hex(_NAME_BYTES)}")
    try:
        with open(new, "x", opener=open_private) as file:
            file.write(secrets.token_hex(_TOKEN_BYTES))
        try:
            os.link(new, path)
        except FileExistsError:
            if not has_token():  # it is empty
                os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
