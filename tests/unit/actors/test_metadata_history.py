"""Digests and epochs of the metadata's records: where two copies part."""

import hashlib

import pytest

from raylog.actors.levels import CHAINED_LEVEL, FIRST_LEVELS
from raylog.actors.metadata_history import EpochStart, MetadataHistory, common_end, epoch_at
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.records import CopiesRecord, LevelRecord, Record
from raylog.cluster.controller.surveying import Surveyor
from raylog.storage.clock import SystemClock
from raylog.storage.errors import CorruptRecord
from raylog.storage.testing.memory import MemoryFileSystem
from tests.harness.metadata_pushes import CLUSTER, Pushing, began, topic


def common(one: Pushing, other: Pushing) -> int:
    left, right = one.history, other.history
    end = common_end(left.epochs, left.end, right.epochs, right.end)
    assert end == common_end(right.epochs, right.end, left.epochs, left.end)
    assert left.digest_at(end) == right.digest_at(end)
    return end


def test_the_digests_are_those_that_a_survey_of_the_folder_finds() -> None:
    fs = MemoryFileSystem()
    fs.make_dir("/disk")
    log = MetadataLog(fs, SystemClock(), "/disk/log", new_cluster=CLUSTER, levels=FIRST_LEVELS)
    log.append([began(1)])
    log.append([topic("t"), topic("u")])
    log.close()
    (found,) = Surveyor(fs).survey("node", ["/disk/log"])
    assert found.copy is not None
    history = Pushing(began(1), (topic("t"), topic("u"))).history
    digests = [history.digest_at(end) for end in range(1, history.end + 1)]
    assert found.copy.digests == b"".join(digests)
    assert history.cluster_id == found.copy.cluster_id
    assert history.latest_epoch == found.copy.controller_epoch == 1


def test_a_record_has_the_epoch_of_the_controller_before_it() -> None:
    epochs = Pushing(topic("old"), began(3), topic("t"), began(5)).history.epochs
    assert epochs == (EpochStart(3, 2), EpochStart(5, 4))
    assert [epoch_at(epochs, record) for record in range(6)] == [0, 0, 3, 3, 5, 5]


def test_two_copies_have_in_common_what_lies_before_the_first_epoch_that_differs() -> None:
    first = Pushing(began(1), topic("t"), topic("u"))
    assert common(first, first) == 4
    assert common(first, Pushing(began(1), topic("t"))) == 3
    assert common(first, Pushing()) == 1
    assert common(first, Pushing(began(1), topic("t"), began(2), topic("v"))) == 3
    lost = Pushing(began(1), topic("t"), topic("u"), began(2), topic("v"))
    assert common(lost, Pushing(began(1), topic("t"), began(3), topic("w"))) == 3
    assert common(Pushing(topic("old")), Pushing(topic("old"), began(1))) == 2


def test_what_is_no_record_is_refused() -> None:
    for value in (b"", b"\xc1", b"\x01", b"\x80"):
        with pytest.raises(CorruptRecord, match="record 0 is none of the metadata"):
            MetadataHistory([value])


CHAINED = LevelRecord(level=CHAINED_LEVEL, release="0.2.0")
COPIES = CopiesRecord(nodes=("a",), directories=("dir",))


def test_from_any_point_on_a_history_has_the_digests_of_who_has_all_records() -> None:
    records: list[Record] = [topic("s"), began(1), COPIES, CHAINED, topic("t"), began(2)]
    records += [COPIES, topic("u")]
    pushing = Pushing(*records)
    whole, values = pushing.history, pushing.values
    for end in range(5, len(values) + 1):
        point = MetadataHistory(values[:end]).point()
        assert (point.end, point.latest_epoch) == (end, epoch_at(whole.epochs, end - 1))
        later = MetadataHistory(values[end:], begin=point)
        assert (later.start, later.end) == (end, whole.end)
        for number in range(end, whole.end + 1):
            assert later.digest_at(number) == whole.digest_at(number) != b""
        assert later.digest_at(end - 1) == b""
        assert later.point() == whole.point()
    assert (whole.ruled_from, whole.copies_at) == (3, 7)


def test_below_that_level_digests_are_those_of_an_older_raylog_and_no_point_is_noted() -> None:
    plain = Pushing(began(1), LevelRecord(level=CHAINED_LEVEL - 1, release="0.1.0"), topic("t"))
    assert not plain.history.is_chained
    hashed = hashlib.blake2b(digest_size=8)
    for number, value in enumerate(plain.values):
        hashed.update(len(value).to_bytes(8, "big") + value)
        assert plain.history.digest_at(number + 1) == hashed.digest()
    with pytest.raises(AssertionError):
        plain.history.point()


def test_copies_that_differ_anywhere_differ_in_each_digest_behind() -> None:
    one = Pushing(CHAINED, topic("t"), topic("u"), topic("v")).history
    other = Pushing(CHAINED, topic("x"), topic("u"), topic("v")).history
    assert one.digest_at(2) == other.digest_at(2)
    assert all(one.digest_at(end) != other.digest_at(end) for end in (3, 4, 5))
