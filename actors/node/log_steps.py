"""What a node does next for its logs: at most one instruction in flight for each.

See the tables in ``log_states.py``. Logs do not wait for each other, with three exceptions:

=====================  ============================================================================
what is scarce         who waits
=====================  ============================================================================
recovery threads       of the folders that lay in a dir at the start, only
                       ``num.recovery.threads.per.data.dir`` are first opened at once
the actor's name       two topics' logs of one partition are never opened or served at once
the folder's name      nor do they lie in one dir
=====================  ============================================================================

And nothing is done in a log dir that has not taken the epoch of the orders: see ``dir_epochs.py``.
"""

from raylog.actors.control import Move
from raylog.actors.errors import NoLogDirs
from raylog.actors.node.instructions import (
    Adopt,
    Configure,
    Copy,
    Doom,
    DropCopy,
    EndLog,
    GiveUpCopy,
    MakeFolder,
    PutAside,
    ReadDir,
    RetireDir,
    StartLog,
    UnlockDir,
    Work,
    WriteIdentity,
)
from raylog.actors.node.log_book import LogBook, Unnamed
from raylog.actors.node.log_states import CopyBeside, LogWork, NodeLog
from raylog.actors.node.places import Place
from raylog.storage.names import TopicPartition


class LogSteps:
    """See the module's head."""

    def __init__(self, book: LogBook, openings_at_once: int) -> None:
        self._book, self.openings_at_once = book, openings_at_once

    def run(self, partition: TopicPartition) -> None:
        """Say what is to be done next for the logs of this partition."""
        for (other, directory_id), unnamed in list(self._book.unnamed.items()):
            if other == partition:
                self._advance_unnamed(partition, directory_id, unnamed)
        for log in self._book.of(partition):
            self._advance(log)

    def free_dirs(self) -> None:
        """Unlock the dirs that went offline, and read those back for which that is ordered.

        Each as soon as nobody can write to it any more: neither an actor, nor this node. So are
        those closed that are taken out of use in order.
        """
        for directory_id, place in self._book.places.items():
            is_awaited = place.is_to_unlock or place.is_to_be_read or place.leaving
            if is_awaited and not self._is_in_use(directory_id):
                self._free(directory_id, place)

    def _free(self, directory_id: str, place: Place) -> None:
        if place.leaving:
            self._retire(directory_id, place)
            return
        if place.is_to_unlock:
            place.is_to_unlock = False
            self._book.out.say(UnlockDir(directory_id=directory_id))
        if place.is_to_be_read:
            place.is_to_be_read = False
            self._book.out.work(ReadDir(token=self._token(), directory_id=directory_id))

    def _retire(self, directory_id: str, place: Place) -> None:
        clean = {
            partition
            for partition in place.names
            if any(directory_id in log.clean for log in self._book.of(partition))
        }
        self._book.out.work(
            RetireDir(token=self._token(), directory_id=directory_id, clean=frozenset(clean))
        )

    def _is_in_use(self, directory_id: str) -> bool:
        """Whether something is in flight in a dir, or an actor of it lives or is being killed."""
        names = self._book.places[directory_id].names
        if not names.keys().isdisjoint(self._book.kills):
            return True
        logs = [log for partition in names for log in self._book.of(partition)]
        if any(log.home == directory_id and log.has_actor for log in logs):
            return True
        return any(is_in(work, directory_id) for work in self._book.out.in_flight.values())

    def next_waiting(self) -> TopicPartition | None:
        """A partition whose log waited for its first opening, and has its turn now."""
        for _, place in self._book.places.items():
            if place.waiting and len(place.opening) < self.openings_at_once:
                log = next(iter(place.waiting))
                del place.waiting[log]
                return log.partition
        return None

    def _advance_unnamed(
        self, partition: TopicPartition, directory_id: str, unnamed: Unnamed
    ) -> None:
        is_ready = unnamed.is_to_be_aside and not unnamed.is_doing
        if is_ready and self._book.places.takes_orders(directory_id):
            unnamed.is_doing = True
            self._book.out.work(
                PutAside(
                    token=self._book.out.token(),
                    partition=partition,
                    topic_id=None,
                    directory_id=directory_id,
                )
            )

    def _advance(self, log: NodeLog) -> None:
        log.settle()
        self._check_copying(log)
        if log.doing is not None or log.id.partition in self._book.kills:
            return
        log.doing = self._next(log)
        if log.doing is not None:
            self._book.out.work(log.doing)
        elif log.state == "absent" and not (log.is_to_be_made or log.copies or log.copying):
            self._book.forget(log)

    def _next(self, log: NodeLog) -> LogWork | None:
        """The next instruction for a log for which nothing is in flight."""
        if self._waits_for_epoch(log):
            return None
        if (aside := self._put_aside(log)) is not None:
            return aside
        if log.next_step == "open":
            return self._open(log)
        if (drop := self._drop_copy(log)) is not None:
            return drop
        match log.next_step:
            case "make":
                return self._make(log)
            case "keep":
                return self._keep(log)
            case "end":
                must_close = log.state == "copied" or self._book.places.is_leaving(log.home)
                return EndLog(token=self._token(), log=log.id, must_close=must_close)
            case "finish":
                return self._copy(log, is_last=True)
            case "adopt":
                return self._adopt(log)
            case "remove":
                return self._doom_other(log, but=None)
            case "kill":
                self._book.kill(log.id.partition)
        return None

    def _waits_for_epoch(self, log: NodeLog) -> bool:
        """Whether a dir must take the epoch of the orders, before they are carried out in it."""
        target_id = log.want.target_id if isinstance(log.want, Move) else None
        return any(map(self._book.places.is_behind, (log.home, log.wanted_dir, target_id)))

    def _token(self) -> int:
        return self._book.out.token()

    # -- folders -----------------------------------------------------------------------------------

    def _make(self, log: NodeLog) -> MakeFolder | None:
        places = self._book.places
        directory_id = places.choose(log.id, log.tried)
        if directory_id is None:
            if not places.open():
                dirs = "; ".join(f"{dir.path}: {dir.why}" for dir in places.reports())
                log.problem = NoLogDirs(dirs)
            if log.problem is not None:
                log.state = "failed"
            return None
        self._book.add_folder(log, directory_id)
        return MakeFolder(token=self._token(), log=log.id, directory_id=directory_id)

    def _put_aside(self, log: NodeLog) -> PutAside | None:
        for directory_id in sorted(log.asides):
            if self._book.places.takes_orders(directory_id) and directory_id != log.home:
                return PutAside(
                    token=self._token(),
                    partition=log.id.partition,
                    topic_id=log.id.topic_id,
                    directory_id=directory_id,
                )
        return None

    def _drop_copy(self, log: NodeLog) -> DropCopy | None:
        """Remove a copy that no move wants."""
        if log.copying is not None or log.state in ("copied", "closed", "whole"):
            return None
        for directory_id in sorted(log.copies - log.undropped):
            if self._book.places.takes_orders(directory_id):
                return DropCopy(
                    token=self._token(),
                    partition=log.id.partition,
                    topic_id=log.id.topic_id,
                    directory_id=directory_id,
                )
        return None

    def _doom_other(self, log: NodeLog, but: str | None) -> Doom | None:
        """Remove a folder of the log; ``but``: the one that counts."""
        if log.copying is not None:
            return None
        for directory_id in sorted(log.folders):
            if directory_id != but and self._book.places.takes_orders(directory_id):
                return Doom(token=self._token(), log=log.id, directory_id=directory_id)
        return None

    # -- opening -----------------------------------------------------------------------------------

    def _open(self, log: NodeLog) -> StartLog | None:
        directory_id = log.wanted_dir
        assert directory_id is not None, "a log is opened unasked"
        assert log.config is not None
        if log.state == "lost" and log.home != directory_id:
            self._book.kill(log.id.partition)
            return None
        if not self._may_open(log, directory_id):
            return None
        is_first = directory_id in log.unopened
        if is_first:
            self._book.places[directory_id].opening.add(log.id)
        is_clean = directory_id in log.clean
        log.is_opened_clean = is_clean
        log.clean.discard(directory_id)
        log.is_doubtful = False
        return StartLog(
            token=self._token(),
            log=log.id,
            directory_id=directory_id,
            config=log.config,
            config_version=log.config_version,
            is_clean=is_clean,
            is_first=is_first,
        )

    def _may_open(self, log: NodeLog, directory_id: str) -> bool:
        place = self._book.places[directory_id]
        if directory_id not in log.folders or not place.is_open:
            return False
        if any(other.has_actor for other in self._book.of(log.id.partition) if other is not log):
            return False
        if directory_id in log.unopened and len(place.opening) >= self.openings_at_once:
            place.waiting[log.id] = None
            return False
        return True

    # -- while it is served ------------------------------------------------------------------------

    def _keep(self, log: NodeLog) -> LogWork | None:
        assert log.served is not None
        assert log.home is not None, "a log is served from nowhere"
        if log.home != log.wanted_dir:
            return EndLog(token=self._token(), log=log.id)
        if log.served.config_version < log.config_version and log.problem is None:
            assert log.config is not None
            return Configure(
                token=self._token(),
                log=log.id,
                config=log.config,
                config_version=log.config_version,
            )
        if log.is_identity_lost:
            return WriteIdentity(token=self._token(), log=log.id, directory_id=log.home)
        # Of an actor that was adopted nobody has said yet that its folder is the one that counts.
        stale = self._doom_other(log, but=log.home) if log.is_ordered else None
        if stale is None and isinstance(log.want, Move):
            self._copy_beside(log, log.want)
        return stale

    # -- moves -------------------------------------------------------------------------------------

    def _copy_beside(self, log: NodeLog, move: Move) -> None:
        """Begin to copy, if that can be done; the log's other work goes on."""
        if log.problem is not None or log.copying is not None:
            return
        place = self._book.places.get(move.target_id)
        if place is None or not place.is_open:
            log.problem = self._book.places.problem(move.target_id)
            return
        if not place.is_free_for(log.id):
            return
        copy = self._copy(log, is_last=False)
        log.copying = CopyBeside(copy.token, copy.directory_id, copy.target_id)
        self._book.add_copy(log, copy.target_id)
        self._book.out.work(copy)

    def _copy(self, log: NodeLog, *, is_last: bool) -> Copy:
        assert isinstance(log.want, Move)
        assert log.home is not None
        return Copy(
            token=self._token(),
            log=log.id,
            directory_id=log.home,
            target_id=log.want.target_id,
            is_last=is_last,
        )

    def _adopt(self, log: NodeLog) -> Adopt:
        assert isinstance(log.want, Move)
        return Adopt(token=self._token(), log=log.id, directory_id=log.want.target_id)

    def _check_copying(self, log: NodeLog) -> None:
        """Give a copy up that is not wanted any more, or whose log does not serve any more."""
        copying = log.copying
        if copying is None or copying.is_given_up:
            return
        is_wanted = isinstance(log.want, Move) and log.want.target_id == copying.target_id
        is_served = log.state == "serving" and log.home == copying.source_id
        if not (is_wanted and is_served and self._book.places.is_open(copying.target_id)):
            copying.is_given_up = True
            self._book.out.say(GiveUpCopy(log=log.id, copy_token=copying.token))


def is_in(work: Work, directory_id: str) -> bool:
    """Whether something in flight uses this log dir."""
    return directory_id in (
        getattr(work, "directory_id", None),
        getattr(work, "target_id", None),
    )
