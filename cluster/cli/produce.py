"""``raylog produce``: sends lines as records.

It never waits for one record: lines are sent as they come, and receipts are looked at in between,
in the order of the lines. The input ends at its end, at a signal, at the first line that is known
to be refused, or when the reader of ``-v`` has left. What was sent by then is flushed and told.
"""

import select
import sys
from collections import deque
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from raylog.cluster.cli.by_socket import Servers, Wanted
from raylog.cluster.cli.by_socket import connection as connection_to
from raylog.cluster.cli.common import NAMESPACE, Address, Namespace, note
from raylog.cluster.cli.interrupts import Interrupts
from raylog.cluster.cli.lines import Row, as_given, from_json, from_text, runs, unescaped
from raylog.cluster.cli.places import time_of
from raylog.storage.errors import InvalidRecord, RaylogError

if TYPE_CHECKING:
    from raylog.cluster.client.connection import Connection
    from raylog.cluster.client.producer import Producer, SentRecord
    from raylog.cluster.client.producer.delivery import Delivery

CHUNK_BYTES = 1 << 16
# How soon -v prints, and a refused line is told, where no input comes.
LOOK_INTERVAL_MS = 50
# Receipts that are kept; the next line waits for the first of them then.
MOST_PENDING = 200_000
# An escape of JSON has up to six bytes for one. A longer line cannot be a record.
LONGEST_LINE_FACTOR = 6
LEAST_REQUEST_BYTES = 1 << 20
LEAST_BUFFER_BYTES = 32 << 20
TOLD_REASONS = 10


class Compression(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Input(StrEnum):
    text = "text"
    json = "json"


# The command's own options, in the order of its help.
Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
File = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Read this file instead of standard input.")
]
Format = Annotated[
    Input,
    typer.Option(
        "--format",
        "-f",
        help="text: each line is a value. json: each line is a record, as consume --format "
        "json prints it; topic and offset are ignored.",
    ),
]
KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="Split each line into key and value at the first TEXT; '\\t' is a tab. "
        "A line without TEXT has no key.",
    ),
]
Key = Annotated[
    str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of all records.")
]
NullValue = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Send keys and values that equal TEXT as null. '': those that are empty.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        metavar="NAME=VALUE",
        help="A header of all records; NAME alone has the value null. Repeat for more.",
    ),
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="The timestamp of all records: 2026-11-22T08:30Z, -1h, or @MS. Default: now, or "
        "that of the JSON line.",
    ),
]
Partition = Annotated[
    int | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        metavar="N",
        help="Send all records to this partition. Default: that of the JSON line; else by key, "
        "as in Kafka; records without a key go to the partitions in turn.",
    ),
]
IgnorePartition = Annotated[
    bool,
    typer.Option("--ignore-partition", help="Ignore the partition of JSON lines: choose by key."),
]
Codec = Annotated[
    Compression, typer.Option("--compression", "-z", help="Compression of the batches.")
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Print the partition and offset of each line."),
]


def produce(
    context: typer.Context,
    topic: Topic,
    file: File = None,
    format_: Format = Input.text,
    key_separator: KeySeparator = None,
    key: Key = None,
    null_value: NullValue = None,
    header: Headers = None,
    timestamp: Timestamp = None,
    partition: Partition = None,
    ignore_partition: IgnorePartition = False,
    compression: Codec = Compression.none,
    verbose: Verbose = False,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Send each line as a record. Returns when all records are acknowledged.

    Ctrl-C ends the input. Lines that were read before are sent; an unfinished one is not.
    """
    parse = _parser(format_, key, key_separator, null_value)
    if ignore_partition and (format_ is Input.text or partition is not None):
        raise typer.BadParameter("--ignore-partition is for --format json, without --partition")
    given = Row(
        None,
        headers=tuple(_header(text) for text in header or ()),
        timestamp=None if timestamp is None else _timestamp(timestamp),
        partition=partition,
    )
    source = _open(file)
    connection = connection_to(Wanted(context, servers, address, namespace))
    with Interrupts() as interrupts, source:
        try:
            with interrupts.welcome():
                producer = _producer(connection, topic, partition, compression)
        except KeyboardInterrupt:
            raise typer.Exit(interrupts.exit_status) from None
        sending = Sending(producer, topic, given, is_shown=verbose)
        sending.ignores_partition = ignore_partition
        sending.is_json = format_ is Input.json
        _send_all(sending, source, parse, interrupts)
        _finish(sending, interrupts)
    if sending.has_failed or sending.has_lost_reader:
        raise typer.Exit(interrupts.exit_status or 1)
    raise typer.Exit(interrupts.exit_status)


# -- options ---------------------------------------------------------------------------------------


def _parser(
    format_: Input, key: str | None, key_separator: str | None, null_value: str | None
) -> Callable[[bytes], Row]:
    if format_ is Input.text:
        return _text_parser(key, key_separator, null_value)
    if key is not None or key_separator is not None or null_value is not None:
        raise typer.BadParameter("--key, --key-separator and --null-value are for --format text")
    return from_json


def _text_parser(
    key: str | None, key_separator: str | None, null_value: str | None
) -> Callable[[bytes], Row]:
    if key is not None and key_separator is not None:
        raise typer.BadParameter("give --key or --key-separator, not both")
    if key_separator == "":
        raise typer.BadParameter("--key-separator is empty")
    if key is None and key_separator is None and null_value is None:
        return Row
    return partial(
        from_text,
        key=None if key is None else as_given(key),
        separator=None if key_separator is None else unescaped("--key-separator", key_separator),
        null=None if null_value is None else as_given(null_value),
    )


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, content = text.partition("=")
    if not name:
        raise typer.BadParameter(f"--header {text!r} has no name; use NAME=VALUE")
    return name, as_given(content) if equals else None


def _timestamp(text: str) -> int:
    moment = time_of(text)
    if moment is None:
        raise typer.BadParameter(
            f"--timestamp {text!r} is no time: use 2026-11-22T08:30Z, -1h, or @MS for ms since the "
            "epoch"
        )
    return moment


def _open(file: Path | None) -> IO[bytes]:
    if file is not None:
        try:
            return file.open("rb")
        except OSError as error:
            raise typer.BadParameter(f"{file}: {error.strerror}") from error
    if sys.stdin is None:
        raise typer.BadParameter("standard input is closed; give --file FILE")
    return sys.stdin.buffer


def _producer(
    connection: "Connection", topic: str, partition: int | None, compression: Compression
) -> "Producer":
    """A producer for records as large as the topic takes them."""
    from raylog.actors.errors import UnknownTopicOrPartition
    from raylog.actors.runtime.calls import CALL_TIMEOUT_S
    from raylog.cluster.client.producer import Producer
    from raylog.cluster.client.producer.config import MOST_REQUEST_BYTES

    known = connection.metadata(topic, timeout_s=CALL_TIMEOUT_S).result()
    count = len(known.partitions)
    most_bytes = min(max(LEAST_REQUEST_BYTES, known.max_message_bytes), MOST_REQUEST_BYTES)
    if partition is not None and partition >= count:
        raise UnknownTopicOrPartition(topic, partition, f"the topic has {count} partitions")
    return Producer(
        connection,
        compression_type=compression.value,
        max_request_size=most_bytes,
        buffer_memory=max(LEAST_BUFFER_BYTES, most_bytes),
    )


# -- the input -------------------------------------------------------------------------------------


def _send_all(
    sending: "Sending",
    source: IO[bytes],
    parse: Callable[[bytes], Row],
    interrupts: Interrupts,
) -> None:
    longest = LONGEST_LINE_FACTOR * sending.producer.config.max_request_size
    number = 0
    try:
        for line in _lines(_chunks(source, sending, interrupts), longest):
            number += 1
            sending.send(number, line, parse)
            if sending.is_over:
                return
    except InvalidRecord as error:
        sending.refused.append((number + 1, error))
    except KeyboardInterrupt:
        pass


def _chunks(source: Any, sending: "Sending", interrupts: Interrupts) -> Iterator[bytes]:
    """The input as it comes. Raises KeyboardInterrupt only between two of them."""
    poller = select.poll()
    poller.register(source.fileno(), select.POLLIN)
    if sending.is_shown:
        poller.register(sys.stdout.fileno(), 0)  # tells when its reader has left
    while True:
        with interrupts.welcome():
            ready = poller.poll(LOOK_INTERVAL_MS if sending.pending else None)
        if any(number == source.fileno() for number, _ in ready):
            chunk = source.read1(CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
        elif ready:
            sending.lose_reader()
        sending.settle()
        if sending.is_over:
            return


def _lines(chunks: Iterator[bytes], longest: int) -> Iterator[bytes]:
    """Lines without their ends.

    The last one may have no end. Where a signal ends the input, that one is dropped.
    """
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first)
        size += len(first)
        if others:
            yield _whole(parts)
            for line in others[:-1]:
                yield line[:-1] if line[-1:] == b"\r" else line
            parts, size = [others[-1]], len(others[-1])
        if size > longest:
            raise InvalidRecord(f"it has more than {longest} bytes; no record is that large")
    if size:
        yield _whole(parts)


def _whole(parts: list[bytes]) -> bytes:
    line = b"".join(parts)
    return line[:-1] if line.endswith(b"\r") else line


# -- records on their way --------------------------------------------------------------------------


class Sending:
    """Records on their way, by the numbers of their lines."""

    def __init__(self, producer: "Producer", topic: str, given: Row, *, is_shown: bool) -> None:
        """``given``: what the options say of all records."""
        self.producer, self.topic, self.given, self.is_shown = producer, topic, given, is_shown
        self.ignores_partition = self.is_json = self.has_lost_reader = False
        self.acknowledged = 0
        self.refused: list[tuple[int, BaseException]] = []
        self.unknown: list[tuple[int, BaseException]] = []  # they may have been written
        self.unsent: list[tuple[int, BaseException]] = []  # their turn never came
        self.is_closed = False
        self.pending: deque[tuple[int, SentRecord]] = deque()
        self._is_first_shown = True

    @property
    def is_over(self) -> bool:
        """Whether no more input is wanted."""
        return self.has_failed or self.has_lost_reader

    @property
    def has_failed(self) -> bool:
        """Whether any line is not known to be written, though nobody waits for it any more."""
        return bool(self.refused or self.unknown or self.unsent)

    def send(self, number: int, line: bytes, parse: Callable[[bytes], Row]) -> None:
        """Send a line; a line that cannot be sent is refused."""
        if self.is_json and not line.strip():
            return
        try:
            row, given = parse(line), self.given
            wanted = None if self.ignores_partition else row.partition
            receipt = self.producer.send(
                self.topic,
                row.value,
                key=row.key,
                timestamp=row.timestamp if given.timestamp is None else given.timestamp,
                headers=(row.headers + given.headers) or None,
                partition=wanted if given.partition is None else given.partition,
            )
        except RaylogError as error:
            self.refused.append((number, error))
            return
        self.pending.append((number, receipt))
        if len(self.pending) >= MOST_PENDING:
            self.pending[0][1].exception()
            self.settle()

    def settle(self) -> None:
        """Look at the receipts that have ended, in the order of the lines."""
        shown: list[bytes] = []
        pending = self.pending
        written: object = None  # a batch of which every record is written: nothing more to ask
        while pending:
            number, receipt = pending[0]
            if receipt.delivery is not written:
                if not receipt.done():
                    break
                if _is_written(receipt.delivery):
                    written = receipt.delivery
                elif (error := receipt.exception()) is not None:
                    pending.popleft()
                    self._failed(receipt).append((number, getattr(error, "cause", error)))
                    continue
            pending.popleft()
            self.acknowledged += 1
            if self.is_shown:
                metadata = receipt.result()
                shown.append(b"%d\t%d\t%d\n" % (number, metadata.partition, metadata.offset))
        if shown:
            self._show(shown)

    def _failed(self, receipt: "SentRecord") -> list[tuple[int, BaseException]]:
        """Where a line belongs that was not acknowledged."""
        from raylog.actors.errors import NotSentInTime

        outcome = receipt.delivery.outcome(receipt.index)
        assert outcome is not None
        if not outcome.is_fate_known:
            return self.unknown
        if self.is_closed or isinstance(outcome.error, NotSentInTime):
            return self.unsent
        return self.refused

    def _show(self, lines: list[bytes]) -> None:
        if self._is_first_shown:
            self._is_first_shown = False
            lines.insert(0, b"line\tpartition\toffset\n")
        try:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            self.lose_reader()

    def lose_reader(self) -> None:
        self.is_shown, self.has_lost_reader = False, True


def _is_written(delivery: "Delivery") -> bool:
    return delivery.is_done and all(outcome.error is None for outcome in delivery.outcomes)


def _finish(sending: Sending, interrupts: Interrupts) -> None:
    """Flush, and tell what has become of each line."""
    from raylog.actors.errors import ProduceFailed, RequestTimedOut

    try:
        with interrupts.welcome():
            sending.producer.flush()
    except (ProduceFailed, RequestTimedOut):
        pass  # each receipt knows
    except KeyboardInterrupt:
        pass  # once more: do not wait
    sending.settle()
    sending.is_closed = True
    try:
        sending.producer.close(timeout=0)
    except (ProduceFailed, RequestTimedOut):
        pass
    sending.settle()
    _tell(sending)


def _tell(sending: Sending) -> None:
    from raylog.actors.errors import UnknownTopicOrPartition

    _tell_refused(sending.refused)
    if sending.is_json and any(
        isinstance(why, UnknownTopicOrPartition) for _, why in sending.refused
    ):
        note("--ignore-partition chooses the partitions of JSON lines anew, by key")
    if sending.unknown:
        lines = sorted(number for number, _ in sending.unknown)
        they = "it was" if len(lines) == 1 else "they were"
        note(
            f"error: {runs(lines)}: no answer came, so it is not known whether {they} written; "
            f"look at the end of the topic (`raylog consume {sending.topic} --last 10 --exit`) "
            "before you send again"
        )
    _tell_unsent(sending.unsent)
    if sending.has_lost_reader:
        note("stopped: nobody reads the offsets any more")
    count = sending.acknowledged
    note(f"{count} record{'' if count == 1 else 's'} acknowledged")


def _tell_unsent(entries: list[tuple[int, BaseException]]) -> None:
    from raylog.actors.errors import NotSentInTime

    late = sorted(line for line, why in entries if isinstance(why, NotSentInTime))
    if late:
        note(f"error: {runs(late)}: not sent within delivery.timeout.ms; send again")
    left = sorted(line for line, why in entries if not isinstance(why, NotSentInTime))
    if left:
        note(f"error: {runs(left)}: not sent, since the command ended before")


def _tell_refused(entries: list[tuple[int, BaseException]]) -> None:
    """Each reason once, with its lines."""
    refused = sorted(entries, key=lambda entry: (str(entry[1]), entry[0]))
    reasons = [(why, [line for line, _ in entries]) for why, entries in groupby(refused, _why)]
    reasons.sort(key=lambda reason: reason[1][0])
    for why, lines in reasons[:TOLD_REASONS]:
        verb = "was" if len(lines) == 1 else "were"
        note(f"error: {runs(lines)} {verb} refused: {why}")
    left = sum(len(lines) for _, lines in reasons[TOLD_REASONS:])
    if left:
        note(f"error: {left} more lines were refused")


def _why(entry: tuple[int, BaseException]) -> str:
    from raylog.actors.runtime.ray_texts import in_one_line, is_of_ray

    if is_of_ray(entry[1]):
        return in_one_line(entry[1])
    lines = (line.strip() for line in str(entry[1]).splitlines())
    return " ".join(filter(None, lines))
