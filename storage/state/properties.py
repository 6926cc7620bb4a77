"""The small identity files: ``meta.properties`` and ``partition.metadata``.

The first identifies a log dir, the second a partition.

::

    meta.properties           partition.metadata
    #                         version: 0
    #<date>                   topic_id: 22 characters of url-safe base64
    version=1
    cluster.id=...
    node.id=1
    directory.id=...

Ids are UUIDs in Kafka's spelling: url-safe base64 without padding.
Source: ``MetaProperties`` and ``PartitionMetadataFile`` of Kafka.
"""

import base64
import os
import time
import uuid
from typing import NamedTuple

from raylog.storage.errors import CorruptCheckpoint
from raylog.storage.files import FileSystem, write_atomically

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


def random_id() -> str:
    """A new id in Kafka's spelling. It never begins with a dash, as Kafka's never do."""
    while (text := id_text(uuid.uuid4())).startswith("-"):
        pass
    return text


def id_text(value: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def id_uuid(text: str) -> uuid.UUID:
    """The UUID that ``text`` spells; ValueError if it spells none.

    Bits of the last character belong to no id, and are never set: where they are, it is damaged.
    """
    value = uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    if id_text(value) != text:
        raise ValueError(f"{text!r} is no id")
    return value


def is_directory_id(text: str) -> bool:
    """Whether ``text`` has the form of a log dir's id: a UUID in 22 characters."""
    try:
        id_uuid(text)
    except ValueError:
        return False
    return True


class MetaProperties(NamedTuple):
    """Whose log dir this is."""

    cluster_id: str
    node_id: int
    directory_id: str


def read_meta(fs: FileSystem, log_dir: str) -> MetaProperties | None:
    """The log dir's properties, or None if it has none yet."""
    path = os.path.join(log_dir, META_PROPERTIES)
    if not fs.exists(path):
        return None
    lines = [line.strip() for line in fs.read_file(path).decode(errors="replace").splitlines()]
    pairs = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    try:
        if pairs["version"] != "1":
            raise ValueError(f"version {pairs['version']}")
        id_uuid(pairs["directory.id"])
        return MetaProperties(pairs["cluster.id"], int(pairs["node.id"]), pairs["directory.id"])
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(
            path, f"not a meta.properties file of version 1 ({error})"
        ) from error


def write_meta(fs: FileSystem, log_dir: str, meta: MetaProperties) -> None:
    lines = [
        "#",
        time.strftime("#%a %b %d %H:%M:%S UTC %Y", time.gmtime()),
        "version=1",
        f"cluster.id={meta.cluster_id}",
        f"node.id={meta.node_id}",
        f"directory.id={meta.directory_id}",
    ]
    write_atomically(fs, os.path.join(log_dir, META_PROPERTIES), ("\n".join(lines) + "\n").encode())


def read_topic_id(fs: FileSystem, folder: str) -> str | None:
    """The topic id in ``partition.metadata``, or None if there is no such file."""
    path = os.path.join(folder, PARTITION_METADATA)
    if not fs.exists(path):
        return None
    pairs = dict(
        line.split(": ", 1)
        for line in fs.read_file(path).decode(errors="replace").splitlines()
        if ": " in line
    )
    try:
        if pairs["version"] != "0":
            raise ValueError(f"version {pairs['version']}")
        id_uuid(pairs["topic_id"])
        return pairs["topic_id"]
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(path, f"not a partition.metadata file ({error})") from error


def write_topic_id(fs: FileSystem, folder: str, topic_id: str) -> None:
    content = f"version: 0\ntopic_id: {topic_id}".encode()
    write_atomically(fs, os.path.join(folder, PARTITION_METADATA), content)
