"""A Controller without Ray: calls are futures, and LogManagers answer what and when a test says."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.messages import Found, NodeState, Placed
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.names import Node, log_actor_name, log_manager_name
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster.controller import controller_actor as controller_module
from raylog.cluster.controller import state as controller_state
from raylog.cluster.controller import topics
from raylog.cluster.controller.controller_actor import ControllerImpl
from raylog.cluster.controller.metadata import ClusterState, Topic
from raylog.storage.names import TopicPartition
from tests.harness.futures import future_of, futures_are_references


class Manager:
    """A LogManager with one log dir."""

    def __init__(self, directory_id: str, *found: Found) -> None:
        self.directory_id = directory_id
        self.actors: set[str] = set()  # of the cluster
        self.answers: dict[str, Any] = {
            "start": {directory_id: f"/{directory_id}"},
            "state": NodeState("life-1", ()),
            "found": list(found),
        }
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.opening: list[tuple[tuple[Any, ...], Future[Any]]] = []  # what is not answered yet

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self._called(name, arguments))

    def _called(self, name: str, arguments: tuple[Any, ...]) -> "Future[Any]":
        self.calls.append((name, arguments))
        if name == "open_partition" and name not in self.answers:
            self.opening.append((arguments, Future()))
            return self.opening[-1][1]
        if name == "delete_partition":
            self.answers["found"] = [
                found for found in self.answers["found"] if found.partition != arguments[0]
            ]
        return future_of(self.answers.get(name))

    def stub(self, node: str = "node") -> LogManagerStub:
        return LogManagerStub(self, node)

    def asked(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]

    def opened(self) -> None:
        """Answer all that is to be opened."""
        calls, self.opening = self.opening, []
        for (partition, *_), call in calls:
            self.actors.add(log_actor_name(partition))
            call.set_result(Placed("node", self.directory_id, f"/{self.directory_id}/{partition}"))


class Cluster:
    """What the Controller sees of Ray: nodes that are up, and named actors."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.nodes: list[Node] = []
        # node -> those that are made there, one after another
        self.managers: dict[str, list[Manager]] = {}
        self.actors: set[str] = set()
        self.topics: dict[str, Topic] = {}
        futures_are_references(patch)
        for module in (controller_module, controller_state):
            patch.setattr(module, "running", lambda _: set(self.actors))
        for module in (controller_module, controller_state, topics):
            patch.setattr(module, "kill", lambda name, _: self.actors.discard(name))
        patch.setattr(controller_module, "create", self._create)
        patch.setattr(controller_module, "alive_nodes", lambda: list(self.nodes))
        patch.setattr(controller_module, "own_node", lambda: self.nodes[0])
        patch.setattr(controller_module, "own_name", str)
        patch.setattr(controller_module, "is_restarted", bool)
        patch.setattr(controller_module, "stop_nodes", lambda _: True)
        patch.setattr(controller_module, "MetadataLog", self._metadata)
        self.controller = ControllerImpl("test", BrokerConfig.parse({"log.dirs": ["/disk"]}))

    def _create(self, _: Any, name: str, __: str, node: Node, *___: Any) -> Manager:
        self.actors.add(name)
        manager = self.managers[node.key].pop(0)
        manager.actors = self.actors
        return manager

    def _metadata(self, *_: Any, **__: Any) -> Any:
        state = ClusterState(cluster_id="cluster", topics=self.topics)
        return SimpleNamespace(
            state=state, has_failed=False, close=lambda: None, append=state.apply
        )

    def comes(self, node: str, *managers: Manager) -> None:
        self.nodes.append(Node(node))
        self.managers[node] = list(managers)

    def goes(self, node: str) -> None:
        self.nodes = [other for other in self.nodes if other.node_id != node]
        self.actors.discard(log_manager_name(node))

    def topic(self, name: str, *directories: str) -> Topic:
        self.topics[name] = Topic(name, f"id-{name}", {}, directories)
        return self.topics[name]


def found(topic: Topic, number: int = 0) -> Found:
    return Found(TopicPartition(topic.name, number), topic.topic_id, topic.directories[number])
