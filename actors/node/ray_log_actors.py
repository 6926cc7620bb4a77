"""LogActors on Ray: see ``log_actors.py``."""

from collections.abc import Callable, Collection, Mapping, Set
from functools import partial
from typing import Final, TypeVar

from raylog.actors.errors import ActorAway, NotLeader, WorkFailed
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node.known_logs import KnownLogs
from raylog.actors.node.log_actors import SAYS_TIMEOUT_S
from raylog.actors.node.processes import LogProcess, end_at_once, is_running, process_at
from raylog.actors.node_messages import LogOrder, LogSays
from raylog.actors.partition.log_actor import LogActor, LogActorImpl
from raylog.actors.partition.spec import LogSpec
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, Call, gather
from raylog.actors.runtime.handles import create, find, kill, running
from raylog.actors.runtime.names import LOG, Node, log_actor_name
from raylog.actors.runtime.nodes import alive_nodes, own_node
from raylog.actors.runtime.ray_private import process_of
from raylog.actors.runtime.stubs import LogActorStub, find_log_actor
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition, parse_folder

Answer = TypeVar("Answer")
# What Ray has the process of a LogActor call itself; while it does something, with that behind it.
TITLE: Final = f"ray::{LogActorImpl.__name__}"


class RayLogActors:
    """The LogActors of a namespace. ``node``: this process's, when it began."""

    def __init__(self, namespace: str, node: Node) -> None:
        self._namespace = namespace
        self._node = node
        self._known = KnownLogs(partial(find_log_actor, namespace=namespace))

    def start(self, spec: LogSpec) -> None:
        # As it is now: another node may carry the label meanwhile.
        node = own_node() if self._node.label else self._node
        create(LogActor, log_actor_name(spec.partition), self._namespace, node, spec)
        self._known.let_go(spec.partition)

    def says(self, partition: TopicPartition, timeout_s: float = SAYS_TIMEOUT_S) -> LogSays | None:
        try:
            says = self._says(partition, timeout_s)
        except ActorAway:
            if self._is_free(partition):
                return None
            # The one that was known may be dead, and another in its place, also of another node.
            says = self._says(partition, timeout_s)
        if says is not None:
            self._let_go_elsewhere(partition, says)
        return says

    def _says(self, partition: TopicPartition, timeout_s: float) -> LogSays | None:
        log = self._known.get(partition)
        if log is None:
            return None
        with self._known.kept_if_answered(partition):
            return log.says().get(timeout_s)

    def says_all(
        self, partitions: Collection[TopicPartition], timeout_s: float = SAYS_TIMEOUT_S
    ) -> Mapping[TopicPartition, LogSays | RaylogError | None]:
        answers: dict[TopicPartition, LogSays | RaylogError | None] = {}
        answers.update(dict.fromkeys(partitions))
        asked: dict[TopicPartition, LogSays | RaylogError] = self._ask_all(
            partitions, LogActorStub.says, timeout_s
        )
        for partition, says in asked.items():
            if isinstance(says, LogSays):
                self._let_go_elsewhere(partition, says)
        answers.update(asked)
        return answers

    def learn(self, order: LogOrder) -> LogSays:
        learn = partial(LogActorStub.learn, order=order)
        return self._ask(order.log.partition, learn, SAYS_TIMEOUT_S)

    def reconfigure(self, order: LogOrder) -> LogSays:
        return self._ask(order.log.partition, partial(LogActorStub.reconfigure, order=order))

    def roll(self, partition: TopicPartition) -> None:
        self._ask(partition, LogActorStub.roll)

    def close(self, partition: TopicPartition, timeout_s: float) -> PartitionOffsets:
        return self._ask(partition, LogActorStub.close, timeout_s)

    def close_all(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, PartitionOffsets | RaylogError]:
        return self._ask_all(partitions, LogActorStub.close, timeout_s)

    def kill(self, partition: TopicPartition) -> None:
        """Who has the name now: one that was known may be dead, and another in its place."""
        kill(log_actor_name(partition), self._namespace)
        self._known.let_go(partition)

    def is_there(self, partition: TopicPartition) -> bool:
        return find(log_actor_name(partition), self._namespace) is not None

    def process(self, partition: TopicPartition) -> LogProcess | None:
        actor = find(log_actor_name(partition), self._namespace)
        try:
            where = None if actor is None else process_of(actor)
        except Exception as error:  # whatever Ray raises while its head is away
            raise NotLeader(str(partition), f"Ray does not tell its process: {error}") from error
        if where is None or where.node_id != self._node.node_id:
            return None
        return process_at(where.pid, TITLE)

    def is_running(self, process: LogProcess) -> bool:
        return is_running(process)

    def end_at_once(self, process: LogProcess) -> None:
        end_at_once(process)

    def running(self) -> Set[TopicPartition]:
        names = [name for name in running(self._namespace) if name.startswith(LOG)]
        parsed = {parse_folder(name.removeprefix(LOG)) for name in names}
        return {partition for partition in parsed if partition is not None}

    def nodes(self) -> Set[str]:
        return {node.node_id for node in alive_nodes()}

    def _let_go_elsewhere(self, partition: TopicPartition, says: LogSays) -> None:
        if says.node_id != self._node.node_id:
            self._known.let_go(partition)

    def _ask(
        self,
        partition: TopicPartition,
        ask: Callable[[LogActorStub], Call[Answer]],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> Answer:
        log = self._known.get(partition)
        if log is None:
            raise NotLeader(str(partition), "its LogActor is not running")
        with self._known.kept_if_answered(partition):
            return ask(log).get(timeout_s)

    def _ask_all(
        self,
        partitions: Collection[TopicPartition],
        ask: Callable[[LogActorStub], Call[Answer]],
        timeout_s: float,
    ) -> dict[TopicPartition, Answer | RaylogError]:
        """The answers and errors of those that have an actor."""
        outcomes: dict[TopicPartition, Answer | RaylogError] = {}
        calls: dict[TopicPartition, Call[Answer]] = {}
        for partition in partitions:
            try:
                log = self._known.get(partition)
            except RaylogError as error:
                outcomes[partition] = error
                continue
            if log is not None:
                calls[partition] = ask(log)
        gathered = gather(calls, timeout_s)
        outcomes.update(gathered.answers)
        for partition, failure in gathered.errors.items():
            self._known.let_go(partition)
            if isinstance(failure, ActorAway) and self._is_free(partition):
                continue
            if not isinstance(failure, RaylogError):
                failure = WorkFailed(f"asking {partition}", str(failure))
            outcomes[partition] = failure
        return outcomes

    def _is_free(self, partition: TopicPartition) -> bool:
        """Whether no actor has the name; no where nobody knows."""
        try:
            return not self.is_there(partition)
        except RaylogError:
            return False
