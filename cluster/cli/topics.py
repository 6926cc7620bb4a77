"""``raylog topic create``, ``list``, ``describe``, ``delete``."""

from typing import Annotated

import typer

from raylog.cluster.cli.common import NAMESPACE, Address, Namespace, connected, pairs, show

app = typer.Typer(help="Create, list, describe and delete topics.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="TOPIC")]


@app.command()
def create(
    topic: Name,
    partitions: Annotated[int | None, typer.Option(help="Default: the broker's num.partitions.")] = None,
    config: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="One topic key (docs/CONFIG.md); repeat.")
    ] = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Create a topic; its partitions serve when this returns."""
    settings = pairs(config or [])
    created = connected(address, namespace).create_topic(topic, partitions, settings)
    typer.echo(f"created {topic} with {len(created.partitions)} partitions")


@app.command("list")
def list_topics(address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """List the topics, one a line."""
    for topic in connected(address, namespace).list_topics():
        typer.echo(topic)


@app.command()
def describe(topic: Name, address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Show a topic's config and where its partitions are."""
    described = connected(address, namespace).describe_topic(topic)
    overrides = " ".join(f"{key}={value}" for key, value in described.config.items())
    typer.echo(f"topic {topic}  id {described.topic_id}  {overrides}".rstrip())
    rows = [
        (place.partition, (place.node_id or "-")[:8], place.folder or "-", place.problem or "")
        for place in described.partitions
    ]
    show(("partition", "node", "folder", "problem"), rows)


@app.command()
def delete(topic: Name, address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Delete a topic and its records."""
    connected(address, namespace).delete_topic(topic)
    typer.echo(f"deleted {topic}")
