"""One run: a cluster, topics, workers, faults; then peace, the last reads, an orderly stop, and
every byte verified."""

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import raylog
from raylog.actors.metadata_history import DIGEST_BYTES
from raylog.actors.runtime.calls import Call
from raylog.cluster.broker import Broker
from raylog.cluster.controller.copies import SurveyedDir
from raylog.cluster.controller.ray_reach import RayNotes
from raylog.cluster.controller.stub import find_controller
from raylog.cluster.controller.surveying import Surveyor
from raylog.cluster.controller.witness import Witness
from raylog.storage.errors import InvalidConfig, RaylogError
from raylog.storage.files import RealFileSystem
from raylog.storage.names import INTERNAL_TOPICS
from raylog.storage.state.properties import PARTITION_METADATA
from raylog.storage.tools.verify import verify_folder
from tests.harness.nodes import HEAD, Nodes, private_bytes, send_signal
from tests.soak import transacting
from tests.soak.administering import settings_of, tell_created
from tests.soak.batches import batches
from tests.soak.changing import change_last
from tests.soak.clients import STOP_READING, STOP_SENDING, Worker
from tests.soak.cluster import OTHERS, SMALL_DISKS, cluster
from tests.soak.consuming import LATEST, read_all, told
from tests.soak.disks import SmallDisk, small_disks
from tests.soak.grouping import GROUP
from tests.soak.history import (
    OK,
    Alive,
    Bounds,
    GroupAtEnd,
    LogDir,
    MetadataAtEnd,
    NodeAtEnd,
    Partition,
    Surprise,
    TopicChange,
    Writer,
)
from tests.soak.mending import Mender
from tests.soak.nemesis import Nemesis
from tests.soak.node_orders import NodeOrders
from tests.soak.obeying import RECOVERY_S
from tests.soak.old_metadata import OldMetadata, have_all
from tests.soak.outage import Outage
from tests.soak.plan import BROKER, TOPICS, TRANSFERS, Stable
from tests.soak.schedule import Planned
from tests.soak.workers import PACED, READER, READING, ROLES, SENDING, Workers

NAMESPACE = "soak"
ON_ITS_WAY_S = 3.0
HEAL_S = RECOVERY_S
ANSWER_S = 10.0
SAMPLE_S = 2.0
EARLIEST = -2
MOST_LAST_READS = 5


class Outcome(NamedTuple):
    """What the history does not tell."""

    missed: dict[str, int]  # faults that found nobody to meet
    problems: list[str]
    peak_bytes: dict[str, int]  # the largest process of a kind, and "all" at once
    healed_s: list[float]  # how long it took, each time, until all partitions served
    restarted_s: list[float]  # and until the broker ran again when the head had been killed


def run(folder: Path, seed: int, planned: list[Planned], rate: float) -> Outcome:
    """Run into ``folder``: ``*.history``, a log a worker, ``disks``."""
    disks = folder / "disks"
    with (
        _printing_to(folder / "run.log"),
        small_disks(disks, SMALL_DISKS) as small,
        cluster(disks) as nodes,
    ):
        try:
            return _Run(folder, nodes, small, seed, planned, rate).go()
        finally:
            nodes.shut_down()
            for session in nodes.temp_dir.glob("session_2*"):  # one for each start of Ray
                _keep_logs(session, folder / "ray-logs" / session.name)


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Ray prints at length, in this process, of every raylet that ends."""
    sys.stdout.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    with path.open("wb") as file:
        for number, _ in kept:
            os.dup2(file.fileno(), number)
        try:
            yield
        finally:
            sys.stdout.flush()
            for number, copy in kept:
                os.dup2(copy, number)
                os.close(copy)


class _Run:
    def __init__(
        self,
        folder: Path,
        nodes: Nodes,
        small: Mapping[str, SmallDisk],
        seed: int,
        planned: list[Planned],
        rate: float,
    ) -> None:
        self._folder, self._nodes, self._small = folder, nodes, small
        self._seed, self._planned, self._rate = seed, planned, rate
        self._nemesis: Nemesis | None = None
        self._orders: NodeOrders | None = None
        self._problems: list[str] = []
        self._peaks: dict[str, int] = {}
        self._healed_s: list[float] = []

    def go(self) -> Outcome:
        broker = self._start()
        # Nodes that joined at once; the others are joined by the Controller's watch.
        _wait(lambda: list(broker.nodes().values()) == [None] * 3, "not all three LogManagers run")
        self._me = Worker(broker, self._folder, READER, self._seed)
        self._tell_log_dirs(broker)
        self._topics = self._create_topics(broker)
        transacting.prepare(broker)
        orders_history = Writer(self._folder / "orders.history")
        with (
            Workers(self._folder, self._told) as workers,
            self._watched(),
            Mender(_connected(), self._kill_manager) as mender,
            NodeOrders(_connected(), self._nodes.node_id, orders_history) as self._orders,
        ):
            outage = self._outage(workers, mender, self._orders)
            _wait(workers.are_ready, "not all workers are connected")
            self._nemesis = nemesis = Nemesis(
                self._nodes,
                workers,
                self._planned,
                self._me.writer,
                small_disks=self._small,
                mender=mender,
                orders=self._orders,
                old_metadata=OldMetadata(self._folder / "old-metadata"),
                are_in_sync=_are_in_sync,
                have_all_copies_all=self._have_all_copies_all,
                outage=outage,
            )
            self._torment(nemesis, workers)
            self._problems += workers.end(STOP_SENDING, (*SENDING, "change"))
            self._heal()
            self._problems += workers.end(STOP_READING, READING)
        broker = self._me.broker
        self._read_all(broker)
        self._tell_group(broker)
        self._me.patiently(lambda: transacting.tell_all(self._me))
        self._tell_nodes(broker)
        if not broker.stop():
            self._problems.append("the broker did not stop in order")
        self._tell_metadata()
        self._verify()
        for found in batches(self._folder / "disks"):
            self._me.writer.write(found)
        return Outcome(
            dict(nemesis.missed), self._problems, self._peaks, self._healed_s, outage.took_s
        )

    # -- the beginning -----------------------------------------------------------------------------

    def _start(self) -> Broker:
        return raylog.start(self._nodes.log_dirs(HEAD), config=BROKER, namespace=NAMESPACE)

    def _outage(self, workers: Workers, mender: Mender, orders: NodeOrders) -> Outage:
        def start_broker() -> None:
            self._me.broker = self._start()
            mender.use(_connected())
            orders.use(_connected())

        return Outage(
            self._nodes,
            workers,
            (mender, orders),
            change=partial(change_last, self._me, self._topics),
            start_broker=start_broker,
        )

    def _create_topics(self, broker: Broker) -> list[Stable]:
        stable = []
        for topic in TOPICS:
            invoked = time.monotonic_ns()
            try:
                made = broker.create_topic(topic.name, topic.partitions, topic.config)
            except InvalidConfig as error:
                print(f"topic {topic.name} is not used: {error}")
                continue
            now = time.monotonic_ns()
            self._me.writer.write(
                TopicChange("create", topic.name, made.topic_id, invoked, now, OK, topic.policy)
            )
            tell_created(self._me, made, invoked, OK)
            is_keyed, may_delete = "compact" in topic.policy, "delete" in topic.policy
            stable.append(
                Stable(
                    topic.name, made.topic_id, topic.partitions, is_keyed, may_delete, topic.padding
                )
            )
        return stable

    def _tell_log_dirs(self, broker: Broker) -> None:
        names = {path: name for name in (HEAD, *OTHERS) for path in self._nodes.log_dirs(name)}
        for log_dir in broker.log_dirs():
            self._me.writer.write(LogDir(log_dir.directory_id, names[log_dir.path]))

    def _told(self) -> dict[str, Any]:
        """What the workers must know."""
        return {
            "address": self._nodes.address,
            "namespace": NAMESPACE,
            "seed": self._seed,
            "topics": self._topics,
            "records_a_second": self._rate / sum(role in PACED for role in ROLES),
        }

    # -- the middle --------------------------------------------------------------------------------

    def _torment(self, nemesis: Nemesis, workers: Workers) -> None:
        stable = [topic.name for topic in self._topics]
        stop, over = threading.Event(), threading.Event()

        def watch() -> None:
            while not over.wait(SAMPLE_S):
                for name in workers.dead():
                    self._problems.append(f"worker {name} ended early: see {name}.log")
                    stop.set()
                    return

        thread = threading.Thread(target=watch, name="workers")
        thread.start()
        nemesis.run(stop, lambda: self._heal(stable))
        over.set()
        thread.join()

    def _kill_manager(self, log_dir: Path) -> None:
        """Of a log dir's node, whose disks lie in a folder of its name."""
        for one in self._nodes.actors():
            if (one.node, one.actor) == (log_dir.parent.name, "LogManager"):
                send_signal(one.pid, signal.SIGKILL)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Sample the memory of the broker's processes."""
        stop = threading.Event()

        def sample() -> None:
            while not stop.wait(SAMPLE_S):
                sizes = [(one.actor, private_bytes(one.pid)) for one in self._nodes.actors()]
                for kind, size in [*sizes, ("all", sum(size for _, size in sizes))]:
                    self._peaks[kind] = max(self._peaks.get(kind, 0), size)

        thread = threading.Thread(target=sample, name="memory")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    # -- the end -----------------------------------------------------------------------------------

    def _heal(self, topics: list[str] | None = None) -> None:
        """Return when every partition of these topics, or of all, answers."""
        started, said = time.monotonic(), ""

        def is_well() -> bool:
            nonlocal said
            if self._nemesis is not None:
                self._nemesis.revive()
            waiting = "" if self._orders is None else self._orders.waiting
            unwell = waiting or self._unwell(self._me.broker, topics)
            if unwell not in (None, said):
                print(f"after {time.monotonic() - started:.1f} s: {unwell}", flush=True)
                said = str(unwell)
            return unwell is None

        try:
            _wait(is_well, "not every partition serves:", lambda: said)
        except TimeoutError as error:
            self._problems.append(str(error))
        self._healed_s.append(time.monotonic() - started)
        print(f"all partitions serve again after {self._healed_s[-1]:.1f} s", flush=True)

    @staticmethod
    def _unwell(broker: Broker, topics: list[str] | None) -> str | None:
        """Who does not serve yet; None if all do."""
        try:
            for node, problem in broker.nodes().items():
                if problem is not None:
                    return f"node {node[:8]}: {problem}"
            for topic in topics or broker.list_topics():
                for place in broker.describe_topic(topic).partitions:
                    if place.problem is not None:
                        return f"{topic}-{place.partition}: {place.problem}"
                    handle = broker.partition(topic, place.partition, timeout_s=0)
                    Call(handle.offsets.remote(), f"{topic}-{place.partition}").get(ANSWER_S)
            return _unwell_metadata()
        except RaylogError as error:
            return f"{type(error).__name__}: {error}"

    def _tell_nodes(self, broker: Broker) -> None:
        names = {self._nodes.node_id(name): name for name in (HEAD, *OTHERS)}
        for node in self._me.patiently(broker.describe_nodes):
            if node.node_id in names:
                self._me.writer.write(NodeAtEnd(names[node.node_id], node.state))

    def _tell_group(self, broker: Broker) -> None:
        """Where the group of the workers stands."""
        ids = {topic.name: topic.topic_id for topic in self._topics}
        for one in self._me.patiently(lambda: broker.groups().offsets(GROUP)):
            place = one.partition
            partition = Partition(place.topic, ids[place.topic], place.partition)
            self._me.writer.write(GroupAtEnd(partition, one.committed.offset))

    def _read_all(self, broker: Broker) -> None:
        me = self._me
        for topic in me.patiently(broker.list_topics):
            if topic in (*INTERNAL_TOPICS, TRANSFERS):
                continue  # their records are in no history of a partition
            described = me.patiently(lambda topic=topic: broker.describe_topic(topic))  # type: ignore[misc]
            me.writer.write(Alive(topic, described.topic_id, len(described.partitions)))
            for setting in settings_of(described):
                me.writer.write(setting)
            for place in described.partitions:
                partition = Partition(topic, described.topic_id, place.partition)
                try:
                    self._read_one(broker, partition)
                except RaylogError as error:
                    me.writer.write(
                        Surprise("the last read", time.monotonic_ns(), f"{partition}: {error}")
                    )

    def _read_one(self, broker: Broker, partition: Partition) -> None:
        """Read a partition, and take down its bounds.

        They are asked for behind the read: retention may work meanwhile. What a client that was
        killed has sent may come as late as this; then the partition is read once more.
        """
        me, key = self._me, (partition.topic, partition.number)

        def offset(which: int) -> int:
            return broker.list_offsets({key: which})[key] or 0

        for attempt in range(MOST_LAST_READS):
            end = me.patiently(lambda: offset(LATEST))
            read_all(me, *partition, f"final-{attempt}")
            invoked = time.monotonic_ns()
            end_behind = me.patiently(lambda: offset(LATEST))
            told(me, "the last look-up", partition, invoked, end_behind)
            if end == end_behind:
                break
        me.writer.write(Bounds(partition, me.patiently(lambda: offset(EARLIEST)), end_behind))

    def _surveyed(self) -> list[SurveyedDir]:
        surveyor = Surveyor(RealFileSystem())
        return [
            found
            for name in (HEAD, *OTHERS)
            for found in surveyor.survey("", self._nodes.log_dirs(name), node=name)
        ]

    def _have_all_copies_all(self) -> bool:
        """Whether they have, also a while later.

        What the Controller has told Ray may be on its way yet, though its process is stopped.
        """
        if not self._have_all_copies_all_now():
            return False
        time.sleep(ON_ITS_WAY_S)
        return self._have_all_copies_all_now()

    def _have_all_copies_all_now(self) -> bool:
        marks = Witness(RayNotes(), NAMESPACE).marks()
        return have_all(self._surveyed(), marks, len((HEAD, *OTHERS)))

    def _tell_metadata(self) -> None:
        for found in self._surveyed():
            if found.problem:
                self._problems.append(f"{found.path}: {found.problem}")
            elif found.copy is not None:
                epoch, end = found.copy.controller_epoch, found.copy.end
                digest = found.copy.digests[-DIGEST_BYTES:].hex()
                self._me.writer.write(MetadataAtEnd(found.node, epoch, end, digest))

    def _verify(self) -> None:
        fs = RealFileSystem()
        for metadata in sorted((self._folder / "disks").rglob(PARTITION_METADATA)):
            folder = metadata.parent
            try:
                reports = verify_folder(fs, str(folder))
            except RaylogError as error:
                self._problems.append(f"{folder}: {error}")
                continue
            found = [problem for report in reports for problem in report.problems]
            self._problems += [f"{folder}: {problem}" for problem in found]


def _unwell_metadata() -> str | None:
    """Whose copy of the metadata is not in sync; None if all are."""
    controller = find_controller(NAMESPACE)
    if controller is None:
        return "there is no Controller"
    for copy in controller.metadata_copies().get(ANSWER_S):
        if not copy.is_in_sync:
            return f"the metadata of node {copy.node[:8]}: {copy.problem or f'it has {copy.end}'}"
    return None


def _are_in_sync() -> bool:
    try:
        return _unwell_metadata() is None
    except RaylogError:
        return False


def _connected() -> Broker:
    return raylog.connect(namespace=NAMESPACE)


def _wait(condition: Callable[[], bool], what: str, why_not: Callable[[], object] = str) -> None:
    deadline = time.monotonic() + HEAL_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timeout after {HEAL_S:.0f} s: {what} {why_not()}")
        time.sleep(0.2)


def _keep_logs(session: Path, target: Path) -> None:
    """Ray's logs of the actors: what they said, and how they ended."""
    target.mkdir(parents=True)
    for path in session.glob("logs/*"):
        if (
            path.is_file()
            and path.stat().st_size
            and path.name.startswith(("worker-", "python-core", "raylet", "gcs"))
        ):
            shutil.copy(path, target)
