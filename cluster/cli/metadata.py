"""``raylog metadata``: the copies of the cluster's metadata, and what to do when they are lost."""

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Format,
    Namespace,
    Output,
    note,
    quiet_ray,
    show,
    show_json,
)
from raylog.cluster.cli.interrupts import told_if_interrupted

if TYPE_CHECKING:
    from raylog.actors.node.broker_config import BrokerConfig
    from raylog.cluster.controller.standings import Standing
    from raylog.cluster.metadata_work import MetadataWork

app = typer.Typer(
    help="Show the copies of the cluster's metadata, and mend what is lost.", no_args_is_help=True
)
IF_INTERRUPTED = "the metadata may have been changed; see `raylog metadata status`"
COLUMNS = ("node", "log dir", "state", "has every change", "records", "lacks", "epoch", "topics")

ConfigFile = Annotated[
    Path | None, typer.Option(help="YAML file with broker keys, as of `raylog start`.")
]
LogDirs = Annotated[
    list[str] | None,
    typer.Option(
        "--log-dir",
        metavar="DIR",
        help="Log dir, as of `raylog start`. Repeat for more. Default: those of the broker that "
        "runs, or RAYLOG_LOG_DIRS.",
    ),
]

RayToAsk = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        envvar="RAY_ADDRESS",
        help="Address of the Ray cluster. 'local': none; work on the log dirs of this machine. "
        "Default: the cluster on this machine.",
    ),
]


@app.command()
def status(
    log_dir: LogDirs = None,
    config: ConfigFile = None,
    output: Format = TABLE,
    address: RayToAsk = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show who has a copy of the cluster's metadata, and how far it is.

    The newest copy comes first. STATE: newest; behind (it lacks the last records); outdated (what
    it has more was never committed); apart (nobody can say which of the two counts); unreadable;
    of a newer raylog (only that one can read it); missed (it was in sync, and its log dir is not
    there). HAS EVERY CHANGE: whether nothing can be missing in it that a client was told is done;
    "not known": it has all that is in reach, or cannot be read, or is older than it was, as a
    backup is, or was just made or chosen by `rebuild` or `restore`, or a newer copy is missing, or
    another one is apart: a part of the cluster can be missing in either then. NODE, or the path, is
    what `raylog metadata restore --from` takes. Reads the log dirs of all nodes; no broker needs to
    run.
    """
    from raylog.cluster.controller.spread import short_key

    found = metadata_work(log_dir, config, address, namespace).status()
    if output is Output.json:
        show_json({"copies": [_fields(entry) for entry in found]})
        return
    show(COLUMNS, [_row(entry) for entry in found])
    for entry in found:
        for what in _notes_of(entry):
            note(f"{entry.path} of node {short_key(entry.node)}: {what}")
    if not found:
        note("no log dir has metadata")


def _notes_of(entry: "Standing") -> Iterator[str]:
    """What is wrong with a copy that its row does not say."""
    from raylog.actors.metadata_snapshot import DAMAGED_TODO

    if entry.problem:
        yield entry.problem
    if entry.asides:
        yield (
            f"recovery took bytes out of this copy, and kept them: {', '.join(entry.asides)} "
            "(docs/OPERATIONS.md, Damaged metadata)"
        )
    for damaged in entry.damaged_snapshots:
        yield f"a snapshot of this copy is damaged: {damaged}. Nothing is lost; {DAMAGED_TODO}"


def _fields(entry: "Standing") -> dict[str, object]:
    return {name: getattr(entry, name) for name in entry.__dataclass_fields__}


def _row(entry: "Standing") -> tuple[object, ...]:
    from raylog.cluster.controller.spread import short_key

    numbers = (entry.records, entry.behind, entry.epoch, entry.topics)
    return (
        short_key(entry.node),
        entry.path or None,
        entry.state,
        _has_every_change(entry),
        *(number if number >= 0 else None for number in numbers),
    )


def _has_every_change(entry: "Standing") -> str:
    if entry.is_in_sync:
        return "yes"
    return "no" if entry.is_in_sync is False and entry.behind > 0 else "not known"


@app.command()
def restore(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="NODE",
            help="Where the copy is, as `raylog metadata status` shows it: the label of the node, "
            "or its id, or at least 8 characters of that; or the path of the log dir. With "
            "`--address local` give the path: a node without a label has another id each time.",
        ),
    ],
    keep_configs: Annotated[
        bool,
        typer.Option(
            "--keep-configs",
            help="The topics obey the configs of the copy, also where they may be older than the "
            "last ones.",
        ),
    ] = False,
    log_dir: LogDirs = None,
    config: ConfigFile = None,
    address: RayToAsk = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Go on from one copy of the metadata, when a newer one is lost for good.

    For a broker that does not start, or whose Controller waits, since a copy is missed
    (MetadataIncomplete) or two have gone on apart (MetadataInDoubt). First start the node that is
    missed, or repair its disk, if you can: then nothing is lost. Says what may be missing. Topics
    and partitions that the copy does not know are set aside then, not deleted. Configs may be
    missing, too: nothing is removed from any topic (cleanup.policy=delete, retention.ms=-1,
    retention.bytes=-1) until you set these keys again; the command prints what they were. A
    Controller that waits goes on by itself within seconds; else run `raylog start`. Where the copy
    is whole, nothing is done.
    """
    work = metadata_work(log_dir, config, address, namespace)
    with told_if_interrupted(IF_INTERRUPTED):
        restored = work.restore(source, keep_configs=keep_configs)
    found = restored.found
    if not found.is_needed:
        typer.echo(f"the copy in {found.source} lacks nothing: nothing was changed")
        return
    for lack in found.lacks:
        note(f"may be missing: {lack}")
    for entry in found.parted:
        note(f"{entry}: it had gone on apart, and was renamed -stray")
    for line in _kept(restored.before):
        note(line)
    typer.echo(f"the cluster goes on from the copy in {found.source}, epoch {found.epoch}")


def _kept(before: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """From which topics nothing is removed any more, and the commands that change that."""
    from raylog.cluster.controller.rebuilding import KEEPING

    if not before:
        return
    yield (
        "a config that kept records may be among what is missing: nothing is removed from any "
        "topic (cleanup.policy=delete, retention.ms=-1, retention.bytes=-1) until you set these "
        "keys again:"
    )
    for name, own in sorted(before.items()):
        values = [f"{key}={value}" for key, value in own.items()]
        others = [f"--delete {key}" for key in KEEPING if key not in own]
        yield shlex.join(["raylog", "config", "set", name, *values]) + "".join(
            f" {one}" for one in others
        )


@app.command()
def rebuild(
    make_missing: Annotated[
        bool,
        typer.Option(
            "--make-missing",
            help="Partitions whose folder is in no log dir begin empty; without it they are "
            "named, and nothing is done.",
        ),
    ] = False,
    log_dir: LogDirs = None,
    config: ConfigFile = None,
    address: RayToAsk = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Make the metadata anew from the partitions' folders, when all copies of it are lost.

    Start Ray on all nodes that have log dirs first, or give --address local on a broker of one
    machine: what is not found is unknown then, and set aside when it comes back. Topics, their ids
    and partitions are there again. Their own configs are lost: nothing is removed from them
    (cleanup.policy=delete, retention.ms=-1, retention.bytes=-1) until you set these keys again; for
    all others the broker's defaults apply. Topics without a partition's folder are gone. Refused
    where any copy of the metadata can be read.
    """
    work = metadata_work(log_dir, config, address, namespace)
    with told_if_interrupted(IF_INTERRUPTED):
        made = work.rebuild(make_missing=make_missing)
    for node in made.without:
        note(f"node {node[:8]} has no log dir of a cluster")
    for partition in made.made:
        note(f"{partition} begins empty: its folder was not found")
    note(
        "the topics' own configs are lost. Nothing is removed from them (cleanup.policy=delete, "
        "retention.ms=-1, retention.bytes=-1) until you set these keys again (`raylog config "
        "set`); for all others the broker's defaults apply"
    )
    typer.echo(
        f"{made.topics} topics with {made.partitions} partitions are in the metadata in "
        f"{made.target}; start the broker"
    )


def metadata_work(
    log_dir: list[str] | None, config: Path | None, address: str | None, namespace: str
) -> "MetadataWork":
    """The work on the metadata in these log dirs; connects to Ray unless it is this machine's."""
    quiet_ray()
    from raylog.actors.errors import BrokerNotFound
    from raylog.actors.node.broker_config import absolute_log_dirs_variable, node_log_dirs
    from raylog.actors.runtime import clusters
    from raylog.cluster.controller.stub import find_controller
    from raylog.cluster.machines import RayMachines, ThisMachine
    from raylog.cluster.metadata_work import MetadataWork

    if address == clusters.LOCAL:
        if log_dir:
            os.environ.pop("RAYLOG_LOG_DIRS", None)  # as in `raylog start`
        parsed = _config(log_dir, config, "")
        with absolute_log_dirs_variable():
            machine = ThisMachine(node_log_dirs(parsed))
            return MetadataWork(machine, must_look_at=_named(parsed, log_dir))
    try:
        clusters.join_ray_with(lambda: find_controller(namespace) is not None, namespace, address)
    except BrokerNotFound:
        clusters.join_ray(address)
    parsed = _config(log_dir, config, namespace)
    return MetadataWork(RayMachines(namespace, parsed), must_look_at=_named(parsed, log_dir))


def _named(config: "BrokerConfig", log_dir: list[str] | None) -> Sequence[str]:
    """The log dirs that the user has given to this command."""
    return config.log_dirs if log_dir else ()


def _config(log_dir: list[str] | None, config: Path | None, namespace: str) -> "BrokerConfig":
    """``namespace``: of the broker whose log dirs count where none are given; empty for none."""
    from raylog.actors.node.broker_config import (
        BrokerConfig,
        absolute,
        log_dirs_of_environment,
        names_log_dirs,
    )
    from raylog.cluster.config_file import read_config_file
    from raylog.cluster.machines import every_node_names_log_dirs, log_dirs_of

    settings = read_config_file(config) if config else {}
    if log_dir:
        settings["log.dirs"] = log_dir
    if not names_log_dirs(settings):
        found = list(log_dirs_of_environment()) or (namespace and log_dirs_of(namespace))
        if found:
            settings["log.dirs"] = found
        elif not namespace or not every_node_names_log_dirs():
            raise typer.BadParameter("no broker runs: give --log-dir DIR, as to `raylog start`")
    parsed = BrokerConfig.parse(settings)
    return replace(parsed, log_dirs=tuple(absolute(parsed.log_dirs)))
