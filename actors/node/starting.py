"""How a life of a LogManager begins: what lies in its dirs, and which LogActors live on.

All actors of the cluster are asked what they serve, for ASK_TIMEOUT_S in all: Ray's names do not
say where one lives, and one of this node may serve from a dir that cannot be used, or that lies
under none of the paths any more. This node does not have such a dir's lock, so none of its actors
may serve from it. One that is silent now is asked again: see ``stranger_round.py``.

=============================================  =====================================================
the actor                                      becomes
=============================================  =====================================================
serves a folder that is here                   served
is closed, or its disk has failed, or it       a stranger: the machine ends it
serves another folder of this node, or one
in a dir that is not in use, or is silent
lives on another node                          nothing; it is not this node's
learns its config, opens its log               nothing; the order to serve the log finds it, or the
                                               stranger round where the log is gone
is silent                                      the same, or the stranger round finds it
=============================================  =====================================================
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from raylog.actors.control import DirReport, LogId
from raylog.actors.node.dirs import Found
from raylog.actors.node.events import DirsRead, Folder, Served, Started, UpkeepKind
from raylog.actors.node.log_actors import AskedActors, served_of
from raylog.actors.node.log_start import LogDisk
from raylog.actors.node_messages import LogSays
from raylog.storage.names import TopicPartition

ASK_TIMEOUT_S = 5.0

Verdict = Literal["served", "stranger", "left alone"]


def started(
    found: Found,
    *,
    disk: LogDisk,
    actors: AskedActors,
    node_id: str,
    upkeep: tuple[UpkeepKind, ...],
    room: int,
    is_restarted: bool,
) -> Started:
    """The first event. Raises NotLeader or RequestTimedOut where Ray does not answer.

    ``is_restarted``: Ray has started this life in the place of one that died.
    """
    served: list[Served] = []
    strangers: list[TopicPartition] = []
    for partition, says in _ask(actors).items():
        match judge(says, found.folders, disk=disk, node_id=node_id):
            case "served":
                served.append(served_of(says))
            case "stranger":
                strangers.append(partition)
            case "left alone":
                pass
    return Started(
        dirs=_in_this_life(found.dirs, is_restarted),
        folders=found.folders,
        controller_epoch=found.controller_epoch,
        served=tuple(served),
        strangers=tuple(strangers),
        upkeep=upkeep,
        room=room,
        is_restarted=is_restarted,
    )


def dirs_read(found: Found, *, is_restarted: bool) -> DirsRead:
    """The event for a log dir that answers when the node has begun already."""
    return DirsRead(
        dirs=_in_this_life(found.dirs, is_restarted),
        folders=found.folders,
        controller_epoch=found.controller_epoch,
    )


def _in_this_life(dirs: Sequence[DirReport], is_restarted: bool) -> tuple[DirReport, ...]:
    """At a fresh start what lies in a dir is read from the disk itself when it is opened."""
    return tuple(
        replace(dir, is_read_back=dir.is_read_back or (not is_restarted and dir.state == "online"))
        for dir in dirs
    )


def _ask(actors: AskedActors) -> dict[TopicPartition, LogSays]:
    """What the actors say that run; those that do not answer are left out."""
    answers = actors.says_all(sorted(actors.running()), ASK_TIMEOUT_S)
    return {partition: says for partition, says in answers.items() if isinstance(says, LogSays)}


def judge(says: LogSays, folders: Sequence[Folder], *, disk: LogDisk, node_id: str) -> Verdict:
    """What becomes of an actor that has answered: see the module's head."""
    if says.node_id != node_id:
        return "left alone"
    if not any(_is_its(says, folder, disk) for folder in folders):
        return "stranger"
    match says.state:
        case "serving":
            return "served"
        case "ended" | "offline":
            return "stranger"
        case _:
            return "left alone"


def _is_its(says: LogSays, folder: Folder, disk: LogDisk) -> bool:
    """Whether this is the folder that the actor serves. A damaged one does not say its topic."""
    if folder.is_copy or folder.directory_id != says.directory_id:
        return False
    if folder.topic_id is None:
        return folder.partition == says.log.partition
    log = LogId(partition=folder.partition, topic_id=folder.topic_id)
    return log == says.log and says.folder == disk.folder(says.directory_id, folder.partition)
