"""The levels of a cluster: which records and messages it may write.

A release of raylog knows a range of levels. A cluster has one level, in its metadata; all of its
processes write as that level says, so that a node of the release before can read everything. When
all nodes run the new release, an operator raises the level (``raylog upgrade finalize``).

==================================================== ===========================================
the metadata has no record ``level``                 the cluster is of FIRST_LEVEL
a new cluster                                        begins at the newest level of its Controller
a process meets a level that it does not know        UnsupportedLevel
==================================================== ===========================================

A release that writes a record or a message that the one before cannot read has a level more, and
writes it only at that level. It drops its oldest level when it cannot read what that wrote.
"""

from typing import NamedTuple

from raylog.actors.errors import UnsupportedLevel
from raylog.storage.wire import RELEASE, message

FIRST_LEVEL = 1
# From it on the metadata log may begin behind its first record, with a snapshot of what was before.
CHAINED_LEVEL = 2
# From it on the metadata has users.
USERS_LEVEL = 3
# A level -> the first release that knows it.
RELEASES = {FIRST_LEVEL: "0.1.0", CHAINED_LEVEL: "0.1.0", USERS_LEVEL: "0.1.0"}


@message
class Levels(NamedTuple):
    """The levels that a release knows."""

    oldest: int
    newest: int

    def has(self, level: int) -> bool:
        return self.oldest <= level <= self.newest

    def check(self, level: int, where: str, writer: str = "") -> None:
        """Raise UnsupportedLevel for a level that this release does not know.

        ``where``: who meets it. ``writer``: a release that knows it; empty where it is older.
        """
        if not self.has(level):
            needed = writer or RELEASES.get(level, "of that level")
            raise UnsupportedLevel(where, level, RELEASE, self.oldest, self.newest, needed)


# Of who does not say it.
FIRST_LEVELS = Levels(FIRST_LEVEL, FIRST_LEVEL)
# Those that this release knows.
LEVELS = Levels(FIRST_LEVEL, max(RELEASES))
