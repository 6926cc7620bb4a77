"""Digests and epochs of the metadata's records: where two copies part."""

import pytest

from raylog.actors.metadata_history import EpochStart, MetadataHistory, common_end, epoch_at
from raylog.cluster.controller.metadata_log import MetadataLog
from raylog.cluster.controller.surveying import Surveyor
from raylog.storage.clock import SystemClock
from raylog.storage.errors import CorruptRecord
from raylog.storage.testing.memory import MemoryFileSystem
from tests.harness.metadata_pushes import Pushing, began, topic


def common(one: Pushing, other: Pushing) -> int:
    left, right = one.history, other.history
    end = common_end(left.epochs, left.end, right.epochs, right.end)
    assert end == common_end(right.epochs, right.end, left.epochs, left.end)
    assert left.digest_at(end) == right.digest_at(end)
    return end


def test_the_digests_are_those_that_a_survey_of_the_folder_finds() -> None:
    fs = MemoryFileSystem()
    fs.make_dir("/disk")
    log = MetadataLog(fs, SystemClock(), "/disk/log", new_cluster="cluster-of-the-tests-00")
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
