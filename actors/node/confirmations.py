"""Which config versions the Controller has confirmed to a node, and until when. Knows no Ray.

Records are removed (by retention, compaction, ``delete_records``) only under a config that the
Controller has confirmed lately: a LogManager that stood still, or that the Controller cannot reach,
may have an old one. Without a Controller nothing is removed.

::

    Controller                                 LogManager
        <------------- answer 7 ------------------   notes the time of answer 7
        --- answer 7 heard; topic id: version, ... ->  these are confirmed until that time
        <------------- answer 8 ------------------     + CONFIRMED_FOR_MS

The Controller reads the versions after it has heard the answer. So they were the desired ones at a
moment behind the answer, by whatever clock, however long the message was under way and however long
this process stood still meanwhile. Therefore a version that the Controller has replaced is
confirmed nowhere any more ``CONFIRMED_FOR_MS`` after the change.

Of the versions only the changes travel: an answer says which ``revision`` the LogManager has, and
whose. What does not follow on that is not taken, and the next message has everything.
"""

from collections.abc import Mapping

from raylog.actors.errors import UnsupportedVersion
from raylog.actors.messages import (
    DESIRED_VERSIONS_VERSION,
    REMOVED,
    Confirmed,
    DesiredVersions,
    NodeState,
    OfflineDir,
)

# How long a confirmation is good for. The Controller confirms twice a second. It waits longer than
# this before it answers that a changed config has not reached a partition.
CONFIRMED_FOR_MS = 20_000
# Answers that the Controller may still refer to; it asks again when it has the last one.
ANSWERS_KEPT = 16


class Confirmations:
    """See the module's head. The time: by the node's ``SteadyClock``. Not safe for threads."""

    def __init__(self, name: str, life: str) -> None:
        """``name``: the LogManager's, for errors; ``life``: of its present process."""
        self._name, self._life = name, life
        self._number = 0
        self._answered_ms: dict[int, int] = {}  # the times of the last answers, by their number
        self._controller, self._revision = "", 0
        self._versions: dict[str, int] = {}  # by topic id
        self._until_ms: int | None = None

    def hear(self, desired: DesiredVersions) -> None:
        """Take the Controller's word in. Raises UnsupportedVersion."""
        if desired.version > DESIRED_VERSIONS_VERSION:
            raise UnsupportedVersion(self._name, desired.version, DESIRED_VERSIONS_VERSION)
        if desired.since == 0:
            self._versions = {}
        elif (desired.controller, desired.since) != (self._controller, self._revision):
            return
        self._controller, self._revision = desired.controller, desired.revision
        self._take(dict(desired.topics))
        answered_ms = self._answered_ms.get(desired.number)
        if desired.life == self._life and answered_ms is not None:
            self._until_ms = answered_ms + CONFIRMED_FOR_MS
        else:
            self._until_ms = None

    def _take(self, changes: Mapping[str, int]) -> None:
        for topic_id, version in changes.items():
            if version == REMOVED:
                self._versions.pop(topic_id, None)
            else:
                self._versions[topic_id] = version

    def answer(self, offline: tuple[OfflineDir, ...], now_ms: int) -> NodeState:
        """What the LogManager answers now."""
        self._number += 1
        self._answered_ms[self._number] = now_ms
        if len(self._answered_ms) > ANSWERS_KEPT:
            del self._answered_ms[min(self._answered_ms)]
        return NodeState(
            life=self._life,
            offline=offline,
            number=self._number,
            controller=self._controller,
            revision=self._revision,
        )

    def of(self, topic_id: str, now_ms: int) -> Confirmed | None:
        """The topic's confirmed version; None if none is confirmed now."""
        version = self._versions.get(topic_id)
        if version is None or self._until_ms is None or now_ms >= self._until_ms:
            return None
        return Confirmed(topic_id=topic_id, version=version, until_ms=self._until_ms)

    def validate(self) -> None:
        """Assert what this promises to itself."""
        assert len(self._answered_ms) <= ANSWERS_KEPT
        assert REMOVED not in self._versions.values()
