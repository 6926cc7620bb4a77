"""Whether a Controller is in charge: the epoch that it shall have, and who has obeyed another one.

::

    started --every node has said what it has seen--> its epoch is written --> in charge
       |                                                                          |
       +---- a node has obeyed a Controller that the metadata does not know ------+
                    |                                    |
                    | nobody has accepted that           | somebody has
                    v                                    v
              ``doubt``: it decides nothing        it begins a new era (``metadata_history.py``)
"""

from raylog.actors.control import Report
from raylog.actors.errors import OlderMetadata
from raylog.actors.metadata_history import next_era
from raylog.cluster.controller.events import Refused, Started
from raylog.cluster.controller.observed import Watched
from raylog.cluster.controller.records import ControllerRecord
from raylog.cluster.controller.spread import short_key
from raylog.cluster.controller.telling import Telling


class Charge:
    """``watched``, ``telling``: the nodes, and what they were told; only looked at."""

    def __init__(self, watched: Watched, telling: Telling) -> None:
        self.node = ""  # where this Controller runs; empty until it has started
        self.epoch = 0  # which it shall have
        self.is_taken = False  # whether the metadata's epoch is its own
        self.doubt: OlderMetadata | None = None  # why it decides nothing, in this life
        self.refusing: set[str] = set()  # nodes whose LogManager cannot be started
        self._watched, self._telling = watched, telling
        self._written = 0  # the metadata's epoch
        self.folder, self._directory = "", ""  # of the metadata, and the id of its log dir
        self._accepts_older = False

    def start(self, event: Started) -> None:
        assert not self.node, "it started twice"
        self.node, self.folder, self._directory = event.node, event.folder, event.directory_id
        self._accepts_older = event.accepts_older
        self._written = event.desired.controller_epoch
        self.outrank(max(self._written, event.least_epoch))
        if self._accepts_older and event.least_epoch > self._written:
            self._give_up(event.least_epoch)

    def record(self) -> ControllerRecord:
        """The record that makes it be in charge."""
        return ControllerRecord(epoch=self.epoch, node=self.node, directory=self._directory)

    def take(self, epoch: int) -> None:
        """Its epoch is in the metadata."""
        self.is_taken, self._written = True, epoch

    @property
    def is_outranked(self) -> bool:
        """Whether the epoch that it has is not yet, or not any more, the highest one."""
        return self.epoch > self._written

    # -- what nodes have seen ----------------------------------------------------------------------

    def refuses(self, node: str) -> None:
        """A node's LogManager cannot be started, so it does not say what it has seen."""
        self.refusing.add(node)

    def forget(self, node: str) -> None:
        """A node has come, has left or reports, or is wanted again."""
        self.refusing.discard(node)

    def has_heard_all(self, now_ms: int) -> bool:
        """Whether every node has said which epoch it has seen, or cannot say it.

        That is one that cannot use its log dirs, is stopped, or is silent for a while.
        """
        nodes = self._watched.nodes
        return bool(nodes) and all(
            seen.report is not None
            or seen.is_ended
            or key in self.refusing
            or seen.is_suspect(now_ms)
            for key, seen in nodes.items()
        )

    def hear_refusal(self, event: Refused) -> None:
        """A node has seen a higher epoch than that of some orders.

        Orders of a lower epoch that come late are refused, too. Where the node has the epoch from
        here that says nothing: a higher one would make the orders of this one late in turn.
        """
        is_known = event.controller_epoch <= self._written
        if self.is_taken and event.controller_epoch == self._written:
            seen = self._watched.nodes.get(event.node)
            is_known = self._telling.has_told(event.node, None if seen is None else seen.report)
        if not is_known:
            self._hear_of_another(f"node {short_key(event.node)}", event.controller_epoch)

    def hear_report(self, report: Report) -> None:
        """A node says which epoch it has obeyed."""
        if self._is_of_another(report):
            paths = ", ".join(entry.path for entry in report.dirs)
            self._hear_of_another(
                f"node {short_key(report.node)} ({paths})", report.controller_epoch
            )

    def hear_record(self, node: str, epoch: int) -> None:
        """A node's copy of the metadata has a record of a Controller of this epoch; 0: none has."""
        if epoch > self.epoch:
            self._hear_of_another(f"the copy of the metadata on node {short_key(node)}", epoch)

    def _is_of_another(self, report: Report) -> bool:
        """Whether the node has obeyed a Controller of a higher epoch, or of just the same one.

        There were two of one epoch if the metadata was rolled back between them.
        """
        if not self.node:
            return False
        if not self.is_taken or report.controller_epoch != self._written:
            return report.controller_epoch > self._written
        if not self._telling.has_told(report.node, report):
            return True
        is_past = report.life in self._watched.past_lives(report.node)
        return not is_past and not self._telling.may_have_sent(report)

    def _hear_of_another(self, who: str, epoch: int) -> None:
        """A node has obeyed a Controller that the metadata does not know."""
        if self._accepts_older:
            self._give_up(epoch)
        elif self.doubt is None:
            found = f"{self.folder} of node {short_key(self.node)}"
            self.doubt = OlderMetadata(found, self._written, f"epoch {epoch} is known to {who}")

    def _give_up(self, epoch: int) -> None:
        """A person goes on without a Controller that had this epoch: begin a new era.

        That one may have gone on alone. What it has comes back as older metadata.
        """
        self.outrank(next_era(epoch) - 1)

    def outrank(self, epoch: int) -> None:
        """Somebody had this epoch: have a higher one."""
        if epoch >= self.epoch:
            self.epoch = epoch + 1
