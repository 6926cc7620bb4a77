"""Producers of transactions in bad weather, by a seed: all of each transaction is seen, or nothing.

A tenth of all requests, or their answers, get lost; processes are started again; a producer is left
as by a kill, and another one takes its id. ``RAYLOG_TRANSACTION_SEED=n`` runs one seed.
"""

import os
from random import Random

import pytest

from raylog.actors.coordinators.transactions.errors import ProducerFenced, TransactionFailed
from raylog.actors.errors import RequestTimedOut
from raylog.cluster.client.consumer.group.messages import GroupMetadata
from raylog.cluster.client.producer import Producer
from raylog.storage.errors import RaylogError
from raylog.storage.testing.waiting import wait_for
from tests.harness.transaction_lab import Lab
from tests.unit.actors.plane.together import COORDINATOR, FIRST, OFFSETS, ORDERS, SECOND

SEEDS = int(os.environ.get("RAYLOG_TRANSACTION_SEEDS", "12"))
ONE = os.environ.get("RAYLOG_TRANSACTION_SEED")
TRANSACTIONS = 25
GROUP = GroupMetadata("readers")


class World:
    """What a user does, and what it was told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.lab = Lab()
        self.lab.way.weather = Random(seed + 1)
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self.unknown: list[set[bytes]] = []  # each is there, or not: whoever asked was fenced
        self._producer: Producer | None = None

    def run(self) -> None:
        for number in range(TRANSACTIONS):
            self._trouble()
            self._transaction(number)
        self.lab.way.weather = None
        self.lab.ready().close()  # what was left open is aborted
        for partition in (FIRST, SECOND):
            log = self.lab.cluster.processes[partition].partition.log
            wait_for(lambda at=log: at.last_stable_offset == at.log_end_offset)  # type: ignore[misc]
        self._check()

    def _trouble(self) -> None:
        if self.random.random() < 0.2:
            place = self.random.choice((COORDINATOR, FIRST, SECOND, OFFSETS))
            self.lab.cluster.processes[place].restart()
            self.lab.cluster.serves()

    def _transaction(self, number: int) -> None:
        values = {b"%d.%d" % (number, at) for at in range(self.random.randint(1, 6))}
        try:
            producer = self._begun()
            for value in sorted(values):
                producer.send(ORDERS, value, partition=self.random.randrange(2))
                if self.random.random() < 0.3:
                    producer.flush()
            if self.random.random() < 0.5:
                producer.send_offsets_to_transaction({(ORDERS, 0): number}, GROUP)
        except RaylogError:
            self._give_up(values)
            return
        if self.random.random() < 0.1:
            self._producer = None  # as if it was killed
            self.aborted |= values
        elif self.random.random() < 0.2:
            self._give_up(values)
        else:
            self._commit(producer, values)

    def _begun(self) -> Producer:
        if self._producer is None:
            self._producer = self.lab.ready(delivery_timeout_ms=500, max_block_ms=2000)
        self._producer.begin_transaction()
        return self._producer

    def _give_up(self, values: set[bytes]) -> None:
        self.aborted |= values
        if self._producer is None:
            return
        try:
            self._again(self._producer.abort_transaction)
        except RaylogError:
            self._producer = None

    def _commit(self, producer: Producer, values: set[bytes]) -> None:
        try:
            self._again(producer.commit_transaction)
        except TransactionFailed:
            self._give_up(values)
        except ProducerFenced:
            self._producer = None
            self.unknown.append(values)
        else:
            self.committed |= values

    @staticmethod
    def _again(call: object) -> None:
        """Until it has an answer."""
        while True:
            try:
                call()  # type: ignore[operator]
            except RequestTimedOut:
                continue
            return

    def _check(self) -> None:
        found = self.lab.all_committed()
        seen = set(found)
        assert len(found) == len(seen), "nothing is there twice"
        assert self.committed <= seen
        assert not self.aborted & seen
        for values in self.unknown:
            assert values <= seen or not values & seen
        assert len(self.committed) > TRANSACTIONS


@pytest.mark.parametrize("seed", [int(ONE)] if ONE else range(SEEDS))
def test_all_of_a_transaction_is_seen_or_nothing(seed: int) -> None:
    world = World(seed)
    try:
        world.run()
    finally:
        world.lab.close()
