"""Looking at a node's log dirs for the metadata, before anybody has opened anything. No Ray.

This only reads: neither a lock is taken nor a file mended. A log that a crash has left torn is read
up to the torn place, as its recovery will.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence

from raylog.cluster.controller.copies import DIGEST_BYTES, Copy, SurveyedDir
from raylog.cluster.controller.records import ClusterRecord, ControllerRecord, decode
from raylog.cluster.controller.wholeness import check_whole
from raylog.storage.errors import RaylogError
from raylog.storage.files import FileSystem
from raylog.storage.log_dir import METADATA_PARTITION
from raylog.storage.names import LOG_SUFFIX, base_offsets, segment_file
from raylog.storage.records.decode import decode_records
from raylog.storage.records.scan import scan_batches
from raylog.storage.state.controller_epoch import NO_EPOCH, read_controller_epoch
from raylog.storage.state.properties import read_meta


def survey(fs: FileSystem, node_id: str, paths: Sequence[str]) -> list[SurveyedDir]:
    """What lies in each of a node's log dirs, in their order."""
    return [_survey_dir(fs, node_id, path) for path in paths]


def _survey_dir(fs: FileSystem, node_id: str, path: str) -> SurveyedDir:
    folder = os.path.join(path, str(METADATA_PARTITION))
    cluster_id: str | None = None
    has_metadata = False
    epoch = _obeyed_epoch(fs, path)
    try:
        if fs.is_dir(path):
            has_metadata = fs.is_dir(folder)
            meta = read_meta(fs, path)
            cluster_id = None if meta is None else meta.cluster_id
        copy = _read(fs, folder) if has_metadata else None
    except RaylogError as error:
        return SurveyedDir(
            node_id=node_id,
            path=path,
            cluster_id=cluster_id,
            has_metadata=has_metadata,
            problem=error.problem,
            obeyed_epoch=epoch,
        )
    return SurveyedDir(
        node_id=node_id,
        path=path,
        cluster_id=cluster_id,
        has_metadata=has_metadata,
        copy=copy,
        obeyed_epoch=epoch,
    )


def _obeyed_epoch(fs: FileSystem, path: str) -> int:
    """The highest epoch of a Controller that a log dir has obeyed; -1 where it does not say."""
    try:
        return read_controller_epoch(fs, path)
    except RaylogError:  # the node says it when it opens the dir, and does not use it
        return NO_EPOCH


def _read(fs: FileSystem, folder: str) -> Copy:
    """The metadata in a folder.

    Raises LogMissing as ``check_whole`` does, and CorruptRecord where a newer raylog wrote it.
    """
    check_whole(fs, folder)
    digests = bytearray()
    cluster_id = ""
    epoch = 0
    digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for value in _values(fs, folder):
        digest.update(len(value).to_bytes(8, "big") + value)
        digests += digest.digest()
        record = decode(value)
        if isinstance(record, ClusterRecord):
            cluster_id = record.cluster_id
        elif isinstance(record, ControllerRecord):
            epoch = record.epoch
    return Copy(cluster_id=cluster_id, controller_epoch=epoch, digests=bytes(digests))


def _values(fs: FileSystem, folder: str) -> Iterator[bytes]:
    for base_offset in base_offsets(fs.list_dir(folder)):
        path = os.path.join(folder, segment_file(base_offset, LOG_SUFFIX))
        content = memoryview(fs.read_file(path))
        whole = content[: scan_batches(content, verify=True).end]
        for record in decode_records(whole):
            yield record.value or b""
