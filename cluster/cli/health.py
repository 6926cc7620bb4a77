"""``raylog health``: the problems of the broker, and what to do."""

import re
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
    note_silent,
    show_json,
)

# Longer lines are hard to read.
MAX_WIDTH = 100
# Stands for a space where a line must not end.
_NO_FOLD = "\0"
_COLOURS = {
    "error": typer.colors.RED,
    "warning": typer.colors.YELLOW,
    "info": typer.colors.BLUE,
}


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

    Also shows what recovery mended when the logs were opened ("info"), which is no problem. Exit
    status 0: no problem. 1: a problem, or no broker. The command answers within seconds even if
    actors hang.
    """
    from raylog.cluster.health.findings import findings, notes
    from raylog.cluster.health.gathering import gather_facts

    facts = gather_facts(connected(address, namespace).namespace, tell=note_silent)
    problems, infos = findings(facts), notes(facts)
    if errors_only:
        problems, infos = [finding for finding in problems if finding.severity == "error"], []
    if output is Output.json:
        show_json({"healthy": not problems, "findings": problems, "notes": infos})
    elif not sys.stdout.isatty():
        for finding in (*problems, *infos):
            print("\t".join(finding))
    else:
        width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
        for finding in (*problems, *infos):
            colour = _COLOURS[finding.severity]
            typer.echo(f"{typer.style(finding.severity, fg=colour, bold=True)}  {finding.subject}")
            for text in (finding.what, "-> " + finding.todo):
                typer.echo(folded(text, width))
    if problems:
        raise typer.Exit(1)
    if output is Output.table:
        note("no problem was found")


def folded(text: str, width: int) -> str:
    """The text in lines; a command, `in such quotes`, stays in one, so that it can be copied."""
    kept = re.sub("`[^`]*`", lambda command: command[0].replace(" ", _NO_FOLD), text)
    lines = textwrap.fill(
        kept,
        width,
        initial_indent="    ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(_NO_FOLD, " ")
