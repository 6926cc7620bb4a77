"""``raylog produce`` and ``raylog consume``: lines in, records out."""

import base64
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raylog.cluster.cli.common import NAMESPACE, Address, Namespace, connected

if TYPE_CHECKING:
    from raylog.cluster.client.consumer import ConsumerRecord

Name = Annotated[str, typer.Argument(metavar="TOPIC")]


def produce(
    topic: Name,
    file: Annotated[Path | None, typer.Option(help="Read this file instead of standard input.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(help="Split each line into key and value here.")
    ] = None,
    partition: Annotated[int | None, typer.Option(help="Send everything to this partition.")] = None,
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Send each line as a record; returns when all are acknowledged."""
    separator = key_separator.encode() if key_separator else None
    try:
        source = sys.stdin.buffer if file is None else file.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from error
    broker = connected(address, namespace)
    broker.describe_topic(topic)
    count = 0
    with broker.producer(compression_type=compression) as producer:
        for line in source:
            value, key = line.rstrip(b"\r\n"), None
            if separator is not None and separator in value:
                key, _, value = value.partition(separator)
            producer.send(topic, value, key=key, partition=partition)
            count += 1
    typer.echo(f"{count} records acknowledged", err=True)


def consume(
    topic: Name,
    from_: Annotated[str, typer.Option("--from", help="earliest, latest, or ms since the epoch.")] = "latest",
    to: Annotated[
        str | None, typer.Option(help="Stop at: latest, or ms since the epoch. Default: never.")
    ] = None,
    maximum: Annotated[int | None, typer.Option("--max", help="Stop after so many records.")] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition.")] = None,
    format_: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    with_key: Annotated[bool, typer.Option(help="Text: print the key and a tab before the value.")] = False,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Print records, one a line, until --to, --max or Ctrl-C."""
    if format_ not in ("text", "json"):
        raise typer.BadParameter(f"no format {format_!r}: use text or json")
    partitions = None if partition is None else [partition]
    out = sys.stdout.buffer
    try:
        consumer = connected(address, namespace).consumer(
            topic, from_=_moment(from_), to=None if to is None else _moment(to), partitions=partitions
        )
        count = 0
        while not consumer.is_at_end and (maximum is None or count < maximum):
            records = consumer.poll()[: None if maximum is None else maximum - count]
            for record in records:
                out.write(_json(record) if format_ == "json" else _text(record, with_key))
            out.flush()
            count += len(records)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _moment(text: str) -> str | int:
    return int(text) if text.isdigit() else text


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
