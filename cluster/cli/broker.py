"""``raylog start``, ``stop``, ``status``."""

import signal
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from raylog.cluster.cli.common import NAMESPACE, Address, Namespace, connected, pairs, quiet_ray, show

WATCH_INTERVAL_S = 0.5


def start(
    config: Annotated[
        Path | None, typer.Option(help="YAML file of broker keys, as configs/broker.yaml.")
    ] = None,
    log_dir: Annotated[list[str] | None, typer.Option(help="Folder for partitions; repeat for more.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One broker key (docs/CONFIG.md).")
    ] = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Start a broker.

    On a running Ray cluster it leaves the broker's actors there and returns. Where none runs it starts Ray
    too, and stays until Ctrl-C or `raylog stop`.
    """
    quiet_ray()
    from raylog.actors.messages import RayNotFound
    from raylog.cluster.broker import join_ray
    from raylog.cluster.broker import start as start_broker
    from raylog.cluster.config_file import read_config_file

    settings: dict[str, Any] = read_config_file(config) if config else {}
    settings.update(pairs(setting or []))
    try:
        join_ray(address)
        is_joined = True
    except RayNotFound:
        if address:
            raise
        is_joined = False
    broker = start_broker(log_dir, config=settings, namespace=namespace)
    where = "the Ray cluster" if is_joined else "Ray, started here,"
    typer.echo(f"broker {broker.cluster_id()} runs on {where} at {broker.address}")
    for node, problem in broker.nodes().items():
        if problem:
            typer.echo(f"node {node[:8]} takes no part: {problem}", err=True)
    if not is_joined:
        typer.echo("Ctrl-C, or `raylog stop` in another terminal, stops it.")
        _stay(broker, namespace)


def _stay(broker: Any, namespace: str) -> None:
    """Wait until the broker is stopped from elsewhere, or from here by a signal; then end Ray."""
    from raylog.actors.runtime import CONTROLLER, find

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        while find(CONTROLLER, namespace) is not None:
            time.sleep(WATCH_INTERVAL_S)
    except KeyboardInterrupt:
        typer.echo("stopping ...")
    clean = broker.stop()
    typer.echo("stopped" if clean else "stopped; some logs were not closed in order and will be recovered")


def stop(address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Stop the broker in order: logs flushed and closed, checkpoints written."""
    clean = connected(address, namespace).stop()
    typer.echo("stopped" if clean else "stopped; some logs were not closed in order and will be recovered")


def status(address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Show nodes, partitions and their offsets."""
    broker = connected(address, namespace)
    columns = (
        "partition",
        "log start",
        "log end",
        "flushed to",
        "bytes",
        "segments",
        "epoch",
        "pid",
        "folder",
    )
    rows = [
        (
            one.partition,
            one.offsets.log_start_offset,
            one.offsets.log_end_offset,
            one.offsets.recovery_point,
            one.size_bytes,
            one.segments,
            one.leader_epoch,
            one.pid,
            one.folder + (" OFFLINE" if one.is_offline else ""),
        )
        for one in sorted(broker.status())
    ]
    show(columns, rows)
    for node, problem in broker.nodes().items():
        if problem:
            typer.echo(f"node {node[:8]} takes no part: {problem}", err=True)
    for topic in broker.list_topics():
        for place in broker.describe_topic(topic).partitions:
            if place.problem:
                typer.echo(f"{topic}-{place.partition} is away: {place.problem}", err=True)
