"""What a LogActor is started with. Knows no Ray."""

from dataclasses import dataclass

from raylog.actors.cluster_image import Endpoint
from raylog.actors.control import LogId
from raylog.actors.coordinators.group_config import GROUPS, GroupConfig
from raylog.actors.coordinators.transactions.config import TRANSACTIONS, TransactionConfig
from raylog.actors.listeners import ON_LOOPBACK, Listener
from raylog.storage.config import LogConfig
from raylog.storage.names import TopicPartition
from raylog.storage.state.producers import ProducerExpiration
from raylog.storage.wire import message


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpec:
    """What a LogActor is told about the log that it opens.

    Ray starts it again with the spec of its first start. Then ``is_clean``, ``recovery_point``,
    ``log_start_offset`` and the config may be old: see ``log_opening.py`` and ``life.py``.

    ``is_clean``: the broker before stopped in order. ``recovery_point``, ``log_start_offset``: as
    the checkpoints of the log dir have them; 0 where they are unknown. ``controller_epoch``: of the
    orders by which the log is served. ``node``: the key of its node, whose LogManager it reports
    to, and asks for orders after a restart; empty where there is no LogManager. ``cluster_id``:
    empty where an older raylog does not say it; nothing listens then. ``endpoint``: what it was to
    clients at its first start; None where its LogManager did not know it yet. ``listener``: for
    Kafka's clients, the first one; ``further_listeners``: all others.
    ``groups``, ``transactions``: for the coordinator of these, where the log is one's.
    """

    log: LogId
    directory_id: str
    folder: str
    config: LogConfig
    producer_expiration: ProducerExpiration
    config_version: int = 0
    controller_epoch: int = -1
    is_clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    namespace: str = ""
    node: str = ""
    cluster_id: str = ""
    endpoint: Endpoint | None = None
    listener: Listener = ON_LOOPBACK
    further_listeners: tuple[Listener, ...] = ()
    groups: GroupConfig = GROUPS
    transactions: TransactionConfig = TRANSACTIONS

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    @property
    def topic_id(self) -> str:
        return self.log.topic_id
