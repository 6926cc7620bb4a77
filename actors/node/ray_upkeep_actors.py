"""The upkeep actors on Ray: see ``upkeep_hands.py``."""

from collections.abc import Callable
from typing import Any

from raylog.actors.node.broker_config import BROKER_KEYS, BrokerConfig
from raylog.actors.node.events import UPKEEP_KINDS, UpkeepKind
from raylog.actors.node_messages import UpkeepOrder
from raylog.actors.runtime.handles import create, kill, running
from raylog.actors.runtime.names import Node, compaction_actor_name, retention_actor_name
from raylog.actors.runtime.nodes import own_node
from raylog.actors.runtime.stubs import find_compaction_actor, find_retention_actor
from raylog.actors.upkeep.compaction_actor import CompactionActor
from raylog.actors.upkeep.retention_actor import RetentionActor
from raylog.storage.config import attribute_of

_CLASSES: dict[UpkeepKind, Any] = {"retention": RetentionActor, "compaction": CompactionActor}
_NAMES: dict[UpkeepKind, Callable[[str], str]] = {
    "retention": retention_actor_name,
    "compaction": compaction_actor_name,
}


class RayUpkeepActors:
    """The upkeep actors of a node."""

    def __init__(self, namespace: str, node: Node, config: BrokerConfig) -> None:
        self._namespace = namespace
        self._node = node
        self._config = config
        self._has_old_cleaner = False  # one of an older config may run

    def obey(self, config: BrokerConfig) -> None:
        self._has_old_cleaner |= _of_cleaner(config) != _of_cleaner(self._config)
        self._config = config
        self._end_old_cleaner()

    def _end_old_cleaner(self) -> None:
        """The machine has another one started. What was compacted and not swapped is done again."""
        if self._has_old_cleaner:
            kill(_NAMES["compaction"](self._node.key), self._namespace)
            self._has_old_cleaner = False

    def start(self, kind: UpkeepKind) -> None:
        # As it is now: another node may carry the label meanwhile.
        node = own_node() if self._node.label else self._node
        name = _NAMES[kind](self._node.key)
        create(_CLASSES[kind], name, self._namespace, node, self._namespace, self._config)

    def round(self, kind: UpkeepKind, order: UpkeepOrder) -> None:
        if kind == "retention":
            retention = find_retention_actor(self._node.key, self._namespace)
            if retention is not None:
                retention.round(order).ignore()
            return
        self._end_old_cleaner()  # if Ray has not answered before
        compaction = find_compaction_actor(self._node.key, self._namespace)
        if compaction is not None:
            compaction.round(order).ignore()

    def running(self) -> tuple[UpkeepKind, ...]:
        names = running(self._namespace)
        return tuple(kind for kind in UPKEEP_KINDS if _NAMES[kind](self._node.key) in names)

    def kill(self) -> None:
        for kind in UPKEEP_KINDS:
            kill(_NAMES[kind](self._node.key), self._namespace)


def _of_cleaner(config: BrokerConfig) -> dict[str, Any]:
    """What a CompactionActor obeys; its rounds are ordered."""
    keys = [key for key in BROKER_KEYS if key.startswith("log.cleaner.")]
    keys.remove("log.cleaner.backoff.ms")
    return {key: getattr(config, attribute_of(key)) for key in keys}
