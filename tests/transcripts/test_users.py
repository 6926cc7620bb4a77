"""Users come and go by records, and each LogManager is shown them.

The lines are explained in ``tests/harness/controller_play.py``.
"""

import pytest

from raylog.actors.cluster_image import NO_ENTRIES, UserEntry
from raylog.actors.errors import InvalidRequest
from raylog.actors.levels import USERS_LEVEL
from raylog.actors.plane.users import SCRAM_MECHANISMS, verifiers_of
from raylog.cluster.controller.commands import (
    ApplyConfig,
    Command,
    DeleteUser,
    FinalizeUpgrade,
    PutUser,
)
from raylog.cluster.controller.describe import Snapshot
from raylog.cluster.controller.imaging import Imaging
from raylog.storage.errors import InvalidConfig
from tests.harness.controller_play import Play
from tests.transcripts.controllers import error_of, node_a, node_b

SECRET = verifiers_of("secret", SCRAM_MECHANISMS)
OTHER = verifiers_of("other", SCRAM_MECHANISMS)


def old() -> Play:
    """A cluster of the first level."""
    play = Play(node_a(), node_b())
    play.begin()
    play.settle()
    return play


@pytest.fixture
def play() -> Play:
    play = old()
    done(play, FinalizeUpgrade(level=USERS_LEVEL))
    return play


def done(play: Play, command: Command) -> None:
    """A command that is answered well."""
    play.asks(command)
    play.settle()
    assert play.answer is not None
    assert play.answer.error is None


def refused(play: Play, command: Command) -> str:
    records = len(play.disk)
    play.asks(command)
    play.settle()
    error = error_of(play)
    assert isinstance(error, InvalidRequest)
    assert len(play.disk) == records
    return str(error)


def users(play: Play) -> dict[str, object]:
    return {name: record.verifiers for name, record in play.desired.users.items()}


def test_a_user_is_added_gets_another_password_and_is_deleted(play: Play) -> None:
    done(play, PutUser(name="ann", verifiers=SECRET))
    done(play, PutUser(name="bob", verifiers=OTHER))
    assert users(play) == {"ann": SECRET, "bob": OTHER}
    done(play, PutUser(name="ann", verifiers=OTHER))
    done(play, DeleteUser(name="bob"))
    assert users(play) == {"ann": OTHER}


def test_what_comes_again_since_its_answer_was_lost_changes_nothing(play: Play) -> None:
    done(play, PutUser(name="ann", verifiers=SECRET))
    records = len(play.disk)
    done(play, PutUser(name="ann", verifiers=SECRET))
    assert len(play.disk) == records
    done(play, DeleteUser(name="ann"))
    done(play, DeleteUser(name="ann", is_repeated=True))
    assert "users are: none" in refused(play, DeleteUser(name="ann"))


def test_another_controller_knows_them(play: Play) -> None:
    done(play, PutUser(name="ann", verifiers=SECRET))
    play.begin()
    play.settle()
    assert users(play) == {"ann": SECRET}


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 129])
def test_what_is_no_name_is_refused(play: Play, name: str) -> None:
    assert "printable text" in refused(play, PutUser(name=name, verifiers=SECRET))


def test_a_cluster_that_an_older_raylog_may_read_has_no_users() -> None:
    play = old()
    assert "raylog upgrade finalize" in refused(play, PutUser(name="ann", verifiers=SECRET))
    done(play, FinalizeUpgrade(level=USERS_LEVEL))
    done(play, PutUser(name="ann", verifiers=SECRET))


@pytest.mark.parametrize(
    ("listeners", "names"),
    [
        ("SASL_PLAINTEXT://:19092", "A:SSL"),
        ("INSIDE://127.0.0.1:19092", "INSIDE:PLAINTEXT"),
        ("INSIDE://127.0.0.1:19092,PLAINTEXT://127.0.0.1:20092", "INSIDE:PLAINTEXT"),
        ("PLAINTEXT://:19092", "PLAINTEXT:SASL_PLAINTEXT"),
    ],
)
def test_listeners_that_an_older_raylog_does_not_know_wait_for_that_level_too(
    listeners: str, names: str
) -> None:
    play = old()
    config = {
        "log.dirs": ["/a1"],
        "listeners": listeners,
        "listener.security.protocol.map": names,
    }
    play.asks(ApplyConfig(config=config))
    error = error_of(play)
    assert isinstance(error, InvalidConfig)
    assert "`raylog upgrade finalize`" in str(error)
    done(play, FinalizeUpgrade(level=USERS_LEVEL))
    assert "append" in " ".join(play.asks(ApplyConfig(config=config)))


def test_each_log_manager_is_shown_them_and_only_what_has_changed(play: Play) -> None:
    imaging = Imaging(7)

    def look() -> None:
        observed = play.machine.watched.nodes
        imaging.look(Snapshot(desired=play.desired.copy(), observed=observed, now_ms=play.now_ms))

    look()
    first = imaging.number
    assert imaging.update_after(0).users == ()
    done(play, PutUser(name="ann", verifiers=SECRET))
    look()
    second = imaging.number
    entry = UserEntry("ann", SECRET)
    for base in (0, first):
        assert imaging.update_after(base).users == (entry,)
    assert imaging.update_after(second).users is None
    shown = NO_ENTRIES.after(imaging.update_after(0))
    play.create("t", 1)
    look()
    shown = shown.after(imaging.update_after(second))
    assert shown.users == {"ann": {one.mechanism: one for one in SECRET}}
    done(play, DeleteUser(name="ann"))
    look()
    assert shown.after(imaging.update_after(second)).users == {}
