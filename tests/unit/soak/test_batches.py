"""Whose batches lie on the disks is read from their headers."""

from pathlib import Path

from raylog.storage.files import RealFileSystem
from raylog.storage.records.encode import encode_records
from raylog.storage.state.properties import random_id, write_topic_id
from tests.soak.batches import batches
from tests.soak.history import Partition


def segment(folder: Path, topic_id: str, *producer_ids: int) -> None:
    """A log of one record a batch, each by such a producer."""
    folder.mkdir(parents=True)
    write_topic_id(RealFileSystem(), str(folder), topic_id)
    written = [
        encode_records(
            [(0, None, b"value", ())],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
        )
        for offset, producer_id in enumerate(producer_ids)
    ]
    (folder / f"{0:020}.log").write_bytes(b"".join(map(bytes, written)))


def test_the_batches_of_producers_are_found_and_no_others(tmp_path: Path) -> None:
    topic_id = random_id()
    segment(tmp_path / "one" / "a" / "t-0", topic_id, 7, -1, 8)
    segment(tmp_path / "two" / "b" / "t-1", topic_id, 7)
    segment(tmp_path / "two" / "b" / "t-2", topic_id, -1)  # nobody's
    segment(tmp_path / "two" / "b" / f"t-3.{'0' * 32}-delete", topic_id, 9)
    segment(tmp_path / "two" / "b" / f"t-4.{'0' * 32}-stray", topic_id, 9)
    found = [
        (one.partition, one.offsets.tolist(), one.producer_ids.tolist())
        for one in batches(tmp_path)
    ]
    assert found == [
        (Partition("t", topic_id, 0), [0, 2], [7, 8]),
        (Partition("t", topic_id, 1), [0], [7]),
    ]
