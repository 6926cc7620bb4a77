"""What happens to the logs of a node: what was found, what has ended, what has failed.

Each method notes what is so from now on; ``log_steps.py`` decides what follows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from raylog.actors.control import DirReport, End, LogId, Move, Remove, Serve
from raylog.actors.node.events import Folder, Served
from raylog.actors.node.instructions import (
    Adopt,
    Configure,
    Copy,
    Doom,
    DropCopy,
    EndLog,
    GiveUpCopy,
    KillActor,
    MakeFolder,
    PutAside,
    ReadDir,
    RetireDir,
    StartLog,
    Work,
    WriteEpoch,
    WriteIdentity,
)
from raylog.actors.node.log_book import LogBook, Unnamed
from raylog.actors.node.log_states import CopyBeside, LogWork, NodeLog, is_unchanged
from raylog.actors.node.places import NOT_IN_ORDER, READING_BACK, Place
from raylog.storage.errors import LogLocked, RaylogError, StorageError
from raylog.storage.names import TopicPartition


class LogEvents:
    """See the module's head."""

    def __init__(self, book: LogBook) -> None:
        self._book, self._places = book, book.places

    # -- what is found -----------------------------------------------------------------------------

    def read(self, dirs: Sequence[DirReport], folders: Iterable[Folder]) -> None:
        """These dirs were read, and these folders lie in them; nothing of before counts there."""
        for dir in dirs:
            if self._places.get(dir.directory_id) is not None:
                self._forget_dir(str(dir.directory_id))
        self._places.add(dirs)
        for folder in folders:
            if self._places.is_online(folder.directory_id):
                self._add(folder)

    def _forget_dir(self, directory_id: str) -> None:
        for partition in list(self._places[directory_id].names):
            for log in self._book.of(partition):
                if directory_id in log.folders:
                    self._book.drop_folder(log, directory_id)
            self._book.unnamed.pop((partition, directory_id), None)
            self._book.touch(partition)

    def _add(self, folder: Folder) -> None:
        partition, directory_id = folder.partition, folder.directory_id
        self._book.touch(partition)
        if folder.is_copy and folder.topic_id is None:
            self._drop_unnamed_copy(folder)
            return
        if folder.topic_id is None:
            self._places[directory_id].names[partition] = None
            self._book.unnamed[partition, directory_id] = Unnamed()
            return
        log = self._book.log(LogId(partition=partition, topic_id=folder.topic_id))
        if folder.is_copy:
            self._book.add_copy(log, directory_id)
            return
        self._book.add_folder(log, directory_id)
        log.unopened.add(directory_id)
        if folder.is_clean:
            log.clean.add(directory_id)

    def _drop_unnamed_copy(self, folder: Folder) -> None:
        self._book.out.work(
            DropCopy(
                token=self._book.out.token(),
                partition=folder.partition,
                topic_id=None,
                directory_id=folder.directory_id,
            )
        )

    def adopt(self, served: Iterable[Served]) -> None:
        """LogActors have lived on; what each says of its folder counts."""
        for facts in served:
            partition, directory_id = facts.log.partition, facts.directory_id
            self._book.touch(partition)
            place = self._places.get(directory_id)
            name = None if place is None else place.names.get(partition, "")
            is_known = name is None or name == facts.log.topic_id
            if place is None or not place.is_online or not is_known:
                self._book.kill(partition)  # its folder is gone, or another topic's
                continue
            log = self._book.log(facts.log)
            if name is None:
                del self._book.unnamed[partition, directory_id]
                self._book.add_folder(log, directory_id)
                log.is_identity_lost = True
            log.clean.discard(directory_id)
            log.want = Serve(
                log=log.id,
                directory_id=directory_id,
                config=facts.config,
                config_version=facts.config_version,
            )
            log.state = "serving"
            self._serves(log, facts)

    def _serves(self, log: NodeLog, served: Served) -> None:
        """The log is served, as its actor says."""
        log.home, log.served = served.directory_id, served
        log.opening_problem = None
        log.unopened.discard(served.directory_id)
        log.learn_config(served.config, served.config_version)

    # -- actors ------------------------------------------------------------------------------------

    def actor_gone(self, partition: TopicPartition) -> None:
        for log in self._book.of(partition):
            if isinstance(log.doing, StartLog):
                log.is_doubtful = True  # this one, or the one before
            elif log.state in ("serving", "copied") and not isinstance(log.doing, EndLog):
                log.state = "lost"
                if not log.is_ordered:
                    log.want = None  # its log dir may be offline by record: nobody opens it unasked
        self._book.touch(partition)

    def actor_said(self, served: Served) -> None:
        log = self._book.logs.get(served.log)
        if log is None or log.state not in ("serving", "copied"):
            return  # it is late
        if log.home == served.directory_id:
            self._serves(log, served)
            self._book.touch(log.id.partition)

    def actor_seen(self, id: LogId, directory_id: str) -> None:
        """End an actor that uses a dir which is not in use here: it does not have the dir's lock.

        Also one whose log is gone, or it would wait for its config for ever. Where a log of its
        name is being served or opened, who does that finds it.
        """
        partition = id.partition
        is_met = any(log.has_actor for log in self._book.of(partition))
        if is_met or partition in self._book.kills:
            return
        if self._places.is_online(directory_id) and self._is_here(id, directory_id):
            return
        self._book.out.note("stranger-ended", partition=partition, directory_id=directory_id)
        self._book.kill(partition)

    def _is_here(self, id: LogId, directory_id: str) -> bool:
        """Whether a log is known here, or may be the one whose folder does not say whose it is."""
        return id in self._book.logs or (id.partition, directory_id) in self._book.unnamed

    def identity_lost(self, partition: TopicPartition, directory_id: str) -> None:
        """A folder does not say any more whose it is: the word of a living actor counts."""
        self._book.touch(partition)
        for log in self._book.of(partition):
            if directory_id not in log.folders:
                continue
            if log.home == directory_id and log.has_actor:
                log.is_identity_lost = True
            elif log.doing is None and log.state in ("found", "failed"):
                self._book.drop_folder(log, directory_id)
                self._places[directory_id].names[partition] = None
                self._book.unnamed[partition, directory_id] = Unnamed()

    def identity_found(self, folder: Folder) -> None:
        """A folder that did not say whose it is says it now."""
        key = (folder.partition, folder.directory_id)
        unnamed = self._book.unnamed.get(key)
        if unnamed is None or unnamed.is_doing or not self._places.is_online(folder.directory_id):
            return
        del self._book.unnamed[key]
        del self._places[folder.directory_id].names[folder.partition]
        self._add(folder)

    # -- what has ended ----------------------------------------------------------------------------

    def ended(self, work: Work, result: Served | None, error: RaylogError | None) -> None:
        """Something that was in flight for a partition has ended."""
        match work:
            case KillActor():
                self._book.kill_ended(work.partition, error is None)
                return
            case PutAside(topic_id=None):
                self._unnamed_put_aside(work, error)
                return
            case ReadDir():
                if error is not None:
                    self._places.set_unread(work.directory_id, error.problem)
                return
            case DropCopy(topic_id=None):
                return
            case WriteEpoch() | RetireDir():
                raise AssertionError("it is no log's")
        log = self._book.logs[log_of(work)]
        self._book.touch(log.id.partition)
        if log.copying is not None and log.copying.token == work.token:
            self._copied_beside(log, log.copying, work, error)
            return
        assert log.doing is work, f"{work} has ended, and {log.doing} was in flight"
        log.doing = None
        self._log_work_ended(log, work, result, error)

    def _log_work_ended(
        self, log: NodeLog, work: LogWork, result: Served | None, error: RaylogError | None
    ) -> None:
        match work:
            case StartLog():
                self._started(log, work, result, error)
            case MakeFolder():
                self._made(log, work, error)
            case Configure():
                self._configured(log, work, result, error)
            case Doom():
                self._doomed(log, work, error)
            case PutAside():
                self._put_aside(log, work, error)
            case EndLog() | Copy() | Adopt():
                self._moved_on(log, work, error)
            case DropCopy() if error is None:
                self._book.drop_copy(log, work.directory_id)
            case DropCopy():
                log.undropped.add(work.directory_id)
            case WriteIdentity():
                log.is_identity_lost = False  # where it failed, it is found again

    def _started(
        self, log: NodeLog, work: StartLog, result: Served | None, error: RaylogError | None
    ) -> None:
        directory_id = work.directory_id
        self._places[directory_id].opening.discard(log.id)
        is_wanted = log.wanted_dir == directory_id
        if error is None:
            assert result is not None, "a log was started, and nobody says what it serves"
            log.follow(work, is_well=True)
            self._serves(log, result)
            if log.is_doubtful:
                log.state = "lost"
            if not self._places.is_online(directory_id):
                self._book.kill(log.id.partition)
            return
        if log.is_opened_clean and directory_id in log.folders and is_unchanged(error):
            log.clean.add(directory_id)
        log.follow(work, is_well=False)
        if log.state == "failed":
            log.home = directory_id
            log.problem = log.opening_problem = error
        if not is_wanted:
            log.state = "found"
        self._book.out.note("log-not-opened", log=str(log.id), why=error)

    def _made(self, log: NodeLog, work: MakeFolder, error: RaylogError | None) -> None:
        if error is None:
            log.follow(work, is_well=True)
            log.clean.add(work.directory_id)
            log.problem = None
            log.tried.clear()
            return
        self._book.drop_folder(log, work.directory_id)
        log.tried.add(work.directory_id)
        log.problem = error

    def _configured(
        self, log: NodeLog, work: Configure, result: Served | None, error: RaylogError | None
    ) -> None:
        if error is not None:
            log.problem = error
        elif result is not None:
            log.served = result
        elif log.served is not None:
            log.served = replace(log.served, config=work.config, config_version=work.config_version)

    def _doomed(self, log: NodeLog, work: Doom, error: RaylogError | None) -> None:
        if error is None:
            self._book.drop_folder(log, work.directory_id)
            return
        self._end_stranger(log.id.partition, error)
        log.problem = error
        if log.state == "found":
            log.state, log.home = "failed", work.directory_id

    def _end_stranger(self, partition: TopicPartition, error: RaylogError) -> None:
        """End the actor that has locked a folder, and that was silent when the LogManager began."""
        has_actor = any(log.has_actor for log in self._book.of(partition))
        if isinstance(error, LogLocked) and not has_actor:
            self._book.kill(partition)

    def _put_aside(self, log: NodeLog, work: PutAside, error: RaylogError | None) -> None:
        log.asides.discard(work.directory_id)
        if error is None:
            self._book.drop_folder(log, work.directory_id)
            return
        self._end_stranger(work.partition, error)

    def _unnamed_put_aside(self, work: PutAside, error: RaylogError | None) -> None:
        key = (work.partition, work.directory_id)
        unnamed = self._book.unnamed.get(key)
        self._book.touch(work.partition)
        if unnamed is None:
            return  # the dir was read anew since
        unnamed.is_to_be_aside = unnamed.is_doing = False
        if error is not None:
            self._end_stranger(work.partition, error)
            return
        del self._book.unnamed[key]
        del self._places[work.directory_id].names[work.partition]

    def _moved_on(
        self, log: NodeLog, work: EndLog | Copy | Adopt, error: RaylogError | None
    ) -> None:
        """A step of the end of a log's life here, or of a move, has ended."""
        was_moving = log.state in ("copied", "closed", "whole")
        if error is None and isinstance(work, Adopt):
            self._book.drop_copy(log, work.directory_id)
            self._book.add_folder(log, work.directory_id)
            log.clean.add(work.directory_id)
        is_closed = error is None and isinstance(work, EndLog)
        if is_closed and log.home is not None and self._places.is_leaving(log.home):
            log.clean.add(log.home)
        log.follow(work, error is None)
        if error is not None and was_moving:
            log.problem = error

    def _copied_beside(
        self, log: NodeLog, copying: CopyBeside, work: LogWork, error: RaylogError | None
    ) -> None:
        log.copying = None
        if copying.is_given_up:
            return
        log.follow(work, error is None)
        if error is not None:
            log.problem = error

    # -- a dir is read back ------------------------------------------------------------------------

    def read_back(self, directory_id: str) -> None:
        """Nobody uses the dir any more, until it was read back."""
        place = self._places.get(directory_id)
        if place is None or place.report.is_read_back:
            return
        if not place.leaving:  # else when it is closed in order
            self.dir_failed(directory_id, READING_BACK)
        place.is_to_be_read = True

    # -- a dir is taken out of use -----------------------------------------------------------------

    def retire(self, directory_id: str, why: str) -> None:
        """Close a dir in order, its logs first; nothing new is begun there."""
        place = self._places.get(directory_id)
        if place is None:
            return
        place.is_to_be_read = False
        if place.is_open:
            self._leave_dir(directory_id, place, why)
        elif not (place.is_online or place.report.is_taken_offline or self._is_read(directory_id)):
            # nothing was closed there in this life
            self._places.set_taken_offline(directory_id, why + NOT_IN_ORDER)

    def _is_read(self, directory_id: str) -> bool:
        works = self._book.out.in_flight.values()
        return any(isinstance(w, ReadDir) and w.directory_id == directory_id for w in works)

    def _leave_dir(self, directory_id: str, place: Place, why: str) -> None:
        self._places.set_leaving(directory_id, why)
        self._book.out.note("log-dir-leaves", log_dir=place.report.path, why=why)
        self._end_silent(directory_id, place)
        for partition in self._partitions_in(place):
            self._book.touch(partition)
            for log in self._book.of(partition):
                self._leave(log, directory_id)

    def _end_silent(self, directory_id: str, place: Place) -> None:
        """End the actors that may use a dir which is given up, and have said nothing to this life.

        One that was silent when the LogManager began has the lock of its folder still. It would
        go on to acknowledge appends that nobody reads any more.
        """
        for partition in place.names:
            logs = self._book.of(partition)
            is_met = any(log.has_actor for log in logs)
            is_silent = (
                directory_id in log.unopened and directory_id not in log.clean for log in logs
            )
            if not is_met and (not logs or any(is_silent)):
                self._book.kill(partition)

    def _leave(self, log: NodeLog, directory_id: str) -> None:
        """A log is to be closed where it lies in a dir, or to stay where it is otherwise."""
        is_target = isinstance(log.want, Move) and log.want.target_id == directory_id
        is_here = directory_id in (log.home, log.wanted_dir) and log.moved_to is None
        if not (is_target or is_here):
            return
        log.leave_move()
        if isinstance(log.doing, Copy):
            self._book.out.say(GiveUpCopy(log=log.id, copy_token=log.doing.token))
        if is_target:
            log.problem = self._places.problem(directory_id)
        elif not isinstance(log.want, Remove):
            log.want = End(log=log.id)

    def retired(self, work: RetireDir, error: RaylogError | None) -> None:
        """A dir is out of use; fine if its disk has failed meanwhile."""
        place = self._places[work.directory_id]
        if not place.leaving:
            return
        partitions = self._partitions_in(place)
        why = place.leaving if error is None else place.leaving + NOT_IN_ORDER
        self._places.set_retired(work.directory_id, why)
        self._book.out.note("log-dir-left", log_dir=place.report.path, why=why)
        for partition in partitions:
            self._book.touch(partition)
            for log in self._book.of(partition):
                self._lose(log, work.directory_id)

    @staticmethod
    def _partitions_in(place: Place) -> set[TopicPartition]:
        return {*place.names, *(log.partition for log in place.copies)}

    # -- a disk fails ------------------------------------------------------------------------------

    def blamed(self, work: Work, error: RaylogError | None) -> str | None:
        """The dir whose disk has failed, as the error of something says."""
        if not isinstance(error, StorageError) or not error.is_disk_failure:
            return None
        own = getattr(work, "directory_id", None)
        if own is None and isinstance(work, Configure | EndLog):
            own = self._book.logs[work.log].home
        return self._places.blamed(error.path) or own

    def dir_failed(self, directory_id: str, why: str) -> None:
        """Nothing is served or opened there any more, until the dir is read anew."""
        if not self._places.is_online(directory_id):
            return
        place = self._places[directory_id]
        partitions = self._partitions_in(place)
        path = place.report.path
        self._end_silent(directory_id, place)
        self._places.set_offline(directory_id, why)
        self._book.out.note("log-dir-offline", log_dir=path, why=why)
        for partition in partitions:
            self._book.touch(partition)
            for log in self._book.of(partition):
                self._lose(log, directory_id)

    def _lose(self, log: NodeLog, directory_id: str) -> None:
        """A log has lost a dir, in which it may lie."""
        self._book.drop_copy(log, directory_id)
        is_opening = isinstance(log.doing, StartLog) and log.doing.directory_id == directory_id
        if is_opening or (log.home == directory_id and log.has_actor):
            self._book.kill(log.id.partition)
        if log.home == directory_id and log.moved_to is None:
            log.state, log.problem = "found", None
        if log.wanted_dir == directory_id and log.moved_to is None:
            log.want = None
        is_target = isinstance(log.want, Move) and log.want.target_id == directory_id
        if is_target:
            if log.state == "moved":
                self._await_word(log)
            log.leave_move()
            log.problem = self._places.problem(directory_id)

    def _await_word(self, log: NodeLog) -> None:
        """A log has lost the dir to which it was moved, and the Controller may count it there.

        Served from where it was, it would acknowledge records that the dir does not have when it is
        back. Only who knows of the loss may order that.
        """
        log.want = None
        log.first_report = self._book.next_report


def log_of(work: Work) -> LogId:
    """The log for which something is in flight."""
    assert not isinstance(work, WriteEpoch | ReadDir | RetireDir | KillActor)
    if not isinstance(work, PutAside | DropCopy):
        return work.log
    assert work.topic_id is not None
    return LogId(partition=work.partition, topic_id=work.topic_id)
