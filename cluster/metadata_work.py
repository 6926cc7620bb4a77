"""What a person does with the metadata: look at its copies, choose one, make it anew, add to it.

These work on the log dirs themselves, so that they can be used when no Controller serves; the way
to them is ``machines.py``. What counts is decided elsewhere: ``controller/standings.py`` and
``controller/rebuilding.py``.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from raylog.actors.errors import InvalidRequest, NotLeader, RequestTimedOut
from raylog.actors.partition.locking import lock_patiently
from raylog.cluster.controller.adopting import Stray, adopted
from raylog.cluster.controller.copies import SurveyedDir, check_not_newer, choose, found_at
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.home import Survey, content_of, remembered
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.putting import put_copy
from raylog.cluster.controller.rebuilding import KEEPING, FoundDir, Rebuilt, keeping, rebuilt
from raylog.cluster.controller.records import (
    ControllerRecord,
    CopiesRecord,
    TopicRecord,
    decode,
    encode,
)
from raylog.cluster.controller.snapshots import desired_of
from raylog.cluster.controller.standings import Restoration, Standing, restoration, standings
from raylog.cluster.machines import Machines
from raylog.storage.clock import SystemClock
from raylog.storage.errors import CorruptCheckpoint, InvalidConfig, InvalidLogDir, LogMissing
from raylog.storage.files import FileSystem, RealFileSystem
from raylog.storage.log_dir import LOCK_FILE
from raylog.storage.names import TopicPartition, parse_folder
from raylog.storage.records.encode import encode_records
from raylog.storage.state.controller_epoch import read_controller_epoch, write_controller_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """The partitions whose folders were taken in. ``made``: those that begin empty beside them."""

    partitions: tuple[TopicPartition, ...]
    made: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The cluster goes on from the copy that ``found`` says.

    ``before``: the topics from which nothing is removed any more, each with what it had of its own
    for the keys that say so.
    """

    found: Restoration
    before: Mapping[str, Mapping[str, Any]]


class MetadataWork:
    """``must_look_at``: log dirs that the user has named for this; see ``check_looked_at``."""

    def __init__(self, machines: Machines, *, must_look_at: Sequence[str] = ()) -> None:
        self._machines, self._must_look_at = machines, must_look_at

    def status(self) -> list[Standing]:
        """How every copy stands. Raises as ``_survey`` does."""
        return standings(self._survey(only_reads=True).dirs)

    def restore(self, source: str, *, keep_configs: bool = False) -> Restored:
        """Have the cluster go on from the copy at ``source``: a node's key or Ray id, or a path.

        Does nothing where it would do so by itself. Where the copy may lack changes, one of them
        may have been a config that kept records: so nothing is removed from any topic any more,
        until its config is set again (``KEEPING``). ``keep_configs``: the topics obey what the copy
        says all the same. Raises as ``restoration`` does; InvalidRequest
        also where a Controller serves, or hangs; LogLocked where another broker uses the log dir;
        RequestTimedOut where a node does not answer.
        """
        self._machines.check_not_served()
        dirs = self._survey().dirs
        found = restoration(dirs, source)
        before: Mapping[str, Mapping[str, Any]] = {}
        if found.is_needed:
            keeps_records = bool(found.lacks) and not keep_configs
            takes_lock = not self._machines.has_managers()
            self._machines.release(found.source.node_id)
            key = found.source.node or found.source.node_id
            arguments = (found.source.path, found.epoch, key, (), takes_lock, keeps_records)
            before = self._machines.run(
                go_on_from, found.source.node_id, arguments, "restoring the metadata"
            )
            self._tell_epoch(dirs, found.source.cluster_id, found.epoch)
            for entry in found.parted:
                self._machines.set_aside(entry)
        return Restored(found=found, before=before)

    def rebuild(self, *, make_missing: bool = False) -> Rebuilt:
        """Make the metadata anew from the folders in all log dirs.

        Raises InvalidRequest as ``rebuilt`` does, where a Controller serves or hangs, and where
        there is metadata that can be read; NewerMetadata; LogLocked where another broker uses the
        log dir; RequestTimedOut where a node does not answer.
        """
        self._machines.check_not_served()
        dirs = self._survey().dirs
        check_lost(dirs)
        made = rebuilt(
            self._machines.folders(), self._machines.own().node_id, make_missing=make_missing
        )
        takes_lock = not self._machines.has_managers()
        self._machines.release(made.target.node_id)
        values = [encode(record) for record in made.records]
        arguments = (made.target.path, values, takes_lock)
        self._machines.run(write_rebuilt, made.target.node_id, arguments, "rebuilding the metadata")
        self._tell_epoch(dirs, made.target.cluster_id, made.epoch)
        return made

    def adopt(self, folders: Sequence[str], *, make_missing: bool = False) -> TakenIn:
        """Take folders in again that were set aside; the broker must be stopped.

        ``folders``: their whole paths, on whichever node they lie. ``make_missing``: as of
        ``adopted``. Raises InvalidRequest and TopicExists as ``adopted`` does; BrokerRunning;
        LogLocked where a process uses a log dir; what ``choose`` raises where the newest metadata
        is not in reach.
        """
        self._machines.check_stopped()
        survey = self._survey()
        home = choose(survey.dirs, survey.own, new_id="")
        if home.new_cluster:
            raise LogMissing(home.log_dir, "the metadata is missing")
        source = found_at(home, survey.dirs)
        dirs = self._machines.folders()
        strays = [self._stray(path, dirs) for path in folders]
        found = adopted(self._desired(source), strays, dirs, make_missing=make_missing)
        for stray in strays:
            self._machines.run(
                take_in, stray.home.node_id, (stray.home.path, stray.name), "taking a folder in"
            )
        assert source.copy is not None, "it was chosen"
        epoch = 1 + max(source.copy.controller_epoch, home.least_epoch)
        values = [encode(record) for record in found.records]
        arguments = (source.path, epoch, source.node or source.node_id, values)
        self._machines.run(go_on_from, source.node_id, arguments, "writing the metadata")
        self._tell_epoch(survey.dirs, source.cluster_id, epoch)
        partitions = tuple(stray.partition for stray in strays)
        return TakenIn(partitions=partitions, made=found.made)

    def _tell_epoch(self, dirs: Sequence[SurveyedDir], cluster_id: str | None, epoch: int) -> None:
        """Have all log dirs of the cluster know the epoch that a command has begun in one copy.

        If that copy is lost before a Controller has brought the others up to date, they are not
        taken for the newest.
        """
        paths: dict[str, list[str]] = {}
        for entry in dirs:
            if entry.cluster_id is not None and entry.cluster_id == cluster_id:
                paths.setdefault(entry.node_id, []).append(entry.path)
        for node_id, its in paths.items():
            self._machines.run(know_epoch, node_id, (its, epoch), "telling the log dirs of it")

    def _desired(self, source: SurveyedDir) -> Desired:
        content = content_of(self._machines, source)
        desired = Desired() if content.begin is None else desired_of(content.begin)
        for value in content.values():
            desired.apply(decode(value))
        return desired

    def _stray(self, path: str, dirs: Sequence[FoundDir]) -> Stray:
        log_dir, name = os.path.split(path)
        homes = [
            entry
            for entry in dirs
            if os.path.normpath(entry.path) == log_dir and name in entry.strays
        ]
        if len(homes) > 1:
            why = "was set aside on several nodes; give the whole path of one folder"
            raise InvalidRequest("the folder", path, why)
        if not homes:
            raise InvalidRequest("the folder", path, _why_not_there(log_dir, name, dirs))
        return Stray(home=homes[0], name=name, topic_id=homes[0].strays[name])

    def _survey(self, *, only_reads: bool = False) -> Survey:
        """What all nodes have, and what Ray's head knows of it.

        A node that is not looked at may have a copy.

        Raises RequestTimedOut where one does not answer, InvalidConfig where its RAYLOG_LOG_DIRS is
        refused, and as ``check_looked_at``.
        """
        survey = self._machines.survey()
        for error in survey.errors.values():
            if isinstance(error, RequestTimedOut | NotLeader | InvalidConfig):
                raise error
        check_looked_at(self._must_look_at, survey.dirs, only_reads=only_reads)
        marks = self._machines.marks()
        dirs = tuple(remembered(entry, marks) for entry in survey.dirs)
        return dataclasses.replace(survey, dirs=dirs)


def _why_not_there(log_dir: str, name: str, dirs: Sequence[FoundDir]) -> str:
    """Why a folder is not among those that were set aside."""
    partition = parse_folder(name.rpartition(".")[0])
    for entry in dirs:
        if os.path.normpath(entry.path) != log_dir:
            continue
        if any(folder.partition == partition for folder in entry.folders):
            return (
                f"is not there, or was taken in already: {entry.path}/{partition} is there. If the "
                "command was interrupted, start the broker: what is no partition yet is set aside "
                "again"
            )
    return "was set aside in no log dir; give the whole path of one folder"


def check_lost(dirs: Sequence[SurveyedDir]) -> None:
    """Raise InvalidRequest where metadata can be read, NewerMetadata where a newer raylog can."""
    check_not_newer(dirs)
    readable = [entry for entry in dirs if entry.copy and entry.copy.end]
    if readable:
        why = (
            "can be read: start the broker if it does not run, or look at `raylog metadata status`"
        )
        raise InvalidRequest("the metadata in", str(readable[0]), why)


def check_looked_at(
    log_dirs: Sequence[str], dirs: Sequence[SurveyedDir], *, only_reads: bool = False
) -> None:
    """Raise InvalidRequest for a log dir that no node of the Ray cluster looks at, or has.

    A node whose Ray was started with RAYLOG_LOG_DIRS looks at those, as its broker does.
    ``only_reads``: nothing is changed, so a part of the log dirs of a cluster may be looked at.
    """
    paths = {os.path.normpath(entry.path) for entry in dirs}
    there = {os.path.normpath(entry.path) for entry in dirs if not entry.is_missing}
    for log_dir in log_dirs:
        if log_dir in paths and log_dir not in there:
            why = "is no folder: check the path, and that its disk is mounted"
            raise InvalidRequest("--log-dir", log_dir, why)
        if paths and log_dir not in paths:
            why = (
                "is on no node of this Ray cluster, which was started with RAYLOG_LOG_DIRS and has "
                f"{', '.join(sorted(paths))}; leave --log-dir out to look at these, or give "
            )
            # A Ray of its own would see one machine's log dirs, also those that a broker uses.
            why += (
                f"--address local to look at {log_dir} on this machine"
                if only_reads
                else f"the --address of the Ray cluster that {log_dir} is of"
            )
            raise InvalidRequest("--log-dir", log_dir, why)


# -- on the nodes ----------------------------------------------------------------------------------


@contextmanager
def _unused(fs: FileSystem, log_dir: str, *, takes_lock: bool) -> Iterator[None]:
    """Meanwhile no other process uses the log dir. Raises LogLocked where one does.

    ``takes_lock``: not where a LogManager of this Ray may hold it, which leaves the copy alone.
    """
    if not takes_lock:
        yield
        return
    lock = lock_patiently(lambda: fs.lock(os.path.join(log_dir, LOCK_FILE)))
    try:
        yield
    finally:
        lock.release()


def go_on_from(
    log_dir: str,
    epoch: int,
    node: str,
    values: Sequence[bytes] = (),
    takes_lock: bool = True,
    keeps_records: bool = False,
) -> dict[str, dict[str, Any]]:
    """Begin a Controller's epoch in the metadata of a log dir, which is the only copy from then on.

    ``values``: records that follow. ``takes_lock``: as of ``_unused``. ``keeps_records``: nothing
    is removed from any topic any more; returned is what they had for the keys that say so. Raises
    LogLocked where a Controller writes it, or a process uses the log dir; StorageError.
    """
    fs = RealFileSystem()
    with _unused(fs, log_dir, takes_lock=takes_lock):
        log = MetadataLog(fs, SystemClock(), log_dir)
        try:
            kept = keeping(log.desired, epoch) if keeps_records else ()
            before = {topic.name: _own(log.desired.topics[topic.topic_id]) for topic in kept}
            log.append(
                [
                    ControllerRecord(epoch=epoch, node=node, directory=log.directory_id),
                    CopiesRecord(nodes=(node,), directories=(log.directory_id,)),
                    *map(decode, values),
                    *kept,
                ],
                may_use_reserve=True,
            )
        finally:
            log.close()
    return before


def _own(topic: TopicRecord) -> dict[str, Any]:
    """What a topic has of its own for the keys that say what is removed."""
    return {key: value for key, value in topic.config.items() if key in KEEPING}


def know_epoch(log_dirs: Sequence[str], epoch: int) -> None:
    """Write down, on each of these log dirs, that there is a Controller's epoch. Raises
    StorageError."""
    fs = RealFileSystem()
    for log_dir in log_dirs:
        with suppress(CorruptCheckpoint):  # a start says so, and nothing is decided by it
            if read_controller_epoch(fs, log_dir) < epoch:
                write_controller_epoch(fs, log_dir, epoch)


def take_in(log_dir: str, name: str) -> None:
    """Give a folder that was set aside the name of its partition.

    Raises LogLocked where a process uses the log dir, and InvalidLogDir where a folder of the
    partition is there already.
    """
    fs = RealFileSystem()
    partition = parse_folder(name.rpartition(".")[0])
    assert partition is not None, "its name was read"
    target = os.path.join(log_dir, str(partition))
    lock = fs.lock(os.path.join(log_dir, LOCK_FILE))
    try:
        if fs.exists(target):
            raise InvalidLogDir(target, "the partition's folder already exists; move it away")
        fs.rename(os.path.join(log_dir, name), target)
        fs.sync_dir(log_dir)
    finally:
        lock.release()


def write_rebuilt(log_dir: str, records: Sequence[bytes], takes_lock: bool = True) -> None:
    """Make these records the metadata in a log dir; what is there is set aside.

    ``takes_lock``: as of ``_unused``. Raises LogLocked where a process uses the log dir, or what is
    there; StorageError.
    """
    fs, clock = RealFileSystem(), SystemClock()
    now_ms = clock.now_ms()
    rows: Sequence[Any] = [(now_ms, None, record, ()) for record in records]
    with _unused(fs, log_dir, takes_lock=takes_lock):
        put_copy(fs, clock, log_dir, [bytes(encode_records(rows))], is_outdated=False)
