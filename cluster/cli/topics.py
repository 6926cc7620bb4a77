"""``raylog topic ...``: make topics, look at them, extend them, empty them, delete them."""

import sys
from typing import Annotated

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

app = typer.Typer(help="Create, list, describe, extend and delete topics.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="TOPIC")]


@app.command()
def create(
    topic: Name,
    partitions: Annotated[
        int | None, typer.Option(metavar="N", help="Default: the broker's num.partitions.")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="One of Kafka's topic keys, as retention.ms=3600000; repeat for more.",
        ),
    ] = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Create a topic; its partitions serve when this returns.

    Keys that are used most: retention.ms and retention.bytes (how long and how much is kept, -1 for
    ever and without limit), segment.bytes and segment.ms (when a new file is begun: what is kept or
    deleted at once), flush.messages (1: acknowledged means fsynced), max.message.bytes,
    message.timestamp.type. docs/CONFIG.md has them all, with their defaults. A key that is not set
    here follows the broker's.
    """
    settings = pairs(config or [])
    created = connected(address, namespace).create_topic(topic, partitions, settings)
    count = len(created.partitions)
    typer.echo(f"created {topic} with {count} partition{'s' if count > 1 else ''}")


@app.command("list")
def list_topics(
    output: Format = TABLE, address: Address = None, namespace: Namespace = NAMESPACE
) -> None:
    """List the topics, one a line."""
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
    """Show a topic's config and where its partitions are."""
    described = connected(address, namespace).describe_topic(topic)
    if output is Output.json:
        show_json(described)
        return
    overrides = " ".join(f"{key}={value}" for key, value in described.config.items())
    typer.echo(f"topic {topic}  id {described.topic_id}  {overrides}".rstrip())
    rows = [
        (place.partition, (place.node_id or "-")[:8], place.folder or "-", place.problem or "")
        for place in described.partitions
    ]
    show(("partition", "node", "folder", "problem"), rows)


@app.command()
def add_partitions(
    topic: Name,
    total: Annotated[int, typer.Argument(metavar="TOTAL", help="How many it is to have then.")],
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Give a topic more partitions, while it serves.

    Records stay where they are; from now on a key may go to another partition than before.
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
            metavar="OFFSET", help="Delete what is below this offset; 'latest': all that there is."
        ),
    ],
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Delete a partition's oldest records.

    At once they cannot be read any more; their segments go with the next round of retention.
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
