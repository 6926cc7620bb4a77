"""The names of topics, folders and files, and the way back from a name to what it means.

::

    <topic>-<partition>/                 a partition's folder
    <topic>-<partition>.<32 hex>-delete/ the same, awaiting deletion
    <topic>-<partition>.<32 hex>-stray/  the same, set aside: it belongs to no topic
    <topic>-<partition>.<32 hex>-future/ a copy that is being made of one in another log dir
    00000000000000000042.log             a segment's file: base offset in 20 digits, then its kind
    00000000000000000042.log.aside-0     what recovery took out of the log (``asides.py``)

Source: ``org.apache.kafka.common.internals.Topic``, ``LocalLog`` and ``LogFileUtils`` of Kafka.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from raylog.storage.errors import InvalidTopic

# A folder's name is the topic, a dash and the partition, and most file systems stop at 255 bytes.
MAX_TOPIC_LENGTH = 249
MAX_FOLDER_LENGTH = 255
OFFSET_DIGITS = 20

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
ASIDE_SUFFIX = ".log.aside-"
DELETE_DIR_SUFFIX = "-delete"
STRAY_DIR_SUFFIX = "-stray"
FUTURE_DIR_SUFFIX = "-future"

# Topics that coordinators write, and nobody else.
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    """One partition of one topic; as text it is the name of its folder."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def check_topic_name(topic: str) -> None:
    """Raise InvalidTopic unless ``topic`` can name a topic."""
    if not isinstance(topic, str) or not topic:
        raise InvalidTopic(topic, "is empty")
    if topic in (".", ".."):
        raise InvalidTopic(topic, "is a special folder name")
    if len(topic) > MAX_TOPIC_LENGTH:
        raise InvalidTopic(
            topic[:40] + "...",
            f"has {len(topic)} characters, but at most {MAX_TOPIC_LENGTH} are allowed",
        )
    if not _LEGAL.fullmatch(topic):
        raise InvalidTopic(topic, "has a character that is not allowed")


def collision_key(topic: str) -> str:
    """A key that is equal for topics that differ only in ``.`` and ``_``.

    Metrics cannot tell such topics apart.
    """
    return topic.replace(".", "_")


def parse_folder(name: str) -> TopicPartition | None:
    """The partition whose folder has this name, or None if it is no partition's folder."""
    topic, _, partition = name.rpartition("-")
    if not topic or not partition.isascii() or not partition.isdigit():
        return None
    parsed = TopicPartition(topic, int(partition))
    return parsed if str(parsed) == name else None  # t-01 is not where t-1 would be looked for


def doomed_folder(partition: TopicPartition, unique: UUID, suffix: str) -> str:
    """The name of a folder that is to be deleted, set aside or still copied.

    The topic is cut so that the name fits 255 bytes.
    """
    tail = f"-{partition.partition}.{unique.hex}{suffix}"
    return partition.topic[: MAX_FOLDER_LENGTH - len(tail)] + tail


def doomed_suffix(name: str) -> str | None:
    """The suffix of a name of :func:`doomed_folder`, or None.

    It is ``-delete``, ``-stray`` or ``-future``.
    """
    stem, _, tail = name.rpartition(".")
    suffix = tail[32:]
    suffixes = (DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, FUTURE_DIR_SUFFIX)
    return suffix if stem and suffix in suffixes else None


def segment_file(base_offset: int, suffix: str) -> str:
    """The name of a segment's file."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def offset_of(file_name: str) -> int | None:
    """The offset at the head of a file's name, or None if it has none."""
    head = file_name.split(".", 1)[0]
    return int(head) if len(head) == OFFSET_DIGITS and head.isascii() and head.isdigit() else None


def base_offsets(names: Iterable[str]) -> list[int]:
    """Where the segments begin whose ``.log`` files have these names, in order."""
    offsets = [offset_of(name) for name in names if name.endswith(LOG_SUFFIX)]
    return sorted(offset for offset in offsets if offset is not None)


def aside_file(base_offset: int, number: int) -> str:
    """The name of what was taken out of a segment, the ``number``-th time."""
    return segment_file(base_offset, f"{ASIDE_SUFFIX}{number}")


def aside_number(name: str) -> int | None:
    """Which one of its segment's asides a file is, or None if it is none."""
    _, _, number = name.partition(ASIDE_SUFFIX)
    is_number = number.isascii() and number.isdigit()
    return int(number) if is_number and offset_of(name) is not None else None
