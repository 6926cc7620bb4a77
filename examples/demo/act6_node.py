"""Act 6, second part, with ``--nodes 2`` only: SIGKILL a whole Ray node while records are produced.

There is one copy of each partition. So the partitions of a lost node are away until the node comes
back with its disks, maybe under another node id; nothing is created in their place. Meanwhile the
other node's partitions serve, and the producer keeps what is for those that are away: within its
``delivery.timeout.ms`` of two minutes nobody has to do anything.

A killed node is no power failure: what was acknowledged is in the page cache of the machine.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo.act6_crash import check_receipts, numbered_rows, send_rows
from examples.demo.act7_restart import ends_of_topics, stop_spark
from examples.demo.cluster import SECOND_NODE, TwoNodes
from examples.demo.stage import Demo, NotInTime, Stopwatch
from raylog.actors.errors import NotLeader
from raylog.cluster.admin import NewTopic
from raylog.storage.records.murmur2 import partition_for_key

if TYPE_CHECKING:
    from raylog import Broker

TOPIC, PARTITIONS = "flights-nodes", 4
RECORDS, QUICK_RECORDS = 40_000, 20_000
KILL_AT = 0.4  # of the records
AWAY_TIMEOUT_S = SERVE_TIMEOUT_S = 60.0
LOOKUP_INTERVAL_S = 0.1


def run(demo: Demo, cluster: TwoNodes) -> None:
    stage = demo.stage
    rows = numbered_rows(demo, QUICK_RECORDS if demo.is_quick else RECORDS)
    stage.act("6b", f"SIGKILL of a Ray node while {len(rows):,} records are produced")
    with stage.progress("ending Spark, whose executor may be on that node"):
        stop_spark(demo)
    away = _create_topic(demo)
    middle = int(len(rows) * KILL_AT)
    where = [partition_for_key(key, PARTITIONS) for key, _ in rows]
    receipts: list[Any] = []
    with demo.running_broker.producer() as producer:
        with stage.progress("send", middle) as done:
            send_rows(producer, TOPIC, rows[:middle], receipts, done)
            producer.flush()
        cluster.nodes.crash(SECOND_NODE)  # all its processes at once: none acknowledges any more
        cluster.nodes.forget(SECOND_NODE)
        since_kill = Stopwatch()
        stage.say(
            f"killed the second node after {middle:,} records; it has the partitions "
            + " and ".join(f"{TOPIC}-{number}" for number in away)
        )
        with stage.progress("send", len(rows) - middle) as done:
            send_rows(producer, TOPIC, rows[middle:], receipts, done)
        _check_one_node(demo, away, list(zip(where, receipts, strict=True))[middle:])
        with stage.progress("starting the node again, with its log dirs"):
            cluster.nodes.add(SECOND_NODE)
        with stage.progress("the producer"):
            producer.flush()
    stage.say(
        f"the node came back with its log dirs; {since_kill.seconds:.1f} s after the kill, all "
        "records were acknowledged"
    )
    check_receipts(demo, TOPIC, [receipt.result() for receipt in receipts])
    with stage.progress("the other topics' partitions"):
        _wait_until_all_answer(demo)
    stage.say(
        f"the partitions of all topics serve again, {since_kill.seconds:.1f} s after the kill"
    )


def _create_topic(demo: Demo) -> list[int]:
    """Create the topic; returns the partitions that are on the second node."""
    admin = demo.running_broker.admin()
    created = admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()
    return [
        partition.partition
        for partition in created.partitions
        if SECOND_NODE in Path(partition.folder or "").parts
    ]


def _check_one_node(demo: Demo, away: list[int], sent: list[tuple[int, Any]]) -> None:
    """While one node is away: ``sent`` are partition and receipt of what was sent since."""
    stage, broker = demo.stage, demo.running_broker
    with stage.progress("the other node's partitions"):
        here = [receipt for partition, receipt in sent if partition not in away]
        for receipt in here:
            receipt.result()
        why = _wait_until_away(broker, away[0])
    others = [receipt for partition, receipt in sent if partition in away]
    waiting = [receipt for receipt in others if not receipt.done()]
    stage.check(
        bool(here) and bool(waiting) and not any(map(_has_failed, others)),
        (
            f"the other node acknowledged its {len(here):,} records meanwhile; {len(waiting):,} "
            "wait in the producer"
        ),
    )
    stage.say(f"a lookup answers: {why}")


def _has_failed(receipt: Any) -> bool:
    return receipt.done() and receipt.exception() is not None


def _wait_until_away(broker: "Broker", partition: int) -> str:
    """Return what a lookup answers when Ray has found out that the node is dead."""
    watch = Stopwatch()
    while (why := _why_away(broker, partition)) is None:
        if watch.seconds > AWAY_TIMEOUT_S:
            raise NotInTime(f"nobody noticed within {AWAY_TIMEOUT_S:.0f} s that a node is dead")
        time.sleep(LOOKUP_INTERVAL_S)
    return why


def _why_away(broker: "Broker", partition: int) -> str | None:
    """What a lookup answers of a partition whose node is known to be away, else None."""
    try:
        broker.partition(TOPIC, partition, timeout_s=0)
    except NotLeader as error:
        return str(error) if "is away" in str(error) else None
    return None


def _wait_until_all_answer(demo: Demo) -> None:
    watch = Stopwatch()
    while not _all_answer(demo):
        if watch.seconds > SERVE_TIMEOUT_S:
            raise NotInTime(
                f"not all partitions of the other topics serve {SERVE_TIMEOUT_S:.0f} s after their "
                "node came back, and nothing says that a record is lost. The machine may be too "
                "busy: try again when it is idle"
            )
        time.sleep(LOOKUP_INTERVAL_S)


def _all_answer(demo: Demo) -> bool:
    try:
        ends_of_topics(demo)
    except NotLeader:  # a partition is being started: ask again
        return False
    return True
