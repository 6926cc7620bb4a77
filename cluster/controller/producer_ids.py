"""Producer ids: a block of them at a time, each written before one of it is handed out."""

from raylog.cluster.controller.commands import PRODUCER_ID_BLOCK
from raylog.cluster.controller.records import ProducerIdsRecord


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
