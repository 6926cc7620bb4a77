import errno
import os
import socket

import pytest

from raylog.actors.plane.parking import Parking
from raylog.storage.errors import OutOfResources
from tests.unit.actors.plane.peers import beside, connected

LONG_MS = 60_000


def test_a_wake_before_the_wait_is_not_lost() -> None:
    with connected() as (ours, _):
        parking = Parking(ours)
        parking.prepare()
        parking.wake()
        assert parking.wait(LONG_MS) == "woken"


def test_another_thread_wakes_it() -> None:
    with connected() as (ours, _):
        parking = Parking(ours)
        parking.prepare()
        with beside(parking.wake):
            assert parking.wait(LONG_MS) == "woken"


def test_a_wake_of_the_wait_before_is_forgotten() -> None:
    with connected() as (ours, _):
        parking = Parking(ours)
        parking.prepare()
        parking.wake()
        parking.prepare()
        assert parking.wait(1) == "time is up"


def test_the_peers_end_ends_the_wait() -> None:
    with connected() as (ours, peer):
        parking = Parking(ours)
        parking.prepare()
        peer.close()
        assert parking.wait(LONG_MS) == "peer is gone"


def test_the_peers_end_behind_another_request_ends_the_wait() -> None:
    with connected() as (ours, peer):
        parking = Parking(ours)
        parking.prepare()
        peer.sendall(b"another request")
        peer.close()
        assert parking.wait(LONG_MS) == "peer is gone"


def test_another_request_does_not_end_the_wait() -> None:
    with connected() as (ours, peer):
        parking = Parking(ours)
        parking.prepare()
        peer.sendall(b"another request")
        assert parking.wait(1) == "time is up"


def test_our_own_end_ends_the_wait() -> None:
    with connected() as (ours, _):
        parking = Parking(ours)
        parking.prepare()
        ours.shutdown(socket.SHUT_RD)
        assert parking.wait(LONG_MS) == "peer is gone"


def test_its_descriptor_goes_with_the_last_who_may_wake_it() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with connected() as (ours, _):
        parking = Parking(ours)
        parking.prepare()
        wake = parking.wake
        del parking
        wake()
        del wake
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_a_descriptor_nobody_waits_and_the_error_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends one connection; the process serves on."""

    def fail(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "eventfd", fail)
    with connected() as (ours, _), pytest.raises(OutOfResources, match="Too many open files"):
        Parking(ours).prepare()


def test_it_is_seen_at_once_that_the_peer_has_gone() -> None:
    with connected() as (ours, peer):
        parking = Parking(ours)
        assert not parking.has_peer_gone()
        peer.sendall(b"a request")
        assert not parking.has_peer_gone()
        peer.close()
        assert parking.has_peer_gone(), "behind what it has asked"


def test_this_sides_own_end_is_not_the_peers() -> None:
    with connected() as (ours, _):
        parking = Parking(ours)
        parking.stop()
        ours.shutdown(socket.SHUT_RD)
        assert not parking.has_peer_gone()
