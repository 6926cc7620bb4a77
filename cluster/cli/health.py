"""``raylog health``: the problems of the broker, and what to do."""

import shutil
import sys
import textwrap
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
    show_json,
)

# Longer lines are hard to read.
MAX_WIDTH = 100


def health(
    errors_only: Annotated[
        bool,
        typer.Option("--errors-only", help="Do not show warnings, for example for an alert."),
    ] = False,
    output: Format = TABLE,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show what is wrong, why, and what to do about it.

    Exit status 0: no problem. 1: a problem, or no broker. The command answers within seconds even
    if actors hang.
    """
    findings = connected(address, namespace).health()
    if errors_only:
        findings = [finding for finding in findings if finding.severity == "error"]
    if output is Output.json:
        show_json({"healthy": not findings, "findings": findings})
    elif not sys.stdout.isatty():
        for finding in findings:
            print("\t".join(finding))
    else:
        width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
        for finding in findings:
            colour = typer.colors.RED if finding.severity == "error" else typer.colors.YELLOW
            typer.echo(f"{typer.style(finding.severity, fg=colour, bold=True)}  {finding.subject}")
            for text in (finding.what, "-> " + finding.todo):
                typer.echo(
                    textwrap.fill(text, width, initial_indent="    ", subsequent_indent="    ")
                )
    if findings:
        raise typer.Exit(1)
    if output is Output.table:
        note("no problem was found")
