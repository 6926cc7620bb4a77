"""The first batch of a transaction in a partition: its coordinator is asked, then it is written."""

from collections.abc import Iterator
from contextlib import contextmanager

from raylog.actors.coordinators.codes import NONE
from raylog.actors.partition.partition import Partition
from raylog.actors.plane.transactions.verifying import Verifier, Writer
from raylog.storage.names import TopicPartition


@contextmanager
def beginning(
    partition: Partition, name: TopicPartition, verifier: Verifier, writer: Writer
) -> Iterator[int]:
    """Within it batches of the transaction may be written, if the code that it gives is 0.

    What was asked before a marker of the producer came does not count any more, as
    ``partition/verifications.py`` says.
    """
    verification = partition.verifications.begin(writer.producer_id, writer.epoch)
    try:
        code = verifier.ask(writer, name)
        if code == NONE:
            verification.grant()
        yield code
    finally:
        partition.verifications.end(verification)
