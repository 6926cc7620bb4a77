"""``raylog produce`` and ``raylog consume``: send lines as records, print records as lines."""

import base64
import json
import select
import sys
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raylog.cluster.cli.common import NAMESPACE, Address, Namespace, connected, note
from raylog.storage.errors import RaylogError

if TYPE_CHECKING:
    from raylog.cluster.client.consumer import ConsumerRecord

Name = Annotated[str, typer.Argument(metavar="TOPIC")]


class LineRefused(RaylogError):
    """A line of the input was refused, or cannot be sent."""

    fields = ("line", "cause")
    line: int
    cause: str
    template = "line {line} was refused: {cause}. The lines before it are acknowledged"


class Compression(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Format(StrEnum):
    text = "text"
    json = "json"


def produce(
    topic: Name,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read this file instead of standard input.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Split each line into key and value at the first TEXT; '\\t' is a tab. "
            "A line without TEXT has no key.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Send all records to this partition. Default: by key, as in Kafka; records "
            "without a key go to the partitions in turn.",
        ),
    ] = None,
    compression: Annotated[
        Compression, typer.Option(help="Compression of the batches.")
    ] = Compression.none,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Send each line as a record. Returns when all records are acknowledged.

    Ctrl-C ends the input; lines that were read before are sent.
    """
    if key_separator == "":
        raise typer.BadParameter("--key-separator is empty")
    separator = key_separator.replace("\\t", "\t").encode() if key_separator else None
    try:
        source = sys.stdin.buffer if file is None else file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from error
    from raylog.actors.errors import UnknownTopicOrPartition

    broker = connected(address, namespace)
    partitions = len(broker.describe_topic(topic).partitions)
    if partition is not None and partition >= partitions:
        raise UnknownTopicOrPartition(topic, partition, f"the topic has {partitions} partitions")
    count = 0
    with broker.producer(compression_type=compression.value) as producer:
        try:
            for line in source:
                count += 1
                key, value = _split(line.rstrip(b"\r\n"), separator)
                producer.send(topic, value, key=key, partition=partition)
        except KeyboardInterrupt:
            pass
        except RaylogError as error:
            producer.flush()
            raise LineRefused(count, error) from error
    note(f"{count} record{'' if count == 1 else 's'} acknowledged")


def _split(line: bytes, separator: bytes | None) -> tuple[bytes | None, bytes]:
    """(key, value) of a line."""
    if separator is None or separator not in line:
        return None, line
    key, _, value = line.partition(separator)
    return key, value


def consume(
    topic: Name,
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHEN",
            help="Start at: earliest, latest (only new records), or ms since the epoch.",
        ),
    ] = "latest",
    to: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Stop at: latest (the current end), or ms since the epoch. Default: never.",
        ),
    ] = None,
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, metavar="N", help="Stop after N records.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Read only this partition.")
    ] = None,
    format_: Annotated[
        Format,
        typer.Option(
            "--format",
            help="text: values. json: one object per line, with offset, timestamp, key, headers.",
        ),
    ] = Format.text,
    with_key: Annotated[
        bool,
        typer.Option(
            "--with-key", help="With --format text: print the key and a tab before the value."
        ),
    ] = False,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Print records, one per line, until --to, --max or Ctrl-C."""
    start, end = _moment("--from", from_), None if to is None else _moment("--to", to)
    line = _json if format_ is Format.json else partial(_text, with_key=with_key)
    out, left = sys.stdout.buffer, maximum
    try:
        broker = connected(address, namespace)
        partitions = None if partition is None else [partition]
        with broker.consumer(topic, from_=start, to=end, partitions=partitions) as consumer:
            while not consumer.is_at_end and left != 0 and not _reader_left():
                records = consumer.poll()[:left]
                out.writelines(map(line, records))
                out.flush()
                left = None if left is None else left - len(records)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _reader_left() -> bool:
    """Whether the reader of our output has closed the pipe.

    A write would fail then, but there may be nothing to write for a long time.
    """
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0))


def _moment(option: str, text: str) -> str | int:
    if text in ("earliest", "latest"):
        return text
    if not text.isdecimal():
        raise typer.BadParameter(f"{option} {text!r}: use earliest, latest, or ms since the epoch")
    return int(text)


def _text(record: "ConsumerRecord", with_key: bool) -> bytes:
    line = record.value or b""
    return (b"%b\t%b\n" % (record.key or b"", line)) if with_key else line + b"\n"


def _json(record: "ConsumerRecord") -> bytes:
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _readable(record.key),
        "value": _readable(record.value),
    }
    if record.headers:
        fields["headers"] = [[name, _readable(content)] for name, content in record.headers]
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _readable(content: bytes | None) -> Any:
    """UTF-8 as a string; other bytes as ``{"base64": ...}``."""
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content or b"").decode()}
