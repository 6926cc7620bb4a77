"""What a snapshot of the metadata says: the records that the fold of all records is made of. Pure.

The records are of the kinds that the log has, each thing once, in an order that gives the same
fold again::

    level, cluster, controller, copies, broker-config, producer-ids, nodes, log dirs,
    removed topics, topics, partitions, users, stopped

The level comes first: a reader that does not know it stops there (UnsupportedLevel). The highest
Kafka id may have been that of a node or a partition which is gone, so the snapshot's header has it.

The file is in ``actors/metadata_snapshot.py``.
"""

from collections.abc import Iterator

from raylog.actors.levels import LEVELS, Levels
from raylog.actors.metadata_history import HistoryPoint
from raylog.actors.metadata_snapshot import MetadataSnapshot
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import (
    ClusterRecord,
    CopiesRecord,
    LevelRecord,
    ProducerIdsRecord,
    Record,
    StoppedRecord,
    TopicRemovedRecord,
    decode,
    encode,
)
from raylog.storage.wire import RELEASE


def snapshot_of(desired: Desired, point: HistoryPoint) -> MetadataSnapshot:
    """``desired``: the fold of all records up to ``point``."""
    return MetadataSnapshot(
        point=point,
        next_kafka_id=desired.next_kafka_id,
        values=tuple(encode(record) for record in records_of_state(desired)),
    )


def desired_of(snapshot: MetadataSnapshot, levels: Levels = LEVELS) -> Desired:
    """The fold of all records up to the snapshot's end.

    ``levels``: those that this raylog knows. Raises UnsupportedLevel, and CorruptRecord where a
    newer raylog wrote it.
    """
    desired = Desired(next_kafka_id=snapshot.next_kafka_id)
    for value in snapshot.values:
        desired.apply(decode(value, levels))
    return desired


def records_of_state(desired: Desired) -> Iterator[Record]:
    """The records that give this fold again, but for the next Kafka id."""
    yield LevelRecord(level=desired.level, release=RELEASE)
    if desired.cluster_id:
        yield ClusterRecord(cluster_id=desired.cluster_id)
    if desired.controller is not None:
        yield desired.controller
    if desired.copies:
        yield CopiesRecord(nodes=desired.copies, directories=desired.copy_dirs)
    if desired.broker is not None:
        yield desired.broker
    if desired.next_producer_id:
        epoch = desired.controller_epoch
        yield ProducerIdsRecord(epoch=epoch, next_id=desired.next_producer_id)
    yield from desired.nodes.values()
    yield from desired.dirs.values()
    for topic_id in desired.removed_topics:
        yield TopicRemovedRecord(topic_id=topic_id)
    yield from desired.topics.values()
    yield from desired.partitions.values()
    yield from desired.users.values()
    if desired.is_all_stopped:
        yield StoppedRecord()
