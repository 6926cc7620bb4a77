"""``raylog consume``: prints records as lines."""

import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from raylog.cluster.cli.by_socket import Servers, Wanted
from raylog.cluster.cli.by_socket import connection as connection_to
from raylog.cluster.cli.common import NAMESPACE, Address, Namespace, Partitions, note
from raylog.cluster.cli.interrupts import Interrupts
from raylog.cluster.cli.lines import Print, as_given, template, to_json
from raylog.cluster.cli.places import Offset, Place, place_of
from raylog.storage.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from raylog.cluster.cli.silence import Watched
    from raylog.cluster.client.connection import GroupConnection
    from raylog.cluster.client.consumer import Consumer, ConsumerRecord
    from raylog.cluster.client.consumer.places import Places

# A poll returns at once where there are records; without any it looks after the output's reader.
POLL_TIMEOUT_MS = 500
FORMATS = {"text": "%v\\n", "with key": "%k\\t%v\\n"}


class Range(NamedTuple):
    """What is read of each partition."""

    start: Place
    end: Place | None  # None: no end
    last: int | None  # so many offsets before the end, in the place of ``start``

    @property
    def needs_edges(self) -> bool:
        """Whether the offsets of the logs decide."""
        return self.last is not None or isinstance(self.start, Offset)


Topics = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC...", help="Topics; or one pattern, which begins with ^."),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        "-o",
        metavar="WHERE",
        help="Start at: earliest, latest (only new records), an offset, a time "
        "(2026-11-22T08:30Z; UTC without a zone), a time ago (-1h; ms, s, m, d, w), or @MS: "
        "ms since the epoch. Default: latest; with --to or --exit: earliest.",
    ),
]
Last = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Start at the last N offsets of each partition."),
]
To = Annotated[
    str | None,
    typer.Option(metavar="WHERE", help="Stop before this place, see --from. Default: never."),
]
Exit = Annotated[bool, typer.Option("--exit", "-e", help="Stop at the current end: --to latest.")]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="As a member of this group: go on where it has committed, and commit what is printed. "
        "--from is for partitions of which it has committed nothing.",
    ),
]
Count = Annotated[
    int | None, typer.Option("--count", "-c", min=1, metavar="N", help="Stop after N records.")
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        metavar="text|json|TEMPLATE",
        help="text: values. json: one object per line, which produce takes. TEMPLATE, for "
        "example '%t %o %k %v\\n': %t topic, %p partition, %o offset, %T timestamp, %k key, "
        "%v or %s value, %K %V their bytes (-1: null), %h headers, %%.",
    ),
]
WithKey = Annotated[
    bool,
    typer.Option(
        "--with-key", help="With --format text: print the key and a tab before the value."
    ),
]
NullValue = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="Print null keys and values as TEXT. Default: as empty ones."
    ),
]


def consume(
    context: typer.Context,
    topics: Topics,
    from_: From = None,
    last: Last = None,
    to: To = None,
    exit_: Exit = False,
    count: Count = None,
    partition: Partitions = None,
    group: Group = None,
    format_: Format = "text",
    with_key: WithKey = False,
    null_value: NullValue = None,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Print records, one per line, until --to, --count or Ctrl-C."""
    if group is not None and (to, exit_, last, partition) != (None, False, None, None):
        raise typer.BadParameter("a group has no end: --group goes with --from and --count alone")
    wanted = _range(from_, last, to, exit_)
    line = _printer(format_, with_key, null_value)
    pattern = _pattern(topics)
    connection = connection_to(Wanted(context, servers, address, namespace))
    is_bounded = wanted.end is not None
    with (
        Interrupts() as interrupts,
        _consumer(connection, group, is_bounded=is_bounded) as (consumer, asked),
    ):
        try:
            with interrupts.welcome():
                if group is not None:
                    consumer.subscribe(pattern or topics, from_=_start_in_group(wanted.start))
                else:
                    _assign(consumer, pattern or topics, partition, wanted)
            _print_all(
                consumer,
                line,
                interrupts,
                count,
                is_bounded=is_bounded,
                asked=asked,
                stores=group is not None,
            )
        except KeyboardInterrupt:
            consumer.close()  # a member commits what was printed
            raise typer.Exit(interrupts.exit_status) from None


@contextmanager
def _consumer(
    connection: "GroupConnection", group: str | None, *, is_bounded: bool
) -> "Iterator[tuple[Consumer, Watched]]":
    """A consumer during which silent partitions are named, and what it asks.

    ``is_bounded``: raises ReadTimedOut of the first that is silent for too long, whatever it is
    asked meanwhile.
    """
    from raylog.actors.errors import ConsumerWokenUp, ReadTimedOut
    from raylog.cluster.cli.silence import GIVE_UP_AFTER_S, Watch, watched, watching
    from raylog.cluster.client.consumer import Consumer
    from raylog.cluster.naming import named

    asked = watched(connection)
    settings: dict[str, Any] = {}
    if group is not None:  # it commits what was printed
        settings = {"group_id": group, "enable_auto_offset_store": False}
    with Consumer(asked, auto_offset_reset="none", **settings) as consumer:  # type: ignore[arg-type]
        watch = Watch(asked, note, consumer.wakeup if is_bounded else None)
        with watching(watch):
            try:
                yield consumer, asked
            except ConsumerWokenUp:
                silent = named(watch.given_up()) or "a partition"
                raise ReadTimedOut(silent, round(GIVE_UP_AFTER_S * 1000)) from None


# -- options ---------------------------------------------------------------------------------------


def _range(from_: str | None, last: int | None, to: str | None, exit_: bool) -> Range:
    if exit_ and to is not None:
        raise typer.BadParameter("give --exit or --to, not both")
    if last is not None and from_ is not None:
        raise typer.BadParameter("give --last or --from, not both")
    end = "latest" if exit_ else None if to is None else place_of("--to", to)
    default = "latest" if end is None else "earliest"
    start = default if from_ is None else place_of("--from", from_)
    return Range(start, end, last)


def _printer(format_: str, with_key: bool, null_value: str | None) -> Print:
    if format_ != "text" and with_key:
        raise typer.BadParameter("--with-key is for --format text")
    if format_ == "json":
        if null_value is not None:
            raise typer.BadParameter("--null-value is not for --format json, which has null")
        return to_json
    null = as_given(null_value or "")
    if format_ == "text":
        return template(FORMATS["with key" if with_key else "text"], null)
    if "%" not in format_:
        raise typer.BadParameter(
            f"--format {format_!r}: use text, json, or a template such as '%k %v\\n'"
        )
    return template(format_, null)


def _pattern(topics: list[str]) -> re.Pattern[str] | None:
    if not any(topic.startswith("^") for topic in topics):
        return None
    if len(topics) > 1:
        raise typer.BadParameter("give one pattern, or names of topics")
    try:
        return re.compile(topics[0])
    except re.error as error:
        raise typer.BadParameter(f"{topics[0]!r} is no regular expression: {error}") from None


def _start_in_group(start: Place) -> str | datetime:
    """Where a partition begins of which the group has committed nothing."""
    if isinstance(start, Offset):
        raise typer.BadParameter("--from OFFSET does not go with --group; see `raylog group seek`")
    return start if isinstance(start, str) else datetime.fromtimestamp(start / 1000, UTC)


# -- where to read ---------------------------------------------------------------------------------


def _assign(
    consumer: "Consumer",
    topics: list[str] | re.Pattern[str],
    numbers: list[int] | None,
    wanted: Range,
) -> None:
    """Have the consumer read what is wanted, from its start to its end."""
    place: str | int = "latest"  # until the edges are known
    if not wanted.needs_edges and not isinstance(wanted.start, Offset):
        place = wanted.start
    if numbers is None:
        consumer.subscribe(topics, from_=place)
    elif isinstance(topics, re.Pattern):
        consumer.subscribe(topics, from_=place)
        chosen = [each for each in consumer.assignment if each.partition in numbers]
        consumer.assign(chosen, from_=place)
    else:
        partitions = [(topic, number) for topic in topics for number in dict.fromkeys(numbers)]
        consumer.assign(partitions, from_=place)
    _check_some(consumer, topics, numbers, wanted)
    starts = _starts(consumer, wanted) if wanted.needs_edges else {}
    if wanted.end is None:
        for each, start in starts.items():
            consumer.seek(*each, start)
        return
    # What is added later is behind the end.
    assignment = consumer.assignment
    end = wanted.end
    ends: Places = dict.fromkeys(assignment, end.offset) if isinstance(end, Offset) else end
    consumer.assign(assignment, from_=starts or place, to=ends)


def _check_some(
    consumer: "Consumer",
    topics: list[str] | re.Pattern[str],
    numbers: list[int] | None,
    wanted: Range,
) -> None:
    """Whether there is something to read, or may be later; UnknownTopicOrPartition else."""
    from raylog.actors.errors import UnknownTopicOrPartition

    if consumer.assignment or not isinstance(topics, re.Pattern):
        return
    if numbers is not None:
        why = "no topic that matches has such a partition"
        raise UnknownTopicOrPartition(topics.pattern, numbers[0], why)
    if wanted.end is not None:
        raise UnknownTopicOrPartition(topics.pattern, None, "no topic matches")
    note("no topic matches yet; waiting for one")


def _starts(consumer: "Consumer", wanted: Range) -> dict[tuple[str, int], Any]:
    """The offset that each partition starts at."""
    firsts = consumer.beginning_offsets(consumer.assignment)
    ends = consumer.end_offsets(consumer.assignment)
    if wanted.last is not None:
        return {each: max(firsts[each], ends[each] - wanted.last) for each in firsts}
    assert isinstance(wanted.start, Offset)
    offset = wanted.start.offset
    for each, end in ends.items():
        if offset > end:
            raise OffsetOutOfRange(str(each), offset, firsts[each], end)
    for each, first in firsts.items():
        if offset < first:
            _note_gone(str(each), offset, first)
    return {each: max(first, offset) for each, first in firsts.items()}


def _note_gone(partition: str, offset: int, first: int) -> None:
    gone = f"offset {offset} is" if first == offset + 1 else f"offsets {offset} to {first - 1} are"
    note(f"{partition}: {gone} deleted; starting at {first}")


# -- reading ---------------------------------------------------------------------------------------


def _print_all(
    consumer: "Consumer",
    line: Print,
    interrupts: Interrupts,
    left: int | None,
    *,
    is_bounded: bool,
    asked: "Watched",
    stores: bool = False,
) -> None:
    """``stores``: for a group, what was printed."""
    out = sys.stdout.buffer
    while left != 0 and not (is_bounded and consumer.is_at_end) and not _reader_left():
        with interrupts.welcome():
            records = _poll(consumer, left, is_bounded)
        asked.keep([str(partition) for partition in consumer.assignment])
        with asked.resting():  # the reader of a pipe may be slow
            # no signal in between: whole lines, and none twice
            out.write(b"".join(map(line, records)))
            out.flush()
        if stores:
            consumer.store_offsets(records)
        left = None if left is None else left - len(records)


def _poll(consumer: "Consumer", most: int | None, is_bounded: bool) -> "list[ConsumerRecord]":
    """The next records; none now, if something passes that is told here."""
    from raylog.actors.errors import NotLeader, RequestTimedOut

    poll = partial(consumer.poll, POLL_TIMEOUT_MS)
    try:
        return poll() if most is None else poll(max_records=min(most, 500))
    except OffsetOutOfRange as error:
        if error.offset >= error.log_start_offset:
            raise  # the log has lost its tail: nobody knows where to go on
        topic, _, number = error.partition.rpartition("-")
        _note_gone(error.partition, error.offset, error.log_start_offset)
        consumer.seek(topic, int(number), error.log_start_offset)
    except (NotLeader, RequestTimedOut) as error:
        if is_bounded:
            raise
        note(f"waiting: {error}")
    return []


def _reader_left() -> bool:
    """Whether the reader of our output has closed the pipe.

    A write would fail then, but there may be nothing to write for a long time.
    """
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0))
