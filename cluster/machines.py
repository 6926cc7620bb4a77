"""Where the log dirs are that a person works on while no broker serves: ``Machines``.

====================  ======================================  ====================================
                      ``RayMachines``                         ``ThisMachine``
====================  ======================================  ====================================
whose log dirs        of all nodes of a Ray cluster           of this machine
who reads and writes  a task on each node                     this process: no Ray has to start
a broker that runs    is asked; its LogManagers leave their   keeps its log dirs locked
                      copies alone meanwhile
====================  ======================================  ====================================
"""

import os
import secrets
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from raylog.actors.errors import BrokerRunning, InvalidRequest, NotLeader, RequestTimedOut
from raylog.actors.messages import ActorProcess
from raylog.actors.node.broker_config import BrokerConfig, log_dirs_of_environment, node_log_dirs
from raylog.actors.runtime.calls import gather
from raylog.actors.runtime.names import Node
from raylog.actors.runtime.nodes import alive_nodes, own_node
from raylog.actors.runtime.ray_private import process_of
from raylog.actors.runtime.tasks import run_on_nodes
from raylog.cluster.controller.copies import SurveyedDir
from raylog.cluster.controller.home import CopyFiles, Survey
from raylog.cluster.controller.ray_reach import (
    SURVEY_TIMEOUT_S,
    RayReach,
    read_copy,
    read_snapshot_file,
    set_copy_aside,
)
from raylog.cluster.controller.rebuilding import FoundDir, FoundFolder
from raylog.cluster.controller.spread import short_key
from raylog.cluster.controller.stub import find_controller
from raylog.cluster.controller.surveying import Surveyor
from raylog.cluster.controller.witness import Mark
from raylog.cluster.running import running_parts
from raylog.storage.errors import CorruptCheckpoint, OutOfResources, RaylogError
from raylog.storage.files import FileSystem, RealFileSystem
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import STRAY_DIR_SUFFIX, doomed_suffix, parse_folder
from raylog.storage.state.controller_epoch import NO_EPOCH, read_controller_epoch
from raylog.storage.state.properties import read_meta, read_topic_id

Answer = TypeVar("Answer")

# Whether a Controller serves is known in milliseconds.
LOOK_TIMEOUT_S = 10.0
WORK_TIMEOUT_S = 120.0
# Of a node's id, as Ray makes it.
NODE_ID_BYTES = 28


class Machines(CopyFiles, Protocol):
    """The way to the log dirs. Each method waits, and raises why it failed."""

    def own(self) -> Node:
        """The node that this process runs on."""

    def check_not_served(self) -> None:
        """Raise InvalidRequest where a Controller serves, or hangs."""

    def check_stopped(self) -> None:
        """Raise BrokerRunning where any part of a broker runs."""

    def survey(self) -> Survey:
        """The copies of the metadata."""

    def marks(self) -> Sequence[Mark]:
        """What Ray's head knows of Controllers that left copies out: see ``witness.py``."""

    def folders(self) -> list[FoundDir]:
        """The partitions' folders. Raises where a log dir was not looked at."""

    def has_managers(self) -> bool:
        """Whether a LogManager runs, which has its log dirs locked."""

    def release(self, node_id: str) -> None:
        """Have the LogManager of a node, if there is one, leave its copy alone for a moment."""

    def set_aside(self, entry: SurveyedDir) -> None:
        """Rename the folder of a copy; fine if it is gone."""

    def run(
        self,
        function: Callable[..., Answer],
        node_id: str,
        arguments: tuple[Any, ...],
        what: str,
    ) -> Answer:
        """What a function returns on a node. ``what``: what it is for, as errors say it."""


class RayMachines:
    """See ``Machines``. The process must be connected to Ray.

    ``config``: its ``log.dirs`` say where to look; a node's own ``RAYLOG_LOG_DIRS`` count more.
    """

    def __init__(self, namespace: str, config: BrokerConfig) -> None:
        self._namespace, self._config = namespace, config
        self._reach = RayReach(namespace, config, is_on_node=False, timeout_s=SURVEY_TIMEOUT_S)

    def own(self) -> Node:
        return own_node()

    def check_not_served(self) -> None:
        controller = find_controller(self._namespace)
        if controller is None:
            return
        why = (
            "is served by a Controller, which has its metadata: nothing is to be mended. If other "
            "metadata is to count, stop the broker first (`raylog stop`)"
        )
        try:
            controller.cluster_id().get(LOOK_TIMEOUT_S)
        except NotLeader:
            return  # it has no metadata open
        except RequestTimedOut:  # it would go on with its work when it wakes
            process = process_of(controller.handle)
            why = (
                f"has a Controller that does not answer ({_described(process)}), and that would "
                "write the metadata when it goes on: end this process (`kill -9`), then try again"
            )
        raise InvalidRequest("namespace", self._namespace, why)

    def check_stopped(self) -> None:
        if running_parts(self._namespace).names:
            raise BrokerRunning(self._namespace)

    def survey(self) -> Survey:
        return self._reach.survey(tries_locks=False)

    def marks(self) -> Sequence[Mark]:
        return self._reach.marks()

    def folders(self) -> list[FoundDir]:
        nodes = alive_nodes()
        arguments = {node: (node, self._config) for node in nodes}
        calls = run_on_nodes(look_at_folders, arguments, "looking at the folders")
        asked = gather(calls, SURVEY_TIMEOUT_S)
        asked.raise_faults()
        for node in asked.unanswered:
            raise asked.errors[node]
        return [entry for node in nodes for entry in asked.answers.get(node, [])]

    def has_managers(self) -> bool:
        return self._reach.has_managers()

    def release(self, node_id: str) -> None:
        self._reach.release(node_id)

    def batches(self, entry: SurveyedDir) -> Sequence[bytes]:
        return self._reach.batches(entry)

    def snapshot_file(self, entry: SurveyedDir) -> bytes:
        return self._reach.snapshot_file(entry)

    def set_aside(self, entry: SurveyedDir) -> None:
        self._reach.set_aside(entry)

    def run(
        self,
        function: Callable[..., Answer],
        node_id: str,
        arguments: tuple[Any, ...],
        what: str,
    ) -> Answer:
        node = Node(node_id)
        return run_on_nodes(function, {node: arguments}, what)[node].get(WORK_TIMEOUT_S)


def _described(process: ActorProcess | None) -> str:
    """Where to find a process, for people."""
    if process is None:
        return "Ray does not tell its process"
    return f"process {process.pid} on node {short_key(process.node_id)}"


def every_node_names_log_dirs() -> bool:
    """Whether each node of the Ray cluster has a RAYLOG_LOG_DIRS of its own."""
    nodes = dict.fromkeys(alive_nodes(), ())
    asked = gather(run_on_nodes(log_dirs_of_environment, nodes, "its log dirs"), LOOK_TIMEOUT_S)
    asked.raise_faults()
    return not asked.errors and all(asked.answers.values())


def log_dirs_of(namespace: str) -> str:
    """``log.dirs`` of the broker that runs, separated by commas; empty where none does.

    Raises InvalidRequest where its Controller hangs.
    """
    controller = find_controller(namespace)
    if controller is None:
        return ""
    try:
        config = controller.broker_config().get(LOOK_TIMEOUT_S)
    except RequestTimedOut:
        process = _described(process_of(controller.handle))
        why = (
            f"has a Controller that does not answer ({process}), so its log dirs are not known: "
            "give --log-dir for each, as to `raylog start`. Before the metadata is restored or "
            "rebuilt, end this process (`kill -9`): it would write it when it goes on"
        )
        raise InvalidRequest("namespace", namespace, why) from None
    entries = {entry.name: entry.value for entry in config}
    return ",".join(entries["log.dirs"])


class ThisMachine:
    """See ``Machines``. ``log_dirs``: their whole paths.

    The node gets an id that nobody has had, as each start of a Ray on one machine gives it one.
    """

    def __init__(self, log_dirs: Sequence[str]) -> None:
        self._log_dirs = log_dirs
        self._fs = RealFileSystem()
        self._surveyor = Surveyor(self._fs)
        self._node = Node(secrets.token_hex(NODE_ID_BYTES))

    def own(self) -> Node:
        return self._node

    def check_not_served(self) -> None:
        """A Controller that serves has its metadata locked."""

    def check_stopped(self) -> None:
        """A broker that runs has its log dirs locked."""

    def survey(self) -> Survey:
        node = self._node
        dirs = self._surveyor.survey(node.node_id, self._log_dirs, node=node.key)
        return Survey(own=node.node_id, dirs=tuple(dirs), errors={})

    def marks(self) -> Sequence[Mark]:
        """None without a Ray: as after its restart, what the copies say has to do."""
        return ()

    def folders(self) -> list[FoundDir]:
        def look() -> list[FoundDir]:
            return [folders_in(self._fs, self._node, path) for path in self._log_dirs]

        return _in_time(look, "looking at the folders", SURVEY_TIMEOUT_S)

    def has_managers(self) -> bool:
        return False

    def release(self, node_id: str) -> None:
        """There is no LogManager."""

    def batches(self, entry: SurveyedDir) -> Sequence[bytes]:
        return _in_time(lambda: read_copy(entry.path), "reading the metadata", WORK_TIMEOUT_S)

    def snapshot_file(self, entry: SurveyedDir) -> bytes:
        what = "reading the metadata's snapshot"
        return _in_time(lambda: read_snapshot_file(entry.path), what, WORK_TIMEOUT_S)

    def set_aside(self, entry: SurveyedDir) -> None:
        what = "setting the metadata aside"
        _in_time(lambda: set_copy_aside(entry.path), what, WORK_TIMEOUT_S)

    def run(
        self,
        function: Callable[..., Answer],
        node_id: str,
        arguments: tuple[Any, ...],
        what: str,
    ) -> Answer:
        assert node_id == self._node.node_id, "there is no other node"
        return _in_time(lambda: function(*arguments), what, WORK_TIMEOUT_S)


def _in_time(function: Callable[[], Answer], what: str, timeout_s: float) -> Answer:
    """What a function returns that works on a disk, which may hang. Raises RequestTimedOut."""
    ended: Future[Answer] = Future()

    def run() -> None:
        try:
            ended.set_result(function())
        except BaseException as error:
            ended.set_exception(error)

    try:
        threading.Thread(target=run, name=what, daemon=True).start()
    except RuntimeError as error:
        raise OutOfResources(what, str(error)) from error
    try:
        return ended.result(timeout_s)
    except TimeoutError:
        if ended.done():
            raise  # the function's own
        raise RequestTimedOut(what, int(timeout_s * 1000)) from None


# -- on the nodes ----------------------------------------------------------------------------------


def look_at_folders(node: Node, config: BrokerConfig) -> list[FoundDir]:
    """The partitions in the log dirs of the node that this runs on."""
    return [folders_in(RealFileSystem(), node, path) for path in node_log_dirs(config)]


def folders_in(fs: FileSystem, node: Node, path: str) -> FoundDir:
    """The partitions in a log dir. This only reads."""
    found = FoundDir(node=node.key, node_id=node.node_id, path=path)
    try:
        if not fs.is_dir(path):
            return found
        meta = read_meta(fs, path)
        names = [name for name in fs.list_dir(path) if fs.is_dir(os.path.join(path, name))]
        epoch = _obeyed_epoch(fs, path)
    except RaylogError as error:
        return FoundDir(node=node.key, node_id=node.node_id, path=path, problem=error.problem)
    folders, strays = [], {}
    for name in names:
        if doomed_suffix(name) == STRAY_DIR_SUFFIX:
            strays[name] = _topic_id(fs, os.path.join(path, name))
        partition = parse_folder(name)
        if partition is not None and partition != METADATA_PARTITION:
            topic_id = _topic_id(fs, os.path.join(path, name))
            folders.append(FoundFolder(partition=partition, topic_id=topic_id))
    return FoundDir(
        node=node.key,
        node_id=node.node_id,
        path=path,
        cluster_id=None if meta is None else meta.cluster_id,
        directory_id=None if meta is None else meta.directory_id,
        obeyed_epoch=epoch,
        folders=tuple(folders),
        strays=strays,
    )


def _topic_id(fs: FileSystem, folder: str) -> str | None:
    try:
        return read_topic_id(fs, folder)
    except CorruptCheckpoint:
        return None


def _obeyed_epoch(fs: FileSystem, path: str) -> int:
    """Raises StorageError; -1 where the file is damaged: its node does not use the dir then."""
    try:
        return read_controller_epoch(fs, path)
    except CorruptCheckpoint:
        return NO_EPOCH
