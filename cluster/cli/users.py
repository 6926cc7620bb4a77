"""``raylog user``: who may come in by a listener that asks for a user."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from raylog.actors.listeners import OWN_NAMES, SASL_PROTOCOLS, protocols_of
from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Address,
    Format,
    Namespace,
    Output,
    connected,
    note,
    show,
    show_json,
)
from raylog.cluster.cli.interrupts import told_if_interrupted

app = typer.Typer(
    help="Users of Kafka's clients, where listeners ask for one (SASL).", no_args_is_help=True
)
COLUMNS = ("user", "mechanisms")

User = Annotated[str, typer.Argument(metavar="USER")]


@app.command()
def add(
    user: User,
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            help="File whose first line is the password; - is standard input. Without it the "
            "password is asked for.",
        ),
    ] = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Add a user, or give one who is there another password.

    The broker keeps no password, but what proves that somebody knows it (SCRAM). A user may read
    and write every topic: there are no ACLs yet.
    """
    password = _password(password_file)
    broker = connected(address, namespace)
    known = {one.name for one in broker.users()}
    with told_if_interrupted("the user may be added all the same; see `raylog user list`"):
        broker.add_user(user, password)
    typer.echo(f"user {user} has another password" if user in known else f"added user {user}")
    config = {entry.name: str(entry.value) for entry in broker.broker_config()}
    listeners, names = config["listeners"], config.get("listener.security.protocol.map", OWN_NAMES)
    if not protocols_of(listeners, names) & SASL_PROTOCOLS:
        note(f"listeners={listeners or '(none)'} asks for no user; see SASL_SSL in docs/CONFIG.md")


def _password(file: Path | None) -> str:
    """The password, without the end of its line. BadParameter where there is none."""
    if file is None:
        if not sys.stdin.isatty():
            raise typer.BadParameter("no terminal to ask for a password: give --password-file FILE")
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}") from None
    password = text.partition("\n")[0].removesuffix("\r")
    if not password:
        raise typer.BadParameter(f"the first line of {file} is empty")
    return password


@app.command("list")
def list_users(
    output: Format = TABLE, address: Address = None, namespace: Namespace = NAMESPACE
) -> None:
    """Show the users."""
    users = connected(address, namespace).users()
    if output is Output.json:
        show_json({"users": users})
        return
    show(COLUMNS, [(user.name, ",".join(user.mechanisms)) for user in users])


@app.command()
def delete(user: User, address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Let a user in no more. Connections that he has go on until they end."""
    broker = connected(address, namespace)
    with told_if_interrupted("the user may be deleted all the same; see `raylog user list`"):
        broker.delete_user(user)
    typer.echo(f"deleted user {user}")
