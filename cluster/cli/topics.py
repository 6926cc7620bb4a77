"""``raylog topic ...``: create, list, describe, extend, trim, adopt and delete topics.

A command for several topics tells of each what has become of it. If one fails, the others are done,
and the exit status is 1.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from raylog.cluster.cli.by_socket import Holds, Servers, Wanted, bootstrap, topic_names
from raylog.cluster.cli.by_socket import topics as topics_by_socket
from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Address,
    Bytes,
    Format,
    Namespace,
    Output,
    Partitions,
    ValidateOnly,
    admin_of,
    connected,
    names_of,
    note,
    pairs,
    plain,
    show,
    show_json,
)
from raylog.cluster.cli.interrupts import told_if_interrupted
from raylog.cluster.cli.metadata import ConfigFile, LogDirs, RayToAsk, metadata_work
from raylog.cluster.cli.places import Offset, Place, place_of
from raylog.cluster.cli.waiting import told_while_waiting, topic_waits_for
from raylog.storage.errors import RaylogError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from raylog.actors.messages import PartitionStatus
    from raylog.cluster.broker import Broker
    from raylog.cluster.client.bootstrap import Bootstrap
    from raylog.cluster.controller.describe import PartitionDescription, TopicDescription

app = typer.Typer(
    help="Create, list, describe, extend, trim, adopt and delete topics.", no_args_is_help=True
)
Name = Annotated[str, typer.Argument(metavar="TOPIC")]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC...")]
Answer = TypeVar("Answer")
# How long a partition may take that is asked what it holds.
STATUS_TIMEOUT_S = 5.0


@app.command()
def create(
    topics: Names,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            help="Number of partitions. Default: the broker's num.partitions.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="A topic key of Kafka, for example retention.ms=3600000. Repeat for more keys.",
        ),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="A topic that exists is no error.")
    ] = False,
    validate_only: ValidateOnly = False,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Create topics. Their partitions serve when the command returns.

    The most used keys: retention.ms and retention.bytes (for how long and how much is kept; -1:
    forever, no limit), segment.bytes and segment.ms (when a new segment begins; retention deletes
    whole segments), flush.messages (1: acknowledged means fsynced), max.message.bytes,
    message.timestamp.type. docs/CONFIG.md lists all keys and their defaults. If a key is not set
    here, the broker's value applies.
    """
    from raylog.actors.errors import TopicExists
    from raylog.actors.runtime.calls import WORK_TIMEOUT_S
    from raylog.cluster.admin import NewTopic

    settings = pairs(config or [])
    broker = connected(address, namespace)
    admin = admin_of(broker)
    futures = admin.create_topics(
        [NewTopic(topic, partitions, settings) for topic in dict.fromkeys(topics)],
        validate_only=validate_only,
        timeout_s=WORK_TIMEOUT_S,
    )
    what = "topics may be created all the same; see `raylog topic list`"
    told = Told(what, lambda topic: topic_waits_for(broker, topic))
    for topic, future in futures.items():
        error = told.wait(topic, future)
        # not one with another name that is too similar
        is_there = isinstance(error, TopicExists) and error.existing == topic
        if if_not_exists and is_there:
            described = told.of(topic, admin.describe_topics([topic])[topic])
            if described is not None:
                typer.echo(f"{topic} exists, with {_count(described)}")
            continue
        described = told.of(topic, future)
        if described is not None:
            typer.echo(
                f"{topic} can be created"
                if validate_only
                else f"created {topic} with {_count(described)}"
            )
    told.end()


def _count(described: "TopicDescription") -> str:
    return _in_words(len(described.partitions))


def _in_words(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


@app.command("list")
def list_topics(
    context: typer.Context,
    names: Annotated[
        bool, typer.Option("--names", help="Print the names only, and ask no partition.")
    ] = False,
    output: Format = TABLE,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """List the topics, with their partitions, records and sizes.

    The records are counted by their offsets; compaction leaves gaps in them. Where a partition does
    not answer, they are not known: `-`.
    """
    asked = Wanted(context, servers, address, namespace)
    topics = _listed_by_socket(bootstrap(asked), is_short=names)
    if topics is None:
        topics = _listed_by_ray(connected(address, namespace), is_short=names)
    if output is Output.json:
        show_json({"topics": topics})
        return
    if names:
        for topic in topics:
            typer.echo(topic["name"])
    else:
        show(("topic", "partitions", "records", "bytes"), [tuple(t.values()) for t in topics])
    if not topics and sys.stdout.isatty():
        note("no topics yet: raylog topic create TOPIC")


def _listed_by_socket(there: "Bootstrap | None", *, is_short: bool) -> list[dict[str, Any]] | None:
    """``is_short``: only their names. None where Ray is to be asked."""
    if there is None:
        return None
    if is_short:
        return [{"name": name} for name in topic_names(there)]
    found = topics_by_socket(there)
    return None if found is None else [_counted(name, holds) for name, holds in found]


def _listed_by_ray(broker: "Broker", *, is_short: bool) -> list[dict[str, Any]]:
    """``is_short``: only their names."""
    if is_short:
        return [{"name": name} for name in broker.list_topics()]
    described = _answers(admin_of(broker).describe_topics(broker.list_topics()))
    by_name = _statuses(broker, described.values())
    return [
        _counted(name, [_holds(by_name, name, each.partition) for each in topic.partitions])
        for name, topic in sorted(described.items())
    ]


def _holds(by_name: "Mapping[str, PartitionStatus]", topic: str, number: int) -> Holds | None:
    status = by_name.get(f"{topic}-{number}")
    if status is None:
        return None
    offsets = status.offsets
    return Holds(offsets.high_watermark - offsets.log_start_offset, status.size_bytes)


def _counted(name: str, partitions: Sequence[Holds | None]) -> dict[str, Any]:
    """A topic with what its partitions hold; notes how many of them do not answer."""
    known = [holds for holds in partitions if holds is not None]
    missing = len(partitions) - len(known)
    if missing:
        note(
            f"{name}: {missing} of {_in_words(len(partitions))} do not answer; see `raylog health`"
        )
    return {
        "name": name,
        "partitions": len(partitions),
        "records": None if missing else sum(holds.records for holds in known),
        "size_bytes": None if missing else Bytes(sum(holds.size_bytes for holds in known)),
    }


def _statuses(
    broker: "Broker", topics: "Iterable[TopicDescription]"
) -> "dict[str, PartitionStatus]":
    """What the partitions that answer say of themselves, by their names."""
    from raylog.actors.runtime.stubs import LogActorStub
    from raylog.storage.names import TopicPartition

    connection = broker.connection()
    partitions = [
        TopicPartition(topic.name, place.partition)
        for topic in topics
        for place in topic.partitions
    ]
    futures = [
        connection.ask_partition(each, STATUS_TIMEOUT_S, LogActorStub.status) for each in partitions
    ]
    statuses = [future.result() for future in futures if future.exception() is None]
    return {status.partition: status for status in statuses}


def _answers(futures: "Mapping[str, Future[Answer]]") -> dict[str, Answer]:
    """Of those topics that are still there."""
    from raylog.actors.errors import UnknownTopicOrPartition

    answers = {}
    for topic, future in futures.items():
        try:
            answers[topic] = future.result()
        except UnknownTopicOrPartition:  # deleted meanwhile
            continue
    return answers


@app.command()
def describe(
    topics: Names,
    output: Format = TABLE,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show the config of topics, where their partitions are, and what they hold."""
    broker = connected(address, namespace)
    told = Told()
    futures = admin_of(broker).describe_topics(dict.fromkeys(topics))
    topics_found = [topic for name, future in futures.items() if (topic := told.of(name, future))]
    by_name = _statuses(broker, topics_found)
    found = [_with_silent(topic, by_name) for topic in topics_found]
    if output is Output.json:
        show_json({"topics": [_document(topic, by_name) for topic in found]})
        told.end()
    names = names_of(broker.describe_nodes())
    for number, topic in enumerate(found):
        if number:
            typer.echo()
        overrides = " ".join(f"{key}={value}" for key, value in topic.config.items())
        typer.echo(f"topic {topic.name}  id {topic.topic_id}  {overrides}".rstrip())
        rows = [
            _row(place, by_name.get(f"{topic.name}-{place.partition}"), names)
            for place in topic.partitions
        ]
        show(("partition", "node", "log start", "log end", "bytes", "folder", "problem"), rows)
    told.end()


def _with_silent(
    topic: "TopicDescription", by_name: "Mapping[str, PartitionStatus]"
) -> "TopicDescription":
    """The topic, where each partition that does not answer has that as its problem."""
    places = [
        place._replace(problem="does not answer", todo="`raylog health` says what to do")
        if place.problem is None and f"{topic.name}-{place.partition}" not in by_name
        else place
        for place in topic.partitions
    ]
    return topic._replace(partitions=tuple(places))


def _document(
    topic: "TopicDescription", by_name: "Mapping[str, PartitionStatus]"
) -> dict[str, Any]:
    document: dict[str, Any] = plain(topic)
    for place in document["partitions"]:
        status = by_name.get(f"{topic.name}-{place['partition']}")
        place["offsets"] = None if status is None else status.offsets
        place["size_bytes"] = None if status is None else status.size_bytes
    return document


def _row(
    place: "PartitionDescription", status: "PartitionStatus | None", names: Mapping[str, str]
) -> tuple[object, ...]:
    node_id = place.node_id or "-"
    return (
        place.partition,
        names.get(node_id, node_id[:8]),
        None if status is None else status.offsets.log_start_offset,
        None if status is None else status.offsets.log_end_offset,
        None if status is None else Bytes(status.size_bytes),
        place.folder or "-",
        "; ".join(filter(None, (place.problem, place.todo))),
    )


@app.command()
def add_partitions(
    topic: Name,
    total: Annotated[
        int,
        typer.Argument(
            metavar="TOTAL", help="Total number of partitions, including the existing ones."
        ),
    ],
    validate_only: ValidateOnly = False,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Add partitions to a topic while it serves.

    Existing records stay in their partitions. New records of a key may go to another partition than
    before.
    """
    from raylog.actors.runtime.calls import WORK_TIMEOUT_S

    broker = connected(address, namespace)
    extending = admin_of(broker).add_partitions(
        {topic: total}, validate_only=validate_only, timeout_s=WORK_TIMEOUT_S
    )
    with (
        told_if_interrupted("partitions may be added all the same; see `raylog topic describe`"),
        told_while_waiting(lambda: topic_waits_for(broker, topic)),
    ):
        extended = extending[topic].result()
    typer.echo(
        f"{topic} can have {total} partitions"
        if validate_only
        else f"{topic} has {_count(extended)}"
    )


@app.command()
def trim(
    topics: Names,
    before: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="Delete the records before: an offset, a time (2026-11-22T08:30Z; UTC without a "
            "zone), a time ago (-1h; ms, s, m, d, w), or @MS: ms since the epoch. latest: delete "
            "all.",
        ),
    ],
    partition: Partitions = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Delete the oldest records of topics.

    They cannot be read any more when the command returns. The next round of retention deletes their
    segments. With a time, a partition keeps everything from its first record at or after that time
    on. The new beginning is on the disk when the command returns: no crash brings the records back.
    """
    place = place_of("--before", before)
    broker = connected(address, namespace)
    told = Told("records may be deleted all the same; see `raylog topic describe`")
    described = admin_of(broker).describe_topics(dict.fromkeys(topics))
    found = [topic for name, future in described.items() if (topic := told.of(name, future))]
    chosen = _chosen(found, partition, told)
    deleting = admin_of(broker).delete_records(_offsets(broker, chosen, place))
    for key, future in deleting.items():
        start = told.of(str(key), future)
        if start is not None:
            typer.echo(f"{key} begins at offset {start}")
    told.end()


def _chosen(
    topics: "Iterable[TopicDescription]", numbers: list[int] | None, told: "Told"
) -> list[tuple[str, int]]:
    """The partitions of these numbers, or all; of those that do not exist an error is told."""
    from raylog.actors.errors import UnknownTopicOrPartition

    chosen: list[tuple[str, int]] = []
    for topic in topics:
        count = len(topic.partitions)
        for number in range(count) if numbers is None else sorted(set(numbers)):
            if number < count:
                chosen.append((topic.name, number))
            else:
                why = f"the topic has {_count(topic)}"
                told.error(topic.name, UnknownTopicOrPartition(topic.name, number, why))
    return chosen


def _offsets(
    broker: "Broker", partitions: list[tuple[str, int]], place: Place
) -> dict[tuple[str, int], int]:
    """Before which offset each partition is trimmed."""
    if isinstance(place, Offset):
        return dict.fromkeys(partitions, place.offset)
    with broker.consumer() as consumer:
        if place == "earliest":
            return dict(
                zip(partitions, consumer.beginning_offsets(partitions).values(), strict=True)
            )
        # The ends first: what comes in after them may be newer than the time, and stays.
        ends = dict(zip(partitions, consumer.end_offsets(partitions).values(), strict=True))
        if isinstance(place, str):
            return ends
        found = consumer.offsets_for_times(dict.fromkeys(partitions, place)).values()
    return {
        key: end if offset is None else min(end, offset)
        for (key, end), offset in zip(ends.items(), found, strict=True)
    }


@app.command()
def adopt(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER...",
            help="Folders that were set aside, `raylog health` lists them, on whichever node they "
            "are. A relative path counts from the folder that you are in; of another machine, give "
            "the whole path.",
        ),
    ],
    make_missing: Annotated[
        bool,
        typer.Option(
            "--make-missing",
            help="Lower partitions of the topic whose folder is in no log dir begin empty; without "
            "it they are named, and nothing is done.",
        ),
    ] = False,
    log_dir: LogDirs = None,
    config: ConfigFile = None,
    address: RayToAsk = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Take folders in again that were set aside as -stray. The broker must be stopped.

    A topic that is not known any more is there again, under the id that its folders have: give all
    of them at once. Its own config is lost: nothing is removed from it (cleanup.policy=delete,
    retention.ms=-1, retention.bytes=-1) until you set it again. Refused where the partition has a
    folder, or another topic has the name.
    """
    paths = [os.path.abspath(folder) for folder in folders]
    work = metadata_work(log_dir, config, address, namespace)
    what = (
        "folders may have their names back already; start the broker: what is a partition is taken "
        "in, and the rest is set aside again (`raylog health`)"
    )
    with told_if_interrupted(what):
        taken_in = work.adopt(paths, make_missing=make_missing)
    for partition in taken_in.made:
        note(f"{partition} begins empty: its folder was not found")
    for partition in taken_in.partitions:
        typer.echo(f"{partition} is a partition again; it serves when the broker runs")


@app.command()
def delete(topics: Names, address: Address = None, namespace: Namespace = NAMESPACE) -> None:
    """Delete topics and their records."""
    from raylog.actors.runtime.calls import OPEN_TIMEOUT_S

    admin = admin_of(connected(address, namespace))
    what = "topics may be deleted all the same; see `raylog topic list`"
    told = Told(what, lambda topic: f"the folders of {topic} to be removed")
    for topic, future in admin.delete_topics(
        dict.fromkeys(topics), timeout_s=OPEN_TIMEOUT_S
    ).items():
        if told.well(topic, future):
            typer.echo(f"deleted {topic}")
    told.end()


class Told:
    """The answers for several topics: errors are told as they come, each with one line."""

    def __init__(
        self,
        if_interrupted: str = "nothing was changed",
        waits_for: Callable[[str], str] = lambda _: "",
    ) -> None:
        """``if_interrupted``: what is said of the requests then. ``waits_for``: of a topic."""
        self._has_errors, self._if_interrupted = False, if_interrupted
        self._waits_for = waits_for

    def wait(self, subject: str, future: "Future[Any]") -> BaseException | None:
        """Wait for an answer; its error. Ctrl-C and SIGTERM end the command."""
        with (
            told_if_interrupted(self._if_interrupted),
            told_while_waiting(lambda: self._waits_for(subject)),
        ):
            return future.exception()

    def well(self, subject: str, future: "Future[Any]") -> bool:
        """Wait for an answer; whether it is no error."""
        self.wait(subject, future)
        try:
            future.result()
        except RaylogError as error:
            self.error(subject, error)
            return False
        return True

    def error(self, subject: str, error: RaylogError) -> None:
        self._has_errors = True
        words = " ".join(str(error).split())
        is_named = re.search(rf"(?<![\w.-]){re.escape(subject)}(?![\w.]|-\D)", words)
        note(f"error: {words}" if is_named else f"error: {subject}: {words}")

    def of(self, subject: str, future: "Future[Answer]") -> Answer | None:
        """An answer; None after an error."""
        return future.result() if self.well(subject, future) else None

    def end(self) -> None:
        """End the command."""
        raise typer.Exit(int(self._has_errors))
