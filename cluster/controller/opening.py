"""Opens partitions, at most num.recovery.threads.per.data.dir per log dir at a time.

A log that was not closed in order is read back when it is opened, which may take minutes. So many
partitions are opened in a thread of its own (``jobs.py``).

A partition is **claimed** from its choice until its answer arrives. Nobody else opens or moves it
in that time. A claim is for one LogManager. When the node leaves, its claims and their answers are
void. A node that returns has a new LogManager, and its partitions are claimed again.

A claim may be old when its turn comes: the topic may be deleted, or a move may have bound the
partition to another log dir. So the metadata is read again at that time. A LogManager takes the log
dir that it is given as the Controller's decision on a move (``actors/node/mover.py``): an old one
would undo a move that was committed.
"""

import logging
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raylog.actors.errors import NotLeader
from raylog.actors.events import warn
from raylog.actors.messages import Placed
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.calls import OPEN_TIMEOUT_S, Call, answered
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster.controller.jobs import Jobs
from raylog.cluster.controller.placement import Wanted
from raylog.cluster.controller.state import ControllerState
from raylog.storage.errors import InvalidConfig, RaylogError
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Claim:
    """A partition that is to be opened, as it was wanted at the last look, and by whom."""

    wanted: Wanted
    manager: LogManagerStub


class Opening(ControllerState):
    """The part of the Controller that opens partitions."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        super().__init__(namespace, config)
        self._claimed: dict[TopicPartition, Claim] = {}
        self._stopped = threading.Event()
        self._jobs = Jobs(self._stopped)

    def _claim(self, candidates: Iterable[Wanted]) -> list[Claim]:
        """Those that can be opened now, and that nobody else opens or moves: ``_open`` them."""
        claims: list[Claim] = []
        with self._lock:
            for candidate in candidates:
                if self._is_claimed(candidate) or candidate.partition in self._moving:
                    continue
                wanted = self._as_wanted_now(candidate)
                manager = None if wanted is None else self._manager_of(wanted.directory_id)
                if wanted is not None and manager is not None:
                    claims.append(Claim(wanted, manager))
            self._claimed.update({claim.wanted.partition: claim for claim in claims})
        return claims

    def _is_claimed(self, wanted: Wanted) -> bool:
        """Whether somebody opens it.

        A claim on a topic that is gone does not count for its successor.
        """
        claim = self._claimed.get(wanted.partition)
        return claim is not None and claim.wanted.topic.topic_id == wanted.topic.topic_id

    def _void_claims(self, manager: LogManagerStub | None) -> None:
        """The node of this LogManager has left."""
        self._claimed = {
            key: claim for key, claim in self._claimed.items() if claim.manager is not manager
        }

    def _open(self, claims: list[Claim]) -> None:
        """Have these opened, and record where they are or why they are not."""
        try:
            for claim, call in self._in_turns(claims):
                self._record_opening(claim, self._outcome(claim, call))
        finally:
            with self._lock:
                for claim in claims:
                    self._give_back(claim)

    def _in_turns(self, claims: Iterable[Claim]) -> Iterator[tuple[Claim, Call[Placed]]]:
        """Have these opened, and yield each with its call as soon as that is answered.

        Of each log dir no more at once than its LogManager opens at once: the rest of a slow one
        waits here, and holds up no other.
        """
        waiting: dict[str, deque[Claim]] = defaultdict(deque)
        for claim in claims:
            waiting[claim.wanted.directory_id].append(claim)
        pending: dict[Call[Placed], Claim] = {}
        while waiting or pending:
            for directory_id, queue in list(waiting.items()):
                opening = sum(
                    claim.wanted.directory_id == directory_id for claim in pending.values()
                )
                free = self._config.num_recovery_threads_per_data_dir - opening
                turn = [queue.popleft() for _ in range(min(free, len(queue)))]
                pending.update(self._begin(turn))
                if not queue:
                    del waiting[directory_id]
            for call in answered(pending):
                yield pending.pop(call), call

    def _begin(self, claims: Iterable[Claim]) -> dict[Call[Placed], Claim]:
        """The calls that open these, as the metadata wants them now.

        A claim on what is not wanted there any more is given back.
        """
        calls: dict[Call[Placed], Claim] = {}
        with self._lock:
            for claim in claims:
                wanted = self._as_wanted_now(claim.wanted)
                if wanted is None or not self._is_valid(claim):
                    self._give_back(claim)
                    continue
                claim.wanted = wanted
                try:
                    call = self._opening(
                        claim.manager, wanted.partition, wanted.topic, wanted.directory_id
                    )
                except InvalidConfig as error:
                    # The broker's own keys have changed since the topic's were checked.
                    self._placement.failed(wanted.partition, error)
                    self._give_back(claim)
                else:
                    calls[call] = claim
        return calls

    @staticmethod
    def _outcome(claim: Claim, call: Call[Placed]) -> Placed | RaylogError:
        """Where the partition is, or why it is not.

        An error without a raylog name is this partition's alone, too.
        """
        partition = claim.wanted.partition
        try:
            return call.get(OPEN_TIMEOUT_S)
        except RaylogError as error:
            return error
        except Exception as error:
            warn(logger, "opening-failed", partition=partition, trace=True)
            return NotLeader(str(partition), " ".join(str(error).split()))

    def _record_opening(self, claim: Claim, outcome: Placed | RaylogError) -> None:
        """Where the partition is, or why it is not.

        Not of a topic that was deleted meanwhile (its deletion has ended the actor), nor of a node
        that has left.
        """
        wanted = claim.wanted
        with self._lock:
            is_valid = self._is_valid(claim) and self._as_wanted_now(wanted) is not None
            self._give_back(claim)
            if not is_valid:
                return
            if isinstance(outcome, RaylogError):
                self._placement.failed(wanted.partition, outcome)
            else:
                self._placement.opened(wanted.partition, outcome, wanted.topic.version)

    def _as_wanted_now(self, wanted: Wanted) -> Wanted | None:
        """The same with its topic of now; None if that is gone, or wants it in another log dir."""
        topic = self._state.topics.get(wanted.topic.name)
        if topic is None or topic.topic_id != wanted.topic.topic_id:
            return None
        if topic.directories[wanted.partition.partition] != wanted.directory_id:
            return None
        return wanted._replace(topic=topic)

    def _is_valid(self, claim: Claim) -> bool:
        """Whether its node is there, with the same LogManager, and the log dir not offline."""
        is_own = self._claimed.get(claim.wanted.partition) is claim
        return is_own and self._manager_of(claim.wanted.directory_id) is claim.manager

    def _give_back(self, claim: Claim) -> None:
        if self._claimed.get(claim.wanted.partition) is claim:
            del self._claimed[claim.wanted.partition]
