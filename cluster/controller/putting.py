"""Putting a copy of the metadata into a log dir, where a Controller opens it. No Ray.

The Controller may begin on any node, while the newest copy lies on another one. Then that copy's
records are written here beside the old copy, if there is one, and take its place when all of them
are on the disk::

    __cluster_metadata-0.new     --renamed-->  __cluster_metadata-0
    __cluster_metadata-0         --renamed-->  __cluster_metadata-0.<32 hex>-stray, or -delete

A crash in between leaves no copy here: the one that it was made of is where it was. Nothing is
removed here: what was unreadable is kept as ``-stray``, and an older state of the same metadata is
deleted by the node as other ``-delete`` folders are.
"""

import os
import uuid
from collections.abc import Iterable

from raylog.actors.metadata_snapshot import MetadataSnapshot, write_snapshot
from raylog.actors.node.metadata_copy import CONFIG, NEW_SUFFIX, remove_folder
from raylog.actors.partition.locking import lock_patiently
from raylog.storage.clock import Clock
from raylog.storage.files import FileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log_dir import METADATA_PARTITION, make_usable
from raylog.storage.names import DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, doomed_folder
from raylog.storage.state.properties import random_id


def put_copy(
    fs: FileSystem,
    clock: Clock,
    log_dir: str,
    batches: Iterable[bytes],
    *,
    is_outdated: bool,
    begin: MetadataSnapshot | None = None,
) -> None:
    """Make these record batches the metadata in ``log_dir``, all on the disk when this returns.

    ``begin``: the snapshot of what comes before them. ``is_outdated``: what was there is an older
    state of it, so that it may go. Raises LogLocked where a process uses what is there,
    InvalidLogDir, and StorageError.
    """
    folder = os.path.join(log_dir, str(METADATA_PARTITION))
    made = folder + NEW_SUFFIX
    make_usable(fs, log_dir)
    if fs.is_dir(made):  # of a copy that was cut off
        remove_folder(fs, made)
    create_log(fs, made, random_id(), 0 if begin is None else begin.point.end)
    if begin is not None:
        write_snapshot(fs, made, begin, clock.now_ms())
    _write(fs, clock, made, batches)
    if fs.is_dir(folder):
        put_away(fs, log_dir, DELETE_DIR_SUFFIX if is_outdated else STRAY_DIR_SUFFIX)
    fs.rename(made, folder)
    fs.sync_dir(log_dir)


def _write(fs: FileSystem, clock: Clock, folder: str, batches: Iterable[bytes]) -> None:
    log = open_log(fs, clock, folder, METADATA_PARTITION, CONFIG)
    try:
        log.epochs.assign(log.epochs.next, log.log_end_offset)
        for batch in batches:
            log.append(batch)
        log.flush()
        log.close()
    finally:
        log.release()


def put_away(fs: FileSystem, log_dir: str, suffix: str) -> None:
    """Rename the metadata of a log dir, so that it counts no more.

    Raises LogLocked where a process uses it, and StorageError.
    """
    folder = os.path.join(log_dir, str(METADATA_PARTITION))
    lock = lock_patiently(lambda: fs.lock_dir(folder))
    try:
        away = doomed_folder(METADATA_PARTITION, uuid.uuid4(), suffix)
        fs.rename(folder, os.path.join(log_dir, away))
        fs.sync_dir(log_dir)
    finally:
        lock.release()
