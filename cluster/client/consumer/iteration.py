"""The state of a loop over a consumer: what was taken out of the fetched data, and yielded of it.

::

    taken.rows      [ record, record, record, record ]
                              ^ last          ^ left goes on here

Nothing of it is handed out before the loop asks for more, so that the consumer's position is behind
the record that was yielded last. Whatever else is called puts the rest back (:meth:`set_aside`).
"""

from collections.abc import Iterator

from raylog.cluster.client.consumer.assigned import Assigned
from raylog.cluster.client.consumer.fetcher import Fetcher, Taken
from raylog.storage.records.record import ConsumerRecord


class Iteration:
    """Records of one partition, of which some were yielded."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher
        self._taken: Taken | None = None
        self._left: Iterator[ConsumerRecord] = iter(())
        self._last: ConsumerRecord | None = None

    def take(self, max_records: int, max_bytes: int) -> bool:
        """Take records out; whether there were any."""
        self._taken = self._fetcher.take_rows(max_records, max_bytes)
        return self._taken is not None

    def begin(self) -> bool:
        """Iterate over what was taken out, if anything was."""
        if self._taken is not None:
            self._left = iter(self._taken.rows)
        return self._taken is not None

    def rest(self) -> Iterator[ConsumerRecord]:
        """What was not yielded yet; another call goes on where this one was left."""
        for record in self._left:
            self._last = record
            yield record

    @property
    def is_untouched(self) -> bool:
        """Whether something was taken out of which nothing was yielded: a wait was cancelled."""
        return self._taken is not None and self._last is None

    @property
    def has_records(self) -> bool:
        return self._taken is not None and bool(self._taken.rows)

    def position(self, each: Assigned) -> int | None:
        """Behind the record of the partition that was yielded last; None if there is none."""
        if self._taken is None or self._taken.each is not each or self._last is None:
            return None
        return self._last.offset + 1

    def hand_out(self) -> list[ConsumerRecord]:
        """All of what was taken out is the user's now."""
        if self._taken is None:
            return []
        taken = self._taken
        self._fetcher.hand_out(taken)
        self._taken = self._last = None
        return taken.rows

    def set_aside(self) -> None:
        """What was taken out and not yielded is fetched data again."""
        taken = self._taken
        if taken is None:
            return
        taken.rows.clear()  # ends the loop over them
        if self._last is not None:
            self._fetcher.hand_out_up_to(taken, self._last.offset + 1)
        else:
            self._fetcher.hand_out_up_to(taken, taken.each.position or 0)
        self._taken = self._last = None
