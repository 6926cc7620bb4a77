"""Kafka's own file of a broker's settings, ``server.properties``: what raylog makes of each key.

::

    a key of docs/CONFIG.md         is used, as in a YAML file
    a key of Kafka without use      is passed over, and named with the reason (``UNUSED``)
    one of those whose value would  is refused: records are not kept, or kept from others, as it
    be a promise that is not kept   says (``ONLY``)
    any other key                   is refused: it is more likely a mistake

The format is that of ``java.util.Properties``. Keys are those of Kafka 4.3
(``AbstractKafkaConfig.CONFIG_DEF``); a test asks a real Kafka for them.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, NamedTuple

SUFFIX: Final = ".properties"

_ONE_COPY: Final = "each partition has one copy"
_GROUPS: Final = "there are no groups of the newer protocol, and no share groups"
_TRANSACTIONS: Final = "the topic of transactions is compacted, and its leader asks by itself"
_OWN_CONTROLLER: Final = "raylog's Controller is a Ray actor, and numbers its brokers itself"
_INNER: Final = "raylog's processes speak by Ray, and its own clients have a way in of their own"
_USERS: Final = "users are made by raylog user add, and prove it by SCRAM or PLAIN"
_TLS: Final = "TLS is Python's, with files in PEM, and a key that is not encrypted"
_NO_ACLS: Final = "there are no ACLs: who is let in may do everything"
_TIERS: Final = "there is no tiered storage"
_SOCKETS: Final = "each connection has a thread, up to max.connections"
_METRICS: Final = "metrics are Ray's, see docs/METRICS.md"
_NO_QUOTAS: Final = "there are no quotas"
_NO_JAVA: Final = "raylog takes no classes of Java"

# Patterns of keys, and why they have no use here. The first one counts.
UNUSED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "*.replication.factor": _ONE_COPY,
        "transaction*.*": _TRANSACTIONS,
        "add.partitions.to.txn.*": _TRANSACTIONS,
        "group.*": _GROUPS,
        "offset*.*": _GROUPS,
        "share.*": _GROUPS,
        "min.insync.replicas": _ONE_COPY,
        "replica.*": _ONE_COPY,
        "num.replica.fetchers": _ONE_COPY,
        "*leader.*": _ONE_COPY,
        "follower.*": _ONE_COPY,
        "remote.*": _TIERS,
        "log.local.retention.*": _TIERS,
        "node.id": _OWN_CONTROLLER,
        "process.roles": _OWN_CONTROLLER,
        "broker.rack": "a node is known by its Ray label raylog/log-node",
        "broker.*": _OWN_CONTROLLER,
        "initial.broker.*": _OWN_CONTROLLER,
        "controller.quota.*": _NO_QUOTAS,
        "controller.*": _OWN_CONTROLLER,
        "controlled.shutdown.enable": "a stop is always in order: raylog stop",
        "metadata.log.dir": "the metadata lies in the first log dir of some nodes",
        "*metadata.*": _OWN_CONTROLLER,
        "zookeeper.*": _OWN_CONTROLLER,
        "inter.broker.protocol.version": "raylog upgrade finalize says what older ones may read",
        "log.message.format.version": "records are written in format 2",
        "early.start.listeners": _OWN_CONTROLLER,
        "server.max.startup.time.ms": _OWN_CONTROLLER,
        "unstable.*": _OWN_CONTROLLER,
        "advertised.listeners": "a node tells its own address, or its RAYLOG_ADVERTISED_HOST",
        "inter.broker.listener.name": _INNER,
        "security.*": _INNER,
        "sasl.*": _USERS,
        "ssl.*": _TLS,
        "connection.failed.authentication.delay.ms": _USERS,
        "connections.max.reauth.ms": _USERS,
        "delegation.token.*": _USERS,
        "principal.builder.class": _NO_ACLS,
        "authorizer.class.name": _NO_ACLS,
        "super.users": _NO_ACLS,
        "allow.everyone.if.no.acl.found": _NO_ACLS,
        "replication.quota.*": _NO_QUOTAS,
        "alter.log.dirs.replication.quota.*": _NO_QUOTAS,
        "quota.*": _NO_QUOTAS,
        "client.quota.callback.class": _NO_QUOTAS,
        "max.connection.creation.rate": _NO_QUOTAS,
        "max.connections.per.ip*": _SOCKETS,
        "socket.*": _SOCKETS,
        "queued.*": _SOCKETS,
        "num.network.threads": _SOCKETS,
        "num.io.threads": _SOCKETS,
        "background.threads": _SOCKETS,
        "request.timeout.ms": _SOCKETS,
        "*.purgatory.purge.interval.requests": _SOCKETS,
        "fetch.max.bytes": "a client's own fetch.max.bytes is obeyed",
        "max.incremental.fetch.session.cache.slots": "there are no fetch sessions",
        "max.request.partition.size.limit": "it is 2,000 always",
        "metric*": _METRICS,
        "kafka.metrics.*": _METRICS,
        "telemetry.*": _METRICS,
        "auto.create.topics.enable": "topics are made by a command alone",
        "delete.topic.enable": "topics can always be deleted",
        "*.policy.class.name": _NO_JAVA,
        "config.providers": _NO_JAVA,
        "num.replica.alter.log.dirs.threads": "a move has a thread of its own",
        "log.dir.failure.timeout.ms": "a node with a failed log dir serves the others",
        "log.initial.task.delay.ms": "it is for Kafka's own tests",
        "cordoned.log.dirs": "it is a command here: raylog node drain, raylog log-dirs offline",
    }
)

# The only values that are true here; others would promise what is not kept.
ONLY: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "default.replication.factor": ("1",),
        "min.insync.replicas": ("1",),
        "unclean.leader.election.enable": ("false",),
        "remote.log.storage.system.enable": ("false",),
        "authorizer.class.name": ("",),
        "sasl.server.callback.handler.class": ("",),
        "ssl.engine.factory.class": ("",),
        "config.providers": ("",),
        "create.topic.policy.class.name": ("",),
        "alter.config.policy.class.name": ("",),
    }
)


class Entry(NamedTuple):
    """A setting of a file. ``line``: where it begins, from 1."""

    key: str
    value: str
    line: int


def entries(text: str) -> list[Entry]:
    """The settings of a file, in order. ValueError for an escape that is none."""
    import javaproperties  # takes 30 ms, and few have such a file

    found, line = list[Entry](), 1
    for part in javaproperties.parse(text):
        if isinstance(part, javaproperties.KeyValue):
            found.append(Entry(part.key, part.value.strip(), line))
        line += len(part.source.splitlines())
    return found


def without_controllers(found: Sequence[Entry]) -> list[Entry]:
    """The settings; of the listeners those that are not for Kafka's controllers."""
    values = {one.key: one.value for one in found}
    names = {one.strip() for one in values.get("controller.listener.names", "").upper().split(",")}
    listeners = [part.strip() for part in values.get("listeners", "").split(",")]
    kept = ",".join(part for part in listeners if part.partition("://")[0].upper() not in names)
    return [one._replace(value=kept) if one.key == "listeners" else one for one in found]


def why_unused(key: str) -> str:
    """Why this key of Kafka has no use here; empty for one that is none of these."""
    return next((why for pattern, why in UNUSED.items() if fnmatchcase(key, pattern)), "")
