"""LogActors of Ray without a LogManager: a spec, and the wait until one serves or is refused."""

import ray

from raylog.actors.control import LogId
from raylog.actors.node_messages import LogSays
from raylog.actors.partition.spec import LogSpec
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.testing.waiting import wait_for

OPENS_WITHIN_S = 60


def bare_spec(
    partition: TopicPartition, topic_id: str, folder: str, config: LogConfig | None = None
) -> LogSpec:
    """Of a log that no LogManager knows of; ``config``: None is the default one."""
    return LogSpec(
        log=LogId(partition=partition, topic_id=topic_id),
        directory_id="of nobody",
        folder=folder,
        config=config or LogConfig(),
        producer_expiration=ProducerExpiration(1000),
    )


def settled(handle: object) -> LogSays:
    """What a LogActor says once its log is open, or could not be opened."""
    said: list[LogSays] = []

    def is_settled() -> bool:
        said.append(ray.get(handle.says.remote(), timeout=OPENS_WITHIN_S))  # type: ignore[attr-defined]
        return said[-1].state in ("serving", "ended")

    wait_for(is_settled, OPENS_WITHIN_S, "the log is open, or could not be opened")
    return said[-1]
