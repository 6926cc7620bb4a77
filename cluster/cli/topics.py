"""``raylog topic ...``: create, list, describe, extend and delete topics; delete records."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Address,
    Format,
    Namespace,
    Output,
    connected,
    note,
    pairs,
    show,
    show_json,
)

if TYPE_CHECKING:
    from raylog.cluster.controller.placement import PartitionDescription

app = typer.Typer(help="Create, list, describe, extend and delete topics.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="TOPIC")]


@app.command()
def create(
    topic: Name,
    partitions: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Number of partitions. Default: the broker's num.partitions."
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A topic key of Kafka, for example retention.ms=3600000. Repeat for more keys.",
        ),
    ] = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Create a topic. Its partitions serve when the command returns.

    The most used keys: retention.ms and retention.bytes (for how long and how much is kept; -1:
    forever, no limit), segment.bytes and segment.ms (when a new segment begins; retention deletes
    whole segments), flush.messages (1: acknowledged means fsynced), max.message.bytes,
    message.timestamp.type. docs/CONFIG.md lists all keys and their defaults. If a key is not set
    here, the broker's value applies.
    """
    settings = pairs(config or [])
    created = connected(address, namespace).create_topic(topic, partitions, settings)
    count = len(created.partitions)
    typer.echo(f"created {topic} with {count} partition{'s' if count > 1 else ''}")


@app.command("list")
def list_topics(
    output: Format = TABLE, address: Address = None, namespace: Namespace = NAMESPACE
) -> None:
    """List the topics, one per line."""
    topics = connected(address, namespace).list_topics()
    if output is Output.json:
        show_json({"topics": topics})
        return
    for topic in topics:
        typer.echo(topic)
    if not topics and sys.stdout.isatty():
        note("no topics yet: raylog topic create TOPIC")


@app.command()
def describe(
    topic: Name, output: Format = TABLE, address: Address = None, namespace: Namespace = NAMESPACE
) -> None:
    """Show the config of a topic, and where its partitions are."""
    described = connected(address, namespace).describe_topic(topic)
    if output is Output.json:
        show_json(described)
        return
    overrides = " ".join(f"{key}={value}" for key, value in described.config.items())
    typer.echo(f"topic {topic}  id {described.topic_id}  {overrides}".rstrip())
    rows = [
        (place.partition, (place.node_id or "-")[:8], place.folder or "-", _problem(place))
        for place in described.partitions
    ]
    show(("partition", "node", "folder", "problem"), rows)


def _problem(place: "PartitionDescription") -> str:
    return "; ".join(filter(None, (place.problem, place.todo)))


@app.command()
def add_partitions(
    topic: Name,
    total: Annotated[
        int,
        typer.Argument(
            metavar="TOTAL", help="Total number of partitions, including the existing ones."
        ),
    ],
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Add partitions to a topic while it serves.

    Existing records stay in their partitions. New records of a key may go to another partition than
    before.
    """
    extended = connected(address, namespace).add_partitions(topic, total)
    typer.echo(f"{topic} has {len(extended.partitions)} partitions")


@app.command()
def delete_records(
    topic: Name,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    before: Annotated[
        str,
        typer.Option(
            metavar="OFFSET", help="Delete the records below this offset; 'latest': all records."
        ),
    ],
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Delete the oldest records of a partition.

    They cannot be read any more when the command returns. The next round of retention deletes their
    segments.
    """
    if before != "latest" and not (before.isascii() and before.isdigit()):
        raise typer.BadParameter(f"--before {before}: give an offset, or latest")
    offset = -1 if before == "latest" else int(before)
    start = connected(address, namespace).delete_records(topic, partition, offset)
    typer.echo(f"{topic}-{partition} begins at offset {start}")


@app.command()
def delete(topic: Name, address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Delete a topic and its records."""
    connected(address, namespace).delete_topic(topic)
    typer.echo(f"deleted {topic}")
