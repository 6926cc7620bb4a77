"""What was asked of the Controller and is not answered yet. Pure.

::

    ask --> next --> records are appended --> appended --> waits for what nodes report --> Answer
                                                                 |
                                  records that undo it <--next---+ it failed

A command is judged by the state of the moment it is appended (``commands.py``), and then waits for
what follows from it (``waiting.py``). Where nothing is to be changed or waited for, it is answered
at once. Where nothing can be changed any more, everybody is told so.
"""

from collections import deque
from collections.abc import Callable
from copy import copy
from typing import NamedTuple, TypeVar

from raylog.actors.errors import InvalidRequest, NoLogDirs, NotController
from raylog.actors.levels import Levels
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.begun import Begun, partition_named, undone
from raylog.cluster.controller.charge import Charge
from raylog.cluster.controller.commands import (
    AllocateProducerId,
    AlterTopic,
    ApplyConfig,
    CancelMove,
    Command,
    DeleteUser,
    FinalizeUpgrade,
    LogDirOnline,
    LogDirOut,
    PutUser,
)
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.events import Asked
from raylog.cluster.controller.instructions import Answer, Applied
from raylog.cluster.controller.journal import GROWING, InFlight, Journal, Purpose
from raylog.cluster.controller.judging import Judging
from raylog.cluster.controller.observed import Watched
from raylog.cluster.controller.producer_ids import ProducerIds
from raylog.cluster.controller.records import DirRecord, Record, TopicRecord
from raylog.cluster.controller.rolling import Digests
from raylog.cluster.controller.waiting import (
    Altering,
    Applying,
    Creating,
    Ended,
    Leaving,
    View,
    Waiting,
)
from raylog.storage.errors import DiskFull, RaylogError

AnyCommand = TypeVar("AnyCommand")
Judged = TypeVar("Judged")


class Wanted(NamedTuple):
    """Records that somebody's command needs, to be appended now."""

    records: tuple[Record, ...]
    purpose: Purpose


def _named(command: AnyCommand, judge: Callable[[AnyCommand], Judged]) -> Judged:
    """What becomes of a command, by a function that changes nothing.

    Raises InvalidRequest where an argument is of another type than a program may give: that is the
    command's end, and not the Controller's.
    """
    try:
        return judge(command)
    except (TypeError, ValueError, AttributeError) as error:
        why = f"has an argument of a wrong type: {error}"
        raise InvalidRequest("the request", type(command).__name__, why) from error


class Pending:
    """``config``: the broker's, of now; ``digests``: of it; ``start``: the id of its start.
    ``say``: gives an answer. ``levels``: those that this raylog knows. ``metadata_dir``: as of
    ``Judging``.

    The others are the machine's, and only looked at.
    """

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        *,
        digests: Callable[[], Digests],
        start: str,
        journal: Journal,
        charge: Charge,
        watched: Watched,
        say: Callable[[Answer], None],
        levels: Levels,
        metadata_dir: Callable[[], str],
    ) -> None:
        self.ids = ProducerIds()
        self._desired = Desired()
        self._config, self._start, self._say = config, start, say
        self._digests = digests
        self._levels, self._metadata_dir = levels, metadata_dir
        self._journal, self._charge, self._watched = journal, charge, watched
        self._commands: deque[Asked] = deque()
        self._undo: deque[tuple[Purpose, Creating]] = deque()
        self._waiting: dict[int, Waiting] = {}

    def start(self, desired: Desired) -> None:
        """``desired``: what shall be; the machine keeps it up to date."""
        self._desired = desired

    def ask(self, asked: Asked) -> None:
        """A command comes; its turn is the last."""
        self._commands.append(asked)

    # -- going on ----------------------------------------------------------------------------------

    def next(self, now_ms: int, *, may_begin: bool) -> Wanted | None:
        """What the next command needs that changes something; None where nothing is appended now.

        ``may_begin``: whether commands may begin; what was begun is undone in any case.
        """
        while self._journal.is_free:
            wanted = None
            if self._undo:
                wanted = self._undoing(*self._undo.popleft())
            elif self._commands and may_begin:
                asked = self._commands.popleft()
                try:
                    wanted = self._begin(asked.request, asked.command, now_ms)
                except RaylogError as error:
                    self._say(Answer(request=asked.request, error=error))
            else:
                return None
            if wanted is not None:
                return wanted
        return None

    def appended(self, done: InFlight, now_ms: int) -> None:
        """Its records count: answer who has asked for them, or wait for what the nodes report."""
        if done.purpose is None:
            return
        request, command = done.purpose.request, done.purpose.command
        is_doubtful = self._charge.is_outranked or self._charge.doubt
        if command is None:
            self._say(Answer(request=request, error=done.purpose.error))
        elif isinstance(command, AllocateProducerId) and is_doubtful:
            # Its epoch may have been another Controller's: no id of it is handed out.
            self._commands.appendleft(Asked(request=request, command=command))
        else:
            self._begun(done.purpose, command, done.records, now_ms)

    def look(self, now_ms: int) -> None:
        """Answer those whose wait is over."""
        view = View(
            desired=self._desired,
            observed=self._watched.nodes,
            now_ms=now_ms,
            digests=self._digests(),
            stuck=self._journal.stuck,
            refused=self._charge.refusing,
            controller=self._charge.node,
            config=self._config(),
            absent_ms=lambda node: self._watched.absent_ms(node, now_ms),
        )
        for request, waiting in list(self._waiting.items()):
            ended = waiting.look(view)
            if ended is None:
                continue
            del self._waiting[request]
            if ended.is_undone and isinstance(waiting, Creating):
                self._undo.append((Purpose(request=request, error=ended.error), waiting))
            else:
                self._answer(request, ended)

    def _answer(self, request: int, ended: Ended) -> None:
        self._say(Answer(request=request, value=ended.value, error=ended.error))

    # -- nothing can be changed --------------------------------------------------------------------

    def refuse_commands(self, error: RaylogError) -> None:
        """Commands that were not begun are not begun any more, or not now."""
        while self._commands:
            # Itself, it would keep the frames of everybody who has raised it.
            self._say(Answer(request=self._commands.popleft().request, error=copy(error)))

    def fail(self, failure: RaylogError) -> None:
        """Nothing can be changed any more: tell everybody who waits for it."""
        requests = [asked.request for asked in self._commands]
        requests += [purpose.request for purpose, _ in self._undo]
        requests += self._journal.give_up()
        for request, waiting in list(self._waiting.items()):
            needs_no_record = isinstance(waiting, Altering | Applying)
            if self._charge.doubt is not None or not needs_no_record:
                del self._waiting[request]
                requests.append(request)
        self._commands.clear()
        self._undo.clear()
        for request in requests:
            self._say(Answer(request=request, error=copy(failure)))

    # -- a command's turn --------------------------------------------------------------------------

    def _begin(self, request: int, command: Command, now_ms: int) -> Wanted | None:
        """What it needs; None where it is answered, or waits for what the nodes report."""
        if isinstance(command, AllocateProducerId) and self._has_answered_id(request):
            return None
        if isinstance(command, ApplyConfig):
            return self._begin_config(request, command, now_ms)
        records = self._records(command, now_ms)
        if getattr(command, "validate_only", False):
            topics = [record for record in records if isinstance(record, TopicRecord)]
            known = self._desired.topic_named(getattr(command, "name", ""))
            self._say(Answer(request=request, value=topics[0] if topics else known))
        elif records:
            if isinstance(command, AlterTopic):
                self._check_epoch_is_kept()
            return Wanted(records, Purpose(request=request, command=command))
        else:
            self._begun(Purpose(request=request, command=command), command, (), now_ms)
            self.look(now_ms)  # nothing else may happen for a while
        return None

    def _begin_config(self, request: int, command: ApplyConfig, now_ms: int) -> Wanted | None:
        """As ``_begin``."""
        changes = _named(command, self._judged(now_ms).changes)
        if command.validate_only:
            applied = Applied(version=self._desired.broker_version, changes=changes)
            self._say(Answer(request=request, value=applied))
            return None
        purpose = Purpose(request=request, command=command, changes=changes)
        records = self._records(command, now_ms)
        if records:
            self._check_epoch_is_kept()
            return Wanted(records, purpose)
        self._begun(purpose, command, (), now_ms)
        self.look(now_ms)  # nothing else may happen for a while
        return None

    def _records(self, command: Command, now_ms: int) -> tuple[Record, ...]:
        """What the command changes. Raises DiskFull for what grows while there is no reserve."""
        commands = self._judged(now_ms)
        shortage = self._journal.reserve.problem
        if not (isinstance(command, GROWING) and isinstance(shortage, DiskFull)):
            return _named(command, commands.records)
        try:
            records = _named(command, commands.records)
        except NoLogDirs:  # since all are full
            raise copy(shortage) from None
        if records:
            raise copy(shortage)
        return records

    def _judged(self, now_ms: int) -> Judging:
        return Judging(
            self._desired,
            self._watched.nodes,
            now_ms,
            self._config(),
            self._start,
            self._levels,
            metadata_dir=self._metadata_dir(),
        )

    def _has_answered_id(self, request: int) -> bool:
        """Whether there was a producer id left. NotLeader where none may be handed out."""
        producer_id = self.ids.take(self._desired.controller_epoch)
        if producer_id is not None:
            self._say(Answer(request=request, value=producer_id))
            return True
        self._check_epoch_is_kept()
        return False

    def _check_epoch_is_kept(self) -> None:
        """Raise NotController where a lost history may repeat what is numbered by the epoch.

        That are ids and versions of configs. No disk but the metadata's has the epoch then.
        """
        epoch = self._desired.controller_epoch
        if not any(seen.keeps(epoch) for seen in self._watched.nodes.values()):
            raise NotController("the broker", "no log dir has the epoch of its Controller yet")

    def _undoing(self, purpose: Purpose, creating: Creating) -> Wanted | None:
        """What removes again what was created in vain, as far as it is still there."""
        records = tuple(undone(self._desired, creating))
        if records:
            return Wanted(records, purpose)
        self._say(Answer(request=purpose.request, error=purpose.error))
        return None

    def _begun(
        self, purpose: Purpose, command: Command, records: tuple[Record, ...], now_ms: int
    ) -> None:
        """The command's records are written; answer it, or wait for what the nodes report."""
        request = purpose.request
        match command:
            case AllocateProducerId():
                self._say(Answer(request=request, value=self._first_id()))
            case FinalizeUpgrade():
                self._say(Answer(request=request, value=self._desired.level))
            case PutUser() | DeleteUser():
                self._say(Answer(request=request))
            case CancelMove():
                partition = partition_named(self._desired, command.name, command.number)
                self._say(Answer(request=request, value=partition))
            case LogDirOnline():
                self._say(Answer(request=request, value=self._meant(command, records, now_ms)))
            case LogDirOut():
                meant = self._meant(command, records, now_ms)
                leaving = Leaving(directory_id=meant.directory_id, since_ms=now_ms)
                self._waiting[request] = leaving
            case ApplyConfig():
                self._waiting[request] = Applying(
                    changes=purpose.changes, version=self._desired.broker_version, since_ms=now_ms
                )
            case _:
                begun = Begun(self._desired, now_ms, self._config().num_partitions)
                self._waiting[request] = begun.waiting(command, records)

    def _meant(
        self, command: LogDirOnline | LogDirOut, records: tuple[Record, ...], now_ms: int
    ) -> DirRecord:
        """The log dir of a command: that of its record, since another may be at its path by now."""
        for record in records:
            if isinstance(record, DirRecord):
                return self._desired.dirs[record.directory_id]
        return self._judged(now_ms).log_dir(command)

    def _first_id(self) -> int:
        producer_id = self.ids.take(self._desired.controller_epoch)
        assert producer_id is not None, "a block was written just now"
        return producer_id

    # -- promises ----------------------------------------------------------------------------------

    def validate(self, *, has_failed: bool) -> None:
        """Assert what holds after every event. ``has_failed``: nothing can be changed any more."""
        asked = [entry.request for entry in self._commands]
        undone = [purpose.request for purpose, _ in self._undo]
        requests = [*asked, *undone, *self._waiting]
        assert len(set(requests)) == len(requests), "a request is in two places"
        if has_failed:
            assert not asked, "a command waits for a metadata log that has failed"
            assert not undone, "something waits for a metadata log that has failed"
