"""What a LogActor is started with. Knows no Ray."""

from typing import NamedTuple

from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition
from raylog.storage.state.producers import ProducerExpiration


class LogSpec(NamedTuple):
    """What a LogActor is told about the log it opens."""

    partition: TopicPartition
    topic_id: str
    folder: str
    config: LogConfig
    is_clean: bool  # the broker before stopped in order; believed once, not after a restart
    producer_expiration: ProducerExpiration
    config_version: int = 0
    namespace: str = ""
    # The key of its node, whose LogManager it reports to, and asks for the config after a restart;
    # empty where there is no LogManager.
    node: str = ""
