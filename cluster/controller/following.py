"""The copies of the metadata as the Controller's machine sees them: how far each of them is. Pure.

A record counts when it is fsynced by the Controller and by every copy that is *in sync*. Which
copies these are is a record itself (CopiesRecord), and so every Controller knows it::

    records        1 2 3 4 5 6           of the Controller
    copy of b      1 2 3 4 5             in sync: 1 to 5 count
    copy of c      1 2                   not in sync: nobody waits for it

========  ======================================================================================
joins     a copy that has all records, by a record that it must have, too; one that a node keeps
          instead of one in another log dir, when that is dropped
leaves    one that met a problem or was silent for 10 s, or whose node an operator has stopped, or
          whose log dir an operator has taken offline, by
          a record that those which stay have. Nothing that was not acknowledged by it counts
          before that record does. To a node that does not know the cluster's level nothing is
          pushed: its copy counts as silent
========  ======================================================================================

A Controller that was replaced while it hung must not drop its copies, and go on alone. So it asks
Ray whether it is still the Controller before it drops any (``AskWhether``), and ends where it is
not.

It asks the same where a copy has promised to another Controller with a higher epoch, and has no
record of that one. Where this is still the Controller, the other one never began: whoever begins
asks Ray after it has the promises (``home.py``). Then this one begins a higher epoch.

What lies before the beginning of the Controller's log is in a snapshot: a push from there brings
that (``pushing.py``), and the copy goes on behind it.

One push to a node is under way at a time. Its answer says all that the copy has, so it is judged by
itself: where the digests agree, the copy has what the Controller has up to there. Else the epochs
tell from where to push (``common_end``), or from the first record on, where a snapshot of the copy
has others, or the two have no Controller in common: of a cluster that was begun anew the metadata
begins in another way. If the copy does not agree with that either, two
Controllers have had one epoch, and a person decides.

A copy is known by the id of its log dir, since a node without a label has another key after each of
its starts.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from raylog.actors.control import MetadataKept, Report
from raylog.actors.metadata_history import MetadataHistory, common_end
from raylog.cluster.controller.instructions import AskWhether, Push
from raylog.cluster.controller.observed import SUSPECT_MS, Observed
from raylog.cluster.controller.records import ControllerRecord, CopiesRecord, Record, encode
from raylog.storage.wire import message

# A copy that has everything is asked so often whether it is still there.
HEARTBEAT_MS = 2_000
# A node that could not take a push gets the next one after this.
RETRY_MS = 1_000
# How long an answer counts that this is still the Controller. It is younger than the silence that
# it is asked for.
LEAVE_MS = 5_000


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class CopyStatus:
    """A node's copy of the metadata.

    ``end``: so many records it has of those of the Controller. ``epoch``: of the last Controller
    that it has a record of. ``is_in_sync``: whether records count only when it has them.
    ``problem``: why it does not follow; empty where it does.
    """

    node: str
    end: int
    epoch: int
    is_in_sync: bool
    problem: str = ""


@dataclass(slots=True, kw_only=True)
class _Follower:
    """A node's copy. ``acked``: so many records it has for sure, and they are the Controller's.

    ``kept``: its last answer. ``base``: from which record on to push; None: ask it first.
    """

    kept: MetadataKept | None = None
    acked: int = 0
    base: int | None = None
    problem: str = ""
    token: int = 0  # of the push under way; 0: there is none
    life: str = ""  # of the LogManager that it goes to
    pushed_base: int = 0
    sent_ms: int = 0
    sent_token: int = 0  # of the last push
    not_before_ms: int = 0

    @property
    def directory_id(self) -> str:
        return "" if self.kept is None else self.kept.directory_id


class Following:
    """See the module's head. ``history``: of the Controller's own records.

    ``epoch``: of the Controller, once its record is on its disk; 0 before. ``node``: its own.
    ``directory_id``: of the log dir that has its metadata; empty while nobody knows it.
    ``alone_since_ms``: since when no other copy is in sync; None while one is.
    """

    def __init__(self) -> None:
        self.history = MetadataHistory()
        self.node = ""
        self.directory_id = ""
        self.epoch = 0
        self.alone_since_ms: int | None = 0
        # the copies in sync: log dir -> node, by the last record of copies that was written,
        self._members: dict[str, str] = {}
        # how many records there were then,
        self._members_end = 0
        # and when each was heard last; where it was not yet, when it began to count
        self._heard_ms: dict[str, int] = {}
        self._followers: dict[str, _Follower] = {}
        self._token = 0
        self._since_token = -1  # the last push before all were asked
        self._heard_tokens: dict[str, int] = {}  # the push that each copy in sync answered last
        self._asked: AskWhether | None = None  # there is no answer yet
        self._asked_promise = 0  # the highest one that was known when Ray was asked last
        self._asked_members_end = 0  # as of ``_members_end``, when Ray was asked last
        self._leave_until_ms = 0
        self._is_leave_noted = False  # Ray's head may know of one to be left out that was not yet
        self._ask_not_before_ms = 0

    # -- what happens ------------------------------------------------------------------------------

    def start(
        self,
        node: str,
        history: MetadataHistory,
        members: Mapping[str, str],
        directory_id: str,
        now_ms: int,
    ) -> None:
        """``members``: the copies in sync, log dir -> node, as the log says that was read."""
        self.node, self.history, self.directory_id = node, history, directory_id
        self._members, self._members_end = dict(members), history.end
        self._heard_ms = dict.fromkeys(members, now_ms)
        self.alone_since_ms = now_ms
        self._note_alone(now_ms)

    def see(self, nodes: Collection[str]) -> None:
        """These nodes are there now."""
        self._followers = {node: self._followers.get(node, _Follower()) for node in nodes}

    def wrote(self, records: Iterable[Record], now_ms: int) -> None:
        """These are on the Controller's own disk."""
        for record in records:
            self.history.add(encode(record))
            if isinstance(record, ControllerRecord):
                self.epoch = record.epoch
            elif isinstance(record, CopiesRecord):
                left_out = self._members.keys() - set(record.directories)
                self._is_leave_noted = self._is_leave_noted and not left_out
                self._members = dict(zip(record.directories, record.nodes, strict=True))
                self._members_end = self.history.end
                self._leave_until_ms = 0  # the next one that leaves is another question
        for directory_id in self._members:
            self._heard_ms.setdefault(directory_id, now_ms)
        self._note_alone(now_ms)

    def _note_alone(self, now_ms: int) -> None:
        if self._others():
            self.alone_since_ms = None
        elif self.alone_since_ms is None:
            self.alone_since_ms = now_ms

    def hear(self, token: int, node: str, kept: MetadataKept, now_ms: int) -> None:
        """A node's LogManager has answered a push."""
        follower = self._answered(token, node)
        if follower is None:
            return
        was_refused_there = follower.base == follower.pushed_base
        follower.kept, follower.problem = kept, kept.problem
        if kept.number and not kept.problem:
            self._heard_ms[kept.directory_id] = now_ms
            self._heard_tokens[kept.directory_id] = token
        history = self.history
        agrees = kept.end <= history.end and history.digest_at(kept.end) == kept.digest
        if agrees:
            follower.acked = follower.base = kept.end
        else:
            follower.acked = 0
            follower.base = common_end(history.epochs, history.end, kept.epochs, kept.end)
            has_other_beginning = kept.epochs[:1] != history.epochs[:1]
            if has_other_beginning or follower.base < kept.snapshot_end:  # which is never cut
                follower.base = 0
            if follower.base == follower.pushed_base and was_refused_there and not kept.problem:
                why = (
                    f"the copy and the Controller's log have gone on apart behind record "
                    f"{follower.base}, though two Controllers never have one epoch; keep one of "
                    f"the two, and move the folder of the other one away"
                )
                follower.problem = why
        if follower.problem or kept.promised > self.epoch:
            follower.not_before_ms = now_ms + RETRY_MS

    def hear_report(self, report: Report, folder: str) -> None:
        """A node reports its log dirs. ``folder``: of the Controller's metadata."""
        if report.node == self.node and not self.directory_id:
            found = [entry for entry in report.dirs if entry.path == os.path.dirname(folder)]
            self.directory_id = (found[0].directory_id or "") if found else ""

    def fail(self, token: int, node: str, why: str, now_ms: int) -> None:
        """A push was not answered."""
        follower = self._answered(token, node)
        if follower is not None:
            follower.problem, follower.not_before_ms = why, now_ms + RETRY_MS
            follower.base = None

    def _answered(self, token: int, node: str) -> _Follower | None:
        follower = self._followers.get(node)
        if follower is None or follower.token != token:
            return None
        follower.token = 0
        return follower

    # -- pushing -----------------------------------------------------------------------------------

    def pushes(self, observed: Mapping[str, Observed], now_ms: int, *, level: int) -> list[Push]:
        """What to send now: nothing before the epoch is on the Controller's own disk.

        ``level``: of the cluster. A node that does not know it gets nothing, so that its copy does
        not join, and leaves as one that is silent: nobody could begin there.
        """
        if not self.epoch:
            return []
        made = []
        for node, follower in self._followers.items():
            seen = observed.get(node)
            if node == self.node or seen is None or seen.report is None:
                continue
            life = seen.report.life
            if not seen.report.levels.has(level):
                release = seen.report.software or "of an unknown version"
                follower.problem = f"its raylog {release} does not know level {level}; upgrade it"
            elif self._is_due(follower, life, now_ms):
                made.append(self._push(node, follower, life, now_ms))
        return made

    def _is_due(self, follower: _Follower, life: str, now_ms: int) -> bool:
        if follower.token:  # nobody answers for a life that has ended
            return follower.life != life
        if now_ms < follower.not_before_ms:
            return False
        is_behind = follower.base is None or follower.acked < self.history.end
        is_asked = (
            follower.directory_id in self._others() and follower.sent_token <= self._since_token
        )
        return is_behind or is_asked or now_ms - follower.sent_ms >= HEARTBEAT_MS

    def ask_all(self) -> None:
        """Ask every copy in sync once more; ``have_answered`` says when all have."""
        self._since_token = self._token

    @property
    def have_answered(self) -> bool:
        """Whether every copy in sync has everything, and has said so since ``ask_all``."""
        return self.counts_to == self.history.end and all(
            self._heard_tokens.get(directory_id, 0) > self._since_token
            for directory_id in self._others()
        )

    def _push(self, node: str, follower: _Follower, life: str, now_ms: int) -> Push:
        self._token += 1
        follower.token = follower.sent_token = self._token
        follower.life, follower.sent_ms = life, now_ms
        is_known = follower.base is not None
        base = self.history.end if follower.base is None else follower.base
        follower.pushed_base = base
        kept = follower.kept
        return Push(
            token=self._token,
            node=node,
            life=life,
            epoch=self.epoch,
            base=base,
            digest=self.history.digest_at(base),
            end=self.history.end if is_known else base,
            heard_life="" if kept is None else kept.life,
            heard=0 if kept is None else kept.number,
            snapshot_end=0 if kept is None else kept.snapshot_end,
        )

    # -- what counts -------------------------------------------------------------------------------

    @property
    def counts_to(self) -> int:
        """So many records count: all copies in sync have them.

        After a record of copies nothing counts before that record does.
        """
        acked = [self._acked(directory_id) for directory_id in self._others()]
        end = min(acked, default=self.history.end)
        return end if end >= self._members_end else 0

    @property
    def higher_promise(self) -> int:
        """The highest promise of a copy to a Controller with a higher epoch; 0 for none."""
        promises = [kept.promised for _, kept in self._kept() if kept.promised > self.epoch]
        return max(promises, default=0)

    @property
    def higher_record(self) -> tuple[str, int]:
        """A node whose copy has a record of a Controller with a higher epoch, and that; or 0."""
        for node, kept in self._kept():
            if kept.controller_epoch > self.epoch:
                return node, kept.controller_epoch
        return "", 0

    def _kept(self) -> list[tuple[str, MetadataKept]]:
        """The last answer of each node, to a Controller that has an epoch."""
        followers = self._followers.items() if self.epoch else ()
        return [(node, entry.kept) for node, entry in followers if entry.kept is not None]

    def _others(self) -> list[str]:
        """The copies in sync, without the Controller's own log."""
        return [dir_id for dir_id in self._members if dir_id != self.directory_id]

    def _acked(self, directory_id: str) -> int:
        ends = [
            follower.acked
            for follower in self._followers.values()
            if follower.directory_id == directory_id and follower.kept is not None
            if follower.kept.promised <= self.epoch
        ]
        return max(ends, default=0)

    def change(
        self,
        now_ms: int,
        *,
        may_join: bool,
        is_stopped: Callable[[str], bool],
        is_taken_offline: Callable[[str], bool],
    ) -> CopiesRecord | AskWhether | None:
        """The copies that shall be in sync from now on; None where these are.

        ``is_stopped``: whether an operator wants nothing of this node to run; ``is_taken_offline``:
        nothing in this log dir to be used. Before one is dropped Ray is asked whether this is still
        the Controller: the one that replaces it may count on that copy. Where it is not dropped
        after all Ray's head is told: else that copy alone would not be enough to begin with.

        Nothing is being written now, so that no record follows which drops one by that question.
        """
        if not self.epoch or not self.directory_id:
            return None
        wanted = self._wanted(now_ms, may_join, is_stopped, is_taken_offline)
        is_dropped = not self._members.keys() <= wanted.keys()
        if self._is_leave_noted and not is_dropped:
            taken_back = self.ask(now_ms, copies_at=self.history.copies_at)
            if taken_back is not None:
                self._leave_until_ms = 0
                return taken_back
        if wanted == self._members or not (may_join or is_dropped):
            return None
        if is_dropped and now_ms >= self._leave_until_ms:
            return self.ask(now_ms, leaves_out=True)
        return CopiesRecord(nodes=tuple(wanted.values()), directories=tuple(wanted))

    def _wanted(
        self,
        now_ms: int,
        may_join: bool,
        is_stopped: Callable[[str], bool],
        is_taken_offline: Callable[[str], bool],
    ) -> dict[str, str]:
        wanted = {
            directory_id: self._members[directory_id]
            for directory_id in self._others()
            if not self._is_silent(directory_id, now_ms)
            and not is_stopped(self._node_of(directory_id))
            and not is_taken_offline(directory_id)
        }
        if may_join:
            for node, follower in self._followers.items():
                if node == self.node or is_stopped(node) or not self._is_level(follower, now_ms):
                    continue
                own = follower.directory_id
                if is_taken_offline(own):
                    continue
                others = {key for dir_id, key in wanted.items() if dir_id != own}
                if node not in others:  # else its copy in another log dir has to be dropped first
                    wanted[own] = node
        if not wanted and not self._others():
            return self._members  # the Controller's own log is the only one, as it was
        return {self.directory_id: self.node, **wanted}

    def _node_of(self, directory_id: str) -> str:
        """The node of a copy in sync: as it answered last, or else as it was written down."""
        for node, follower in self._followers.items():
            if follower.directory_id == directory_id:
                return node
        return self._members[directory_id]

    def _is_level(self, follower: _Follower, now_ms: int) -> bool:
        """Whether a copy has everything, and has said so just now."""
        kept = follower.kept
        if kept is None or follower.problem or not kept.number or not follower.directory_id:
            return False
        is_fresh = now_ms - self._heard_ms[follower.directory_id] <= SUSPECT_MS
        return is_fresh and follower.acked == self.history.end and kept.promised <= self.epoch

    def _is_silent(self, directory_id: str, now_ms: int) -> bool:
        return now_ms - self._heard_ms[directory_id] > SUSPECT_MS

    def is_cut_off(self, now_ms: int) -> bool:
        """Whether another Controller may have begun: a copy in sync is silent, and Ray is, too.

        Where Ray says that this is still the Controller, the silent copy is dropped.
        """
        is_known = now_ms < self._leave_until_ms
        return not is_known and any(self._is_silent(one, now_ms) for one in self._others())

    # -- whether it is still the Controller --------------------------------------------------------

    def ask(
        self, now_ms: int, *, leaves_out: bool = False, copies_at: int | None = None
    ) -> AskWhether | None:
        """Ask Ray, if it is not being asked. The arguments are as of ``AskWhether``."""
        if self._asked is not None or now_ms < self._ask_not_before_ms:
            return None
        self._asked = AskWhether(leaves_out=leaves_out, copies_at=copies_at)
        self._asked_promise, self._asked_members_end = self.higher_promise, self._members_end
        self._is_leave_noted = self._is_leave_noted or leaves_out
        return self._asked

    def told(self, is_still: bool | None, now_ms: int) -> int:
        """Ray's answer; None where there is none.

        Returns the highest promise that does not matter any more: to a Controller that never began.
        """
        asked, self._asked = self._asked, None
        if not is_still:
            self._ask_not_before_ms = now_ms + RETRY_MS
            return 0
        # A copy that is silent only since the question may be one that counts for another. And
        # Ray's note of the question is not above a record of copies that was written since: over
        # such a copy alone a start would take it for complete.
        is_of_now = self._asked_members_end == self._members_end
        if asked is not None and asked.leaves_out and is_of_now:
            self._leave_until_ms = now_ms + LEAVE_MS
        if asked is not None and asked.copies_at is not None:
            self._is_leave_noted = False
        return self._asked_promise

    # -- to look at --------------------------------------------------------------------------------

    def statuses(self) -> tuple[CopyStatus, ...]:
        """The Controller's own log first, then every node's copy."""
        own = CopyStatus(
            node=self.node,
            end=self.history.end,
            epoch=self.history.latest_epoch,
            is_in_sync=True,
        )
        others = [
            CopyStatus(
                node=node,
                end=follower.acked,
                epoch=0 if follower.kept is None else follower.kept.controller_epoch,
                is_in_sync=bool(follower.directory_id) and follower.directory_id in self._members,
                problem=follower.problem,
            )
            for node, follower in sorted(self._followers.items())
            if node != self.node
        ]
        return (own, *others)

    def validate(self) -> None:
        """Assert what holds after every event."""
        assert self.counts_to <= self.history.end
        assert self._members_end <= self.history.end
        for follower in self._followers.values():
            assert follower.acked <= self.history.end
