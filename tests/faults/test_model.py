"""A log against a list: whatever is done to it, in whatever order, it holds what the list holds."""

from collections import deque
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from raylog.storage.errors import OffsetOutOfRange, OutOfOrderSequence
from raylog.storage.log import Log
from raylog.storage.names import LOG_SUFFIX
from raylog.storage.readable import EARLIEST, LATEST
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import Disk, batch, of_producer, records_of

CONFIG: dict[str, Any] = {
    "segment_bytes": 500,
    "index_interval_bytes": 100,
    "retention_bytes": 1500,
    "retention_ms": -1,
    "file_delete_delay_ms": 100,
}
Sent = tuple[int, bytes]


class LogAndList(RuleBasedStateMachine):
    """``sent`` is the list: what lies at each offset from 0 on, also of what retention has
    taken."""

    appended = Bundle("appended")

    @initialize()
    def begin(self) -> None:
        self.disk = Disk()
        self.sent: list[Sent] = []
        self.start = self.durable = self.sequence = 0
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=5)  # sequence, count, offset
        self.log: Log = self.disk.open(**CONFIG)

    # -- writing -----------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4), timestamp=st.integers(0, 60), size=st.integers(0, 60))
    def append(self, count: int, timestamp: int, size: int) -> None:
        value = b"%d." % len(self.sent) + b"x" * size
        answer = self.log.append(batch(count, timestamp=T0 + timestamp, value=value))
        assert answer.base_offset == len(self.sent)
        self.sent += [(T0 + timestamp, value)] * count

    @rule(count=st.integers(1, 4), timestamp=st.integers(0, 60))
    def append_by_producer(self, count: int, timestamp: int) -> None:
        offset = len(self.sent)
        answer = self.log.append(of_producer(self.sequence, count, timestamp=T0 + timestamp))
        assert (answer.base_offset, answer.is_duplicate) == (offset, False)
        self.sent += [(T0 + timestamp, b"v")] * count
        self.batches.append((self.sequence, count, offset))
        self.sequence += count

    @rule(which=st.integers(0, 4))
    def repeat(self, which: int) -> None:
        if which < len(self.batches):
            sequence, count, offset = self.batches[which]
            answer = self.log.append(of_producer(sequence, count))
            assert (answer.base_offset, answer.is_duplicate) == (offset, True)

    @rule(gap=st.integers(1, 1000))
    def leave_a_gap(self, gap: int) -> None:
        if self.batches:
            try:
                self.log.append(of_producer(self.sequence + gap))
                raise AssertionError("a gap was taken")
            except OutOfOrderSequence:
                pass

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.durable = len(self.sent)

    @rule()
    def retain(self) -> None:
        before = self.log.size_bytes
        self.log.delete_old_segments()
        assert self.log.size_bytes >= min(before, 1500)
        assert self.log.log_start_offset >= self.start
        self.start = self.log.log_start_offset

    @rule(ms=st.integers(0, 200))
    def time_passes(self, ms: int) -> None:
        self.disk.clock.advance(ms)
        self.log.purge_deleted()

    # -- ends and beginnings -----------------------------------------------------------------------

    @rule()
    def reopen_in_order(self) -> None:
        self.log.close()
        self.durable = len(self.sent)
        self.reopen(is_clean=True)

    @rule()
    def reopen_after_a_kill(self) -> None:
        self.disk.fs = self.disk.fs.crash()
        self.reopen(is_clean=False)
        assert self.log.log_end_offset == len(self.sent)

    @rule(seed=st.integers(0, 2**16), cut=st.sampled_from(["torn", "flushed"]))
    def reopen_after_a_loss_of_power(self, seed: int, cut: str) -> None:
        self.disk.fs = self.disk.fs.crash(cut, names="torn", seed=seed)  # type: ignore[arg-type]
        self.reopen(is_clean=False)
        end = self.log.log_end_offset
        assert self.durable <= end <= len(self.sent)
        del self.sent[end:]
        self.start = self.log.log_start_offset

    def reopen(self, *, is_clean: bool) -> None:
        self.log = self.disk.open(
            is_clean=is_clean,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.start,
            **CONFIG,
        )
        known = [entry for entry in self.batches if entry[2] + entry[1] <= self.log.log_end_offset]
        whole = [entry for entry in known if entry[2] >= self.log.log_start_offset]
        self.batches = deque(whole[-1:], maxlen=5)  # a snapshot keeps one
        if known and not whole:
            # whether it is known depends on the snapshots that survived
            self.log._log_end.producers._producers.clear()
        self.sequence = known[-1][0] + known[-1][1] if known else self.next_free_sequence()

    def next_free_sequence(self) -> int:
        """The producer's history may be cut to before the five that are remembered here."""
        self.log._log_end.producers._producers.clear()
        return self.sequence + 100

    # -- reading -----------------------------------------------------------------------------------

    @rule(offset=st.integers(-2, 400), max_bytes=st.integers(0, 900))
    def read(self, offset: int, max_bytes: int) -> None:
        if not self.start <= offset <= len(self.sent):
            try:
                self.log.read(offset, max_bytes)
                raise AssertionError("out of range was answered")
            except OffsetOutOfRange:
                return
        got = records_of(self.log, offset, max_bytes)
        assert [(record.timestamp, record.value) for record in got] == self.sent[offset:]
        assert [record.offset for record in got] == list(range(offset, len(self.sent)))

    @rule(timestamp=st.integers(-1, 62))
    def look_up_a_time(self, timestamp: int) -> None:
        wanted = T0 + timestamp
        expected = next(
            (n for n in range(self.start, len(self.sent)) if self.sent[n][0] >= wanted), None
        )
        found = self.log.offset_for_timestamp(wanted)
        assert (found and found.offset) == expected

    @invariant()
    def bounds_agree(self) -> None:
        assert self.log.log_end_offset == self.log.high_watermark == len(self.sent)
        assert self.log.log_start_offset == self.start
        assert self.start <= self.log.recovery_point <= len(self.sent)
        assert self.log.offset_for_timestamp(LATEST) == (-1, len(self.sent))
        assert self.log.offset_for_timestamp(EARLIEST) == (-1, self.start)

    @invariant()
    def it_keeps_its_promises(self) -> None:
        self.log.validate()

    @invariant()
    def every_live_segment_has_its_file(self) -> None:
        live = [f"{segment.base_offset:020d}{LOG_SUFFIX}" for segment in self.log.segments]
        assert self.disk.names(LOG_SUFFIX) == live


TestLogAndList = LogAndList.TestCase
TestLogAndList.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
