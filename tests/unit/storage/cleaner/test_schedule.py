"""Which log is compacted next, and when one is tried again."""

from raylog.storage.cleaner.cleanable import LogFacts, SegmentTimes
from raylog.storage.cleaner.schedule import Candidate, CompactionSchedule
from raylog.storage.config import LogConfig
from raylog.storage.errors import StorageError
from raylog.storage.testing.clock import T0

SEGMENT = SegmentTimes(base_offset=0, size_bytes=100, largest_timestamp=T0, first_timestamp=T0)
FACTS = LogFacts(
    segments=(SEGMENT, SEGMENT._replace(base_offset=10)),
    log_end_offset=20,
    last_stable_offset=20,
)
DIRTY = {"log": Candidate(FACTS, None, LogConfig(cleanup_policy="compact"))}


def test_a_log_whose_disk_ended_its_round_waits_longer_each_time_up_to_five_minutes() -> None:
    schedule, now_ms = CompactionSchedule[str](), T0
    for wait_s in (15, 30, 60, 120, 240, 300, 300):
        assert schedule.begin(DIRTY, now_ms) == "log"
        schedule.broken_off("log", StorageError("/logs", "Input/output error"), now_ms)
        now_ms += wait_s * 1000
        assert schedule.begin(DIRTY, now_ms - 1) is None


def test_a_clock_that_is_set_back_holds_up_no_round() -> None:
    schedule = CompactionSchedule[str]()
    assert schedule.begin(DIRTY, T0) == "log"
    schedule.broken_off("log", StorageError("/logs", "Input/output error"), T0)
    assert schedule.begin(DIRTY, T0 - 1) == "log"
