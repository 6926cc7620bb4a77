"""Members of a group that come, go, die, hang and are rebalanced at random, in bad weather.

What must be true: every record is handed out; no record is handed out twice while nobody dies, is
expelled or fails; no commit is ahead of what was handed out; no partition has two readers of one
generation.
"""

from random import Random

import pytest

from raylog.cluster.client.consumer.consumer import Consumer
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition
from raylog.storage.testing.logs import batch
from tests.harness.grouping import GroupBroker

PARTITIONS = 5
STEPS = 150
HEALING_S = 60  # sessions of those that are gone end
ASSIGNORS = ("cooperative-sticky", "range", "sticky", "roundrobin")


class World:
    """One run."""

    def __init__(self, seed: int, *, is_gentle: bool) -> None:
        self.random = Random(seed)
        self.is_gentle = is_gentle
        self.broker = GroupBroker(t=PARTITIONS)
        self.assignor = self.random.choice(ASSIGNORS)
        self.members: list[Consumer] = []
        self.read: dict[TopicPartition, list[int]] = {}
        self.lives = 0

    def run(self) -> None:
        if not self.is_gentle:
            self.broker.weather = Random(self.random.random())
        steps = [self.append, self.poll, self.poll, self.poll, self.join, self.leave]
        if not self.is_gentle:
            steps += [self.die, self.hang, self.restart_coordinator, self.commit]
        for _ in range(STEPS):
            self.random.choice(steps)()
            self.check()
        self.heal()

    # -- steps -------------------------------------------------------------------------------------

    def append(self) -> None:
        served = self.random.choice(self.broker.topics["t"])
        served.partition.append(batch(self.random.randint(1, 5)))

    def join(self) -> None:
        if len(self.members) < 4:
            self.lives += 1
            is_static = self.random.random() < 0.3
            self.members.append(
                self.broker.member(
                    "t",
                    from_="earliest",
                    partition_assignment_strategy=self.assignor,
                    group_instance_id=f"i-{self.lives}" if is_static else None,
                    session_timeout_ms=10_000,
                    max_poll_interval_ms=30_000,
                    auto_commit_interval_ms=2_000,
                )
            )

    def poll(self) -> None:
        for member in self.members:
            try:
                polled = member.poll(self.random.randint(0, 500), self.random.randint(1, 10))
            except RaylogError:
                assert not self.is_gentle
                continue
            for record in polled:
                place = TopicPartition(record.topic, record.partition)
                self.read.setdefault(place, []).append(record.offset)

    def leave(self) -> None:
        if len(self.members) > 1:
            self.members.pop(self.random.randrange(len(self.members))).close()

    def die(self) -> None:
        """Its process ends: nobody hears of it."""
        if len(self.members) > 1:
            gone = self.members.pop(self.random.randrange(len(self.members)))
            assert gone._group is not None
            machine = gone._group._member._machine
            machine._be_out()  # no heartbeat any more
            machine.watching.subscribe((), None)

    def hang(self) -> None:
        self.broker.idle(self.random.choice([1, 5, 40]))

    def restart_coordinator(self) -> None:
        self.broker.restart_coordinator()

    def commit(self) -> None:
        if self.members:
            try:
                self.random.choice(self.members).commit()
            except RaylogError:
                pass

    # -- what must be true -------------------------------------------------------------------------

    def check(self) -> None:
        for place, offset in self.committed().items():
            furthest = max(self.read.get(place, [-1]))
            assert offset <= furthest + 1, f"{place}: {offset} is committed, {furthest} was read"
        readers: dict[tuple[TopicPartition, int], int] = {}
        for member in self.members:
            generation = member.group_metadata().generation
            for place in member.assignment:
                if generation >= 0:
                    readers[place, generation] = readers.get((place, generation), 0) + 1
        assert set(readers.values()) <= {1}, readers

    def committed(self) -> dict[TopicPartition, int]:
        places = [TopicPartition("t", number) for number in range(PARTITIONS)]
        found = self.broker.coordinator.committed(*places, group="g")
        return {place: at for place, at in zip(places, found, strict=True) if at >= 0}

    def heal(self) -> None:
        """The weather clears up; whoever is there reads all that is left."""
        self.broker.weather = None
        if not self.is_gentle:
            self.broker.idle(60)
        if not self.members:
            self.join()
        ends_s = self.broker.now_s + HEALING_S
        while self.broker.now_s < ends_s:
            self.poll()
        self.check()
        owned = [place for member in self.members for place in member.assignment]
        assert sorted(owned) == [TopicPartition("t", number) for number in range(PARTITIONS)]
        for number, served in enumerate(self.broker.topics["t"]):
            offsets = self.read.get(TopicPartition("t", number), [])
            wanted = list(range(served.partition.log.log_end_offset))
            assert sorted(set(offsets)) == wanted, f"partition {number}: records were skipped"
            if self.is_gentle:
                assert sorted(offsets) == wanted, f"partition {number}: records came twice"
        for member in self.members:
            member.commit()
        ends = [served.partition.log.log_end_offset for served in self.broker.topics["t"]]
        stands = [self.committed().get(TopicPartition("t", n), 0) for n in range(PARTITIONS)]
        assert stands == ends


@pytest.mark.parametrize("seed", range(25))
def test_in_fair_weather_each_record_comes_once(seed: int) -> None:
    World(seed, is_gentle=True).run()


@pytest.mark.parametrize("seed", range(25))
def test_in_bad_weather_no_record_is_skipped(seed: int) -> None:
    World(seed, is_gentle=False).run()
