"""Whose batches lie in the logs when all is over: read from the disks, without the broker."""

from collections.abc import Iterator
from pathlib import Path

from raylog.storage.errors import CorruptRecord
from raylog.storage.files import RealFileSystem
from raylog.storage.names import parse_folder
from raylog.storage.records.batch import BatchHeader, iter_batches
from raylog.storage.state.properties import PARTITION_METADATA, read_topic_id
from tests.soak.history import Batches, Partition, ints


def batches(disks: Path) -> Iterator[Batches]:
    """Of every partition on these disks that has batches of producers.

    What is to be deleted, or set aside, is left out.
    """
    fs = RealFileSystem()
    for metadata in sorted(disks.rglob(PARTITION_METADATA)):
        folder = metadata.parent
        found, topic_id = parse_folder(folder.name), read_topic_id(fs, str(folder))
        if found is None or topic_id is None:
            continue
        headers = [one for one in _headers(folder) if one.producer_id >= 0]
        if not headers:
            continue
        yield Batches(
            Partition(found.topic, topic_id, found.partition),
            ints(one.base_offset for one in headers),
            ints(one.producer_id for one in headers),
        )


def _headers(folder: Path) -> Iterator[BatchHeader]:
    """What is damaged, ``verify`` names; here it ends its file."""
    for path in sorted(folder.glob("*.log")):
        try:
            for _, header in iter_batches(path.read_bytes()):
                yield header
        except CorruptRecord:
            continue
