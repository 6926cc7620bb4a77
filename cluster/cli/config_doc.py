"""Prints docs/CONFIG.md from the tables of keys: ``python -m raylog.cluster.cli.config_doc``."""

from collections.abc import Iterable

from raylog.actors.node.broker_config import (
    BROKER_ALIASES,
    BROKER_KEYS,
    BROKER_SYNONYMS,
    MAX_DOUBLE,
)
from raylog.actors.node.config_digests import BY_START
from raylog.storage.config import FIXED_TOPIC_KEYS, TOPIC_KEYS, Key
from raylog.storage.limits import MAX_LONG

_HEAD = """# Configuration

Keys, meanings and defaults are those of Kafka 4.x, but for keys that are marked as raylog's own.
raylog refuses a key that is not listed here, because it would have no effect. This page is
generated:
`python -m raylog.cluster.cli.config_doc > docs/CONFIG.md`.

Give broker keys to `raylog.start(config={...})`, to `raylog start --set key=value`, or in a YAML
file (`configs/broker.yaml`). A file whose name ends in `.properties` is Kafka's own
`server.properties`: keys of Kafka that have no use here are passed over, each is named with the
reason, and a value that promises what raylog does not do (`min.insync.replicas=2`) is refused.

Give topic keys to `broker.create_topic(..., config={...})` or
`raylog topic create --config key=value`. To change a topic key while the topic serves, use
`raylog config set` or `broker.alter_topic_config`. To change broker keys while the broker serves,
use `raylog start --config FILE --apply` or `broker.apply_config`
([OPERATIONS.md](OPERATIONS.md#another-config-while-the-broker-serves)). `raylog config get` shows
the current value of each key, and where it was set. Sizes are in bytes. Keys that end in `.ms` are
in milliseconds.
"""


def page() -> str:
    """The whole page."""
    defaults = [
        f"| {topic} | {', '.join(f'`{name}`' for name, _ in names)} |"
        for topic, names in BROKER_SYNONYMS.items()
    ]
    parts = [
        _HEAD,
        "## Topics\n\n" + _table(TOPIC_KEYS.values()),
        "raylog accepts these keys only with the value shown here, because it does not have the "
        "features that they configure: "
        + ", ".join(f"`{key}={only}`" for key, (only, _) in FIXED_TOPIC_KEYS.items())
        + ".\n",
        "## Brokers\n\n" + _broker_table(BROKER_KEYS.values()),
        "\n".join(
            f"`{alias}` is another name of `{key}`. Where both are set, `{key}` applies."
            for alias, key in BROKER_ALIASES.items()
        )
        + "\n",
        "These broker keys set the default of a topic key for all topics, and are changed at once. "
        "If several of a row are set, the first one applies:\n\n"
        "| topic key | broker keys |\n| --- | --- |\n" + "\n".join(defaults) + "\n",
        "## Environment\n\n| variable | meaning |\n| --- | --- |\n"
        "| `RAYLOG_LOG_DIRS` | log dirs of this node, separated by commas; it replaces `log.dirs`. "
        "Absolute paths, but where a command or `raylog.start` reads it: there a relative one is "
        "below the working directory |\n"
        "| `RAYLOG_ADVERTISED_HOST` | the name or address of this node that Kafka's clients are "
        "told, where `listeners` is for other machines; set it before `ray start` |\n"
        "| `RAYLOG_MAX_PLAIN_BATCH_BYTES` | maximum size to which a client decompresses one batch; "
        "default: 104857600. Set it where a topic has a higher `max.plain.batch.bytes` |\n"
        "| `RAYLOG_PURE_PYTHON` | `1`: use the pure-Python kernel even if the compiled one is "
        "installed |\n"
        "| `RAY_ADDRESS` | the Ray cluster to join |\n",
    ]
    return "\n".join(parts)


def _table(keys: Iterable[Key]) -> str:
    rows = [f"| `{key.name}` | {_default(key)} | {key.valid} | {key.doc} |" for key in keys]
    return (
        "| key | default | values | meaning |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


def _broker_table(keys: Iterable[Key]) -> str:
    rows = [
        f"| `{key.name}` | {_default(key)} | {key.valid} | {_change(key)} | {key.doc} |"
        for key in keys
    ]
    return (
        "| key | default | values | on a living broker | meaning |\n"
        "| --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
    )


def _change(key: Key) -> str:
    """How a living broker takes another value."""
    if key.name == "log.dirs":
        return "node by node, at the end of the list; else never"
    return "node by node" if key.name in BY_START else "at once"


def _default(key: Key) -> str:
    named = {MAX_LONG: "2^63-1 (never)", (): "none", MAX_DOUBLE: "no limit"}
    return f"`{named.get(key.default, key.default)}`"


if __name__ == "__main__":
    print(page(), end="")
