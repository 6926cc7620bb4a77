"""``raylog health``: what is wrong, and what to do."""

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
        typer.Option("--errors-only", help="Leave warnings out, as an alert may."),
    ] = False,
    output: Format = TABLE,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Tell what is wrong, why, and what to do about it.

    Exit status 0: nothing is; 1: something is, or there is no broker. It answers within seconds
    though actors hang.
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
        note("all is well")
