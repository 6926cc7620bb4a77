"""Nodes as the Controller sees them: reports, and a node that does at once what it is ordered."""

from collections.abc import Iterable
from dataclasses import replace

from raylog.actors.control import (
    Create,
    DirReport,
    End,
    Ended,
    KeepOut,
    LogId,
    LogReport,
    Move,
    ObeyConfig,
    Order,
    Orders,
    ReadBack,
    Remove,
    Report,
    Serve,
    SetAside,
    Stop,
)
from raylog.actors.levels import LEVELS
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.config_digests import digest_at_once, digest_by_start, taken_at_once
from raylog.actors.runtime.names import log_actor_name, log_manager_name
from raylog.cluster.controller.desired import VERSION_SHIFT, Desired
from raylog.cluster.controller.observed import Observed
from raylog.storage.errors import LogDirOffline
from raylog.storage.names import TopicPartition
from raylog.storage.wire import RELEASE


def log_id(topic: str, number: int, topic_id: str = "") -> LogId:
    """The log of a partition; the topic's id is ``id-<topic>`` unless another is given."""
    return LogId(partition=TopicPartition(topic, number), topic_id=topic_id or f"id-{topic}")


def version_of(epoch: int, count: int = 0) -> int:
    """A topic's config version: that of its change number ``count`` in an epoch."""
    return (epoch << VERSION_SHIFT) + count


def entry(log: LogId, directory_id: str, state: str = "serving", **more: object) -> LogReport:
    """A log as a node reports it. ``more``: other fields of LogReport."""
    version = 0 if state == "serving" else -1
    facts = {"config_version": version, "topic_id": log.topic_id, **more}
    return LogReport(
        partition=log.partition,
        directory_id=directory_id,
        state=state,  # type: ignore[arg-type]
        **facts,  # type: ignore[arg-type]
    )


class PerfectNode:
    """A node that does at once, and without fail, what it is ordered."""

    def __init__(self, key: str, *dirs: str, room: int = -1) -> None:
        self.key, self.life, self.room = key, f"{key}-life-1", room
        self.upkeep: tuple[str, ...] = ()
        self.upkeep_needed: tuple[str, ...] = ()
        self.dirs = {
            name: DirReport(directory_id=name, path=f"/{name}", state="online") for name in dirs
        }
        self.logs: dict[tuple[LogId, str], LogReport] = {}
        self.number = 0
        self.software, self.levels = RELEASE, LEVELS
        self.is_restarted = False
        self.epoch, self.obeyed = 0, -1
        self.set_aside: list[SetAside] = []
        self.removed: list[LogId] = []
        # how its LogManager ended by order, and whether it was started again since
        self.ended: Ended | None = None
        # whether it ends only when the test says so
        self.is_slow, self.is_ending = False, False
        self.config: BrokerConfig | None = None  # that it obeys; None: it does not say it
        self.is_opening = False  # whether it is still opening what it shall serve

    def actors(self) -> list[str]:
        """The names of the actors that run here."""
        managers = [] if self.ended else [log_manager_name(self.key)]
        return [*managers, *(log_actor_name(log.partition) for log in self.serving)]

    def report(self) -> Report:
        self.number += 1
        return Report(
            node=self.key,
            life=self.life,
            number=self.number,
            controller_epoch=self.epoch,
            dirs=tuple(self.dirs.values()),
            logs=() if self.ended else tuple(map(self._shown, self.logs.values())),
            ended=self.ended,
            orders=self.obeyed,
            room=self.room,
            is_restarted=self.is_restarted,
            is_ending=self.is_ending,
            software=self.software,
            levels=self.levels,
            upkeep=self.upkeep,
            upkeep_needed=self.upkeep_needed,
            config_digest=digest_at_once(self.config) if self.config else "",
            start_digest=digest_by_start(self.config) if self.config else "",
        )

    def _shown(self, log: LogReport) -> LogReport:
        is_opening = self.is_opening and log.state == "serving"
        return replace(log, state="opening", config_version=-1) if is_opening else log

    def restart(self, *, by_ray: bool = False) -> None:
        """Its LogManager is another one, and what it served is not served any more.

        ``by_ray``: in the place of one that died; else it is a fresh start.
        """
        self.is_restarted, self.ended, self.is_ending = by_ray, None, False
        count = int(self.life.rpartition("-")[2]) + 1
        self.life, self.number, self.obeyed = f"{self.key}-life-{count}", 0, -1
        self.logs = {
            key: entry(key[0], key[1], "found", topic_id=found.topic_id)
            for key, found in self.logs.items()
        }

    def fails(self, directory_id: str, why: str = "EIO") -> None:
        self.dirs[directory_id] = replace(
            self.dirs[directory_id], state="offline", why=why, is_taken_offline=False
        )
        for (log, where), found in list(self.logs.items()):
            if where == directory_id:
                lost = entry(log, where, "failed", topic_id=found.topic_id)
                self.logs[log, where] = replace(lost, problem=LogDirOffline(f"/{where}", why))

    def leaves(self, directory_id: str, why: str) -> None:
        """Its logs are closed, and known; it is slow only where the test says so."""
        if self.is_slow:
            return
        self.dirs[directory_id] = replace(
            self.dirs[directory_id],
            state="offline",
            why=why,
            is_read_back=False,
            is_taken_offline=True,
        )
        for (log, where), found in list(self.logs.items()):
            if where == directory_id:
                self.logs[log, where] = entry(log, where, "found", topic_id=found.topic_id)

    def obey(self, orders: Orders) -> bool:
        """Whether it did: not what is late, for another life, or of an older Controller."""
        if orders.life != self.life or orders.controller_epoch < self.epoch:
            return False
        if orders.controller_epoch == self.epoch and orders.number <= self.obeyed:
            return False
        self.epoch, self.obeyed = orders.controller_epoch, orders.number
        self.do(orders.orders)
        return True

    def do(self, orders: Iterable[Order]) -> None:
        for order in orders:
            match order:
                case Create():
                    self._create(order.log)
                case Serve():
                    self._serve(order)
                case Move():
                    self._move(order)
                case Remove():
                    self._drop(order.log)
                    self.removed.append(order.log)
                case End():
                    self._end(order.log)
                case SetAside():
                    self._put_aside(order)
                case ReadBack():
                    known = self.dirs[order.directory_id]
                    self.dirs[order.directory_id] = replace(
                        known, state="online", why="", is_read_back=True, is_taken_offline=False
                    )
                case KeepOut(in_order=True):
                    self.leaves(order.directory_id, order.why)
                case KeepOut():
                    self.fails(order.directory_id, order.why)
                case Stop():
                    self._stop()
                case ObeyConfig():
                    assert self.config is not None, "it has said which one it obeys"
                    self.config = taken_at_once(order.config, self.config)

    def _create(self, log: LogId) -> None:
        if any(other == log for other, _ in self.logs):
            return
        assert all(other.partition != log.partition for other, _ in self.logs), "it is in the way"
        online = [name for name, found in self.dirs.items() if found.state == "online"]
        home = min(online, key=lambda name: sum(place == name for _, place in self.logs))
        self.logs[log, home] = entry(log, home, "found")

    def _move(self, order: Move) -> None:
        if (order.log, order.directory_id) not in self.logs:
            return
        self._drop(order.log)
        moved = entry(order.log, order.directory_id, "moved", moved_to=order.target_id)
        self.logs[order.log, order.directory_id] = moved

    def _serve(self, order: Serve) -> None:
        if self.dirs[order.directory_id].state == "offline":
            return
        assert any(log == order.log for log, _ in self.logs), "there is nothing to serve"
        self._drop(order.log)
        served = entry(order.log, order.directory_id, config_version=order.config_version)
        self.logs[order.log, order.directory_id] = served

    def _end(self, log: LogId) -> None:
        for key in [key for key in self.logs if key[0] == log]:
            self.logs[key] = entry(log, key[1], "found")

    def _stop(self) -> None:
        self.is_ending = True
        if not self.is_slow:
            self.end()

    def end(self) -> None:
        """Its LogManager ends in order, as it was ordered."""
        self.ended = "in order"
        self.logs = {
            key: entry(key[0], key[1], "found", topic_id=found.topic_id)
            for key, found in self.logs.items()
        }

    def _drop(self, log: LogId) -> None:
        for key in [key for key in self.logs if key[0] == log]:
            del self.logs[key]

    def _put_aside(self, order: SetAside) -> None:
        self.set_aside.append(order)
        for key, found in list(self.logs.items()):
            is_it = (found.partition, found.topic_id) == (order.partition, order.topic_id)
            if is_it and found.directory_id == order.directory_id:
                assert found.state in ("found", "failed"), "it is being served"
                del self.logs[key]

    @property
    def serving(self) -> dict[LogId, tuple[str, int]]:
        """What it serves: from which log dir, and with which version of the config."""
        return {
            log: (place, found.config_version)
            for (log, place), found in self.logs.items()
            if found.state == "serving"
        }


def is_as_desired(desired: Desired, nodes: Iterable[PerfectNode]) -> bool:
    """Whether all that shall be is, and nothing else."""
    served = {log: place for node in nodes for log, place in node.serving.items()}
    lying = [log for node in nodes for log, _ in node.logs]
    wanted = {}
    for log, record in desired.partitions.items():
        wanted[log] = (record.directory, desired.topics[log.topic_id].version)
        if record.state != "online":
            return False
    return served == wanted and len(lying) == len(wanted)


def obeying(report: Report, epoch: int, heard_ms: int = 0) -> Observed:
    """The report as one that was made under orders of this Controller."""
    told = replace(report, controller_epoch=epoch, orders=max(1, report.orders))
    return Observed(report=told, heard_ms=heard_ms)
