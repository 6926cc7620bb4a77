"""``raylog log ...``: work on a partition's files without a broker.

Nothing here needs Ray.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from raylog.storage.limits import MAX_INT

if TYPE_CHECKING:
    from raylog.storage.tools.dump.decoders import Decoder, Parser
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
_DECODERS = "string, bytes (as hex), integer or long; or a class of Kafka, as StringDecoder"


@app.command()
def dump(
    files: Annotated[
        str,
        typer.Option(
            metavar="FILE,FILE...",
            help="Files to dump: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint.",
        ),
    ],
    print_data_log: Annotated[
        bool,
        typer.Option(
            "--print-data-log", help="Print keys and values. Every decoder option implies it."
        ),
    ] = False,
    deep_iteration: Annotated[
        bool,
        typer.Option(
            "--deep-iteration",
            help="Print records, not only batches. --print-data-log implies it.",
        ),
    ] = False,
    verify_index_only: Annotated[
        bool,
        typer.Option(
            "--verify-index-only", help="Check indexes against their logs; print no entries."
        ),
    ] = False,
    index_sanity_check: Annotated[
        bool,
        typer.Option(
            "--index-sanity-check", help="Only check indexes as a broker does when it starts."
        ),
    ] = False,
    max_bytes: Annotated[
        int,
        typer.Option(
            min=0,
            max=MAX_INT,
            metavar="N",
            help="Read at most N bytes of each .log. Default: all.",
            show_default=False,
        ),
    ] = MAX_INT,
    max_message_size: Annotated[
        int,
        typer.Option(
            min=1,
            max=MAX_INT,
            metavar="N",
            help="Maximum size of a batch that an index entry points to.",
        ),
    ] = 5 * 1024 * 1024,
    key_decoder: Annotated[
        str | None,
        typer.Option(
            "--key-decoder",
            "--key-decoder-class",
            metavar="NAME",
            help=f"Decoder of keys: {_DECODERS}",
        ),
    ] = None,
    value_decoder: Annotated[
        str | None,
        typer.Option(
            "--value-decoder",
            "--value-decoder-class",
            metavar="NAME",
            help="Decoder of values.",
        ),
    ] = None,
    offsets_decoder: Annotated[
        bool,
        typer.Option("--offsets-decoder", help="Print the records of __consumer_offsets as JSON."),
    ] = False,
    transaction_log_decoder: Annotated[
        bool,
        typer.Option("--transaction-log-decoder", help="Print the records of __transaction_state."),
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool,
        typer.Option(
            "--cluster-metadata-decoder",
            help="Print the records of __cluster_metadata as JSON: Kafka's, or raylog's.",
        ),
    ] = False,
    skip_record_metadata: Annotated[
        bool,
        typer.Option("--skip-record-metadata", help="Print only the keys and values of records."),
    ] = False,
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
        parser = decoders.plain(
            _decoder("--key-decoder", key_decoder), _decoder("--value-decoder", value_decoder)
        )
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


@app.command()
def verify(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER...",
            help="Folders of partitions, or log dirs with all their partitions.",
        ),
    ],
    compacted: Compacted = False,
) -> None:
    """Check whether the segments, indexes and snapshots of a partition agree.

    Reads every byte and writes nothing. Prints one line per segment. Checks batches and their
    CRC, offsets, both indexes, aborted transactions, snapshots of the producers, leader epochs and
    partition.metadata. The exit status is 1 if something is wrong.
    """
    from raylog.storage.errors import RaylogError
    from raylog.storage.files import ReadOnlyFileSystem
    from raylog.storage.tools.folders import partition_folders
    from raylog.storage.tools.verify import verify_folder

    fs, damaged = ReadOnlyFileSystem(), False
    for folder in folders:
        for partition in partition_folders(fs, folder):
            try:
                for report in verify_folder(fs, partition, is_compacted=compacted):
                    _out(_verdict(partition, report))
                    damaged = damaged or bool(report.problems)
            except RaylogError as error:
                _err(f"error: {error}")
                damaged = True
    if damaged:
        raise typer.Exit(1)


def _verdict(folder: str, report: "SegmentReport") -> str:
    from raylog.storage.names import segment_file

    name = os.path.join(folder, segment_file(report.base_offset, ""))
    if report.problems:
        whole = "; ".join(map(str, report.problems))
        return f"BAD {name}: {whole}: raylog log repair {folder}"
    last = f"offsets {report.base_offset}-{report.next_offset - 1}" if report.batches else "empty"
    batches = f"{report.batches} batch{'' if report.batches == 1 else 'es'}"
    return f"ok  {name}: {last}, {batches}, {report.size_bytes} bytes"


@app.command()
def repair(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Folder of a partition that no broker serves.")
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
            help="Set all segments after a damaged one aside: the log ends there.",
        ),
    ] = False,
    compacted: Compacted = False,
) -> None:
    """Repair a partition's folder.

    Copies all files first. Then cuts the log before the first damaged batch, and rebuilds the
    indexes. The damaged batch and everything after it leaves the log and is kept, as after a crash:
    `raylog log aside list` shows it.
    If nothing is wrong, nothing is changed.
    """
    from raylog.storage.clock import SystemClock
    from raylog.storage.files import RealFileSystem
    from raylog.storage.tools.repair import repair_folder
    from raylog.storage.tools.verify import verify_folder

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
        _out("nothing is wrong, and nothing was changed")
        return
    for name, size_bytes in done.cut:
        _out(f"{name}: cut {size_bytes} bytes")
    for name in done.dropped:
        _out(f"{name}: set aside")
    _out(f"indexes and snapshot rebuilt; the log ends at offset {done.end_offset}")
    left = [
        problem
        for report in verify_folder(fs, folder, is_compacted=compacted)
        for problem in report.problems
    ]
    for problem in left:
        _err(f"error: still wrong: {problem}")
    if left:
        raise typer.Exit(1)
