"""Which nodes obey an older config of the broker, and which of them is replaced now. Pure.

What a node cannot take while it serves it gets by a new LogManager: it is ordered to stop, closes
its logs in order, and is started again with the config of now. One node at a time: while any node
with logs is away, does not answer, or does not serve all of its partitions, no other one is
stopped. So one that does not serve is replaced first. What is to be removed holds nobody up.

Where a node has lost its turn to another one, its order to stop may be on its way: it counts as
away until it has obeyed a later one, or is closing its logs (``turns.py``). Nothing else is
remembered: a new Controller sees the same in the nodes' reports, and none of them obeys an order
of the one before.

A node of another release may have other keys, and another digest for the same config: it is not
replaced, since its next LogManager would say the same again. Its upgrade makes it one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.config_digests import digest_at_once, digest_by_start
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.spread import short_key
from raylog.storage.wire import RELEASE


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Of the broker's config of now, as nodes that obey it report them."""

    at_once: str
    by_start: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """``node``: that is replaced now; empty for none. ``waits_for``: why no other one is."""

    node: str = ""
    waits_for: str = ""


def digests_of(config: BrokerConfig) -> Digests:
    return Digests(at_once=digest_at_once(config), by_start=digest_by_start(config))


def is_old_at_once(seen: Observed, wanted: Digests) -> bool:
    """Whether a node reports that it has not taken what it can take while it serves."""
    return seen.report is not None and seen.report.config_digest not in ("", wanted.at_once)


def is_old_by_start(seen: Observed, wanted: Digests) -> bool:
    """Whether a node reports that it was started with what it cannot obey any more."""
    return not _is_of_another_release(seen) and _has_old_start(seen, wanted)


def _has_old_start(seen: Observed, wanted: Digests) -> bool:
    return seen.report is not None and seen.report.start_digest not in ("", wanted.by_start)


def _is_of_another_release(seen: Observed) -> bool:
    return seen.report is not None and seen.report.software != RELEASE


def lacks_record(desired: Desired, observed: Mapping[str, Observed], wanted: Digests) -> bool:
    """Whether nodes obey the config of an earlier start, and the metadata has none of this start.

    A log that is served takes other defaults only with a higher version, which is the record's.
    """
    epoch = desired.controller_epoch
    return desired.broker is None and any(
        seen.keeps(epoch) and is_old_at_once(seen, wanted) for seen in observed.values()
    )


def roll(desired: Desired, observed: Mapping[str, Observed], now_ms: int, wanted: Digests) -> Roll:
    """The node that is to be replaced now."""
    running = {key: seen for key, seen in observed.items() if not desired.is_stopped(key)}
    old = sorted(key for key, seen in running.items() if is_old_by_start(seen, wanted))
    if not old:
        return Roll()
    for key in old:
        if running[key].ending_ms is not None:
            return Roll(node=key, waits_for=f"node {short_key(key)} is closing its logs")
    unserved: dict[str, str] = {}
    for key in sorted({*running, *desired.nodes}):
        if desired.is_stopped(key):
            continue
        seen = observed.get(key)
        why_away = _why_away(key, seen, desired, now_ms)
        if why_away:
            return Roll(waits_for=why_away)
        why_unserved = "" if seen is None else _why_unserved(key, seen, desired)
        if why_unserved:
            unserved[key] = why_unserved
    node = next((key for key in old if key in unserved), old[0])
    for key, why in unserved.items():
        if key != node:
            return Roll(waits_for=why)
    return Roll(node=node)


def _why_away(key: str, seen: Observed | None, desired: Desired, now_ms: int) -> str:
    """Why no node may be stopped now; empty where this one is no reason."""
    name = short_key(key)
    if seen is None:
        return f"node {name} is away" if _has_wanted_logs(key, desired) else ""
    if seen.report is None:
        return f"node {name} has not come back"
    if seen.may_end:
        return f"node {name} may be closing its logs"
    if seen.is_suspect(now_ms) or not seen.obeys(desired.controller_epoch):
        return f"node {name} does not answer"
    return ""


def _has_wanted_logs(key: str, desired: Desired) -> bool:
    """Whether a node has logs that shall be served.

    What is to be removed lies there until the node comes back, which it need not do.
    """
    return any(desired.partitions[log].state != "removing" for log in desired.logs_at(key))


def _why_unserved(key: str, seen: Observed, desired: Desired) -> str:
    """Why no other node may be stopped now; empty where this one is no reason.

    What lies in a log dir that is offline serves with no config.
    """
    for log in desired.logs_at(key):
        record = desired.partitions[log]
        directory = desired.dirs.get(record.directory or "")
        if directory is not None and directory.state == "offline":
            continue
        is_served = any(entry.state == "serving" for entry in seen.logs.get(log, ()))
        if record.state in ("online", "moving") and not is_served:
            return f"partition {log.partition} of node {short_key(key)} does not serve"
    return ""


def has_outdated(desired: Desired, observed: Mapping[str, Observed], wanted: Digests) -> bool:
    """Whether a node may obey an older config. This looks at no partition."""
    return any(_is_outdated(key, seen, desired, wanted) for key, seen in observed.items())


def _is_outdated(key: str, seen: Observed, desired: Desired, wanted: Digests) -> bool:
    if desired.is_stopped(key):
        return False
    return _has_old_start(seen, wanted) or is_old_at_once(seen, wanted)


def outdated_nodes(
    desired: Desired, observed: Mapping[str, Observed], now_ms: int, wanted: Digests
) -> dict[str, str]:
    """The nodes that may obey an older config, by key, and why."""
    if not has_outdated(desired, observed, wanted):
        return {}
    turn = roll(desired, observed, now_ms, wanted)
    whys: dict[str, str] = {}
    for key, seen in sorted(observed.items()):
        if not _is_outdated(key, seen, desired, wanted):
            continue
        if _is_of_another_release(seen):
            whys[key] = _why_of_another_release(seen)
        elif is_old_by_start(seen, wanted):
            is_next = key == turn.node
            wait = "its turn" if is_next or not turn.waits_for else turn.waits_for
            whys[key] = f"it is to be closed and started with the present config; waits: {wait}"
        else:
            whys[key] = "it has not taken the present config yet"
    return whys


def _why_of_another_release(seen: Observed) -> str:
    assert seen.report is not None, "it tells its release"
    return (
        f"it runs raylog {seen.report.software or 'of an unknown version'} and the Controller "
        f"{RELEASE}: it obeys all of the present config when both run the same"
    )
