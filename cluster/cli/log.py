"""``raylog log dump``, ``verify``, ``repair``: a partition's files, looked at and mended without a broker.

Nothing here needs Ray.
"""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from raylog.storage.dump.decoders import Decoder, Parser

app = typer.Typer(
    help="Look at a partition's files, check and repair them; no broker is needed.", no_args_is_help=True
)

_DECODERS = "string, bytes (as hex), integer, long; or Kafka's StringDecoder, ..."


@app.command()
def dump(
    files: Annotated[
        str,
        typer.Option(
            metavar="FILE,FILE...",
            help="What to dump: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint.",
        ),
    ],
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Print keys and values. Every decoder asks for it, too.")
    ] = False,
    deep_iteration: Annotated[
        bool,
        typer.Option(
            "--deep-iteration", help="Print records, not batches alone. --print-data-log does so, too."
        ),
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Hold indexes against their logs; print no entries.")
    ] = False,
    index_sanity_check: Annotated[
        bool,
        typer.Option(
            "--index-sanity-check", help="Check indexes as a broker does at its start, and no more."
        ),
    ] = False,
    max_bytes: Annotated[
        int,
        typer.Option(
            min=0, max=2**31 - 1, metavar="N", help="Read so much of each .log.", show_default=False
        ),
    ] = 2**31 - 1,
    max_message_size: Annotated[
        int,
        typer.Option(
            min=1, max=2**31 - 1, metavar="N", help="Size of the largest batch that an index points to."
        ),
    ] = 5 * 1024 * 1024,
    key_decoder: Annotated[
        str | None,
        typer.Option(
            "--key-decoder", "--key-decoder-class", metavar="NAME", help=f"How keys are printed: {_DECODERS}"
        ),
    ] = None,
    value_decoder: Annotated[
        str | None,
        typer.Option(
            "--value-decoder", "--value-decoder-class", metavar="NAME", help="How values are printed."
        ),
    ] = None,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Print the records of __consumer_offsets as JSON.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Print the records of __transaction_state.")
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool,
        typer.Option(
            "--cluster-metadata-decoder",
            help="Print the records of __cluster_metadata as JSON: Kafka's, or raylog's.",
        ),
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Print records' keys and values alone.")
    ] = False,
) -> None:
    """Print what is in the files, as kafka-dump-log does, to the character.

    Options and output are those of Kafka's tool. A file that cannot be dumped is named on standard error, and
    the exit status is 1; so is one that Kafka's tool would crash on.
    """
    from raylog.storage.dump import decoders
    from raylog.storage.dump.logs import LogOptions
    from raylog.storage.dump.tool import DumpOptions, dump_files
    from raylog.storage.files import ReadOnlyFileSystem

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
    log = LogOptions(deep_iteration or parser is not None, parser, skip_record_metadata, max_bytes)
    options = DumpOptions(log, verify_index_only, index_sanity_check, max_message_size)
    if not dump_files(ReadOnlyFileSystem(), files.split(","), options, _out, _err, os.getcwd()):
        raise typer.Exit(1)


def _out(line: str) -> None:
    sys.stdout.buffer.write(line.encode(errors="replace") + b"\n")


def _err(line: str) -> None:
    sys.stdout.flush()
    typer.echo(line, err=True)


def _decoder(option: str, name: str | None) -> "Decoder":
    from raylog.storage.dump.decoders import decoder

    found = decoder(name or "string")
    if found is None:
        raise typer.BadParameter(f"{name!r} is no decoder: use {_DECODERS}", param_hint=option)
    return found
