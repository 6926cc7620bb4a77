"""A world in which producers write transactions, lose messages, die and come back, by a seed.

The producers are written from the protocol's words, not from the coordinator. Two of them share one
transactional id: each takes it from the other. A third prepares its transactions, and somebody else
decides them, even when it is dead. The partitions keep what a log keeps of producers, and ask the
coordinator before they take the first batch of a transaction. A message may be lost on its way, its
answer may be lost, and it may arrive when nobody waits for it any more. The coordinator may die and
read its log again, also one that compaction has been through, its log may refuse records, and the
wall clock may be set.

After each step it is checked what must never happen. At the end all is quiet: nothing may be open,
and of each transaction all must be seen, or nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from raylog.actors.coordinators.transactions.config import TransactionConfig
from raylog.actors.coordinators.transactions.machine import Marked
from raylog.actors.coordinators.transactions.messages import (
    AddPartitionsAnswer,
    AddPartitionsRequest,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    Owner,
    PrepareAnswer,
    PrepareRequest,
    VerifyAnswer,
    VerifyRequest,
)
from raylog.storage.names import TopicPartition
from tests.unit.actors.coordinators.transactions.playing import Coordinator

PARTITIONS = tuple(TopicPartition("t", number) for number in range(3))
TIMEOUT_MS = 20_000
Answer = TypeVar("Answer")
LOST = -1000  # no answer has come
TRY_AGAIN = (LOST, 14, 15, 16, 51)


@dataclass
class Attempt:
    """A transaction as its producer sees it. ``asked``: to commit it (True), to abort it, or not
    at all. ``answered``: whether that was answered.
    """

    values: list[int] = field(default_factory=list)
    asked: bool | None = None
    answered: bool = False
    is_preparing: bool = False  # its producer writes no more
    is_prepared: bool = False


@dataclass
class Written:
    """A batch of one value, and what became of it: "open", "committed" or "aborted"."""

    value: int
    producer_id: int
    fate: str = "open"


@dataclass
class Producing:
    """What a partition knows of a producer."""

    epoch: int
    next_sequence: int = 0
    is_open: bool = False


class Log:
    """A partition: it takes batches by sequence and epoch, and markers."""

    def __init__(self) -> None:
        self.entries: list[Written] = []
        self.by_value: dict[int, Written] = {}
        self.producers: dict[int, Producing] = {}

    def append(self, owner: Owner, sequence: int, value: int, may_write: Callable[[], int]) -> int:
        known = self.producers.get(owner.producer_id)
        if known is not None and owner.epoch < known.epoch:
            return 47
        is_same = known is not None and owner.epoch == known.epoch
        expected = known.next_sequence if known is not None and is_same else 0
        if is_same and sequence < expected:
            return 0  # it has it
        if not (known is not None and is_same and known.is_open):
            code = may_write()
            if code:
                return code
        if sequence != expected:
            return 45
        assert known is None or is_same or not known.is_open, "two epochs are open"
        assert value not in self.by_value, "it is there twice"
        self.by_value[value] = Written(value, owner.producer_id)
        self.entries.append(self.by_value[value])
        self.producers[owner.producer_id] = Producing(owner.epoch, sequence + 1, is_open=True)
        return 0

    def mark(self, producer_id: int, epoch: int, version: int, *, is_commit: bool) -> int:
        known = self.producers.get(producer_id)
        if known is not None:
            is_stale = version >= 2 and known.is_open and epoch == known.epoch
            if epoch < known.epoch or is_stale:
                return 47
        for entry in self.entries:
            if entry.producer_id == producer_id and entry.fate == "open":
                entry.fate = "committed" if is_commit else "aborted"
        if known is None or known.epoch != epoch:
            self.producers[producer_id] = Producing(epoch)
        else:
            known.is_open = False
        return 0


class Producer:
    """A life after another under one transactional id."""

    def __init__(self, world: "World", transactional_id: str, version: int) -> None:
        self.world, self.transactional_id, self.version = world, transactional_id, version
        self.prepares = transactional_id == "prepared"
        self.owner: Owner | None = None
        self.attempt: Attempt | None = None
        self.added: set[TopicPartition] = set()
        self.sequences: dict[TopicPartition, int] = {}
        self.unsent: tuple[TopicPartition, int] | None = None  # its fate is not known

    def die(self) -> None:
        self.owner = self.attempt = self.unsent = None
        self.added.clear()
        self.sequences.clear()

    def act(self) -> None:
        random = self.world.random
        if self.owner is None:
            self._init()
        elif random.random() < 0.02:
            self.world.count("producer died")
            self.die()
        elif self.attempt is None:
            self.attempt = Attempt()
            self.world.attempts.append(self.attempt)
        elif self.attempt.asked is not None:
            self._end()
        elif self.unsent is not None:
            self._send(*self.unsent)
        elif self.attempt.is_preparing:
            self._prepare()
        elif not self.attempt.values or random.random() < 0.6:
            self.world.values += 1
            self._send(random.choice(PARTITIONS), self.world.values)
        elif self.prepares:
            self.attempt.is_preparing = True
            self._prepare()
        else:
            self.attempt.asked = random.random() < 0.7
            self._end()

    def _init(self) -> None:
        request = InitRequest(Owner(self.transactional_id, -1, -1), TIMEOUT_MS)
        answer = self.world.reach(lambda: self.world.coordinator.ask(request, InitAnswer))
        if answer is None or answer.error_code in TRY_AGAIN:
            return
        assert answer.error_code == 0, answer
        self.world.count("took its id")
        self.owner = Owner(self.transactional_id, answer.producer_id, answer.epoch)
        self.world.took(self.owner)

    def _send(self, partition: TopicPartition, value: int) -> None:
        """Write one value; version 1 adds the partition first."""
        assert self.owner is not None
        assert self.attempt is not None
        self.unsent = (partition, value)
        owner, world = self.owner, self.world
        if self.version == 1 and partition not in self.added:
            request = AddPartitionsRequest(owner, (partition,), 1)
            added = world.reach(lambda: world.coordinator.ask(request, AddPartitionsAnswer))
            code = LOST if added is None else added.error_code
            if self._is_over(code):
                return
            self.added.add(partition)
        if value not in self.attempt.values:
            self.attempt.values.append(value)
        sequence = self.sequences.get(partition, 0)
        answered = world.reach(lambda: world.write(owner, partition, sequence, value, self.version))
        if not self._is_over(LOST if answered is None else answered):
            self.sequences[partition] = sequence + 1
            self.unsent = None

    def _is_over(self, code: int) -> bool:
        """Whether it did not work; what is not to be tried again ends this life."""
        if code and code not in TRY_AGAIN:
            self.world.count(f"code {code}")
            self.die()
        return code != 0

    def _prepare(self) -> None:
        assert self.owner is not None
        assert self.attempt is not None
        owner, attempt, world = self.owner, self.attempt, self.world
        request = PrepareRequest(owner)

        def reach() -> PrepareAnswer:
            answer = world.coordinator.ask(request, PrepareAnswer)
            if answer.error_code == 0 and not attempt.is_prepared:
                attempt.is_prepared = True
                world.prepared.append((owner, attempt))
            return answer

        answer = world.reach(reach)
        if not self._is_over(LOST if answer is None else answer.error_code):
            world.count("prepared")
            self.die()  # another one goes on, when it is decided

    def _end(self) -> None:
        assert self.owner is not None
        assert self.attempt is not None
        assert self.attempt.asked is not None
        request = EndRequest(self.owner, self.attempt.asked, self.version)
        answer = self.world.reach(lambda: self.world.coordinator.ask(request, EndAnswer))
        if answer is None and self.version == 1:
            self.world.count("end in doubt")
            self.die()  # version 1 cannot tell a late end from the next one (KAFKA-17754)
            return
        if self._is_over(LOST if answer is None else answer.error_code):
            return
        assert answer is not None
        self.attempt.answered = True
        self.world.count("committed" if self.attempt.asked else "aborted")
        assert (answer.epoch > self.owner.epoch) == (self.version == 2)
        if self.version == 2:
            self.sequences.clear()
        self.owner = Owner(self.transactional_id, answer.producer_id, answer.epoch)
        self.attempt = None
        self.added.clear()


class World:
    """See the module's head."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.coordinator = Coordinator(TransactionConfig(abort_interval_ms=1_000))
        self.logs = {partition: Log() for partition in PARTITIONS}
        self.producers = [
            Producer(self, "shared", 1),
            Producer(self, "shared", self.random.choice((1, 2))),
            Producer(self, "own", 2),
            Producer(self, "prepared", 2),
        ]
        self.attempts: list[Attempt] = []
        self.prepared: list[tuple[Owner, Attempt]] = []
        self.values = 0
        self.quiet = False
        self.counts: dict[str, int] = {}
        self._late: list[Callable[[], object]] = []
        self._owners: dict[tuple[int, int], str] = {}
        self._epochs: dict[str, tuple[int, int]] = {}

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            self._check()
        self._come_to_rest()

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- what happens ------------------------------------------------------------------------------

    def _step(self) -> None:
        chance = self.random.random()
        if chance < 0.02:
            self._restart()
        elif chance < 0.04:
            self.coordinator.refusal = 15 if self.random.random() < 0.5 else 0
        elif chance < 0.06:
            self._set_clock()
        elif chance < 0.16:
            self.coordinator.wait(self.random.choice((1, 50, 1_000, 5_000, 9_000)))
        elif chance < 0.20 and self._late:
            self.count("late")
            self._late.pop(self.random.randrange(len(self._late)))()
        elif chance < 0.24 and self.prepared:
            self._decide()
        elif chance < 0.50:
            self._deliver()
        else:
            self.random.choice(self.producers).act()

    def _restart(self) -> None:
        self.count("coordinator restarted")
        if self.random.random() < 0.5:
            self.coordinator.compact()
        self.coordinator.restart()

    def _set_clock(self) -> None:
        self.count("clock set")
        self.coordinator.skew_ms = self.random.choice((-3_600_000, -1_000, 0, 1_000, 5_000))

    def reach(self, message: Callable[[], Answer]) -> Answer | None:
        """Send a message; None where no answer comes."""
        chance = 1.0 if self.quiet else self.random.random()
        if chance < 0.04:
            return None
        if chance < 0.08:
            self._late.append(message)
            return None
        answer = message()
        if chance < 0.12:
            if self.random.random() < 0.5:
                self._late.append(message)  # the network has it twice
            return None
        return answer

    def write(
        self, owner: Owner, partition: TopicPartition, sequence: int, value: int, version: int
    ) -> int:
        """A batch at the leader of a partition."""

        def may_write() -> int:
            if version == 1:
                asked = VerifyRequest(owner, (partition,))
                return self.coordinator.ask(asked, VerifyAnswer).error_codes[0]
            request = AddPartitionsRequest(owner, (partition,), 2)
            return self.coordinator.ask(request, AddPartitionsAnswer).error_code

        return self.logs[partition].append(owner, sequence, value, may_write)

    def _deliver(self) -> None:
        """One marker arrives, or not; its answer arrives, or not."""
        coordinator = self.coordinator
        if not coordinator.markers:
            return
        place = self.random.randrange(len(coordinator.markers))
        markers, partition = coordinator.markers[place]
        chance = 1.0 if self.quiet else self.random.random()
        if chance < 0.2:
            return
        self.logs[partition].mark(
            markers.producer_id, markers.epoch, markers.version, is_commit=markers.is_commit
        )
        if chance < 0.4:
            return
        del coordinator.markers[place]
        coordinator.do(Marked(markers, partition))

    def _decide(self) -> None:
        """Somebody else decides a prepared transaction."""
        owner, attempt = self.prepared[0]
        is_first = attempt.asked is None
        if is_first:
            attempt.asked = self.random.random() < 0.5
        request = EndRequest(owner, bool(attempt.asked), 2)
        answer = self.reach(lambda: self.coordinator.ask(request, EndAnswer))
        if answer is None or answer.error_code in TRY_AGAIN:
            return
        # Another may have the id by now; nothing but its own decision has ended it before.
        assert answer.error_code in ((0,) if is_first else (0, 49, 90)), answer
        attempt.answered = True
        self.count("decided")
        del self.prepared[0]

    # -- what must hold ----------------------------------------------------------------------------

    def took(self, owner: Owner) -> None:
        """No epoch is given twice."""
        life = (owner.producer_id, owner.epoch)
        assert life not in self._owners, f"{owner} has the epoch of another"
        self._owners[life] = owner.transactional_id

    def _check(self) -> None:
        for name in ("shared", "own", "prepared"):
            known = self.coordinator.machine._table.transactions.get(name)
            if known is None:
                continue
            now = (known.producer_id, known.epoch)
            assert now >= self._epochs.get(name, (0, 0)), "an epoch goes back"
            self._epochs[name] = now
        for attempt in self.attempts:
            fates = self._fates(attempt)
            assert not {"committed", "aborted"} <= fates, "one marker commits, another aborts"
            if "committed" in fates:
                assert attempt.asked is True, "nobody has asked for it"
            if attempt.answered:
                assert ("aborted" if attempt.asked else "committed") not in fates

    def _fates(self, attempt: Attempt) -> set[str]:
        return {
            log.by_value[value].fate
            for log in self.logs.values()
            for value in attempt.values
            if value in log.by_value
        }

    def _come_to_rest(self) -> None:
        """What is under way arrives, and all that is open ends."""
        self.quiet, self.coordinator.refusal, self.coordinator.skew_ms = True, 0, 0
        while self._late:
            self._late.pop()()
            self._check()
        for _ in range(200):
            if self.prepared:
                self._decide()
            self._deliver()
            self._check()
            self.coordinator.wait(1_000)
        assert not self.coordinator.markers
        assert not self.prepared
        written: set[int] = set()
        for partition, log in self.logs.items():
            for entry in log.entries:
                assert entry.fate != "open", f"{partition}: {entry} hangs"
                assert entry.value not in written, f"{entry} is there twice"
                written.add(entry.value)
        for attempt in self.attempts:
            fates = self._fates(attempt)
            assert len(fates) <= 1, f"torn: {attempt}"
            if attempt.answered and attempt.values:
                assert fates == {"committed" if attempt.asked else "aborted"}
                assert written >= set(attempt.values), "what was answered is there"
