"""Orders of a LogManager to its upkeep actors."""

from collections.abc import Sequence

from raylog.actors.control import LogId
from raylog.actors.node_messages import UpkeepLog, UpkeepOrder
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition


def ordered_log(
    partition: TopicPartition, config: LogConfig, topic_id: str = "id", folder: str = ""
) -> UpkeepLog:
    """A log as an order names it."""
    return UpkeepLog(
        log=LogId(partition=partition, topic_id=topic_id),
        directory_id="dir",
        folder=folder or f"/logs/{partition}",
        config=config,
        config_version=1,
    )


def upkeep_order(
    logs: Sequence[UpkeepLog] = (), number: int = 1, life: str = "first", controller_epoch: int = 3
) -> UpkeepOrder:
    """An order for the node ``n1``."""
    return UpkeepOrder(
        node="n1", life=life, number=number, controller_epoch=controller_epoch, logs=tuple(logs)
    )
