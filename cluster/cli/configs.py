"""``raylog config get`` and ``set``: the configuration of topics and of the broker."""

from typing import Annotated

import typer

from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Address,
    Format,
    Namespace,
    Output,
    ValidateOnly,
    admin_of,
    connected,
    note,
    pairs,
    show,
    show_json,
)
from raylog.cluster.cli.interrupts import told_if_interrupted
from raylog.cluster.cli.waiting import config_waits_for, told_while_waiting

app = typer.Typer(
    help="Show or change the configuration.",
    no_args_is_help=True,
)


@app.command()
def get(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", show_default=False, help="The topic; or give --broker."),
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY", show_default=False, help="Keys to show. Default: all."),
    ] = None,
    of_broker: Annotated[
        bool, typer.Option("--broker", help="Show the broker's own keys; all arguments are keys.")
    ] = False,
    output: Format = TABLE,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show keys and their values.

    Also shows where each value was set: topic, broker, or default (Kafka's). For another name of a
    broker's key, such as log.dir or log.retention.hours, it shows the key: log.dirs,
    log.retention.ms.
    """
    from raylog.cluster.controller.settings import of_broker_keys, of_topic_keys

    if topic is None and not of_broker:
        raise typer.BadParameter("give TOPIC or --broker")
    broker = connected(address, namespace)
    described = None
    if of_broker or topic is None:
        wanted = [*([topic] if topic else []), *(keys or [])]
        entries, subject = of_broker_keys(broker.broker_config(), wanted), "broker"
    else:
        entries, subject = of_topic_keys(broker.topic_config(topic), keys or []), f"topic {topic}"
        described = broker.describe_topic(topic)
    if output is Output.json:
        show_json({"subject": subject, "config": entries})
        return
    show(
        ("key", "value", "set by"),
        [(entry.name, _text(entry.value), entry.source) for entry in entries],
    )
    if described is not None and described.problem is not None:
        note(f"{described.problem}, so its partitions are not opened; {described.todo}")


def _text(value: object) -> str:
    """The value in the form that ``config set`` and config files accept."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


@app.command("set")
def set_keys(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", show_default=False)
    ] = None,
    delete: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="Remove the topic's own value: the broker's value applies again. Repeat for more "
            "keys.",
        ),
    ] = None,
    validate_only: ValidateOnly = False,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Change a topic's configuration while it serves. Nothing restarts.

    If one key or value is invalid, nothing is changed. Where a partition does not obey the change
    within 22 seconds, for example because its process hangs, it is named, and the exit status is 1.
    The broker's own keys come from a config file: `raylog start --config FILE --apply`.
    """
    from raylog.actors.runtime.calls import OPEN_TIMEOUT_S

    if not settings and not delete:
        raise typer.BadParameter("give KEY=VALUE, or --delete KEY")
    changes: dict[str, str | None] = {**pairs(settings or [])}
    both = [key for key in delete or [] if key in changes]
    if both:
        raise typer.BadParameter(f"{both[0]} is both set and deleted")
    changes.update(dict.fromkeys(delete or []))
    broker = connected(address, namespace)
    altering = admin_of(broker).alter_configs(
        {topic: changes}, validate_only=validate_only, timeout_s=OPEN_TIMEOUT_S
    )
    what = f"{topic} may be changed all the same; see `raylog config get {topic}`"
    with told_if_interrupted(what), told_while_waiting(lambda: config_waits_for(broker, topic)):
        described = altering[topic].result()
    own = " ".join(f"{key}={_text(value)}" for key, value in described.config.items()) or "-"
    typer.echo(f"{topic} can have: {own}" if validate_only else f"{topic}: {own}")
    if described.outdated and not validate_only:
        names = ", ".join(f"{topic}-{number}" for number in described.outdated)
        note(
            f"error: {names}: changed, but not obeyed yet; `raylog health` says why. They obey it "
            "when they are back, and until then nothing is removed from them"
        )
        raise typer.Exit(1)
