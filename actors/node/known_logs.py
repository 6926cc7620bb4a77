"""The LogActors that a node has found, so that it looks no name up again for one that answers.

Ray's handle is of one actor, whatever becomes of its name: Ray restarts that actor under the same
handle, and an actor that took its name has another one. So an order by a handle that was kept
reaches the actor that was found, or nobody; it never reaches a later actor of the partition. Which
log an order is for, the order itself says, and the actor refuses another's.

=================================  ========  =====================================================
what happens                       handle    why
=================================  ========  =====================================================
it answers                         kept      it lives
a call ends in ActorAway           let go    it may be dead for good, and its name another's. One
                                             that Ray restarts has the same handle again.
a call ends in another error       let go    silence may be a node that is lost; what the actor
                                             itself raises is rare, and a look-up is cheap.
an actor is started, or ended      let go    the name is another actor's after it, or nobody's
it says that it lives elsewhere    let go    it is another node's, and seldom asked
=================================  ========  =====================================================
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from raylog.actors.runtime.stubs import LogActorStub
from raylog.storage.names import TopicPartition

Find = Callable[[TopicPartition], LogActorStub | None]


class KnownLogs:
    """See the module's head. Safe for threads: what one lets go another looks up again."""

    def __init__(self, find: Find) -> None:
        """``find``: looks the actor up by its name; None where there is none."""
        self._find = find
        self._logs: dict[TopicPartition, LogActorStub] = {}

    def get(self, partition: TopicPartition) -> LogActorStub | None:
        """The partition's actor; None where there is none. Raises as ``find``."""
        known = self._logs.get(partition)
        if known is not None:
            return known
        log = self._find(partition)
        if log is not None:
            self._logs[partition] = log
        return log

    def let_go(self, partition: TopicPartition) -> None:
        """Look the actor up next time; fine if it is not known."""
        self._logs.pop(partition, None)

    @contextmanager
    def kept_if_answered(self, partition: TopicPartition) -> Iterator[None]:
        """Let the actor go if this ends in an error, which is raised on."""
        try:
            yield
        except BaseException:
            self.let_go(partition)
            raise
