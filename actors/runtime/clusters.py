"""How a process finds a Ray cluster and joins it, and what is said when there is none.

``ray.init("auto")`` is not enough:

=========================  ================================  ================================
problem                    what ``ray.init("auto")`` does    what this module does
=========================  ================================  ================================
several clusters run here  joins any of them                 tries all, ``ray start``'s first
nobody answers             tries for minutes                 probes the address first
the cluster wants a token  given an address, looks for none  always looks for one
SIGTERM has a handler      takes its place, and prints       keeps it
                           where each thread is
=========================  ================================  ================================

Whose token is used: ``tokens.py``. Where this module starts Ray, Ray wants one.
"""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import AuthenticationError

from raylog.actors.errors import (
    BrokerNotFound,
    ForkedProcess,
    RayNotFound,
    RayNotStarted,
    SeveralBrokers,
)
from raylog.actors.runtime.ray_private import (
    addresses_here,
    latest_address,
)
from raylog.actors.runtime.ray_texts import first_sentence
from raylog.actors.runtime.tokens import use_token_if_there, want_token
from raylog.storage.errors import RaylogError

_joining = threading.Lock()  # held by the thread that connects this process
# Held while Ray begins or ends in this process, and by who must not meet that.
_changing = threading.Lock()

LOCAL = "local"  # Ray's word for a cluster of one's own
PROBE_TIMEOUT_S = 5.0
# What a client of HTTP/2 says first: a text, and a frame of settings, which may be empty.
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = 4  # a type of frame, behind its length
_NO_SETTINGS = bytes((0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0))
# Spark's executors and a user's own tasks each ask Ray for a CPU; a laptop has few.
MIN_DECLARED_CPUS = 8
# Ray refuses who has no token, or a wrong one, without saying so to the program.
TOKEN_HINT = (
    "; if it wants a token, give that of the user who started it, as a file in RAY_AUTH_TOKEN_PATH "
    "or ~/.ray/auth_token, and leave RAY_AUTH_MODE unset or set it to token"
)


# Whether this process was forked off from one that was connected: Ray does not work here.
_is_forked = False


def _note_fork() -> None:
    global _is_forked
    _is_forked = _is_forked or is_connected()


os.register_at_fork(after_in_child=_note_fork)


def is_forked() -> bool:
    """Whether this process was forked off from one that was connected."""
    return _is_forked


def check_not_forked() -> None:
    """Raise ForkedProcess where Ray's calls would hang, since its threads are in the parent."""
    if _is_forked:
        raise ForkedProcess("connection to Ray")


def is_connected() -> bool:
    """Whether this process is connected to a Ray cluster."""
    return bool(ray.is_initialized())


def check_connected() -> None:
    """Raise RayNotFound where this process is not connected to a Ray cluster.

    Ray itself starts a new cluster on the first use of its functions then, which has no broker.
    """
    if not is_connected():
        raise RayNotFound("auto", "this process is not connected to Ray; call raylog.connect()")


def stay_joined(address: str | None) -> None:
    """Connect this process to the Ray cluster at ``address``, unless it is connected to one.

    Raises RayNotFound; also where ``address`` is None, since nobody knows which one is meant. In a
    process that was forked off from a connected one ForkedProcess.
    """
    check_not_forked()
    if is_connected():
        return
    with _joining:
        if address is None:
            check_connected()
        elif not is_connected():
            join_ray(address)


@contextmanager
def connected_throughout() -> Iterator[bool]:
    """Whether this process is connected to Ray, and stays so in here.

    False also while that begins or ends. Ray may end a process that uses it meanwhile.
    """
    if not _changing.acquire(blocking=False):
        yield False
        return
    try:
        yield is_connected()
    finally:
        _changing.release()


def own_address() -> str:
    """The address of the Ray cluster that this process is connected to."""
    return str(ray.get_runtime_context().gcs_address)


def starts_ray(address: str | None) -> bool:
    """Whether ``join_or_start_ray`` would start a Ray cluster on this machine."""
    address = address or os.environ.get("RAY_ADDRESS")
    return not is_connected() and (not address or address == LOCAL)


def join_or_start_ray(address: str | None = None, options: Mapping[str, Any] | None = None) -> bool:
    """Connect this process to a Ray cluster; True if that started one on this machine.

    Nothing is done where the process is connected already. Ray is started where neither
    ``address`` nor RAY_ADDRESS says otherwise; ``options`` go to ``ray.init`` then. Raises
    RayNotFound, RayNotStarted, TokenNotMade.
    """
    if is_connected():
        return False
    if not starts_ray(address):
        join_ray(address)
        return False
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", **(options or {})}
    settings.setdefault("num_cpus", max(MIN_DECLARED_CPUS, os.cpu_count() or 1))
    settings.setdefault("include_dashboard", False)
    want_token()
    try:
        with _changing, _handler_kept():
            ray.init(LOCAL, **settings)
    except (TypeError, ValueError, OSError):
        raise  # of an option, or of the disk
    except Exception as error:  # Ray raises no class of its own where its processes do not come up
        raise RayNotStarted(first_sentence(str(error))) from error
    return True


def leave_ray() -> None:
    """Disconnect this process; a Ray cluster that it started ends."""
    with _changing:
        ray.shutdown()


def join_ray(address: str | None = None) -> str:
    """Connect this process to a running Ray cluster; returns its address. Raises RayNotFound.

    ``address``: by default RAY_ADDRESS, or else a cluster of this machine.
    """
    candidates = _candidates(address)
    for candidate in candidates:
        try:
            _join(candidate)
            return candidate
        except RayNotFound:
            if candidate == candidates[-1]:
                raise
    raise RayNotFound("auto", "no Ray cluster runs on this machine")


def join_ray_with(
    has_broker: Callable[[], bool], namespace: str, address: str | None = None
) -> None:
    """As ``join_ray``, but the cluster that has the broker.

    ``has_broker`` is called while this process is connected to a cluster. Raises BrokerNotFound,
    SeveralBrokers, RayNotFound, or what ``has_broker`` raises; then this process is not connected.
    """
    candidates = _candidates(address)
    addresses: list[str] = []
    problem: RaylogError = RayNotFound("auto", "no Ray cluster runs on this machine")
    refusal: RayNotFound | None = None
    for candidate in candidates:
        try:
            _join(candidate)
        except RayNotFound as error:
            if _is_refusal(error):
                refusal = error
            if not isinstance(problem, BrokerNotFound):
                problem = error
            continue
        problem = BrokerNotFound(namespace)
        try:
            is_here = has_broker()
        except RaylogError:
            leave_ray()
            raise
        if is_here:
            if len(candidates) == 1:
                return
            addresses.append(candidate)
        leave_ray()
    if not addresses:
        raise refusal or problem  # a cluster that refuses may have the broker
    if len(addresses) > 1:
        raise SeveralBrokers(namespace, ", ".join(addresses))
    _join(addresses[0])


def _is_refusal(error: RayNotFound) -> bool:
    """Whether a cluster runs there, and refuses this process."""
    return error.why.endswith(TOKEN_HINT) or isinstance(error.__cause__, AuthenticationError)


def _candidates(address: str | None) -> list[str]:
    """The addresses to try: the one that is wanted, or else all of this machine.

    The address that ``ray start`` wrote down last comes first.
    """
    wanted = address or os.environ.get("RAY_ADDRESS") or "auto"
    if wanted not in ("auto", LOCAL):
        return [wanted]
    running, latest = _running_here()
    return sorted(running, key=lambda candidate: (candidate != latest, candidate))


def _running_here() -> tuple[Set[str], str | None]:
    """The addresses of this machine's Ray clusters, and the one of the last ``ray start``."""
    return addresses_here(), latest_address()


def _join(address: str) -> None:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise RayNotFound(address, "an address must have the form host:port")
    if "/" not in address:
        try:
            with socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S) as peer:
                is_ray = _speaks_grpc(peer)
        except (OSError, OverflowError) as error:
            raise RayNotFound(address, getattr(error, "strerror", None) or str(error)) from error
        if not is_ray:
            raise RayNotFound(address, "who listens there is no Ray: it does not speak gRPC")
    use_token_if_there()
    try:
        with _changing, _handler_kept():
            ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, AuthenticationError, RuntimeError, ValueError) as error:
        raise RayNotFound(address, _why_refused(error)) from error


def _speaks_grpc(peer: socket.socket) -> bool:
    """Whether the other end answers as gRPC's servers do: with the settings of HTTP/2 (RFC 9113).

    Ray asks anybody else again and again for many minutes.
    """
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return True  # that would have to be spoken first
    peer.sendall(_HTTP2_PREFACE + _NO_SETTINGS)
    head = b""
    while len(head) < len(_NO_SETTINGS):
        some = peer.recv(len(_NO_SETTINGS) - len(head))
        if not some:
            return False
        head += some
    return head[3] == _SETTINGS


@contextmanager
def _handler_kept() -> Iterator[None]:
    """A handler that the process has for SIGTERM is there again afterwards.

    A signal that came meanwhile is given to it. Where the process has none, Ray's own stays, which
    ends what Ray has started.
    """
    handler = signal.getsignal(signal.SIGTERM)
    is_own = callable(handler) and threading.current_thread() is threading.main_thread()
    is_ended = False
    try:
        yield
    except SystemExit as end:
        # Ray's handler, which stands as soon as Ray begins to start
        is_ended = end.code == signal.SIGTERM
        raise
    finally:
        if is_own:
            signal.signal(signal.SIGTERM, handler)
        if is_own and is_ended:
            signal.raise_signal(signal.SIGTERM)


def _why_refused(error: Exception) -> str:
    """Why a process that answers at an address does not let this one join, in one sentence."""
    if isinstance(error, ConnectionError):
        return "it does not let this process join" + TOKEN_HINT
    if isinstance(error, AuthenticationError):
        return "it does not accept this process's token, or wants one" + TOKEN_HINT
    if "version mismatch" in str(error).lower():
        return "it runs another version of Ray or Python than this process: use the same ones"
    return first_sentence(str(error)) or "it refuses this process"
