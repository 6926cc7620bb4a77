"""An operator's work on topics that are in use: configs are set, partitions added and moved between
log dirs, records deleted. What the broker acknowledges is taken down, and must be so at the end.

It is taken down before, and again with what came of it: who does this is killed when Ray ends.
"""

import time
from collections.abc import Callable
from typing import Any

from raylog.cluster.controller.describe import TopicDescription
from raylog.storage.errors import RaylogError
from tests.soak.clients import Answer, Worker
from tests.soak.history import (
    INFO,
    NEVER,
    OK,
    PARTITIONS,
    DeleteRecords,
    Partition,
    Setting,
    SettingAtEnd,
    config_of,
    place_of,
)
from tests.soak.plan import Stable

# Topics of these names are made and deleted again and again.
NAMES = 3
MOST_PARTITIONS = 4
MOST_DELETED = 500

# What a topic may be told while it serves: the records' fate does not hang on it.
SETTINGS: dict[str, tuple[Any, ...]] = {
    "internal.segment.bytes": (40_000, 100_000, 400_000),
    "index.interval.bytes": (0, 4096),
    "compression.type": ("producer", "lz4", "uncompressed"),
    "max.message.bytes": (1_048_588, 2_000_000),
}


def churn_name(worker: Worker) -> str:
    return f"churn-{worker.rng.randrange(NAMES)}"


def operate(worker: Worker, topic: Stable) -> None:
    """One change to a topic that is in use. What the broker cannot do now it says by name."""
    try:
        worker.rng.choice(OPERATIONS)(worker, topic)
    except RaylogError as error:
        print(f"{topic.name}: {type(error).__name__}: {error}", flush=True)


def tell_created(worker: Worker, made: TopicDescription, invoked: int, outcome: str) -> None:
    """Take down how a topic was made, now; ``outcome``: of its creation."""
    now = time.monotonic_ns()
    for found in settings_of(made):
        worker.writer.write(
            Setting(found.topic, found.topic_id, found.what, found.value, invoked, now, outcome)
        )


def settings_of(described: TopicDescription) -> list[SettingAtEnd]:
    """What the broker says of a topic."""
    told: list[tuple[str, object]] = [(PARTITIONS, len(described.partitions))]
    told += [(place_of(place.partition), place.directory_id) for place in described.partitions]
    told += [(config_of(key), value) for key, value in described.config.items() if key in SETTINGS]
    return [
        SettingAtEnd(described.name, described.topic_id, what, str(value)) for what, value in told
    ]


# -- operations ------------------------------------------------------------------------------------


def configure(worker: Worker, topic: Stable) -> None:
    key = worker.rng.choice(list(SETTINGS))
    value = worker.rng.choice(SETTINGS[key])
    _set(
        worker,
        (topic.name, topic.topic_id),
        (config_of(key), value),
        lambda: worker.broker.alter_topic_config(topic.name, {key: value}),
    )


def _extend(worker: Worker, topic: Stable) -> None:
    """Not the stable ones, whose partitions the workers know by number."""
    name, invoked = churn_name(worker), time.monotonic_ns()
    described = worker.broker.describe_topic(name)
    total = len(described.partitions) + 1
    if total <= MOST_PARTITIONS:
        extended = _set(
            worker,
            (name, described.topic_id),
            (PARTITIONS, total),
            lambda: worker.broker.add_partitions(name, total),
        )
        _tell_extended(worker, extended, total, invoked)


def _tell_extended(worker: Worker, extended: TopicDescription, total: int, invoked: int) -> None:
    """Take down where the new partition is. ``invoked``: before it was known not to be there."""
    (place,) = [place for place in extended.partitions if place.partition == total - 1]
    what, value = place_of(place.partition), str(place.directory_id)
    worker.writer.write(
        Setting(extended.name, extended.topic_id, what, value, invoked, time.monotonic_ns(), OK)
    )


def _move(worker: Worker, topic: Stable) -> None:
    """To another log dir of the partition's node, while it is written and read."""
    broker = worker.broker
    places = broker.describe_topic(topic.name).partitions
    place = worker.rng.choice(places)
    others = [
        log_dir.directory_id
        for log_dir in broker.log_dirs()
        if log_dir.node_id == place.node_id and log_dir.directory_id not in ("", place.directory_id)
    ]
    if others:
        _set(
            worker,
            (topic.name, topic.topic_id),
            (place_of(place.partition), others[0]),
            lambda: broker.move_partition(topic.name, place.partition, others[0]),
        )


def _set(
    worker: Worker,
    topic: tuple[str, str],
    what: tuple[str, object],
    request: Callable[[], Answer],
) -> Answer:
    """Ask for it, and take down the answer. After an error nobody knows: it may be done late."""
    name, value = what
    op = Setting(*topic, name, str(value), time.monotonic_ns(), NEVER, INFO)
    worker.writer.write(op)
    try:
        answer = request()
        op = op._replace(completed=time.monotonic_ns(), outcome=OK)
        return answer
    finally:
        worker.writer.write(op)


def _delete_records(worker: Worker, topic: Stable) -> None:
    """Of a topic whose records are deleted anyhow; of one that keeps them, exactly these."""
    if topic.may_delete:
        partition = Partition(topic.name, topic.topic_id, worker.rng.randrange(topic.partitions))
    else:
        described = worker.broker.describe_topic(churn_name(worker))
        number = worker.rng.randrange(len(described.partitions))
        partition = Partition(described.name, described.topic_id, number)
    key = (partition.topic, partition.number)
    (start,) = worker.broker.list_offsets({key: -2}).values()
    (end,) = worker.broker.list_offsets({key: -1}).values()
    before = min((start or 0) + worker.rng.randrange(MOST_DELETED), end or 0)
    op = DeleteRecords(partition, before, time.monotonic_ns(), NEVER, INFO)
    worker.writer.write(op)
    try:
        worker.broker.delete_records(*key, before)
        op = op._replace(completed=time.monotonic_ns(), outcome=OK)
    finally:
        worker.writer.write(op)


OPERATIONS: tuple[Callable[[Worker, Stable], None], ...] = (
    configure,
    _extend,
    _delete_records,
    _move,
)
