"""What of a broker runs, by the names of its actors."""

from raylog.cluster.running import parts_of


def test_the_actors_of_a_broker_are_told_by_their_names() -> None:
    names = ["Controller", "LogManager:b", "LogManager:a", "Log:t-0", "Retention:a", "other"]
    parts = parts_of(names)
    assert parts.log_managers == ["a", "b"]
    assert (parts.logs, parts.retention, parts.compaction) == (["t-0"], ["a"], [])
    assert parts.others == ["Log:t-0", "LogManager:a", "LogManager:b", "Retention:a"]
