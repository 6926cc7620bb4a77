"""A world in which members of a group live, lose messages, crash and come back, by a seed.

The members are written from the protocol's words, not from the coordinator: each knows what it was
told, and acts on it. Two of them are static. A message may be lost on its way to the coordinator or
back. The coordinator may die and read its log again, also one that compaction has been through, and
its log may refuse records for a while. After each step it is checked what must never happen; at the
end all is quiet, and the group must come to rest.
"""

from dataclasses import dataclass, field
from random import Random

from raylog.actors.coordinators.group import State
from raylog.actors.coordinators.group_config import GroupConfig
from raylog.actors.coordinators.group_messages import (
    CommitAnswer,
    CommitRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    JoinAnswer,
    Leaver,
    LeaveRequest,
    OffsetToCommit,
    SyncAnswer,
    SyncRequest,
)
from raylog.storage.names import TopicPartition
from tests.harness.coordinating import GROUP, Client, Coordinator

PARTITIONS = tuple(TopicPartition("orders", number) for number in range(5))
SESSION_MS, REBALANCE_MS, DELAY_MS = 10_000, 15_000, 300
# A client asks no longer for an answer that was lost.
PATIENCE_MS = REBALANCE_MS + 5_000
QUIET_MS = 20 * REBALANCE_MS


@dataclass
class Life:
    """A member, with what it believes. ``owns``: what it reads; None while it has no assignment."""

    client: Client
    step: str = "out"  # out, joining, joined, syncing, in, paused
    token: int = -1
    asked_ms: int = 0
    leads: bool = False
    members: tuple[str, ...] = ()
    owns: frozenset[TopicPartition] | None = None
    offset: int = 0
    alive: bool = True
    heard: list[str] = field(default_factory=list)


def coded(partitions: frozenset[TopicPartition]) -> bytes:
    return b",".join(str(one.partition).encode() for one in sorted(partitions))


def decoded(assignment: bytes) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("orders", int(one)) for one in assignment.split(b",") if one)


class World:
    """See the module's head."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        config = GroupConfig(initial_rebalance_delay_ms=DELAY_MS, max_size=10)
        self.coordinator = Coordinator(config)
        self.lives = [
            Life(
                Client(
                    f"c{number}",
                    instance_id=f"i{number}" if number < 2 else None,
                    session_ms=SESSION_MS,
                    rebalance_ms=REBALANCE_MS,
                )
            )
            for number in range(4)
        ]
        self.committed: dict[TopicPartition, int] = {}
        self.in_doubt: dict[TopicPartition, set[int]] = {}
        # generation -> the assignments that members were told in it
        self.told: dict[int, dict[str, frozenset[TopicPartition]]] = {}
        self.quiet = False
        self.counts: dict[str, int] = {}

    # -- what happens ------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            self._check()
        self._come_to_rest()

    def _step(self) -> None:
        chance = self.random.random()
        if chance < 0.02:
            self._restart()
        elif chance < 0.04:
            self.coordinator.refusal = 15 if self.random.random() < 0.5 else 0
        elif chance < 0.35:
            self.coordinator.wait(self.random.choice((1, 50, 300, 1_000, 3_000, 9_000)))
        else:
            self._act(self.random.choice(self.lives))

    def _restart(self) -> None:
        self._count("coordinator restarted")
        if self.random.random() < 0.5:
            self._compact()
        self.coordinator.restart()
        for life in self.lives:  # their connections are gone
            life.token = -1

    def _compact(self) -> None:
        last = {record.key: at for at, record in enumerate(self.coordinator.log)}
        kept = set(last.values())
        self.coordinator.log = [
            record for at, record in enumerate(self.coordinator.log) if at in kept
        ]

    def _act(self, life: Life) -> None:
        chance = self.random.random()
        if not self.quiet and life.step != "out" and chance < 0.02:
            self._crash(life)
        elif not self.quiet and life.step == "in" and chance < 0.04:
            self._leave(life)
        elif life.step == "out":
            self._join(life)
        elif life.step in ("joining", "syncing"):
            self._look(life)
        elif life.step == "joined":
            self._sync(life)
        elif chance < 0.3:
            self._commit(life)
        elif not self.quiet and chance < 0.33:
            self._want_something_else(life)
        else:
            self._heartbeat(life)

    def _is_lost(self) -> bool:
        return not self.quiet and self.random.random() < 0.1

    def _crash(self, life: Life) -> None:
        self._count("member crashed")
        life.client.forgets()
        self._out(life)

    def _out(self, life: Life) -> None:
        life.step, life.token, life.owns, life.leads = "out", -1, None, False

    def _leave(self, life: Life) -> None:
        self._count("member left")
        who = life.client.who
        self.coordinator.ask(LeaveRequest(GROUP, (Leaver(who.member_id, who.instance_id),)))
        life.client.forgets()
        self._out(life)

    def _want_something_else(self, life: Life) -> None:
        self._count("member joined again")
        life.client.protocols = (("range", str(self.random.random()).encode()),)
        self._join(life)

    def _join(self, life: Life) -> None:
        """It reads on until it is told to give up, and commits what it has read before."""
        if self._is_lost():
            return
        life.step = "joining"
        life.asked_ms = self.coordinator.now_ms
        life.token = self.coordinator.ask(life.client.join_request())

    def _look(self, life: Life) -> None:
        if life.token in self.coordinator.answers:
            answer = self.coordinator.answers[life.token]
            life.token = -1
            if self._is_lost():
                return
            if isinstance(answer, JoinAnswer):
                self._joined(life, answer)
            else:
                assert isinstance(answer, SyncAnswer)
                self._synced(life, answer)
        elif life.token < 0 or self.coordinator.now_ms - life.asked_ms > PATIENCE_MS:
            self._count("asked again")
            if life.step == "joining":
                self._join(life)
            else:
                self._sync(life)

    def _joined(self, life: Life, answer: JoinAnswer) -> None:
        if answer.error_code == 79:
            life.client.member_id = answer.member_id
            life.step = "out"
            return
        if answer.error_code:
            self._refused(life, answer.error_code)
            return
        self._count("joined")
        life.client.member_id, life.client.generation = answer.member_id, answer.generation
        life.leads = answer.leader == answer.member_id and not answer.skips_assignment
        life.members = tuple(one.member_id for one in answer.members)
        life.owns, life.step = None, "joined"

    def _refused(self, life: Life, code: int) -> None:
        self._count(f"code {code}")
        if code in (25, 82):
            life.client.forgets()
        elif code == 22:
            life.client.generation = -1
        else:
            assert code in (15, 16, 27), code
        self._out(life)

    def _sync(self, life: Life) -> None:
        assignments: dict[str, bytes] = {}
        if life.leads:
            shares = {
                member: frozenset(PARTITIONS[place :: len(life.members)])
                for place, member in enumerate(life.members)
            }
            assignments = {member: coded(share) for member, share in shares.items()}
        if self._is_lost():
            return
        life.step = "syncing"
        life.asked_ms = self.coordinator.now_ms
        request = SyncRequest(life.client.who, "consumer", None, assignments)
        life.token = self.coordinator.ask(request)

    def _synced(self, life: Life, answer: SyncAnswer) -> None:
        if answer.error_code:
            self._refused(life, answer.error_code)
            return
        self._count("assigned")
        life.owns, life.step = decoded(answer.assignment), "in"
        who = life.client.instance_id or life.client.member_id
        self.told.setdefault(life.client.generation, {})[who] = life.owns

    def _heartbeat(self, life: Life) -> None:
        if self._is_lost():
            return
        code = self.coordinator.at_once(
            HeartbeatRequest(life.client.who), HeartbeatAnswer
        ).error_code
        if code == 27:
            self._join(life)
        elif code:
            self._refused(life, code)

    def _commit(self, life: Life) -> None:
        if not life.owns or self._is_lost():
            return
        partition = self.random.choice(sorted(life.owns))
        life.offset += 1
        offset = life.offset * 10 + self.lives.index(life)
        request = CommitRequest(life.client.who, (OffsetToCommit(partition, offset),))
        code = self.coordinator.at_once(request, CommitAnswer).error_codes[0]
        if code == 0:
            self._count("committed")
            self.committed[partition] = offset
            self._check_owner(life, partition)
        elif code in (22, 25, 82):
            self._refused(life, code)
        else:
            assert code in (15, 16, 27), code

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- what must hold ----------------------------------------------------------------------------

    def _check_owner(self, life: Life, partition: TopicPartition) -> None:
        """Nobody commits for a partition that another one was given later."""
        later = [
            shares
            for generation, shares in self.told.items()
            if generation > life.client.generation
        ]
        who = life.client.instance_id or life.client.member_id
        for shares in later:
            owners = {owner for owner, share in shares.items() if partition in share}
            assert owners <= {who}, f"{who} has lost {partition} to {owners}"

    def _check(self) -> None:
        for generation, shares in self.told.items():
            seen: set[TopicPartition] = set()
            for owner, share in shares.items():
                assert not seen & share, f"two own {seen & share} in {generation}: {owner}"
                seen |= share
        found = self.coordinator.committed(*PARTITIONS)
        for partition, offset in zip(PARTITIONS, found, strict=True):
            assert offset == self.committed.get(partition, -1), partition

    def _come_to_rest(self) -> None:
        """With nobody in the way the group is stable in a bounded time, and all are in it."""
        self.quiet, self.coordinator.refusal = True, 0
        end_ms = self.coordinator.now_ms + QUIET_MS
        while self.coordinator.now_ms < end_ms:
            for life in self.lives:
                self._act(life)
                self._check()
            self.coordinator.wait(500)
        group = self.coordinator.machine._table.groups[GROUP]
        assert group.state is State.STABLE, group
        assert {life.step for life in self.lives} == {"in"}
        owned = [one for life in self.lives for one in life.owns or ()]
        assert sorted(owned) == list(PARTITIONS)
