"""``raylog log ...``: work on a partition's files without a broker.

Nothing here needs Ray. What raylog's own metadata is, ``raylog.storage`` does not know: ``verify``
checks the snapshots of the metadata beside the segments.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.cluster.cli.paths import path_given
from raylog.storage.limits import MAX_INT
from raylog.storage.shell import command

if TYPE_CHECKING:
    from raylog.actors.metadata_snapshot import CheckedSnapshot
    from raylog.storage.files import FileSystem
    from raylog.storage.report import Mended
    from raylog.storage.tools.dump.decoders import Decoder, Parser
    from raylog.storage.tools.repair import Repaired
    from raylog.storage.tools.verify import SegmentReport

app = typer.Typer(
    help="Show, check and repair a partition's files. No broker is needed.",
    no_args_is_help=True,
)

Compacted = Annotated[
    bool,
    typer.Option(
        "--compacted",
        help="cleanup.policy of the topic has compact, so offsets may be missing in its log.",
    ),
]
Folders = Annotated[
    list[str],
    typer.Argument(
        metavar="FOLDER...",
        help="Folders of partitions, or log dirs with all their partitions.",
    ),
]

# -- dump ------------------------------------------------------------------------------------------

_DECODERS = "string, bytes (as hex), integer or long; or a class of Kafka, as StringDecoder"

Files = Annotated[
    str,
    typer.Option(
        metavar="FILE,FILE...",
        help="Files to dump: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint.",
    ),
]
PrintDataLog = Annotated[
    bool,
    typer.Option(
        "--print-data-log", help="Print keys and values. Every decoder option implies it."
    ),
]
DeepIteration = Annotated[
    bool,
    typer.Option(
        "--deep-iteration",
        help="Print records, not only batches. --print-data-log implies it.",
    ),
]
VerifyIndexOnly = Annotated[
    bool,
    typer.Option("--verify-index-only", help="Check indexes against their logs; print no entries."),
]
IndexSanityCheck = Annotated[
    bool,
    typer.Option(
        "--index-sanity-check", help="Only check indexes as a broker does when it starts."
    ),
]
MaxBytes = Annotated[
    int,
    typer.Option(
        min=0,
        max=MAX_INT,
        metavar="N",
        help="Read at most N bytes of each .log. Default: all.",
        show_default=False,
    ),
]
MaxMessageSize = Annotated[
    int,
    typer.Option(
        min=1,
        max=MAX_INT,
        metavar="N",
        help="Maximum size of a batch that an index entry points to.",
    ),
]
KeyDecoder = Annotated[
    str | None,
    typer.Option(
        "--key-decoder",
        "--key-decoder-class",
        metavar="NAME",
        help=f"Decoder of keys: {_DECODERS}",
    ),
]
ValueDecoder = Annotated[
    str | None,
    typer.Option(
        "--value-decoder",
        "--value-decoder-class",
        metavar="NAME",
        help="Decoder of values.",
    ),
]
OffsetsDecoder = Annotated[
    bool,
    typer.Option("--offsets-decoder", help="Print the records of __consumer_offsets as JSON."),
]
TransactionLogDecoder = Annotated[
    bool,
    typer.Option("--transaction-log-decoder", help="Print the records of __transaction_state."),
]
ClusterMetadataDecoder = Annotated[
    bool,
    typer.Option(
        "--cluster-metadata-decoder",
        help="Print the records of __cluster_metadata as JSON: Kafka's, or raylog's.",
    ),
]
SkipRecordMetadata = Annotated[
    bool,
    typer.Option("--skip-record-metadata", help="Print only the keys and values of records."),
]


@app.command()
def dump(
    files: Files,
    print_data_log: PrintDataLog = False,
    deep_iteration: DeepIteration = False,
    verify_index_only: VerifyIndexOnly = False,
    index_sanity_check: IndexSanityCheck = False,
    max_bytes: MaxBytes = MAX_INT,
    max_message_size: MaxMessageSize = 5 * 1024 * 1024,
    key_decoder: KeyDecoder = None,
    value_decoder: ValueDecoder = None,
    offsets_decoder: OffsetsDecoder = False,
    transaction_log_decoder: TransactionLogDecoder = False,
    cluster_metadata_decoder: ClusterMetadataDecoder = False,
    skip_record_metadata: SkipRecordMetadata = False,
) -> None:
    """Print files exactly as kafka-dump-log does.

    Options and output are those of Kafka's tool. If a file cannot be dumped, its name and the
    reason go to standard error and the exit status is 1, also where Kafka's tool would crash.
    """
    from raylog.storage.files import ReadOnlyFileSystem
    from raylog.storage.tools.dump import decoders
    from raylog.storage.tools.dump.logs import LogOptions
    from raylog.storage.tools.dump.tool import DumpOptions, dump_files

    parser: Parser | None = None
    if offsets_decoder:
        parser = decoders.offsets
    elif transaction_log_decoder:
        parser = decoders.transactions
    elif cluster_metadata_decoder:
        parser = decoders.cluster_metadata
    elif print_data_log or key_decoder or value_decoder:
        parser = _plain_parser(key_decoder, value_decoder)
    log = LogOptions(
        is_deep=deep_iteration or parser is not None,
        parser=parser,
        skip_metadata=skip_record_metadata,
        max_bytes=max_bytes,
    )
    options = DumpOptions(
        log=log,
        verify_only=verify_index_only,
        sanity_only=index_sanity_check,
        max_message_bytes=max_message_size,
    )
    if not dump_files(ReadOnlyFileSystem(), files.split(","), options, _out, _err, os.getcwd()):
        raise typer.Exit(1)


def _plain_parser(key_decoder: str | None, value_decoder: str | None) -> "Parser":
    from raylog.storage.tools.dump import decoders

    return decoders.plain(
        _decoder("--key-decoder", key_decoder), _decoder("--value-decoder", value_decoder)
    )


def _out(line: str) -> None:
    sys.stdout.buffer.write(line.encode(errors="replace") + b"\n")


def _err(line: str) -> None:
    sys.stdout.flush()
    typer.echo(line, err=True)


def _decoder(option: str, name: str | None) -> "Decoder":
    from raylog.storage.tools.dump.decoders import decoder

    found = decoder(name or "string")
    if found is None:
        raise typer.BadParameter(f"unknown decoder {name!r}: use {_DECODERS}", param_hint=option)
    return found


# -- verify ----------------------------------------------------------------------------------------


@app.command()
def verify(folders: Folders, compacted: Compacted = False) -> None:
    """Check whether the segments, indexes and snapshots of a partition agree.

    Reads every byte and writes nothing. Prints one line per segment. Checks batches and their
    CRC, offsets, both indexes, aborted transactions, snapshots of the producers, leader epochs and
    partition.metadata; in __cluster_metadata-0 also the snapshots of the metadata, one line each.
    The exit status is 1 if something is wrong.
    """
    all_good = [_verify(folder, compacted) for folder in folders]
    if not all(all_good):
        raise typer.Exit(1)


def _verify(folder: str, compacted: bool) -> bool:
    """Print what is wrong with a partition or a log dir; whether it is nothing."""
    from raylog.storage.errors import RaylogError
    from raylog.storage.files import ReadOnlyFileSystem
    from raylog.storage.tools.folders import partition_folders

    fs = ReadOnlyFileSystem()
    try:
        partitions = partition_folders(fs, folder)
    except RaylogError as error:
        _err(f"error: {error}")
        return False
    all_good = [_verify_partition(fs, partition, compacted) for partition in partitions]
    return all(all_good)


def _verify_partition(fs: "FileSystem", folder: str, compacted: bool) -> bool:
    from raylog.storage.errors import RaylogError
    from raylog.storage.tools.verify import verify_folder

    is_good = True
    try:
        for report in verify_folder(fs, folder, is_compacted=compacted):
            _out(_verdict(folder, report))
            is_good = is_good and not report.problems
        return _verify_snapshots(fs, folder) and is_good
    except RaylogError as error:
        _err(f"error: {error}")
        return False


def _verify_snapshots(fs: "FileSystem", folder: str) -> bool:
    """Print what is wrong with the snapshots of the metadata in a folder; whether it is nothing."""
    from raylog.actors.metadata_snapshot import check_snapshots
    from raylog.storage.names import base_offsets

    checked = check_snapshots(fs, folder)
    first = min(base_offsets(fs.list_dir(folder)), default=0)
    is_needed = all(entry.damage or entry.id.end < first for entry in checked) and first > 0
    for entry in checked:
        _out(_verdict_on_snapshot(folder, entry, is_needed=is_needed))
    return not any(entry.damage for entry in checked)


def _verdict_on_snapshot(folder: str, entry: "CheckedSnapshot", *, is_needed: bool) -> str:
    """``is_needed``: no other one reaches the log's beginning."""
    from raylog.actors.metadata_snapshot import DAMAGED_TODO

    path = os.path.join(folder, entry.id.file_name)
    if entry.damage:
        todo = DAMAGED_TODO
        if is_needed:
            todo = (
                "no snapshot that can be read reaches the log's beginning; restore the folder from "
                "a copy (docs/OPERATIONS.md, Damaged metadata)"
            )
        return f"BAD {path}: {entry.damage}: {todo}"
    if entry.newer:
        return f"ok  {path}: not checked: {entry.newer}"
    return f"ok  {path}: a snapshot of {entry.id.end} records, {entry.size_bytes} bytes"


def _verdict(folder: str, report: "SegmentReport") -> str:
    from raylog.storage.names import segment_file

    name = os.path.join(folder, segment_file(report.base_offset, ""))
    if report.problems:
        whole = "; ".join(map(str, report.problems))
        return f"BAD {name}: {whole}: {command('log', 'repair', folder)}"
    last = f"offsets {report.base_offset}-{report.next_offset - 1}" if report.batches else "empty"
    batches = f"{report.batches} batch{'' if report.batches == 1 else 'es'}"
    return f"ok  {name}: {last}, {batches}, {report.size_bytes} bytes"


# -- repair ----------------------------------------------------------------------------------------


@app.command()
def repair(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER",
            help="Folder of a partition that no broker serves.",
            callback=path_given,
        ),
    ],
    copy_to: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the copy. Default: next to FOLDER, as <topic>-<partition>.<id>-stray.",
        ),
    ] = None,
    drop_segments: Annotated[
        bool,
        typer.Option(
            "--drop-segments",
            help="Set all segments after a damaged one aside, too: the log ends before the damage. "
            "Their files stay.",
        ),
    ] = False,
    compacted: Compacted = False,
) -> None:
    """Repair a partition's folder: the log ends before the first damaged batch.

    If nothing is wrong, nothing is changed. Else it copies all files first, cuts the log before the
    first damaged batch, and makes indexes, snapshots and leader epochs again.

    It restores no record. The damaged batch and all records behind it leave the log. They are kept
    in the folder: `raylog log aside list` shows them, and `raylog log aside restore` puts the good
    ones back, if it is done before the broker starts. If they had been flushed, the repair also
    accepts their loss, as `raylog log accept-loss` does. It does not complete a compaction: a start
    of the broker does that.
    """
    from raylog.storage.clock import SystemClock
    from raylog.storage.files import RealFileSystem
    from raylog.storage.tools.repair import repair_folder

    fs = RealFileSystem()
    done = repair_folder(
        fs,
        SystemClock(),
        folder,
        copy_to=copy_to,
        drop_segments=drop_segments,
        is_compacted=compacted,
        on_copy=lambda copy: _out(f"copied to {copy}"),
    )
    if done is None:
        _out("the files agree with each other, and nothing was changed")
        is_good = _tell_of_loss(fs, folder, compacted)
    else:
        for line in _repaired(folder, done):
            _out(line)
        is_good = _tell_what_is_left(fs, folder, compacted)
    if not is_good:
        raise typer.Exit(1)


def _repaired(folder: str, done: "Repaired") -> Iterator[str]:
    """What a repair did, line by line."""
    for cut in done.of_kind("cut"):
        kept = f", kept as {cut.kept_as}" if cut.kept_as else ", all zero"
        yield f"{cut.file}: cut {cut.size_bytes} bytes{kept}"
    for left in done.of_kind("set_aside"):
        yield f"{left.file}: set aside, kept as {left.kept_as}"
    yield f"indexes and snapshot rebuilt; the log ends at offset {done.end_offset}"
    if done.lost:
        yield (
            f"offsets {ranges_of(done.lost)} were on the disk and are not in the log any more; the "
            "loss is accepted"
        )
    if any(entry.kept_as for entry in done.mended):
        yield (
            "new records get the offsets of what was kept. To put good batches back, do it before "
            f"the broker starts: {command('log', 'aside', 'list', folder)}"
        )


def ranges_of(losses: Iterable["Mended"]) -> str:
    """Lost offsets as they are shown, the last one of each range included."""
    return ", ".join(f"{lost.first_offset} to {lost.end_offset - 1}" for lost in losses)


def _tell_of_loss(fs: "FileSystem", folder: str, compacted: bool) -> bool:
    """Say if a log whose files agree will not open; whether it will."""
    from raylog.storage.tools.decide import look_for_loss

    lost = look_for_loss(fs, folder, is_compacted=compacted).lost
    if not lost:
        return True
    _err(
        f"error: the log does not open: offsets {ranges_of(lost)} were on the disk and are "
        "missing. Restore the missing file from a copy. Without one: "
        + command("log", "accept-loss", folder)
    )
    return False


def _tell_what_is_left(fs: "FileSystem", folder: str, compacted: bool) -> bool:
    """Say what is still wrong after a repair; whether it is nothing."""
    from raylog.storage.tools.verify import verify_folder

    left = [
        problem
        for report in verify_folder(fs, folder, is_compacted=compacted)
        for problem in report.problems
    ]
    for problem in left:
        _err(f"error: still wrong: {problem}")
    return not left
