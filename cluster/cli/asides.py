"""``raylog log aside ...`` and ``raylog log accept-loss``: decide about what recovery found.

Nothing here needs Ray. Except for the list, the broker must be stopped.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cluster.cli.common import TABLE, Bytes, Format, Output, note, show, show_json
from raylog.cluster.cli.log import Compacted

if TYPE_CHECKING:
    from raylog.storage.asides import Aside

app = typer.Typer(
    help="Records that recovery took out of a log: list them, put them back, or remove them.",
    no_args_is_help=True,
)
COLUMNS = ("folder", "name", "bytes", "first offset", "end offset", "batches")

Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="Folder of a partition that no broker serves.")
]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a file that `raylog log aside list` shows.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("list")
def list_asides(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER...",
            help="Folders of partitions, or log dirs with all their partitions.",
        ),
    ],
    output: Format = TABLE,
) -> None:
    """Show what recovery took out of logs and kept beside them.

    Shows the offsets and the number of good batches in each file, from FIRST OFFSET on, before END
    OFFSET (-1: the file has no good batch). Reads every byte of these files, and writes nothing;
    the broker may run.
    """
    from raylog.storage.asides import list_asides as asides_in
    from raylog.storage.files import ReadOnlyFileSystem
    from raylog.storage.tools.folders import partition_folders

    fs = ReadOnlyFileSystem()
    found = [
        (folder, aside)
        for given in folders
        for folder in partition_folders(fs, given)
        for aside in asides_in(fs, folder)
    ]
    if output is Output.json:
        show_json({"asides": [{"folder": folder, **aside._asdict()} for folder, aside in found]})
        return
    show(COLUMNS, [_row(folder, aside) for folder, aside in found])
    if not found:
        note("nothing is set aside")


def _row(folder: str, aside: "Aside") -> tuple[object, ...]:
    return (
        folder,
        aside.name,
        Bytes(aside.size_bytes),
        aside.first_offset,
        aside.end_offset,
        aside.batches,
    )


@app.command()
def restore(
    folder: Folder,
    name: Name,
    allow_gap: Annotated[
        bool,
        typer.Option(
            "--allow-gap",
            help="Restore although offsets are missing before it; consumers skip them.",
        ),
    ] = False,
) -> None:
    """Put the good batches of a file back behind the end of the log.

    The file must begin where the log ends: if several files were set aside, restore the one with
    the lowest offset first. --allow-gap leaves out what is missing in between, for example a
    damaged batch. If new records were appended since, the file cannot be restored. A file that also
    has bytes that are no good batch stays.
    """
    from raylog.storage.files import RealFileSystem
    from raylog.storage.tools.decide import restore as restore_aside

    aside = restore_aside(RealFileSystem(), folder, name, allow_gap=allow_gap)
    typer.echo(f"{name}: offsets {_offsets(aside)} are in the log again")
    rest_bytes = aside.size_bytes - aside.good_bytes
    if rest_bytes:
        note(
            f"{name} stays: {rest_bytes} bytes of it are no good batch. When you do not need it "
            f"any more: raylog log aside drop {folder} {name}"
        )


@app.command()
def drop(folder: Folder, name: Name, yes: Yes = False) -> None:
    """Remove a file that was set aside, for good."""
    from raylog.storage.files import RealFileSystem
    from raylog.storage.tools.decide import drop as drop_aside
    from raylog.storage.tools.decide import look

    fs = RealFileSystem()
    if not yes:
        aside = look(fs, folder, name)
        _ask(f"{name} has {aside.size_bytes} bytes, offsets {_offsets(aside)}", "Remove it")
    removed = drop_aside(fs, folder, name)
    typer.echo(f"{name}: removed, {removed.size_bytes} bytes")


def accept_loss(folder: Folder, compacted: Compacted = False, yes: Yes = False) -> None:
    """Let a log open that has lost flushed records.

    That is the answer to LogShorterThanFlushed and FlushedRecordsMissing. Shows which offsets are
    lost. With --yes, writes down that the loss is accepted: the log opens when the broker starts.
    New records get the offsets that are missing at the log's end; consumers skip those that are
    missing before. First mount the disk, or restore the files from a copy, if you can.
    """
    from raylog.storage.files import RealFileSystem
    from raylog.storage.tools.decide import accept

    fs = RealFileSystem()
    losses = accept(fs, folder, is_compacted=compacted, is_sure=False)
    if not losses:
        typer.echo("found no missing records below the recovery point; nothing was changed")
        return
    ranges = ", ".join(f"{loss.first_offset} to {loss.end_offset - 1}" for loss in losses)
    lost = f"offsets {ranges} were on the disk and are missing"
    if not yes:
        _ask(lost, "Open the log without these records")
    accept(fs, folder, is_compacted=compacted, is_sure=True)
    typer.echo(f"{lost}; the loss is accepted, and the log opens when the broker starts")


def _offsets(aside: "Aside") -> str:
    if not aside.batches:
        return "of no good batch"
    return f"{aside.first_offset} to {aside.end_offset - 1}"


def is_terminal() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin.isatty()


def _ask(fact: str, question: str) -> None:
    """Ask the person at the terminal; without one, --yes is needed. Exit status 1 if it is no."""
    note(fact)
    if not is_terminal():
        note("nothing was changed; give --yes")
        raise typer.Exit(1)
    if not typer.confirm(question + "?", err=True):
        note("nothing was changed")
        raise typer.Exit(1)
