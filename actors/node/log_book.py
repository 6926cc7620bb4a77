"""The logs of a node: where their folders lie, and which of them can be looked at next.

It holds what the others work on, and keeps its parts true to each other: a log knows the dirs of
its folders (``log_states.py``), and a dir the names that are taken in it (``places.py``). What is
ordered comes in ``log_orders.py``, what is done about it is decided in ``log_steps.py``, and what
happens is told in ``log_events.py``.
"""

from dataclasses import dataclass

from raylog.actors.control import LogId, Serve
from raylog.actors.node.instructions import ForgetLog, KillActor, MakeFolder, StartLog
from raylog.actors.node.log_states import ALIVE, NodeLog
from raylog.actors.node.outbox import Outbox
from raylog.actors.node.places import Places
from raylog.storage.names import TopicPartition


@dataclass(slots=True)
class Unnamed:
    """A folder that does not say whose it is."""

    is_to_be_aside: bool = False
    is_doing: bool = False


class LogBook:
    """See the module's head."""

    def __init__(self, places: Places, out: Outbox) -> None:
        self.places, self.out = places, out
        self.logs: dict[LogId, NodeLog] = {}
        self.by_partition: dict[TopicPartition, dict[LogId, NodeLog]] = {}
        self.unnamed: dict[tuple[TopicPartition, str], Unnamed] = {}
        # Partitions whose actor is to be killed: the token, None where it is to be tried again.
        self.kills: dict[TopicPartition, int | None] = {}
        self.next_report = 1  # the number of the next one
        # To be looked at before this event ends, and to be reported anew.
        self._touched: dict[TopicPartition, None] = {}

    # -- what is looked at -------------------------------------------------------------------------

    def touch(self, partition: TopicPartition) -> None:
        """Look at the logs of this partition, and at those that wait for them."""
        self._touched[partition] = None

    def touch_all(self) -> None:
        for partition in self.by_partition:
            self.touch(partition)
        for partition, _ in self.unnamed:
            self.touch(partition)

    def next_touched(self) -> TopicPartition | None:
        partition = next(iter(self._touched), None)
        if partition is not None:
            del self._touched[partition]
        return partition

    def of(self, partition: TopicPartition) -> list[NodeLog]:
        return list(self.by_partition.get(partition, {}).values())

    # -- logs --------------------------------------------------------------------------------------

    def log(self, id: LogId) -> NodeLog:
        """The log, which is made where nobody knew it."""
        if id not in self.logs:
            self.logs[id] = NodeLog(id=id)
            self.by_partition.setdefault(id.partition, {})[id] = self.logs[id]
        return self.logs[id]

    def forget(self, log: NodeLog) -> None:
        """A log of which nothing is left."""
        self.out.say(ForgetLog(log=log.id))
        del self.logs[log.id]
        del self.by_partition[log.id.partition][log.id]
        if not self.by_partition[log.id.partition]:
            del self.by_partition[log.id.partition]

    def order_of(self, id: LogId) -> Serve | None:
        """What the actor of a log shall obey; None where nobody has ordered that it serves."""
        log = self.logs.get(id)
        order = None if log is None else log.order_of_actor
        if order is None or id.partition in self.kills:
            return None
        return order if self.places.takes_orders(order.directory_id) else None

    # -- folders -----------------------------------------------------------------------------------

    def add_folder(self, log: NodeLog, directory_id: str) -> None:
        """A folder of the log's name is there, or is being made."""
        log.folders.add(directory_id)
        self.places[directory_id].names[log.id.partition] = log.id.topic_id

    def drop_folder(self, log: NodeLog, directory_id: str) -> None:
        """No folder of the log has its name there any more."""
        for directories in (log.folders, log.clean, log.unopened, log.asides):
            directories.discard(directory_id)
        names = self.places[directory_id].names
        if names.get(log.id.partition) == log.id.topic_id:
            del names[log.id.partition]

    def add_copy(self, log: NodeLog, directory_id: str) -> None:
        log.copies.add(directory_id)
        self.places[directory_id].copies.add(log.id)

    def drop_copy(self, log: NodeLog, directory_id: str) -> None:
        log.copies.discard(directory_id)
        log.undropped.discard(directory_id)
        self.places[directory_id].copies.discard(log.id)

    # -- actors ------------------------------------------------------------------------------------

    def kill(self, partition: TopicPartition) -> None:
        """End the partition's actor, whatever is in flight for its log."""
        if self.kills.get(partition) is not None:
            return
        token = self.out.token()
        self.kills[partition] = token
        self.touch(partition)
        self.out.work(KillActor(token=token, partition=partition))

    def kill_ended(self, partition: TopicPartition, is_well: bool) -> None:
        if not is_well:
            self.kills[partition] = None
            return
        del self.kills[partition]
        for log in self.of(partition):
            log.is_doubtful = isinstance(log.doing, StartLog)
            if log.state in ALIVE:
                log.state = "found"
        self.touch(partition)

    def try_again(self) -> None:
        """Kill those that could not be killed, and remove the copies that could not be removed."""
        for partition in [partition for partition, token in self.kills.items() if token is None]:
            self.kill(partition)
        for log in self.logs.values():
            if log.undropped:
                log.undropped.clear()
                self.touch(log.id.partition)

    # -- promises ----------------------------------------------------------------------------------

    def validate(self) -> None:
        for log in self.logs.values():
            self._validate_log(log)
        for partition, logs in self.by_partition.items():
            with_actor = [log.id for log in logs.values() if log.has_actor]
            assert len(with_actor) <= 1, f"{with_actor} have actors of one name"
            starting = [log for log in logs.values() if isinstance(log.doing, StartLog)]
            assert len(starting) <= 1, f"{partition}: two are started at once"
        for directory_id, place in self.places.items():
            for partition, topic_id in place.names.items():
                if topic_id is None:
                    assert (partition, directory_id) in self.unnamed
                    continue
                id = LogId(partition=partition, topic_id=topic_id)
                assert directory_id in self.logs[id].folders, f"{id} does not know its folder"

    def _validate_log(self, log: NodeLog) -> None:
        for directory_id in log.folders:
            name = self.places[directory_id].names.get(log.id.partition)
            assert name == log.id.topic_id, f"{log.id}: its name is taken in {directory_id}"
        for directory_id in log.copies:
            assert log.id in self.places[directory_id].copies
        assert log.clean <= log.folders
        assert log.unopened <= log.folders
        if log.state in ALIVE:
            assert log.home in log.folders, f"{log.id} is served from nowhere"
            is_killed = log.id.partition in self.kills
            assert is_killed or self.places.is_online(log.home), f"{log.id}: its dir is offline"
        if log.state in ("absent", "found"):
            assert log.home is None
        if log.state in ("absent", "found") and not isinstance(log.doing, MakeFolder):
            assert (log.state == "found") == bool(log.folders), f"{log.id}: {log.state}"
