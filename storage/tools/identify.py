"""Writes the lost ``meta.properties`` of a log dir again.

The file says whose dir it is, by three ids. Where each can be read:

================  ==================================================================================
id                where
================  ==================================================================================
``cluster.id``    every other log dir of the cluster
``node.id``       every other log dir of the node
``directory.id``  not in another log dir: each has its own. The partitions here are bound to it, so
                  the records of the cluster's metadata name it with each of them
                  (``raylog log dump --cluster-metadata-decoder``), and so does an old copy of the
                  file
================  ==================================================================================

With another directory id than it had, all partitions of the dir would be set aside. So none is made
up, and the id of the log dir that the others were read from is refused.
"""

import os
from contextlib import suppress

from raylog.storage.errors import CorruptCheckpoint, InvalidLogDir, RepairRefused, StorageError
from raylog.storage.files import FileSystem, write_atomically
from raylog.storage.log_dir import LOCK_FILE
from raylog.storage.state.checkpoints import CORRUPT_SUFFIX
from raylog.storage.state.properties import (
    META_PROPERTIES,
    MetaProperties,
    is_directory_id,
    read_meta,
    write_meta,
)


def identify(
    fs: FileSystem,
    path: str,
    directory_id: str,
    *,
    like: str | None = None,
    cluster_id: str | None = None,
    node_id: int | None = None,
) -> MetaProperties:
    """Write the ``meta.properties`` of the log dir ``path``; returns what it says.

    ``like``: another log dir of the same node, for the ids that are not given. No broker of the
    node may run. A damaged file is kept as ``meta.properties.corrupt``. Raises InvalidLogDir,
    LogLocked, RepairRefused or CorruptCheckpoint (of ``like``), with nothing changed.
    """
    path = os.path.abspath(path)
    if not fs.is_dir(path):
        raise InvalidLogDir(path, "this is no folder; mount its disk, or correct the path")
    _check_unused(fs, path)  # first: nothing else matters then
    if not is_directory_id(directory_id):
        raise RepairRefused(path, f"{directory_id!r} is no directory id (22 characters)")
    if like is not None:
        other = _identity(fs, path, like)
        if directory_id == other.directory_id:
            raise RepairRefused(path, f"{directory_id} is the directory id of {like}")
        cluster_id = cluster_id or other.cluster_id
        node_id = other.node_id if node_id is None else node_id
    if cluster_id is None or node_id is None:
        raise RepairRefused(
            path,
            "its cluster id or node id is not known; give another log dir of the same node, which "
            "has both (`--like DIR`), or give both (`--cluster-id ID --node-id N`)",
        )
    meta = MetaProperties(cluster_id, node_id, directory_id)
    lock = fs.lock(os.path.join(path, LOCK_FILE))
    try:
        _make_way(fs, path)
        write_meta(fs, path, meta)
    finally:
        lock.release()
    return meta


def _check_unused(fs: FileSystem, path: str) -> None:
    """Raise LogLocked where a broker uses the log dir; no file is made."""
    lock_file = os.path.join(path, LOCK_FILE)
    if fs.exists(lock_file):
        fs.lock(lock_file).release()


def _identity(fs: FileSystem, path: str, like: str) -> MetaProperties:
    """What ``like`` says of its node. Raises LogLocked where a broker of the node has it."""
    meta = read_meta(fs, like)
    if meta is None:
        raise RepairRefused(path, f"{like} has no {META_PROPERTIES}; give another log dir")
    with suppress(StorageError):  # where nobody can write, no broker runs
        fs.lock(os.path.join(os.path.abspath(like), LOCK_FILE)).release()
    return meta


def _make_way(fs: FileSystem, path: str) -> None:
    """Keep a damaged file under another name. Raises RepairRefused where one can be read."""
    try:
        found = read_meta(fs, path)
    except CorruptCheckpoint:
        kept = os.path.join(path, META_PROPERTIES)
        write_atomically(fs, kept + CORRUPT_SUFFIX, fs.read_file(kept))
        return
    if found is not None:
        raise RepairRefused(path, f"it has a {META_PROPERTIES}: its id is {found.directory_id}")
