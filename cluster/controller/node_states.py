"""A node as its operator sees it: what it shall be, what it is, and what the change still needs.

::

    online ---drain---> draining ---drain --undo, start---> online
       |                   |
       +-------stop--------+----> stopping --its logs are closed, it has ended--> stopped
       ^                                                                            |
       +-----------starting <-----------------------start---------------------------+

What a node shall be is a record; the rest of this follows from what it reports. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from raylog.actors.control import Report
from raylog.actors.errors import InvalidRequest, NodeOrderReplaced
from raylog.cluster.controller.describe import (
    BEING_CREATED,
    BEING_OPENED,
    Snapshot,
    problem_of,
    why_not_obeying,
)
from raylog.cluster.controller.observed import Observed
from raylog.cluster.controller.records import NodeState as WantedState
from raylog.cluster.controller.spread import NODE_ID_CHARS, SHORT_KEY_CHARS, short_key
from raylog.cluster.naming import named
from raylog.storage.errors import RaylogError
from raylog.storage.wire import message

# away: it is not in the Ray cluster
# apart: it is, and takes no part in the broker, for a reason that does not pass by itself
# suspect: its LogManager does not report; its partitions may serve
# starting: its LogManager begins, or learns what to obey
NodeState = Literal[
    "online", "draining", "stopping", "stopped", "starting", "suspect", "apart", "away"
]


@message
class NodeDescription(NamedTuple):
    """A node of the broker.

    ``node``: its key, the same in each of its lives: its label, or else Ray's id of it.
    ``node_id``: Ray's id of the present life; None while it is away. ``host``: empty where nobody
    knows. ``why``: what is wrong with it, or what an operator has ordered. ``serving``, ``wanted``:
    so many partitions serve, and shall be there. ``life``: of its LogManager. ``version``: of the
    raylog that it runs. ``was_clean``: whether all of its logs were closed in order when it was
    stopped; None where it was not, or where nobody knows. ``waits_for``: what the last drain, stop
    or start still needs; empty if nothing. ``closing_ms``: for so long it has said that it closes
    its logs; 0 where it does not. ``not_serving``: partition -> why it does not serve;
    only ``Broker.start_node`` tells it. ``new_log_dirs``: those that this life has made, empty.
    ``address``: where its LogManager listens for clients of Kafka's protocol, by its own word and
    the broker's ``listeners``; empty while it does not. ``addresses``: the same, by the names of
    all listeners.
    """

    node: str
    node_id: str | None
    state: NodeState
    why: str = ""
    host: str = ""
    log_dirs: tuple[str, ...] = ()
    serving: int = 0
    wanted: int = 0
    life: str = ""
    version: str = ""
    was_clean: bool | None = None
    waits_for: str = ""
    closing_ms: int = 0
    not_serving: Mapping[str, str] = {}
    new_log_dirs: tuple[str, ...] = ()
    address: str = ""
    addresses: Mapping[str, str] = {}


def bootstrap_servers(nodes: Iterable[NodeDescription], listener: str | None = None) -> str:
    """The string by which any client of Kafka's protocol finds the cluster; empty for none.

    ``listener``: the name of that by which it comes; None: of the first one.
    """
    found = (node.address if listener is None else node.addresses.get(listener) for node in nodes)
    return ",".join(address for address in found if address)


def servers_by_listener(nodes: Sequence[NodeDescription]) -> dict[str, str]:
    """The same for each listener by which somebody is found, by its name."""
    names = dict.fromkeys(name for node in nodes for name in node.addresses)
    return {name: bootstrap_servers(nodes, name) for name in names}


def servers_told(nodes: Sequence[NodeDescription]) -> list[str]:
    """The same for a person: a line for each listener, with its name where there are several."""
    found = servers_by_listener(nodes)
    if len(found) > 1:
        return [f"{servers} ({name})" for name, servers in found.items()]
    first = bootstrap_servers(nodes)  # an older broker tells this one alone
    return [first] if first else []


# -- what a change still needs ---------------------------------------------------------------------


def waits_for(snapshot: Snapshot, key: str) -> str:
    """What is still missing until a node is what it shall be; empty if nothing."""
    seen = snapshot.observed.get(key)
    if seen is None:
        return ""  # what counts is its record, when it is back
    match snapshot.desired.state_of(key):
        case "stopped":
            return _until_stopped(snapshot, key, seen)
        case "draining":
            return _until_drained(snapshot, key)
        case _:
            return _until_started(snapshot, key, seen)


def _until_stopped(snapshot: Snapshot, key: str, seen: Observed) -> str:
    if key != snapshot.controller and snapshot.desired.keeps_copy(key):
        return "its copy of the metadata is to be left out first"
    if seen.is_ended:
        return ""
    if seen.report is None:
        return "its actors have to end"
    if seen.is_suspect(snapshot.now_ms):
        return f"its LogManager does not answer; {_closing(seen)}"
    return _closing(seen)


def _closing(seen: Observed) -> str:
    serving = [
        str(entry.partition)
        for logs in seen.logs.values()
        for entry in logs
        if entry.state == "serving"
    ]
    return f"{named(sorted(serving)) or 'its log dirs'} to be closed"


def _until_drained(snapshot: Snapshot, key: str) -> str:
    """What it was to make before the drain was ordered is still made."""
    desired = snapshot.desired
    creating = [
        str(log.partition)
        for log in desired.logs_at(key)
        if desired.partitions[log].state == "creating"
    ]
    return f"{named(sorted(creating))} to be created there" if creating else ""


def _until_started(snapshot: Snapshot, key: str, seen: Observed) -> str:
    if not seen.obeys(snapshot.desired.controller_epoch):
        return _until_begun(snapshot, seen)
    if seen.is_suspect(snapshot.now_ms):
        return "its LogManager does not answer"
    opening = [
        name
        for name, why in _problems(snapshot, key).items()
        if why in (BEING_OPENED, BEING_CREATED)
    ]
    return f"{named(sorted(opening))} to be opened" if opening else ""


def _until_begun(snapshot: Snapshot, seen: Observed) -> str:
    if seen.report is None or not seen.may_end:
        return "its LogManager has to begin"
    closing = f"its LogManager was ordered to stop before; {_closing(seen)}"
    if seen.is_suspect(snapshot.now_ms):
        return f"{closing}, and it does not answer"
    return f"{closing}, and the next one begins then"


def replaced(
    snapshot: Snapshot,
    key: str,
    ordered: WantedState,
    problems: Mapping[str, RaylogError | str] | None = None,
) -> NodeOrderReplaced | None:
    """That another order counts than the one for ``ordered``; None while that one does.

    ``problems``: as of ``describe_nodes``.
    """
    if snapshot.desired.state_of(key) == ordered:
        return None
    node = describe_node(snapshot, key, problems or {})
    return NodeOrderReplaced(short_key(key), ordered, node.state)


def not_serving(snapshot: Snapshot, key: str) -> dict[str, str]:
    """The partitions of a node that do not serve -> why."""
    return {name: str(why) for name, why in _problems(snapshot, key).items() if why is not None}


def _problems(snapshot: Snapshot, key: str) -> dict[str, RaylogError | str | None]:
    desired = snapshot.desired
    records = [desired.partitions[log] for log in desired.logs_at(key)]
    wanted = [record for record in records if record.state != "removing"]
    return {str(record.log.partition): problem_of(snapshot, record) for record in wanted}


# -- as they are shown -----------------------------------------------------------------------------


def describe_node_list(
    snapshot: Snapshot, problems: Mapping[str, RaylogError | str], others: Mapping[str, str]
) -> list[NodeDescription]:
    """The nodes that an operator may name, and those of the Ray cluster that take no part.

    ``problems``, ``others``: as of ``describe_nodes``.
    """
    nodes = [describe_node(snapshot, key, problems) for key in keys_of(snapshot)]
    nodes += [
        NodeDescription(node=node_id, node_id=node_id, state="apart", why=why)
        for node_id, why in others.items()
    ]
    return sorted(nodes)


def describe_node(
    snapshot: Snapshot, key: str, problems: Mapping[str, RaylogError | str]
) -> NodeDescription:
    """One node."""
    seen = snapshot.observed.get(key)
    report = None if seen is None else seen.report
    partitions = _problems(snapshot, key)
    state, why = _state(snapshot, key, seen, problems.get(key))
    addresses = _addresses(snapshot, report)
    return NodeDescription(
        node=key,
        node_id=None if seen is None else snapshot.node_ids.get(key, key),
        state=state,
        why=why,
        log_dirs=_log_dirs(snapshot, key, seen),
        serving=sum(why is None for why in partitions.values()),
        wanted=len(partitions),
        life="" if report is None else report.life,
        version="" if report is None else report.software,
        was_clean=None if seen is None else seen.is_clean,
        waits_for=waits_for(snapshot, key),
        closing_ms=0
        if seen is None or seen.ending_ms is None
        else snapshot.now_ms - seen.ending_ms,
        new_log_dirs=()
        if report is None
        else tuple(entry.path for entry in report.dirs if entry.is_new),
        address=next(iter(addresses.values()), ""),
        addresses=addresses,
    )


def _addresses(snapshot: Snapshot, report: Report | None) -> dict[str, str]:
    """Where its LogManager is found, by the names of the listeners.

    While a node has not begun anew with other ``listeners``, it may be at the port of another one.
    """
    if report is None or not report.host:
        return {}
    found = {}
    for listener in snapshot.config.listeners_at(""):
        host, port = listener.address(report.host, report.port)
        found[listener.name] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return found


def _log_dirs(snapshot: Snapshot, key: str, seen: Observed | None) -> tuple[str, ...]:
    """The paths as the node reports them, or else as they are recorded."""
    if seen is not None and seen.report is not None:
        return tuple(entry.path for entry in seen.report.dirs)
    return tuple(record.path for record in snapshot.desired.dirs_of(key))


def _state(
    snapshot: Snapshot, key: str, seen: Observed | None, problem: RaylogError | str | None
) -> tuple[NodeState, str]:
    """The state, and why."""
    wanted = snapshot.desired.state_of(key)
    if wanted == "stopped":
        is_ended = seen is None or seen.is_ended
        return ("stopped" if is_ended else "stopping"), f"`raylog node start {short_key(key)}`"
    if seen is None:
        return "away", "it is not in the Ray cluster"
    why = why_not_obeying(snapshot, key, seen, problem)
    if why is None and wanted == "draining":
        return "draining", "it gets no new partition"
    if why is None:
        return "online", ""
    if seen.report is not None and seen.is_suspect(snapshot.now_ms):
        return "suspect", f"{why}; what it serves is as it said last: it may be dead"
    return ("starting" if problem is None else "apart"), why


def key_of(snapshot: Snapshot, name: str, *, is_start: bool = False) -> str | None:
    """The key of the node that a person means; None where there is none, or several.

    ``name``: its label, or Ray's id of it, or the beginning of that. ``is_start``: the node is to
    be used again. Where its order alone kept it known, the first start has ended that; a start that
    is repeated finds it among all nodes that ever took part, by its label or at least
    ``SHORT_KEY_CHARS`` of its id: fewer, mistyped, fit one of many dead nodes.
    """
    key = _key_in(keys_of(snapshot), snapshot, name)
    if key is None and is_start:
        if len(name) < SHORT_KEY_CHARS:
            return name if name in snapshot.desired.nodes else None
        return _key_in({*keys_of(snapshot), *snapshot.desired.nodes}, snapshot, name)
    return key


def meant_node(nodes: Iterable[NodeDescription], name: str) -> str | None:
    """As ``key_of``, of nodes that were described."""
    known = list(nodes)
    if any(node.node == name for node in known):
        return name
    meant = {node.node for node in known if name and (node.node_id or node.node).startswith(name)}
    return meant.pop() if len(meant) == 1 else None


def no_such_node(name: str, keys: Iterable[str]) -> InvalidRequest:
    """That none of these nodes is meant, or several are."""
    known = ", ".join(short_key(key) for key in sorted(keys))
    why = (
        "is no node of this broker, or the beginning of several ids; its nodes are: "
        f"{known or 'none'}. See `raylog node list`"
    )
    return InvalidRequest("node", name, why)


def _key_in(keys: set[str], snapshot: Snapshot, name: str) -> str | None:
    if name in keys:
        return name
    ids = {key: key for key in keys if len(key) == NODE_ID_CHARS} | dict(snapshot.node_ids)
    meant = {key for key, node_id in ids.items() if name and node_id.startswith(name)}
    return meant.pop() if len(meant) == 1 else None


def keys_of(snapshot: Snapshot) -> set[str]:
    """The keys of the nodes of the Ray cluster, and of those that are away but not gone for good.

    One that is away counts while it has log dirs, shall make partitions, or is drained or stopped.
    """
    desired = snapshot.desired
    missed = {key for key in desired.nodes if desired.is_missed(key)}
    return {*snapshot.observed, *missed}
