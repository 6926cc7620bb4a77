"""A LogManager answers for partitions that recover, and forgets those that say nothing."""

from raylog.actors.messages import Recovering
from raylog.actors.node.recoveries import FORGOTTEN_AFTER_S, Recoveries
from raylog.storage.names import TopicPartition
from raylog.storage.report import Progress

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_last_word_of_each_partition_counts_until_its_end() -> None:
    recoveries = Recoveries(float)
    recoveries.record(FIRST, Progress(1, 10, 0, 2))
    recoveries.record(SECOND, Progress(5, 10, 1, 2))
    recoveries.record(FIRST, Progress(2, 10, 0, 2))
    assert recoveries.running() == [
        Recovering("t-0", Progress(2, 10, 0, 2)),
        Recovering("t-1", Progress(5, 10, 1, 2)),
    ]
    recoveries.record(FIRST, None)
    recoveries.record(FIRST, None)
    assert [entry.partition for entry in recoveries.running()] == ["t-1"]


def test_one_that_was_killed_is_forgotten() -> None:
    now_s = 0.0
    recoveries = Recoveries(lambda: now_s)
    recoveries.record(FIRST, Progress(1, 10, 0, 2))
    now_s = FORGOTTEN_AFTER_S
    assert len(recoveries.running()) == 1
    now_s += 1
    assert recoveries.running() == []
