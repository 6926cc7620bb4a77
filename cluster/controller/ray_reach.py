"""The way to the nodes' log dirs on Ray: a task on each node, and on the own node without one.

A task is a process of its own on its node, and needs no LogManager: at a cold start there is none.
A node that hangs is not given another task before it has answered the last one.
"""

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from raylog.actors.control import MetadataKept
from raylog.actors.events import warn
from raylog.actors.metadata_start import find_start
from raylog.actors.node.broker_config import BrokerConfig, node_log_dirs
from raylog.actors.partition.locking import lock_patiently
from raylog.actors.runtime.calls import Call, gather
from raylog.actors.runtime.handles import running
from raylog.actors.runtime.names import Node, log_manager_name
from raylog.actors.runtime.nodes import alive_nodes, is_still_own_actor, own_node
from raylog.actors.runtime.ray_private import forget_note, keep_note, notes
from raylog.actors.runtime.stubs import LogManagerStub, find_log_manager
from raylog.actors.runtime.tasks import run_on_nodes
from raylog.cluster.controller.copies import SurveyedDir
from raylog.cluster.controller.home import Survey
from raylog.cluster.controller.promising import promise_for
from raylog.cluster.controller.putting import put_away
from raylog.cluster.controller.surveying import Surveyor, batches_of
from raylog.cluster.controller.witness import Mark, Witness
from raylog.storage.errors import RaylogError
from raylog.storage.files import RealFileSystem
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import STRAY_DIR_SUFFIX

logger = logging.getLogger(__name__)

# A task is a new process on each node.
SURVEY_TIMEOUT_S = 60.0
# While a broker runs on, its users wait.
AGAIN_TIMEOUT_S = 15.0
READ_TIMEOUT_S = 120.0
# A LogManager writes one small file for it.
PROMISE_TIMEOUT_S = 10.0
# A Controller that begins over its own metadata serves so much later where a LogManager hangs.
BRIEF_TIMEOUT_S = 2.0
# A Controller that cannot begin looks again and again.
_SURVEYOR = Surveyor(RealFileSystem())


def survey_node(node: Node, config: BrokerConfig, tries_locks: bool) -> list[SurveyedDir]:
    """The log dirs of the node that this runs on."""
    paths = node_log_dirs(config)
    return _SURVEYOR.survey(node.node_id, paths, node=node.key, tries_locks=tries_locks)


def promise_on_node(node: Node, config: BrokerConfig, epoch: int) -> list[MetadataKept]:
    """See ``promise_for``: of the log dirs of the node that this runs on."""
    fs = RealFileSystem()
    promises: list[MetadataKept] = []
    for path in node_log_dirs(config):
        with suppress(RaylogError):  # what is wrong with it is told where it is looked at
            promises += promise_for(fs, node.key, path, epoch)
    return promises


def read_copy(log_dir: str) -> list[bytes]:
    """The batches of the metadata in a log dir. Raises LogLocked where a Controller writes it."""
    fs = RealFileSystem()
    folder = os.path.join(log_dir, str(METADATA_PARTITION))
    lock = lock_patiently(lambda: fs.lock_dir(folder))
    try:
        return [bytes(batch) for batch in batches_of(fs, folder)]
    finally:
        lock.release()


def read_snapshot_file(log_dir: str) -> bytes:
    """The file of the snapshot behind which the metadata in a log dir goes on; empty for none.

    Raises as ``read_copy`` and ``find_start``.
    """
    fs = RealFileSystem()
    folder = os.path.join(log_dir, str(METADATA_PARTITION))
    lock = lock_patiently(lambda: fs.lock_dir(folder))
    try:
        begin = find_start(fs, folder)
        return b"" if begin is None else fs.read_file(os.path.join(folder, begin.id.file_name))
    finally:
        lock.release()


def set_copy_aside(log_dir: str) -> None:
    """Keep the metadata in a log dir under a name that is in nobody's way; fine if it is gone."""
    fs = RealFileSystem()
    folder = os.path.join(log_dir, str(METADATA_PARTITION))
    if fs.is_dir(folder):
        put_away(fs, log_dir, STRAY_DIR_SUFFIX)


class RayNotes:
    """See ``witness.Notes``."""

    def keep(self, key: str, value: bytes) -> None:
        keep_note(key, value)

    def find(self, prefix: str) -> Mapping[str, bytes]:
        return notes(prefix)

    def forget(self, key: str) -> None:
        forget_note(key)


class RayReach:
    """See ``home.Reach``.

    ``is_on_node``: whether this process sees the log dirs of its node as Ray's processes there do;
    a driver may not. ``timeout_s``: how long a survey waits for the nodes. ``log_dirs``: those of
    now, where they may be other ones than of ``config``.
    """

    def __init__(
        self,
        namespace: str,
        config: BrokerConfig,
        *,
        is_on_node: bool,
        timeout_s: float = AGAIN_TIMEOUT_S,
        log_dirs: Callable[[Sequence[str]], Sequence[str]] = tuple,
    ) -> None:
        self._namespace, self._log_dirs = namespace, log_dirs
        self._config, self._is_on_node, self._timeout_s = config, is_on_node, timeout_s
        self._under_way: dict[Node, Call[list[SurveyedDir]]] = {}

    # -- LogManagers -------------------------------------------------------------------------------

    def has_managers(self) -> bool:
        return bool(self._managers())

    def statuses(self) -> Sequence[MetadataKept]:
        return self._ask(self._managers(), LogManagerStub.metadata_status, PROMISE_TIMEOUT_S)

    def others_statuses(self) -> Sequence[MetadataKept]:
        own = own_node()
        others = {node: manager for node, manager in self._managers().items() if node != own}
        return self._ask(others, LogManagerStub.metadata_status, BRIEF_TIMEOUT_S)

    def promises(self, epoch: int) -> Sequence[MetadataKept]:
        return self._ask(
            self._managers(), lambda manager: manager.metadata_promise(epoch), PROMISE_TIMEOUT_S
        )

    def promises_of_unattended(self, epoch: int) -> Sequence[MetadataKept]:
        attended = self._managers()
        nodes = [node for node in alive_nodes() if node not in attended]
        arguments = {node: (node, self._own_config(), epoch) for node in nodes}
        calls = run_on_nodes(promise_on_node, arguments, "fencing the copy of the metadata")
        asked = gather(calls, self._timeout_s)
        asked.raise_faults()
        return [kept for answer in asked.answers.values() for kept in answer]

    def is_controller(self) -> bool:
        return is_still_own_actor()

    def marks(self) -> Sequence[Mark]:
        try:
            return Witness(RayNotes(), self._namespace).marks()
        except Exception as error:  # whatever Ray raises: then nobody knows
            warn(logger, "no-witness", why=error)
            return []

    def release(self, node_id: str) -> None:
        for node, manager in self._managers().items():
            if node.node_id == node_id:
                try:
                    manager.metadata_release().get(PROMISE_TIMEOUT_S)
                except RaylogError as error:  # whoever wants the lock says whether it is held
                    warn(logger, "metadata-not-released", node=node.key, why=error)

    def _managers(self) -> dict[Node, LogManagerStub]:
        """By the node that is up; one that waits for its node would not answer."""
        names = running(self._namespace)
        nodes = [node for node in alive_nodes() if log_manager_name(node.key) in names]
        found = {node: find_log_manager(node.key, self._namespace) for node in nodes}
        return {node: manager for node, manager in found.items() if manager is not None}

    def _ask(
        self,
        managers: Mapping[Node, LogManagerStub],
        question: Callable[[LogManagerStub], Call[MetadataKept]],
        timeout_s: float,
    ) -> Sequence[MetadataKept]:
        calls = {node: question(manager) for node, manager in managers.items()}
        asked = gather(calls, timeout_s)
        asked.raise_faults()
        return list(asked.answers.values())

    # -- log dirs ----------------------------------------------------------------------------------

    def survey(self, *, tries_locks: bool, only_own: bool = False) -> Survey:
        own, config = own_node(), self._own_config()
        nodes = [own] if only_own else alive_nodes()
        others = [node for node in nodes if not (self._is_on_node and node == own)]
        calls = self._calls(others, config, tries_locks)
        dirs: list[SurveyedDir] = []
        errors: dict[str, RaylogError] = {}
        if self._is_on_node:
            try:
                dirs += survey_node(own, config, tries_locks)
            except RaylogError as error:
                errors[own.node_id] = error
        read = gather(calls, self._timeout_s)
        read.raise_faults()
        self._under_way.update({node: calls[node] for node in read.unanswered})
        dirs += [entry for answer in read.answers.values() for entry in answer]
        for node, problem in read.errors.items():
            assert isinstance(problem, RaylogError), "the others were raised"
            errors[node.node_id] = problem
        return Survey(own=own.node_id, dirs=tuple(dirs), errors=errors)

    def _own_config(self) -> BrokerConfig:
        """With the log dirs of now."""
        log_dirs = tuple(self._log_dirs(self._config.log_dirs))
        return dataclasses.replace(self._config, log_dirs=log_dirs)

    def _calls(
        self, nodes: Sequence[Node], config: BrokerConfig, tries_locks: bool
    ) -> dict[Node, Call[list[SurveyedDir]]]:
        asked = {node: self._under_way.pop(node) for node in nodes if node in self._under_way}
        arguments = {node: (node, config, tries_locks) for node in nodes if node not in asked}
        return {**asked, **run_on_nodes(survey_node, arguments, "looking at the log dirs")}

    def batches(self, entry: SurveyedDir) -> Sequence[bytes]:
        self.release(entry.node_id)
        node = Node(entry.node_id)
        calls = run_on_nodes(read_copy, {node: (entry.path,)}, "reading the metadata")
        return calls[node].get(READ_TIMEOUT_S)

    def snapshot_file(self, entry: SurveyedDir) -> bytes:
        self.release(entry.node_id)
        node = Node(entry.node_id)
        what = "reading the metadata's snapshot"
        calls = run_on_nodes(read_snapshot_file, {node: (entry.path,)}, what)
        return calls[node].get(READ_TIMEOUT_S)

    def set_aside(self, entry: SurveyedDir) -> None:
        self.release(entry.node_id)
        node = Node(entry.node_id)
        calls = run_on_nodes(set_copy_aside, {node: (entry.path,)}, "setting the metadata aside")
        calls[node].get(READ_TIMEOUT_S)
