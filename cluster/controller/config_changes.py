"""What differs between two configs of a broker, and how a living broker takes it. Pure.

==============  ==================================================================================
at once         nodes take it while they serve
node by node    each node is closed in order and started again, one after the other
refused         not on a living broker; nothing of the whole config is applied then
==============  ==================================================================================
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from raylog.actors.node.broker_config import BrokerConfig, names_log_dirs
from raylog.actors.node.config_digests import BY_START, values_of
from raylog.storage.errors import InvalidConfig
from raylog.storage.wire import message

How = Literal["at once", "node by node", "refused"]
LOG_DIRS_REFUSED = (
    "a living broker takes new log dirs at the end of the list only: its nodes have the others "
    "open, with records in them. Move the partitions away, stop the broker, and start it with the "
    "list that you want"
)


@message
class ConfigChange(NamedTuple):
    """A key of the broker's config that another config has otherwise."""

    key: str
    now: Any
    new: Any
    how: How


@message
class AppliedConfig(NamedTuple):
    """What a config has changed. ``behind``: a partition or a node -> why it may not obey it yet.

    Nothing is removed there under the config of before. ``version``: of the config that counts now;
    -1 where that is the one of the start.
    """

    changes: tuple[ConfigChange, ...]
    behind: Mapping[str, str]
    version: int = -1


def parsed_for(now: BrokerConfig, settings: Mapping[str, Any]) -> BrokerConfig:
    """The whole config that ``settings`` are; without log dirs it has those of now.

    Raises InvalidConfig.
    """
    if now.log_dirs and not names_log_dirs(settings):
        settings = {**settings, "log.dirs": list(now.log_dirs)}
    return BrokerConfig.parse(settings)


def changes(now: BrokerConfig, new: BrokerConfig) -> tuple[ConfigChange, ...]:
    """The keys that differ, by name."""
    before, after = values_of(now), values_of(new)
    return tuple(
        ConfigChange(key, before[key], after[key], _how(key, before[key], after[key]))
        for key in sorted(before)
        if before[key] != after[key]
    )


def check_applicable(changed: tuple[ConfigChange, ...]) -> None:
    """Raise InvalidConfig for what a living broker cannot take."""
    for change in changed:
        if change.how == "refused":
            raise InvalidConfig(change.key, change.new, LOG_DIRS_REFUSED)


def _how(key: str, now: Any, new: Any) -> How:
    if key == "log.dirs" and new[: len(now)] != now:
        return "refused"
    return "node by node" if key in BY_START else "at once"
