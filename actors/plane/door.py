"""What comes in by a socket: a frame, who answers it, and the pieces of the answer.

::

    Produce, Fetch               by precompiled structs, here
    ListOffsets, epochs          here: a partition knows
    DeleteRecords, producers     here
    DescribeLogDirs              here, if there are partitions
    groups (JoinGroup, ...)      the coordinator here, if there is one (``groups/``)
    transactions (EndTxn, ...)   the coordinator here, if there is one (``transactions/``)
    WriteTxnMarkers              here: by the partitions
    ApiVersions                  here: the same on every socket of a cluster
    SaslHandshake and its kin    an error: who is to say who it is has done so (``sasl/gate.py``)
    anything else that is served ``relay``: the node's LogManager knows the cluster
    what is not served           the connection is closed, as Kafka does it

ApiVersions of a version that is not known is the exception: it is answered, so that a newer client
asks again (KIP-511).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from raylog.actors.coordinators.group_coordinator import GroupCoordinator
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import DESCRIBE_LOG_DIRS
from raylog.actors.plane.apis.connection import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from raylog.actors.plane.apis.groups import GROUP_APIS
from raylog.actors.plane.apis.records import (
    DELETE_RECORDS,
    DESCRIBE_PRODUCERS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from raylog.actors.plane.apis.table import served_versions
from raylog.actors.plane.apis.transactions import TXN_OFFSET_COMMIT, WRITE_TXN_MARKERS
from raylog.actors.plane.disks import of_partitions
from raylog.actors.plane.errors import UnsupportedRequest
from raylog.actors.plane.fetching import fetch
from raylog.actors.plane.finding import list_offsets, offsets_for_leader_epochs
from raylog.actors.plane.frames import Request, answer, parse, read_body, refusal
from raylog.actors.plane.groups.door import answer_group_request
from raylog.actors.plane.hosts import Hosts
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.producers import describe_producers
from raylog.actors.plane.producing import produce
from raylog.actors.plane.removing import delete_records
from raylog.actors.plane.sasl.gate import too_late
from raylog.actors.plane.sending import Piece
from raylog.actors.plane.transactions.beginning import beginning
from raylog.actors.plane.transactions.door import (
    COORDINATOR_APIS,
    answer_transaction_request,
    write_markers,
)
from raylog.actors.plane.transactions.service import Transactions
from raylog.storage.names import TopicPartition

_OF_PARTITIONS: Final[Mapping[Api, Callable[[Request, Hosts], bytes]]] = {
    LIST_OFFSETS: list_offsets,
    OFFSET_FOR_LEADER_EPOCH: offsets_for_leader_epochs,
    DELETE_RECORDS: delete_records,
    DESCRIBE_PRODUCERS: describe_producers,
}


class Door:
    """Answers the requests of all connections; any number of threads at once."""

    def __init__(
        self,
        relay: Callable[[Request, Parking], Sequence[Piece]],
        hosts: Hosts | None = None,
        coordinator: GroupCoordinator | None = None,
        transactions: Transactions | None = None,
    ) -> None:
        """``relay`` answers what concerns the cluster, or raises to close the connection.

        ``hosts``: the partitions of this process; none by default. ``coordinator``: of the groups
        of such a partition. ``transactions``: what it does for them; None: nothing.
        """
        self.hosts = hosts or Hosts()
        self._coordinator, self._transactions = coordinator, transactions
        self._relay = relay

    def __call__(self, frames: Sequence[bytearray], parking: Parking) -> Sequence[Piece]:
        """See ``connection.Answering``."""
        frame = frames[0]
        try:
            request = parse(memoryview(frame).toreadonly())
        except UnsupportedRequest as error:
            refused = refusal(error)
            if refused is None:
                raise
            return [refused]
        api = request.api
        if api is FETCH:
            return fetch(request, self.hosts, parking)
        if api is PRODUCE:
            behind = (parse(memoryview(one).toreadonly()) for one in frames[1:])
            transactions = self._transactions
            verifier = None if transactions is None else transactions.verifier
            return produce(chain((request,), behind), self.hosts, verifier)
        if api in _OF_PARTITIONS:
            return [_OF_PARTITIONS[api](request, self.hosts)]
        if api is API_VERSIONS:
            read_body(request)
            return [answer(request, served_versions())]
        if api in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            return [too_late(request)]
        if api in COORDINATOR_APIS or self._is_of_transactions(request):
            return [answer_transaction_request(request, self._transactions)]
        if api is WRITE_TXN_MARKERS:
            return [write_markers(request, self.hosts, self._coordinator, parking)]
        if api is TXN_OFFSET_COMMIT:
            return [self._commit_in_transaction(request, parking)]
        if api in GROUP_APIS:
            places = None if self._transactions is None else self._transactions.places
            coordinator = self._coordinator
            return [answer_group_request(request, coordinator, parking, places=places)]
        if api is DESCRIBE_LOG_DIRS and self.hosts:
            return [of_partitions(request, self.hosts)]
        return self._relay(request, parking)

    def _is_of_transactions(self, request: Request) -> bool:
        """Whether a transactional id is to be initialised by the coordinator here."""
        if request.api is not INIT_PRODUCER_ID or self._transactions is None:
            return False
        if self._transactions.coordinator is None:
            return False
        return read_body(request)["transactionalId"] is not None

    def _commit_in_transaction(self, request: Request, parking: Parking) -> bytes:
        """TxnOffsetCommit: the partition of the offsets may have to begin the transaction."""
        host = next(iter(self.hosts), None)
        if host is None or self._coordinator is None or self._transactions is None:
            return answer_group_request(request, self._coordinator, parking)
        name = TopicPartition(host.topic, host.number)
        begin = partial(beginning, host.partition, name, self._transactions.verifier)
        places = self._transactions.places
        return answer_group_request(request, self._coordinator, parking, begin, places)
