"""``raylog start``, ``stop``."""

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raylog.cluster.cli.common import (
    NAMESPACE,
    Address,
    Namespace,
    connected,
    note,
    pairs,
    quiet_ray,
    show,
    tell,
)
from raylog.cluster.cli.interrupts import told_if_interrupted
from raylog.cluster.cli.waiting import (
    nodes_wait_for,
    start_waits_for,
    stop_waits_for,
    told_while_waiting,
)

if TYPE_CHECKING:
    from raylog.cluster.broker import Broker
    from raylog.cluster.controller.config_changes import AppliedConfig

WATCH_INTERVAL_S = 0.5
# Where the Controller is gone: how long the rest may be being stopped by another process.
ANOTHER_STOP_S = 60.0
# Ctrl-C does the same.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        help="YAML file with broker keys, for example configs/broker.yaml, or Kafka's own "
        "server.properties. --log-dir and --set override it.",
    ),
]
LogDirs = Annotated[
    list[str] | None,
    typer.Option(
        "--log-dir",
        metavar="DIR",
        help="Folder for partitions; created if missing. Repeat for more folders.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A broker key of Kafka (docs/CONFIG.md). Repeat for more keys.",
    ),
]
RayToJoin = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        envvar="RAY_ADDRESS",
        help="Ray cluster to join. 'local': start a new one here, even if others run. "
        "Default: the cluster that runs on this machine, otherwise 'local'.",
    ),
]
NewCluster = Annotated[
    bool,
    typer.Option(
        "--new-cluster",
        help="Begin a new cluster where the metadata of an old one is lost, or a log dir "
        "cannot be read. The old topics are unknown then; their folders are set aside.",
    ),
]
OlderMetadata = Annotated[
    bool,
    typer.Option(
        "--older-metadata",
        help="Go on with metadata from the past, where the newer one is lost for good. Topics "
        "that it does not know are set aside, not deleted.",
    ),
]
Apply = Annotated[
    bool,
    typer.Option(
        "--apply",
        help="Give --config to the broker that runs; refused where none does. Without this, what "
        "differs is only shown.",
    ),
]
CHANGE_COLUMNS = ("key", "now", "new", "how")


def start(
    config: ConfigFile = None,
    log_dir: LogDirs = None,
    setting: Settings = None,
    address: RayToJoin = None,
    namespace: Namespace = NAMESPACE,
    new_cluster: NewCluster = False,
    older_metadata: OlderMetadata = False,
    apply: Apply = False,
) -> None:
    """Start a broker, or give another config to the one that runs.

    If a Ray cluster runs, the command starts the broker's actors there and returns. If none runs,
    it also starts Ray, and stays in the foreground until Ctrl-C or `raylog stop`.

    If the broker runs and a --config file is given, the command shows what differs, with exit
    status 1 if something does. With --apply it applies the file while the broker serves. The file
    is the whole config: a key that it lacks gets its default.
    """
    if apply and config is None:
        raise typer.BadParameter("--apply needs --config FILE: the whole config")
    quiet_ray()
    from raylog.actors.errors import BrokerNotFound
    from raylog.cluster.broker import Broker
    from raylog.cluster.start import start as start_broker

    joined = _join(address)
    if config is not None and joined is not None and _runs(namespace):
        broker = connected(joined, namespace)
        given = _read(config, setting or [], log_dir)
        compared = _compare(broker, given)
        if apply:
            _apply(broker, given, compared)
        elif compared.changes:
            typer.echo(f"nothing was changed: {_next_step(compared)}")
            raise typer.Exit(1)
        return
    if apply:
        raise BrokerNotFound(namespace)
    settings = _settings(config, setting or [], log_dir)
    if joined is None and log_dir:
        os.environ.pop("RAYLOG_LOG_DIRS", None)  # --log-dir overrides the shell's variable
    starting = Broker(namespace)
    with (
        told_if_interrupted("the broker was not started"),
        told_while_waiting(lambda: start_waits_for(starting)),
    ):
        broker = start_broker(
            config=settings,
            address=joined or "local",
            namespace=namespace,
            new_cluster=new_cluster,
            older_metadata=older_metadata,
        )
    if joined is None:
        _stay(broker)
    else:
        _greet(broker, "the Ray cluster")
        if log_dir:
            _note_ignored_log_dirs(broker)


def _runs(namespace: str) -> bool:
    from raylog.cluster.controller.stub import find_controller

    return find_controller(namespace) is not None


def _compare(broker: "Broker", settings: dict[str, Any]) -> "AppliedConfig":
    """Show what the config would change of the broker that runs."""
    compared = broker.apply_config(settings, validate_only=True)
    rows = [
        (change.key, _text(change.now), _text(change.new), change.how)
        for change in compared.changes
    ]
    if rows:
        show(CHANGE_COLUMNS, rows)
    else:
        typer.echo("the broker runs with this config; nothing differs")
    return compared


def _next_step(compared: "AppliedConfig") -> str:
    refused = [change.key for change in compared.changes if change.how == "refused"]
    if not refused:
        return "--apply gives the broker this config"
    return (
        f"--apply would be refused, since a living broker cannot change {', '.join(refused)}; give "
        "the values of now, or stop the broker and start it with this config"
    )


def _apply(broker: "Broker", settings: dict[str, Any], compared: "AppliedConfig") -> None:
    """Give the config to the broker that runs, over the one that it was compared with."""
    made_before = _new_log_dirs(broker)
    with (
        told_if_interrupted("the config may be applied all the same; see `raylog health`"),
        told_while_waiting(lambda: nodes_wait_for(broker)),
    ):
        applied = broker.apply_config(settings, if_version=compared.version)
    for name, why in applied.behind.items():
        note(f"{name} may not obey it yet: {why}")
    if applied.behind:
        note(
            "nothing is removed there under the old one. They take it by themselves, unless "
            "`raylog health` says what keeps a node from it"
        )
    elif compared.changes:
        typer.echo("applied")
    _tell_new([made for made in _new_log_dirs(broker) if made not in made_before])


def _text(value: Any) -> str:
    """A value as it stands in a config file."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def _read(config: Path | None, setting: list[str], log_dir: list[str] | None) -> dict[str, Any]:
    """The broker's keys, from the file and the options."""
    from raylog.cluster.config_file import read_config_file

    settings: dict[str, Any] = read_config_file(config) if config else {}
    settings.update(pairs(setting))
    if log_dir:
        settings["log.dirs"] = log_dir
    return settings


def _settings(config: Path | None, setting: list[str], log_dir: list[str] | None) -> dict[str, Any]:
    """The same. BadParameter where none names a folder."""
    from raylog.actors.node.broker_config import names_log_dirs

    settings = _read(config, setting, log_dir)
    if not names_log_dirs(settings) and not os.environ.get("RAYLOG_LOG_DIRS"):
        raise typer.BadParameter(
            "no folder for partitions: give --log-dir DIR, or log.dirs in --config FILE"
        )
    return settings


def _join(address: str | None) -> str | None:
    """Connect to a running Ray cluster. None if none runs, or if the user wants a new one."""
    from raylog.actors.errors import RayNotFound
    from raylog.actors.runtime.clusters import LOCAL, join_ray

    if address == LOCAL:
        return None
    try:
        return join_ray(address)
    except RayNotFound:
        if address and address != "auto":
            raise
        return None


def _greet(broker: "Broker", where: str) -> None:
    from raylog.cluster.controller.node_states import servers_told

    typer.echo(f"broker {broker.cluster_id()} runs on {where} at {broker.address}")
    first = broker.bootstrap_servers
    if first:
        for servers in servers_told(broker.describe_nodes()) or [first]:
            typer.echo(f"Kafka's clients: bootstrap.servers={servers}")
    _tell_new(_new_log_dirs(broker))
    tell(broker.health(), with_advice=True)


def _new_log_dirs(broker: "Broker") -> list[str]:
    """The log dirs that the nodes have made since they began, with the node's name."""
    from raylog.cluster.controller.spread import short_key

    return [
        f"{path} of node {short_key(node.node)}"
        for node in broker.describe_nodes()
        for path in node.new_log_dirs
    ]


def _tell_new(log_dirs: list[str]) -> None:
    """Name log dirs that were made: a mistyped path makes one, too."""
    from raylog.cluster.naming import named

    if log_dirs:
        typer.echo(f"new, empty log dirs were made: {named(log_dirs)}")


def _note_ignored_log_dirs(broker: "Broker") -> None:
    """Name the nodes on which the log dirs of the command do not count."""
    from raylog.cluster.controller.spread import short_key
    from raylog.cluster.naming import named

    config = {entry.name: entry.value for entry in broker.broker_config()}
    wanted = set(config["log.dirs"])
    others = [
        short_key(node.node)
        for node in broker.describe_nodes()
        if node.life and {os.path.normpath(path) for path in node.log_dirs} != wanted
    ]
    if others:
        note(
            f"--log-dir is ignored on node {named(others)}: RAYLOG_LOG_DIRS was set there when its "
            "Ray was started. `raylog log-dirs` shows what is used"
        )


def _stay(broker: "Broker") -> None:
    """Wait until another process stops the broker, or a signal stops it here; then end Ray."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for number in STOP_SIGNALS:
        signal.signal(number, interrupt)
    try:
        _greet(broker, "Ray, started here,")
        typer.echo("Ctrl-C, or `raylog stop` in another terminal, stops it.")
        while _may_run(broker):
            time.sleep(WATCH_INTERVAL_S)
        let_another_stop_end(broker)
    except KeyboardInterrupt:
        note("stopping ...")
    try:
        _stop(broker)
    except KeyboardInterrupt:
        note("stopped immediately: the next start recovers the logs")
        raise typer.Exit(1) from None


def let_another_stop_end(broker: "Broker") -> None:
    """Wait for a stop by another process, which ends a Controller that hangs before all else.

    Ray must not end under it.
    """
    deadline = time.monotonic() + ANOTHER_STOP_S
    while _has_parts(broker) and time.monotonic() < deadline:
        time.sleep(WATCH_INTERVAL_S)


def _has_parts(broker: "Broker") -> bool:
    """Whether something of a broker runs that has no Controller any more."""
    from raylog.actors.errors import NotLeader, RequestTimedOut
    from raylog.cluster.running import running_parts

    try:
        return bool(running_parts(broker.namespace).others)
    except (NotLeader, RequestTimedOut):
        return True


def _may_run(broker: "Broker") -> bool:
    from raylog.actors.errors import NotLeader, RequestTimedOut
    from raylog.actors.runtime.handles import find
    from raylog.actors.runtime.names import CONTROLLER

    try:
        return find(CONTROLLER, broker.namespace) is not None
    except (NotLeader, RequestTimedOut):
        return True  # Ray's head is slow; ask again


def stop(address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Stop the broker in order.

    Flushes and closes all logs and writes the checkpoints. Ray keeps running, unless `raylog start`
    started it.
    """
    broker = connected(address, namespace)
    what = "the broker may be stopped in part; `raylog stop` again stops the rest"
    with told_if_interrupted(what):
        _stop(broker)


def _stop(broker: "Broker") -> None:
    with told_while_waiting(lambda: stop_waits_for(broker.namespace)):
        clean = broker.stop()
    typer.echo(
        "stopped"
        if clean
        else "stopped; the next start recovers the logs that were not closed in order"
    )
