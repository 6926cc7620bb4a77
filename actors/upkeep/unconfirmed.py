"""Logs that upkeep leaves alone, since the Controller has not confirmed their config. Pure.

Nothing may be removed from these (``actors/node/confirmations.py``). For a moment that is no
trouble: a topic is new, or an actor was started again. Later it is asked for all the same, so that
the refusal is seen.
"""

from collections.abc import Container, Sequence

from raylog.actors.messages import Hosted
from raylog.storage.clock import Clock
from raylog.storage.names import TopicPartition

PATIENCE_MS = 60_000


class Unconfirmed:
    """See the module's head. ``clock``: one that never goes back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[TopicPartition, int] = {}

    def leave_out(
        self, logs: Sequence[Hosted], confirmed: Container[TopicPartition]
    ) -> list[Hosted]:
        """The logs without those that have not been ``confirmed`` only for a while."""
        now_ms = self._clock.now_ms()
        waiting = [log.partition for log in logs if log.partition not in confirmed]
        self._since_ms = {log: self._since_ms.get(log, now_ms) for log in waiting}
        since_ms = self._since_ms
        return [
            log
            for log in logs
            if now_ms - since_ms.get(log.partition, now_ms - PATIENCE_MS) >= PATIENCE_MS
        ]
