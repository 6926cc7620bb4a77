"""The Controller's commands and look-ups over one node, without a machine: each is done at once."""

from collections.abc import Iterable
from dataclasses import replace

from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.asking import Commanding, Lookups
from raylog.cluster.controller.commands import AddPartitions, AlterTopic, Command, CreateTopic
from raylog.cluster.controller.describe import Snapshot
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.events import Asked
from raylog.cluster.controller.instructions import Altered, Answer, Answered
from raylog.cluster.controller.judging import Judging
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.records import (
    ControllerRecord,
    DirRecord,
    NodeRecord,
    Record,
    TopicRecord,
)
from raylog.cluster.controller.requests import Requests
from raylog.storage.errors import RaylogError
from tests.harness.control_nodes import PerfectNode, obeying

EPOCH = 3


class InstantController:
    """See the module's head. ``asked``: the commands that were judged."""

    def __init__(self, config: BrokerConfig) -> None:
        """``config``: the broker's."""
        self.asked: list[Command] = []
        self._desired, self._config = Desired(), config
        for record in (
            ControllerRecord(epoch=EPOCH, node="a"),
            NodeRecord(key="a", kafka_id=0),
            DirRecord(directory_id="a1", node="a", path="/a1", state="online"),
        ):
            self._desired.apply(record)
        self._requests = Requests()
        self.lookups = Lookups(self._snapshot, dict, dict)
        self.commanding = Commanding(self._put, self._requests, self._snapshot, dict)

    def _observed(self) -> dict[str, Observed]:
        return {"a": obeying(PerfectNode("a", "a1").report(), EPOCH)}

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            desired=self._desired.copy(), observed=self._observed(), config=self._config
        )

    def _put(self, event: Asked) -> None:
        answer = Answer(request=event.request)
        try:
            answer = replace(answer, value=self._done(event.command))
        except RaylogError as error:
            answer = replace(answer, error=error)
        self._requests.answer(answer)

    def _done(self, command: Command) -> Answered:
        self.asked.append(command)
        records = Judging(self._desired, self._observed(), 0, self._config).records(command)
        match command:
            case CreateTopic(validate_only=True) | AlterTopic(validate_only=True):
                return _topic_in(records)
            case AddPartitions(validate_only=True):
                return self._desired.topic_named(command.name)
        for record in records:
            self._desired.apply(record)
        match command:
            case CreateTopic() | AddPartitions():
                return self._desired.topic_named(command.name)
            case AlterTopic():
                return Altered(topic=_topic_in(records))
        return None


def _topic_in(records: Iterable[Record]) -> TopicRecord:
    return next(record for record in records if isinstance(record, TopicRecord))
