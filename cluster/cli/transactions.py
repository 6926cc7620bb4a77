"""``raylog txn``: transactions, who writes in one, which of them hang; and the end of one."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from raylog.cluster.cli.by_socket import Servers, Wanted, connection
from raylog.cluster.cli.common import (
    NAMESPACE,
    TABLE,
    Address,
    Ago,
    Format,
    Namespace,
    Output,
    Seconds,
    note,
    show,
    show_json,
)
from raylog.cluster.cli.durations import duration_ms
from raylog.cluster.cli.interrupts import told_if_interrupted

if TYPE_CHECKING:
    from raylog.cluster.client.transactions import Fenced, HangingTransaction, Transactions

app = typer.Typer(
    help="Transactions: which are open, who writes in them, which hang.", no_args_is_help=True
)


class State(StrEnum):
    """Of a transaction, as Kafka spells it."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


LISTED: Final = ("transactional id", "producer", "state")
DESCRIBED: Final = ("state", "producer", "epoch", "timeout", "age", "partitions")
PRODUCERS: Final = (
    "producer",
    "epoch",
    "last sequence",
    "last timestamp",
    "coordinator epoch",
    "start offset",
)
HANGING: Final = (
    "partition",
    "start offset",
    "producer",
    "epoch",
    "coordinator epoch",
    "last timestamp",
)

TransactionalId = Annotated[str, typer.Argument(metavar="ID", help="A transactional id.")]
Topic = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Of this topic.")]
Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, metavar="N", help="Of this partition of the topic."),
]


def _transactions(wanted: Wanted) -> "Transactions":
    from raylog.cluster.client.transactions import Transactions

    return Transactions(connection(wanted))


@app.command("list")
def list_transactions(
    context: typer.Context,
    state: Annotated[
        list[State] | None,
        typer.Option(
            metavar="STATE",
            case_sensitive=False,
            help=f"Only those in this state: {', '.join(State)}. Repeat for more.",
        ),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="Only those of this producer id. Repeat for more."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Only those open for longer than this, as 15m."),
    ] = None,
    output: Format = TABLE,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show transactional ids: their producers, and where their transactions stand."""
    age_ms = None if older_than is None else duration_ms("--older-than", older_than)
    transactions = _transactions(Wanted(context, servers, address, namespace))
    found = transactions.list(state or (), producer_id or (), age_ms)
    if output is Output.json:
        show_json({"transactions": found})
        return
    show(LISTED, found)


@app.command()
def describe(
    context: typer.Context,
    transactional_id: TransactionalId,
    output: Format = TABLE,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show a transaction: its producer, how long it has been open, which partitions are in it.

    Of one that is being ended, shows the partitions that have no marker yet.
    """
    transactions = _transactions(Wanted(context, servers, address, namespace))
    found = transactions.describe(transactional_id)
    if output is Output.json:
        show_json({"transaction": found})
        return
    age = None if found.age_ms is None else Seconds(found.age_ms / 1000)
    timeout = Seconds(found.timeout_ms / 1000)
    partitions = ",".join(map(str, found.partitions)) or None
    show(DESCRIBED, [(found.state, found.producer_id, found.epoch, timeout, age, partitions)])


@app.command()
def producers(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    output: Format = TABLE,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show the producers that a partition knows, and where their open transactions begin."""
    transactions = _transactions(Wanted(context, servers, address, namespace))
    found = transactions.producers(topic, partition)
    if output is Output.json:
        show_json({"topic": topic, "partition": partition, "producers": found})
        return
    rows = [
        (
            one.producer_id,
            one.epoch,
            _known(one.last_sequence),
            Ago(one.timestamp),
            _known(one.coordinator_epoch),
            _known(one.transaction_start),
        )
        for one in found
    ]
    show(PRODUCERS, rows)


@app.command("find-hanging")
def find_hanging(
    context: typer.Context,
    topic: Topic = None,
    partition: Partition = None,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Only those without a record for so long, by the records' times. 0: all.",
        ),
    ] = "15m",
    output: Format = TABLE,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Show open transactions that no coordinator knows of, so that nobody will end them.

    Readers of committed records stand still in front of one. `raylog txn abort` with its topic,
    partition and start offset ends it. Without --topic all partitions are looked at.
    """
    if partition is not None and topic is None:
        raise typer.BadParameter("--partition says which of a topic: give --topic, too")
    silent_ms = duration_ms("--older-than", older_than)
    transactions = _transactions(Wanted(context, servers, address, namespace))
    found = transactions.find_hanging(topic, partition, older_than_ms=silent_ms)
    if output is Output.json:
        show_json({"hanging": [_document(one) for one in found]})
        return
    show(HANGING, [_row(one) for one in found])
    if not found:
        note("no transaction hangs")


def _document(one: "HangingTransaction") -> dict[str, object]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "start_offset": one.start_offset,
        "producer_id": one.producer.producer_id,
        "epoch": one.producer.epoch,
        "coordinator_epoch": one.producer.coordinator_epoch,
        "last_timestamp": one.producer.timestamp,
    }


def _row(one: "HangingTransaction") -> tuple[object, ...]:
    return (
        str(one.partition),
        one.start_offset,
        one.producer.producer_id,
        one.producer.epoch,
        _known(one.producer.coordinator_epoch),
        Ago(one.producer.timestamp),
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number


@app.command()
def abort(
    context: typer.Context,
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="ID", help="A transactional id.")
    ] = None,
    topic: Topic = None,
    partition: Partition = None,
    start_offset: Annotated[
        int | None,
        typer.Option(min=0, metavar="OFFSET", help="Where a transaction begins that hangs there."),
    ] = None,
    servers: Servers = None,
    address: Address = None,
    namespace: Namespace = NAMESPACE,
) -> None:
    """Abort the transaction of an ID in all its partitions, and shut its producer out.

    The producer is shut out also where no transaction is open: it fails, until it takes its ID
    again. What had been decided to be committed is committed. Returns when readers of committed
    records can go on.

    With --topic, --partition and --start-offset, ends a transaction that hangs: see `raylog txn
    find-hanging`. One that a coordinator knows is refused.
    """
    place = (topic, partition, start_offset)
    wanted = Wanted(context, servers, address, namespace)
    if transactional_id is not None and place == (None, None, None):
        with told_if_interrupted(f"see `raylog txn describe {transactional_id}`"):
            typer.echo(_fenced(_transactions(wanted).fence(transactional_id)))
        return
    if transactional_id is not None or topic is None or partition is None or start_offset is None:
        raise typer.BadParameter("give an ID, or --topic, --partition and --start-offset")
    with told_if_interrupted("see `raylog txn producers`"):
        ended = _transactions(wanted).abort(topic, partition, start_offset)
    typer.echo(
        f"aborted the transaction of producer {ended.producer.producer_id} that began at offset "
        f"{start_offset} of {ended.partition}"
    )


def _fenced(fenced: "Fenced") -> str:
    name = fenced.transactional_id
    what = {
        None: f"{name} had no open transaction",
        "Abort": f"aborted the transaction of {name}",
        "Commit": f"the transaction of {name} had been decided before, and is committed",
    }[fenced.ended]
    return f"{what}; its producer is shut out"
