"""Pushes of the metadata, as a Controller makes them from its log."""

from collections.abc import Sequence
from dataclasses import replace

from raylog.actors.control import MetadataPush
from raylog.actors.levels import CHAINED_LEVEL, FIRST_LEVEL, Levels
from raylog.actors.metadata_history import MetadataHistory
from raylog.actors.metadata_snapshot import MetadataSnapshot, to_bytes
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import (
    ClusterRecord,
    ControllerRecord,
    Record,
    TopicRecord,
    decode,
    encode,
)
from raylog.cluster.controller.snapshots import snapshot_of
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0

CLUSTER = "cluster-of-the-tests-00"
NEWER_LEVELS = Levels(FIRST_LEVEL, CHAINED_LEVEL)


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=f"id-{name}", config={})


def began(epoch: int) -> ControllerRecord:
    return ControllerRecord(epoch=epoch, node="a")


class Pushing:
    """A Controller's log in memory: decisions, each a batch of one or more records."""

    def __init__(self, *decisions: Sequence[Record] | Record, cluster_id: str = CLUSTER) -> None:
        first = ClusterRecord(cluster_id=cluster_id)
        self.cluster_id = cluster_id
        self.decisions: list[tuple[Record, ...]] = [(first,)]
        self.add(*decisions)

    def add(self, *decisions: Sequence[Record] | Record) -> None:
        for decision in decisions:
            several = decision if isinstance(decision, Sequence) else (decision,)
            self.decisions.append(tuple(several))

    @property
    def values(self) -> list[bytes]:
        return [encode(record) for decision in self.decisions for record in decision]

    @property
    def history(self) -> MetadataHistory:
        return MetadataHistory(self.values)

    def batches(self, base: int = 0, end: int | None = None) -> tuple[bytes, ...]:
        """Those that begin at the record ``base`` or behind, and before ``end``."""
        batches, number = [], 0
        for decision in self.decisions:
            if base <= number < (len(self.values) if end is None else end):
                rows = [(T0, None, encode(record), ()) for record in decision]
                batches.append(bytes(encode_records(rows, base_offset=number)))
            number += len(decision)
        return tuple(batches)

    def snapshot(self, end: int) -> MetadataSnapshot:
        """Of the first ``end`` records; a record of CHAINED_LEVEL must be among them."""
        values = self.values[:end]
        desired = Desired()
        for value in values:
            desired.apply(decode(value, NEWER_LEVELS))
        return snapshot_of(desired, MetadataHistory(values).point())

    def push_snapshot(self, of: int, base: int | None = None) -> MetadataPush:
        """What follows ``base``, with the snapshot of the first ``of`` records; from there on."""
        push = self.push(of if base is None else base)
        return replace(push, snapshot=to_bytes(self.snapshot(of), T0))

    def push(self, base: int = 0, end: int | None = None, epoch: int | None = None) -> MetadataPush:
        """What follows ``base``; of the epoch of its last Controller, unless another is given."""
        history = self.history
        return MetadataPush(
            cluster_id=self.cluster_id,
            controller_epoch=history.latest_epoch if epoch is None else epoch,
            base=base,
            digest=history.digest_at(base),
            batches=self.batches(base, end),
        )
