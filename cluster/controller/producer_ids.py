"""Producer ids: a block of them at a time, each written before one of it is handed out."""

from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.records import ProducerIdsRecord

# Each append hands out so many producer ids.
PRODUCER_ID_BLOCK = 1000


class ProducerIds:
    """The block that is being handed out. It ends with the Controller's epoch."""

    def __init__(self) -> None:
        self._block = range(0)
        self._epoch = 0

    def written(self, record: ProducerIdsRecord) -> None:
        """The ids of this record's block may be handed out."""
        assert record.next_id >= self._block.stop, "ids were given back"
        self._block = range(record.next_id - PRODUCER_ID_BLOCK, record.next_id)
        self._epoch = record.epoch

    def take(self, epoch: int) -> int | None:
        """The next id; None where another block is needed first."""
        if epoch != self._epoch or not self._block:
            return None
        first = self._block.start
        self._block = self._block[1:]
        return first


def next_producer_ids(desired: Desired) -> ProducerIdsRecord:
    """The record that allows the next block of producer ids.

    They begin anew with each Controller's epoch: what is rolled back with the metadata's log dir
    was handed out in a lower one.
    """
    next_id = desired.first_producer_id() + PRODUCER_ID_BLOCK
    return ProducerIdsRecord(epoch=desired.controller_epoch, next_id=next_id)
