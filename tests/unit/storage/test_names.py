"""Names of topics, folders and files."""

from uuid import UUID

import pytest

from raylog.storage.errors import InvalidTopic
from raylog.storage.names import (
    DELETE_DIR_SUFFIX,
    LOG_SUFFIX,
    TopicPartition,
    check_topic_name,
    collision_key,
    doomed_folder,
    offset_of,
    parse_folder,
    segment_file,
)


@pytest.mark.parametrize(
    "topic", ["a", "orders", "A.b_c-9", "-", "...", "x" * 249, "__consumer_offsets"]
)
def test_a_legal_topic_name_is_taken(topic: str) -> None:
    check_topic_name(topic)


@pytest.mark.parametrize(
    "topic",
    ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0", "tab\t", None, 7, "a:b", "a*"],
)
def test_an_illegal_topic_name_is_refused_by_name(topic: str) -> None:
    with pytest.raises(InvalidTopic, match="topic name"):
        check_topic_name(topic)


def test_names_that_differ_in_dot_and_underscore_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c")
    assert collision_key("a-b") != collision_key("a_b")


@pytest.mark.parametrize("partition", [TopicPartition("orders", 0), TopicPartition("a-b-3", 17)])
def test_a_folder_name_leads_back_to_its_partition(partition: TopicPartition) -> None:
    assert parse_folder(str(partition)) == partition


@pytest.mark.parametrize(
    "name", ["orders", "-3", "orders-", "orders-x", "orders--", "orders-²", "orders-01", ""]
)
def test_what_is_no_folder_of_a_partition_is_none(name: str) -> None:
    assert parse_folder(name) is None


def test_a_doomed_folder_keeps_its_topic_and_fits_into_255_bytes() -> None:
    unique = UUID(int=1)
    assert (
        doomed_folder(TopicPartition("t", 3), unique, DELETE_DIR_SUFFIX)
        == f"t-3.{unique.hex}-delete"
    )
    long = doomed_folder(TopicPartition("x" * 249, 12), unique, DELETE_DIR_SUFFIX)
    assert len(long) == 255
    assert long.endswith(f"-12.{unique.hex}-delete")


def test_a_segment_file_has_its_base_offset_in_20_digits() -> None:
    assert segment_file(42, LOG_SUFFIX) == "00000000000000000042.log"
    assert offset_of("00000000000000000042.log") == 42
    assert offset_of("00000000000000000042.log.deleted") == 42
    assert offset_of(segment_file(2**63 - 1, ".index")) == 2**63 - 1


@pytest.mark.parametrize(
    "name", ["42.log", "leader-epoch-checkpoint", "0000000000000000004x.log", "", "²" * 20]
)
def test_a_name_without_an_offset_has_none(name: str) -> None:
    assert offset_of(name) is None
