"""The sockets of a LogManager, without a socket."""

from raylog.actors.cluster_image import ClusterEntries, Endpoint
from raylog.actors.metrics import Exporter
from raylog.actors.plane.sasl.scram import Verifier


class FakeSockets:
    """Sockets that listen once they are told where. ``takes``: the port that they get."""

    host = "127.0.0.1"

    def __init__(self, takes: int | None = None) -> None:
        self.port = 0
        self.shown: ClusterEntries | None = None
        self.is_closed = False
        self.exports = 0
        self.looks = 0  # how often it was to listen, if it did not
        self._takes = takes

    def verifier_of(self, mechanism: str, user: str) -> Verifier | None:
        assert self.shown is not None
        return self.shown.users.get(user, {}).get(mechanism)

    def show(self, entries: ClusterEntries) -> None:
        self.shown = entries

    def export(self, exporter: Exporter) -> None:
        self.exports += 1

    def keep_up(self, endpoint: Endpoint | None) -> None:
        self.looks += 1
        if endpoint is not None and not self.port:
            self.port = self._takes or endpoint.port

    def close(self) -> None:
        self.is_closed = True
