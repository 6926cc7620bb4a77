"""What the machine of a node promises of the instructions that are in flight, as assertions."""

from collections import Counter

from raylog.actors.control import LogId
from raylog.actors.node.instructions import (
    Copy,
    Doom,
    KillActor,
    PutAside,
    ReadDir,
    RetireDir,
    StartLog,
    Work,
    WriteEpoch,
)
from raylog.actors.node.log_book import LogBook
from raylog.actors.node.log_events import log_of
from raylog.actors.node.log_states import NodeLog


def validate_work(book: LogBook, openings_at_once: int) -> None:
    """At most one thing in flight for a log, but for a copy beside its actor and a kill."""
    lanes: Counter[LogId] = Counter()
    first_openings: Counter[str] = Counter()
    for work in book.out.in_flight.values():
        if isinstance(work, WriteEpoch | ReadDir | RetireDir | KillActor) or _is_unnamed(work):
            continue
        log = book.logs[log_of(work)]
        if log.copying is not None and log.copying.token == work.token:
            assert isinstance(work, Copy)
            assert not work.is_last, "the last round of a copy runs beside an actor"
            continue
        assert log.doing is work, f"{work} is in flight, and its log does {log.doing}"
        lanes[log.id] += 1
        _validate_removal(book, log, work)
        if isinstance(work, StartLog) and work.is_first:
            first_openings[work.directory_id] += 1
    assert not lanes or max(lanes.values()) == 1
    doing = [log.id for log in book.logs.values() if log.doing is not None]
    assert set(doing) == set(lanes), "a log waits for what is not in flight"
    for directory_id, count in first_openings.items():
        assert count <= openings_at_once, f"{count} logs are first opened in {directory_id}"


def _is_unnamed(work: Work) -> bool:
    return getattr(work, "topic_id", "") is None


def _validate_removal(book: LogBook, log: NodeLog, work: Work) -> None:
    """What is served is not taken away while its actor lives."""
    if isinstance(work, Doom | PutAside):
        is_served = log.has_actor and work.directory_id == log.home
        assert not is_served, f"{work} for a log that is served"
