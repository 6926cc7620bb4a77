"""Reading one range in a worker: connect once, decode from the segments, say what was lost.

A task can run twice, or twice at once, and gives the same rows each time: a range names its
offsets, and records never change. A worker keeps its connection to Ray for its life (the first
costs about 50 ms).
"""

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import pyarrow as pa

from raylog.actors.errors import UnknownTopicOrPartition
from raylog.actors.runtime.names import NAMESPACE
from raylog.cluster.spark.columns import bounded, to_spark
from raylog.cluster.spark.errors import InvalidSparkOption
from raylog.cluster.spark.options import Options
from raylog.cluster.spark.plan import Lost, Range
from raylog.storage.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from raylog.cluster.broker import Broker
    from raylog.cluster.spark.sink_options import SinkOptions

logger = logging.getLogger("raylog.spark")
ReadRange = Callable[[str, int, int, int], Iterable[pa.RecordBatch]]


def broker_of(options: "Options | SinkOptions") -> "Broker":
    """The broker that the options name. Raises InvalidSparkOption without an address."""
    if options.address is None:
        why = (
            "the broker's address is unknown; call raylog.spark.session(broker) or register(spark, "
            "broker), or set the option"
        )
        raise InvalidSparkOption("address", "", why)
    return connected(options.address, options.namespace or NAMESPACE)


@cache
def connected(address: str, namespace: str) -> "Broker":
    """One connection a process."""
    import ray

    from raylog.cluster.start import connect

    if not ray.is_initialized():
        on_term = signal.getsignal(signal.SIGTERM)
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )
        # Spark ends its Python workers with SIGTERM; Ray's handler would print a stack trace.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, on_term)
    return connect(address, namespace=namespace)


def read(options: Options, wanted: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The records of a range as Spark's columns."""
    from raylog.cluster.client.consumer.ranges import read_range

    connection, most = broker_of(options).client_connection(), options.max_bytes_per_batch
    fetch = partial(read_range, connection, isolation=options.isolation, max_bytes=most)

    for records in read_what_is_left(fetch, wanted, options.fail_on_data_loss):
        yield from bounded(to_spark(records, wanted.topic, wanted.partition, columns), most)


def read_what_is_left(
    fetch: ReadRange, wanted: Range, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The records of a range; what retention deleted since it was planned is a loss."""
    at = wanted.start
    while at < wanted.end:
        try:
            for records in fetch(wanted.topic, wanted.partition, at, wanted.end):
                if records.num_rows:
                    yield records
                    at = records.column("offset")[-1].as_py() + 1
            return
        except OffsetOutOfRange as gone:
            log_start = gone.log_start_offset
            why = f"the log now holds [{log_start}, {gone.log_end_offset})"
            is_end_gone = log_start <= at
            end = wanted.end if is_end_gone else min(log_start, wanted.end)
            report([_lost(wanted, at, end, why)], fail_on_data_loss)
            if is_end_gone:
                return
            at = log_start
        except UnknownTopicOrPartition:
            why = "the partition does not exist any more"
            report([_lost(wanted, at, wanted.end, why)], fail_on_data_loss)
            return


def _lost(wanted: Range, start: int, end: int, why: str) -> Lost:
    return Lost(partition=(wanted.topic, wanted.partition), start=start, end=end, why=why)


def report(lost: Sequence[Lost], fail_on_data_loss: bool) -> None:
    """Raise DataLoss for the first loss, or log them all and go on."""
    if lost and fail_on_data_loss:
        raise lost[0].error()
    for each in lost:
        topic, partition = each.partition
        logger.warning("%s-%d: offsets [%d, %d) are skipped: %s", topic, partition, *each[1:])


def report_undecided(ranges: Iterable[Range]) -> None:
    """Log what a read of committed records waits for."""
    for topic, partition, start, end in ranges:
        logger.warning(
            "%s-%d: offsets [%d, %d) are not decided; the read waits for the transaction that is "
            "open there, and fails if it has not ended in time (`raylog txn list` shows it)",
            topic,
            partition,
            start,
            end,
        )
