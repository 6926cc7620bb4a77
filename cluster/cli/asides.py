"""``raylog log aside ...`` and ``raylog log accept-loss``: decide about what recovery found.

Nothing here needs Ray. Except for the list, the broker must be stopped.
"""

import os
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cluster.cli.common import (
    TABLE,
    Bytes,
    Format,
    Output,
    note,
    show,
    show_json,
)
from raylog.cluster.cli.log import Compacted, Folders, ranges_of
from raylog.cluster.cli.paths import path_given
from raylog.storage.names import LOG_SUFFIX, aside_number
from raylog.storage.shell import command

if TYPE_CHECKING:
    from raylog.storage.asides import Aside
    from raylog.storage.tools.decide import Loss

app = typer.Typer(
    help="Records that recovery took out of a log: list them, put them back, or remove them.",
    no_args_is_help=True,
)
COLUMNS = ("folder", "name", "bytes", "first offset", "end offset", "batches", "in the log")

Folder = Annotated[
    str,
    typer.Argument(
        metavar="FOLDER",
        help="Folder of a partition that no broker serves.",
        callback=path_given,
    ),
]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a file that `raylog log aside list` shows.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@app.command("list")
def list_asides(folders: Folders, output: Format = TABLE) -> None:
    """Show what recovery took out of logs and kept beside them.

    Shows the offsets and the number of good batches in each file, from FIRST OFFSET on, before END
    OFFSET (-1: the file has no good batch), and whether the log has them again (IN THE LOG: yes,
    no, or - without a good batch). Finds batches of all versions, also behind damaged bytes; not
    those that are inside of a damaged compressed set of versions 0 and 1. Reads every byte of these
    files, and writes nothing; the broker may run.
    """
    from raylog.storage.asides import find_misplaced, is_in_log
    from raylog.storage.asides import list_asides as asides_in
    from raylog.storage.files import ReadOnlyFileSystem
    from raylog.storage.tools.folders import partition_folders

    fs = ReadOnlyFileSystem()
    found = [
        (folder, aside, is_in_log(fs, folder, aside))
        for given in folders
        for folder in partition_folders(fs, given)
        for aside in asides_in(fs, folder)
    ]
    if output is Output.json:
        entries = [
            {"folder": folder, **aside._asdict(), "is_in_log": in_log}
            for folder, aside, in_log in found
        ]
        show_json({"asides": entries})
        return
    show(COLUMNS, [_row(*row) for row in found])
    if not found:
        note("nothing is set aside")
    for folder, aside, in_log in found:
        misplaced = None if in_log else find_misplaced(fs, folder, aside)
        if misplaced is not None:
            offset, following = misplaced
            note(
                f"{os.path.join(folder, aside.name)}: its batches from offset {offset} on do not "
                f"fit before {following}, which follows: a base offset is damaged, or the log has "
                "grown since. `raylog log aside restore` leaves them out"
            )
        if aside.unsearched_bytes:
            note(
                f"{os.path.join(folder, aside.name)}: the last {aside.unsearched_bytes} bytes were "
                "not searched, because very many places look like batches; they may hold more"
            )


def _row(folder: str, aside: "Aside", in_log: bool) -> tuple[object, ...]:
    return (
        folder,
        aside.name,
        Bytes(aside.size_bytes),
        aside.first_offset,
        aside.end_offset,
        aside.batches,
        ("yes" if in_log else "no") if aside.batches else None,
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
    has bytes that are no good batch stays. The next start of the broker makes the indexes; until
    then `raylog log verify` misses them.
    """
    from raylog.storage.files import RealFileSystem
    from raylog.storage.tools.decide import restore as restore_aside

    aside = restore_aside(RealFileSystem(), folder, name, allow_gap=allow_gap)
    typer.echo(f"{name}: offsets {_offsets(aside)} are in the log again")
    rest_bytes = aside.size_bytes - aside.good_bytes
    if rest_bytes:
        note(
            f"{name} stays: in {rest_bytes} bytes of it no good batch was found. When you do not "
            f"need it any more: {command('log', 'aside', 'drop', folder, name)}"
        )


@app.command()
def drop(folder: Folder, name: Name, yes: Yes = False) -> None:
    """Remove a file that was set aside, for good.

    If the log does not have its records, this is their only copy: look at `raylog log aside list`
    first.
    """
    from raylog.storage.asides import is_in_log
    from raylog.storage.files import RealFileSystem
    from raylog.storage.tools.decide import drop as drop_aside
    from raylog.storage.tools.decide import look

    fs = RealFileSystem()
    if not yes:
        aside = look(fs, folder, name)
        fact = f"{name} has {aside.size_bytes} bytes, offsets {_offsets(aside)}"
        if aside.batches:
            has = "has" if is_in_log(fs, folder, aside) else "does not have"
            fact += f"; the log {has} these records"
        note(fact)
        _ask("Remove it")
    removed = drop_aside(fs, folder, name)
    typer.echo(f"{name}: removed, {removed.size_bytes} bytes")


def accept_loss(folder: Folder, compacted: Compacted = False, yes: Yes = False) -> None:
    """Let a log open that has lost flushed records.

    That is the answer to LogShorterThanFlushed and FlushedRecordsMissing. Shows which offsets are
    lost, and which files of the folder still have some of them. With --yes, writes down that the
    loss is accepted: the log opens when the broker starts. It restores nothing. New records get the
    offsets that are missing at the log's end; consumers skip those that are missing before. First
    mount the disk, or restore the files from a copy, if you can.
    """
    from raylog.storage.files import RealFileSystem
    from raylog.storage.tools.decide import accept, look_for_loss

    fs = RealFileSystem()
    loss = look_for_loss(fs, folder, is_compacted=compacted)
    if not loss.lost:
        typer.echo(_no_loss(folder, loss))
        return
    lost = f"offsets {ranges_of(loss.lost)} were on the disk and are missing from the log"
    note(lost)
    for line in _where_kept(folder, loss):
        note(line)
    if not yes:
        _ask("Open the log without these records")
    accept(fs, folder, is_compacted=compacted)
    typer.echo(f"{lost}; the loss is accepted, and the log opens when the broker starts")


def _no_loss(folder: str, loss: "Loss") -> str:
    if not loss.recovery_point:
        return (
            "the log dir's recovery-point-offset-checkpoint tells of no flushed record of this "
            "partition, so it cannot be known whether one is missing; nothing was changed"
        )
    return (
        f"no record below the recovery point, offset {loss.recovery_point}, was found to be "
        "missing: there is no loss to accept, and nothing was changed. To check every record: "
        + command("log", "verify", folder)
    )


def _where_kept(folder: str, loss: "Loss") -> Iterator[str]:
    """Where good batches are that the log does not have, and how to put them back."""
    if not loss.kept:
        yield "no file of this folder has a good batch of them"
        return
    for file in loss.kept:
        yield f"{file.name} has good batches, offsets {file.first_offset} to {file.end_offset - 1}"
    left = [file.name for file in loss.kept if aside_number(file.name) is None]
    renamed = [name for name in left if not name.endswith(LOG_SUFFIX)]
    for name in renamed:
        its_name = name.split(LOG_SUFFIX)[0] + LOG_SUFFIX
        path, target = (os.path.join(folder, each) for each in (name, its_name))
        if not os.path.lexists(target):
            back = shlex.join(["mv", path, target])
            yield f"if somebody renamed it, give it its name again, instead of accepting: {back}"
    if len(renamed) == len(loss.kept):
        return
    logs = [name for name in left if name not in renamed]
    if logs:
        drop = ["--drop-segments"] if logs != [loss.lost[-1].file] else []
        yield f"to set them aside, instead of accepting: {command('log', 'repair', *drop, folder)}"
    yield (
        "before the broker starts, `raylog log aside restore` puts back what is set aside; "
        "afterwards new records may have these offsets"
    )


def _offsets(aside: "Aside") -> str:
    if not aside.batches:
        return "of no good batch"
    return f"{aside.first_offset} to {aside.end_offset - 1}"


def is_terminal() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin.isatty()


def _ask(question: str) -> None:
    """Ask the person at the terminal; without one, --yes is needed. Exit status 1 if it is no."""
    if not is_terminal():
        note("nothing was changed; give --yes")
        raise typer.Exit(1)
    if not typer.confirm(question + "?", err=True):
        note("nothing was changed")
        raise typer.Exit(1)
