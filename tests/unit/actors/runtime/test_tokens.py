"""Whose token Ray uses, and that a new one is its user's alone."""

import errno
import os
from pathlib import Path

import pytest

from raylog.actors.errors import TokenNotMade
from raylog.actors.runtime import tokens
from raylog.actors.runtime.tokens import MODE, TOKEN, TOKEN_PATH


def want_token() -> None:
    tokens.want_token(turn_on=lambda: None)  # Ray of this process goes on without


def use_token_if_there() -> None:
    tokens.use_token_if_there(turn_on=lambda: None)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has no token and has set nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (MODE, TOKEN, TOKEN_PATH):
        # Set first, so that what the code sets is taken back afterwards, too.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_who_starts_ray_gets_a_token_that_is_his_alone(home: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        want_token()
    finally:
        os.umask(before)
    folder, file = home / ".ray", home / ".ray" / "auth_token"
    assert os.environ[MODE] == "token"
    assert len(file.read_text()) == 64
    assert (folder.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o700, 0o600)
    assert [path.name for path in folder.iterdir()] == ["auth_token"]


def test_a_token_that_is_there_is_used_again(home: Path) -> None:
    want_token()
    token = (home / ".ray" / "auth_token").read_text()
    del os.environ[MODE]
    want_token()
    assert (home / ".ray" / "auth_token").read_text() == token


def test_an_empty_file_is_no_token(home: Path) -> None:
    (home / ".ray").mkdir()
    (home / ".ray" / "auth_token").touch()
    use_token_if_there()
    assert MODE not in os.environ
    want_token()
    assert len((home / ".ray" / "auth_token").read_text()) == 64


@pytest.mark.parametrize("mode", ["disabled", "token", ""])
def test_what_the_user_has_set_counts(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv(MODE, mode)
    want_token()
    use_token_if_there()
    assert os.environ[MODE] == mode
    assert not (home / ".ray").exists()


@pytest.mark.parametrize("name", [TOKEN, TOKEN_PATH])
def test_a_token_of_the_environment_is_used_and_none_is_made(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "given")
    want_token()
    assert os.environ[MODE] == "token"
    assert not (home / ".ray").exists()


def test_who_joins_uses_a_token_only_if_there_is_one() -> None:
    use_token_if_there()
    assert MODE not in os.environ
    want_token()
    del os.environ[MODE]
    use_token_if_there()
    assert os.environ[MODE] == "token"


def test_a_token_that_cannot_be_written_is_told_with_what_to_do(home: Path) -> None:
    (home / ".ray").write_text("a file where the folder should be")
    with pytest.raises(TokenNotMade, match=r"File exists.*RAY_AUTH_TOKEN_PATH"):
        want_token()
    assert MODE not in os.environ


def test_a_token_that_could_not_be_written_leaves_nothing_and_is_made_when_it_can_be(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_link(old: Path, new: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", cannot_link)
        with pytest.raises(TokenNotMade, match="No space left"):
            want_token()
    assert list((home / ".ray").iterdir()) == []
    want_token()
    assert len((home / ".ray" / "auth_token").read_text()) == 64


def test_what_a_crash_has_left_of_a_token_is_not_in_the_way(home: Path) -> None:
    """In a container a process has the same number each time."""
    (home / ".ray").mkdir()
    (home / ".ray" / f"auth_token.{os.getpid()}").touch()
    want_token()
    assert len((home / ".ray" / "auth_token").read_text()) == 64


def test_ray_is_told_only_when_something_has_changed(home: Path) -> None:
    told: list[str] = []
    tokens.use_token_if_there(turn_on=lambda: told.append("joins without"))
    tokens.want_token(turn_on=lambda: told.append("starts"))
    tokens.want_token(turn_on=lambda: told.append("starts again"))
    assert told == ["starts"]
