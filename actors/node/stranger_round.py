"""Asks the LogActors that this life does not serve: one may serve from a dir that is not in use.

An actor may hang when its LogManager begins, and serve on later, out of anybody's sight. If its log
dir is gone or has been replaced, what it acknowledges is lost. So it is asked until it answers.
Another may wait for its config, while its log was removed. Ray's names do not say on which node an
actor lives: those of other nodes are asked too, but seldom.
"""

from collections.abc import Callable, Sequence

from raylog.actors.node.events import ActorSeen, Event, Served
from raylog.actors.node.log_actors import LogActors
from raylog.actors.node_messages import LogSays
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition

# After so many rounds the actors of other nodes are asked again.
ROUNDS_UNASKED = 20


class StrangerRound:
    """Has a round each time it is called; one at a time."""

    def __init__(
        self,
        actors: LogActors,
        *,
        node_id: str,
        served: Callable[[], Sequence[Served]],
        tell: Callable[[Event], object],
    ) -> None:
        """``served``: what the machine has heard last. ``node_id``: Ray's, of this node."""
        self._actors = actors
        self._node_id = node_id
        self._served = served
        self._tell = tell
        self._elsewhere: set[TopicPartition] = set()
        self._rounds = 0

    def __call__(self) -> None:
        """Ask all at once, for 10 s in all; tell who lives on this node."""
        try:
            running = self._actors.running()
        except RaylogError:
            return  # Ray's head is away, and asked again
        self._elsewhere &= running
        if self._rounds % ROUNDS_UNASKED == 0:
            self._elsewhere.clear()
        self._rounds += 1
        served = {log.log.partition for log in self._served()}
        unknown = running - served - self._elsewhere
        if not unknown:
            return
        for partition, says in self._actors.says_all(sorted(unknown)).items():
            if isinstance(says, LogSays):
                self._heard(partition, says)

    def _heard(self, partition: TopicPartition, says: LogSays) -> None:
        if says.node_id != self._node_id:
            self._elsewhere.add(partition)
            return
        self._tell(ActorSeen(log=says.log, directory_id=says.directory_id))
