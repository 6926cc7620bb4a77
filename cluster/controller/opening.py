"""How the Controller has partitions opened: no more of a log dir at once than that can open at
once.

A log that was not closed in order is read back when it is opened, which may take minutes: whoever
opens many does it in a thread of its own (``jobs.py``).

A partition is **claimed** from the moment when it is chosen until its answer is there: nobody else
opens or moves it meanwhile. A claim holds for one LogManager. Where the node leaves, the claims on
it are void, and so are its answers; when it is back it has another LogManager, for which they are
claimed anew.

What is chosen may be old: by the time of its turn a topic may be gone, or a move may have bound the
partition to another log dir. What counts is what the metadata says then. A LogManager takes the dir
that it is told for the Controller's word on a move (``actors/mover.py``), so a word of yesterday
would undo one that was committed.
"""

import logging
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import ray

from raylog.actors.errors import NotLeader
from raylog.actors.events import warn
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.jobs import Jobs
from raylog.cluster.controller.placement import Wanted
from raylog.cluster.controller.state import ControllerState, answer_of
from raylog.storage.errors import InvalidConfig, RaylogError
from raylog.storage.names import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Claim:
    """A partition that is to be opened, as it was wanted at the last look, and by which
    LogManager."""

    one: Wanted
    manager: Any


class Opening(ControllerState):
    """The part of the Controller that opens partitions."""

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        super().__init__(namespace, config)
        self._claimed: dict[TopicPartition, Claim] = {}
        self._stopped = threading.Event()
        self._jobs = Jobs(self._stopped)

    def _claim(self, wanted: Iterable[Wanted]) -> list[Claim]:
        """Those that can be opened now, and that nobody else opens or moves: ``_open`` them."""
        with self._lock:
            claims = [
                Claim(now, manager)
                for one in wanted
                if not self._is_claimed(one) and one.partition not in self._moving
                if (now := self._now(one)) is not None
                if (manager := self._manager_of(now.directory_id)) is not None
            ]
            self._claimed.update({claim.one.partition: claim for claim in claims})
            return claims

    def _is_claimed(self, one: Wanted) -> bool:
        """Whether somebody opens it. A claim on a topic that is gone counts no more for its
        successor."""
        claim = self._claimed.get(one.partition)
        return claim is not None and claim.one.topic.topic_id == one.topic.topic_id

    def _void_claims(self, manager: Any) -> None:
        """The node of this LogManager has left."""
        self._claimed = {
            key: claim for key, claim in self._claimed.items() if claim.manager is not manager
        }

    def _open(self, claims: list[Claim]) -> None:
        """Have these opened, and take down where they are or why they are not."""
        try:
            for claim, reference in self._in_turns(claims):
                self._take_down(claim, self._answer(claim, reference))
        finally:
            with self._lock:
                for claim in claims:
                    self._give_back(claim)

    def _in_turns(self, claims: Iterable[Claim]) -> Iterator[tuple[Claim, Any]]:
        """Have these opened, and yield each with its call as soon as that is answered.

        Of each log dir no more at once than its LogManager opens at once: the rest of a slow one
        waits here, and holds up no other.
        """
        waiting: dict[str, deque[Claim]] = defaultdict(deque)
        for claim in claims:
            waiting[claim.one.directory_id].append(claim)
        pending: dict[Any, Claim] = {}
        while waiting or pending:
            for directory_id, queue in list(waiting.items()):
                opening = sum(claim.one.directory_id == directory_id for claim in pending.values())
                free = self._config.num_recovery_threads_per_data_dir - opening
                pending.update(self._begin([queue.popleft() for _ in range(min(free, len(queue)))]))
                if not queue:
                    del waiting[directory_id]
            if pending:
                [reference], _ = ray.wait(list(pending), num_returns=1)
                yield pending.pop(reference), reference

    def _begin(self, claims: Iterable[Claim]) -> dict[Any, Claim]:
        """The calls that open these, as the metadata wants them now. What is not wanted there is
        given back."""
        calls: dict[Any, Claim] = {}
        with self._lock:
            for claim in claims:
                now = self._now(claim.one)
                if now is None or not self._holds(claim):
                    self._give_back(claim)
                    continue
                claim.one = now
                try:
                    call = self._opening(claim.manager, now.partition, now.topic, now.directory_id)
                except (
                    InvalidConfig
                ) as error:  # the broker's own keys have changed since it was given
                    self._placement.failed(now.partition, error)
                    self._give_back(claim)
                else:
                    calls[call] = claim
        return calls

    @staticmethod
    def _answer(claim: Claim, reference: Any) -> Any:
        """Where it is, or why it is not. A fault of ours, too, is this partition's alone."""
        try:
            return answer_of(reference, f"opening {claim.one.partition}")
        except Exception as error:
            warn(logger, "opening-failed", partition=claim.one.partition, trace=True)
            return NotLeader(str(claim.one.partition), " ".join(str(error).split()))

    def _take_down(self, claim: Claim, answer: Any) -> None:
        """Not of a topic that was deleted meanwhile (its deletion has ended the actor), or a node
        that has left."""
        one = claim.one
        with self._lock:
            is_valid = self._holds(claim) and self._now(one) is not None
            self._give_back(claim)
            if not is_valid:
                return
            if isinstance(answer, RaylogError):
                self._placement.failed(one.partition, answer)
            else:
                self._placement.opened(one.partition, answer, one.topic.version)

    def _now(self, one: Wanted) -> Wanted | None:
        """As its topic is now; None if that is gone, or wants it in another log dir."""
        topic = self._state.topics.get(one.topic.name)
        if topic is None or topic.topic_id != one.topic.topic_id:
            return None
        if topic.directories[one.partition.partition] != one.directory_id:
            return None
        return one._replace(topic=topic)

    def _holds(self, claim: Claim) -> bool:
        """Whether its node is still there, with the same LogManager, and the log dir is not
        offline."""
        is_valid = self._claimed.get(claim.one.partition) is claim
        return is_valid and self._manager_of(claim.one.directory_id) is claim.manager

    def _give_back(self, claim: Claim) -> None:
        if self._claimed.get(claim.one.partition) is claim:
            del self._claimed[claim.one.partition]
