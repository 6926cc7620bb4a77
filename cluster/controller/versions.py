"""The config versions that topics have now, as LogManagers are told them; and how old ones end.

Each exchange with a LogManager carries what has changed since the last one that it answered, so a
cluster of thousands of partitions whose configs do not change sends a few numbers twice a second.
The other side of it is ``actors/node/confirmations.py``. Knows no Ray.
"""

from collections.abc import Iterable

from raylog.actors.messages import (
    DESIRED_VERSIONS_VERSION,
    REMOVED,
    DesiredVersions,
    NodeState,
)
from raylog.actors.node.confirmations import CONFIRMED_FOR_MS
from raylog.cluster.controller.metadata import Topic

# Of topics that are gone, so many are remembered; a LogManager that has missed more is told
# everything.
REMOVED_AT_MOST = 1000
# Two machines' clocks may run at rates that differ by a little, and so long takes what a LogManager
# had begun when its confirmation ended.
MARGIN_S = 2.0
# For so long after a change a config may be obeyed that it has replaced.
CONFIRMATION_S = CONFIRMED_FOR_MS / 1000 + MARGIN_S


class TopicVersions:
    """The versions, and in which order they have changed. Not safe for threads."""

    def __init__(self, life: str) -> None:
        """``life``: of this Controller's process."""
        self._life = life
        self._revision = 0
        # topic id -> (version, the revision with which it came), in the order of revisions
        self._changes: dict[str, tuple[int, int]] = {}
        self._removed = 0
        # Whoever has an older revision must be told everything.
        self._oldest = 0

    def update(self, topics: Iterable[Topic]) -> None:
        """Take in what the metadata says now."""
        now = {topic.topic_id: topic.version for topic in topics}
        for topic_id, (version, _) in list(self._changes.items()):
            if topic_id not in now and version != REMOVED:
                self._change(topic_id, REMOVED)
                self._removed += 1
        for topic_id, version in now.items():
            if self._changes.get(topic_id, (REMOVED, 0))[0] != version:
                self._change(topic_id, version)
        if self._removed > REMOVED_AT_MOST:
            self._forget_removed()

    def _change(self, topic_id: str, version: int) -> None:
        self._revision += 1
        self._changes.pop(topic_id, None)
        self._changes[topic_id] = version, self._revision

    def _forget_removed(self) -> None:
        self._changes = {
            topic_id: change for topic_id, change in self._changes.items() if change[0] != REMOVED
        }
        self._removed, self._oldest = 0, self._revision

    def message_after(self, heard: NodeState | None) -> DesiredVersions:
        """What a LogManager is told whose last answer is ``heard``."""
        since = 0
        if heard is not None and heard.controller == self._life and heard.revision >= self._oldest:
            since = heard.revision
        return DesiredVersions(
            version=DESIRED_VERSIONS_VERSION,
            controller=self._life,
            life="" if heard is None else heard.life,
            number=0 if heard is None else heard.number,
            since=since,
            revision=self._revision,
            topics=self._behind(since),
        )

    def _behind(self, since: int) -> tuple[tuple[str, int], ...]:
        """The changes behind a revision, the newest first."""
        changes = []
        for topic_id, (version, revision) in reversed(self._changes.items()):
            if revision <= since:
                break
            if version != REMOVED or since > 0:
                changes.append((topic_id, version))
        return tuple(changes)


class Confirming:
    """Until when a log dir's node may remove records under a config that has been replaced.

    The time: seconds that never go back.
    """

    def __init__(self, now_s: float) -> None:
        # A Controller before this one may have confirmed something until its end.
        self._begun_s = now_s
        self._told_s: dict[str, float] = {}  # directory id -> when its node was told last

    def told(self, directory_ids: Iterable[str], now_s: float) -> None:
        """The node that has these log dirs is told now what the desired versions are."""
        for directory_id in directory_ids:
            self._told_s[directory_id] = now_s

    def over_s(self, directory_id: str, changed_s: float) -> float:
        """When nothing is confirmed any more that was replaced at ``changed_s``."""
        told_s = self._told_s.get(directory_id, self._begun_s)
        return min(told_s, changed_s) + CONFIRMATION_S
