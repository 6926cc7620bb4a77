"""What the sockets of a process count: requests by API, and connections. See ``partition/meters``.

The metrics have two names: those of a partition's LogActor, and those of a node's LogManager, whose
tags are others.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from raylog.actors.metrics import Exporter
from raylog.actors.partition.meters import KEPT, drain
from raylog.actors.plane.apis.table import APIS
from raylog.actors.plane.sending import FileRange, Piece
from raylog.storage.errors import RaylogError

OF_LOG_ACTOR: Final = "raylog_socket_"
OF_LOG_MANAGER: Final = "raylog_node_socket_"

# A plain tuple, since each request makes one: key of its API, seconds, its bytes, its answer's.
Measured: TypeAlias = tuple[int, float, int, int]


class Counted(Protocol):
    """Sockets, as far as they are counted."""

    @property
    def connections(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def waiting(self) -> int: ...


class SocketMeters:
    """The measurements of a process's sockets since they were last exported."""

    def __init__(self) -> None:
        self.requests: deque[Measured] = deque(maxlen=KEPT)
        self.ended: deque[str] = deque(maxlen=KEPT)

    def note_end(self, error: RaylogError) -> None:
        """A connection has ended for this reason."""
        self.ended.append(error.error_name)

    def export(self, exporter: Exporter, name: str, sockets: Counted) -> None:
        """Export what has come since the last time, and what is now. ``name``: its beginning."""
        by_api: defaultdict[int, list[Measured]] = defaultdict(list)
        for measured in drain(self.requests):
            by_api[measured[0]].append(measured)
        for key, requests in by_api.items():
            if key not in APIS:
                continue  # a bare token of SASL
            api = APIS[key].name
            exporter.add(f"{name}requests", len(requests), api=api)
            exporter.add(f"{name}request_seconds", sum(one[1] for one in requests), api=api)
            exporter.add(f"{name}request_bytes", sum(one[2] for one in requests), api=api)
            exporter.add(f"{name}answer_bytes", sum(one[3] for one in requests), api=api)
        for error in drain(self.ended):
            exporter.add(f"{name}connections_ended", 1, error=error)
        exporter.gauge(f"{name}connections", sockets.connections)
        exporter.gauge(f"{name}requests_bytes_held", sockets.used_bytes)
        exporter.gauge(f"{name}requests_waiting", sockets.waiting)


def size_of(pieces: Sequence[Piece]) -> int:
    """The bytes of an answer."""
    return sum(
        piece.size_bytes if isinstance(piece, FileRange) else memoryview(piece).nbytes
        for piece in pieces
    )
