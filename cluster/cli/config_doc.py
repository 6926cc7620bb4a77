"""Prints docs/CONFIG.md from the tables of ``raylog.storage.config``: ``python -m
raylog.cluster.cli.config_doc``."""

from collections.abc import Iterable

from raylog.actors.node.broker_config import BROKER_KEYS, BROKER_SYNONYMS, MAX_DOUBLE
from raylog.storage.config import FIXED_TOPIC_KEYS, TOPIC_KEYS, Key

_HEAD = """# Configuration

Keys, meanings and defaults are Kafka's (4.x). A key that is not listed here is refused, because
nothing would obey it. This page is generated:
`python -m raylog.cluster.cli.config_doc > docs/CONFIG.md`.

Give broker keys to `raylog.start(config={...})`, to `raylog start --set key=value`, or in a YAML
file (`configs/broker.yaml`). Give topic keys to `broker.create_topic(..., config={...})` or
`raylog topic create --config key=value`. Topic keys can be changed while the topic serves, by
`raylog config set` or `broker.alter_topic_config`. `raylog config get` shows each value in force,
and who set it.
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
        "These are taken with their only value, since raylog does not have what they are for: "
        + ", ".join(f"`{key}={only}`" for key, (only, _) in FIXED_TOPIC_KEYS.items())
        + ".\n",
        "## Brokers\n\n" + _table(BROKER_KEYS.values()),
        "A broker key can set a topic key's default for all topics; of several, the first that is "
        "set counts:\n\n"
        "| topic key | broker keys |\n| --- | --- |\n" + "\n".join(defaults) + "\n",
        "## Environment\n\n| variable | what |\n| --- | --- |\n"
        "| `RAYLOG_LOG_DIRS` | this node's log dirs, with commas between them, in the place of "
        "`log.dirs` |\n"
        "| `RAYLOG_PURE_PYTHON` | `1`: use the pure-Python kernels even where the compiled ones "
        "are installed |\n"
        "| `RAY_ADDRESS` | the Ray cluster to join |\n",
    ]
    return "\n".join(parts)


def _table(keys: Iterable[Key]) -> str:
    rows = [f"| `{key.name}` | {_default(key)} | {key.valid} | {key.doc} |" for key in keys]
    return "| key | default | values | what |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"


def _default(key: Key) -> str:
    named = {2**63 - 1: "2^63-1 (never)", (): "none", MAX_DOUBLE: "no limit"}
    return f"`{named.get(key.default, key.default)}`"


if __name__ == "__main__":
    print(page(), end="")
