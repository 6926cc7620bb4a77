"""A compacted log against a plain list of records: whatever is done to it, in whatever order, both
hold the same.

The list knows the rules of compaction in their simplest form: which record is the last of its key,
and when its batch's tombstones may go. All else (segments, groups, maps, files, crashes) must not
be seen.
"""

from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from raylog.storage.cleaner.cleanable import cleanable, facts_of
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.cleaner.offset_map import SLOT_BYTES
from raylog.storage.log import Log
from raylog.storage.names import LOG_SUFFIX
from raylog.storage.records.encode import encode_records
from raylog.storage.state.checkpoints import CLEANER_OFFSETS, write_offsets
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import PARTITION, Disk, records_of

CONFIG: dict[str, Any] = {
    "segment_bytes": 450,
    "index_interval_bytes": 100,
    "cleanup_policy": "compact,delete",
    "retention_bytes": 3000,
    "retention_ms": -1,
    "delete_retention_ms": 100,
    "file_delete_delay_ms": 50,
}
ROOMY = Buffers(dedupe_bytes=1 << 12, load_factor=0.9, chunk_bytes=4096)
FEW = Buffers(dedupe_bytes=SLOT_BYTES * 4, load_factor=0.7, chunk_bytes=200)  # two keys a round

keys = st.sampled_from([b"", b"a", b"b", b"c", b"d", b"e"])
rows = st.lists(st.tuples(st.integers(0, 60), keys, st.booleans()), min_size=1, max_size=4)


@dataclass(frozen=True)
class Known:
    """A record of the list. ``batch``: the base offset of the batch that it came with."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    batch: int


class LogAndRecords(RuleBasedStateMachine):
    """``records`` is the list, as far as nothing has taken them."""

    @initialize()
    def begin(self) -> None:
        self.disk = Disk()
        # as the broker does it for a new partition: no gap in it is an older compaction's
        write_offsets(self.disk.fs, f"/logs/{CLEANER_OFFSETS}", {PARTITION: 0})
        self.records: list[Known] = []
        self.horizons: dict[int, int] = {}  # by batch
        self.start = self.end = self.durable = 0
        self.dirty: int | None = None
        self.producer, self.sequence = 1, 0
        self.last: tuple[int, list[Any], int] | None = None  # sequence, rows, offset
        self.log: Log = self.disk.open(**CONFIG)

    # -- writing -----------------------------------------------------------------------------------

    def rows_of(self, drawn: list[tuple[int, bytes | None, bool]]) -> list[Any]:
        return [
            (T0 + timestamp, key, None if is_deleted else b"%05d" % (self.end + n) * 4, ())
            for n, (timestamp, key, is_deleted) in enumerate(drawn)
        ]

    def remember(self, made: list[Any]) -> None:
        for n, (timestamp, key, value, _) in enumerate(made):
            self.records.append(Known(self.end + n, timestamp, key, value, self.end))
        self.end += len(made)

    @rule(drawn=rows, codec=st.sampled_from(["none", "lz4"]))
    def append(self, drawn: Any, codec: str) -> None:
        made = self.rows_of(drawn)
        assert self.log.append(encode_records(made, compression_type=codec)).base_offset == self.end
        self.remember(made)

    @rule(drawn=rows)
    def append_by_producer(self, drawn: Any) -> None:
        made, offset = self.rows_of(drawn), self.end
        assert self.log.append(self.by_producer(made, self.sequence))[:2] == (
            offset,
            offset + len(made) - 1,
        )
        self.remember(made)
        self.last = self.sequence, made, offset
        self.sequence += len(made)

    def by_producer(self, made: list[Any], sequence: int) -> bytearray:
        return encode_records(
            made, producer_id=self.producer, producer_epoch=0, base_sequence=sequence
        )

    @precondition(lambda self: self.last is not None)
    @rule()
    def repeat(self) -> None:
        sequence, made, offset = self.last or (0, [], 0)
        answer = self.log.append(self.by_producer(made, sequence))
        assert (answer.base_offset, answer.is_duplicate) == (offset, True)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.durable = self.end

    @rule(ms=st.integers(0, 150))
    def time_passes(self, ms: int) -> None:
        self.disk.clock.advance(ms)
        self.log.purge_deleted()

    # -- what takes records away -------------------------------------------------------------------

    @rule(buffers=st.sampled_from([ROOMY, ROOMY, FEW]))
    def compact(self, buffers: Buffers) -> None:
        now_ms = self.disk.clock.now_ms()
        found = cleanable(facts_of(self.log), self.dirty, self.log.config, now_ms)
        bases = [segment.base_offset for segment in self.log.segments]
        assert found.bound in bases
        if not found.cleanable_bytes:
            return
        done = clean(self.disk.fs, self.disk.clock, self.log, found, buffers)
        assert found.first_dirty_offset < done.end_offset <= found.bound
        assert done.end_offset == found.bound or buffers is FEW
        rewritten = next((base for base in bases if base >= done.end_offset), self.end)
        self.leave(found.first_dirty_offset, done.end_offset, rewritten, now_ms)
        self.dirty, self.durable = done.end_offset, self.end

    def leave(self, dirty: int, end: int, rewritten: int, now_ms: int) -> None:
        """The rules: ``end``, where the map ended; ``rewritten``, where the segments end that
        were."""
        last = {
            record.key: record.offset for record in self.records if dirty <= record.offset < end
        }
        kept = []
        for record in self.records:
            horizon = self.horizons.get(record.batch)
            is_spent = record.value is None and horizon is not None and horizon <= now_ms
            is_last = record.key is not None and record.offset >= last.get(record.key, -1)
            if record.offset >= end or (is_last and not is_spent):
                kept.append(record)
        for record in kept:
            if record.value is None and record.offset < rewritten:
                self.horizons.setdefault(record.batch, now_ms + CONFIG["delete_retention_ms"])
        self.records = kept

    @rule()
    def retain(self) -> None:
        self.log.delete_old_segments()
        self.start_at(self.log.log_start_offset)

    @rule(share=st.floats(0, 0.5))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        assert self.log.delete_records(offset) == offset
        self.start_at(offset)

    def start_at(self, offset: int) -> None:
        assert offset >= self.start
        self.start, self.durable = offset, max(self.durable, offset)
        self.records = [record for record in self.records if record.offset >= offset]

    @rule(share=st.floats(0.5, 1))
    def truncate(self, share: float) -> None:
        """To where a batch begins, behind what is clean: nobody asks for another offset."""
        clean_to = max(self.dirty or 0, self.start)
        ends = sorted(
            {record.batch for record in self.records if record.batch >= clean_to} | {self.end}
        )
        offset = ends[int((len(ends) - 1) * share)]
        assert self.log.truncate_to(offset) == (offset < self.end)
        if offset < self.end:
            self.end_at(offset)

    def end_at(self, offset: int) -> None:
        self.records = [record for record in self.records if record.offset < offset]
        self.horizons = {batch: at for batch, at in self.horizons.items() if batch < offset}
        self.end, self.durable = offset, min(self.durable, offset)
        self.dirty = None if self.dirty is None else min(self.dirty, offset)
        self.forget_the_producer()

    def forget_the_producer(self) -> None:
        """What the log remembers of it depends on what snapshots there are: another one comes."""
        self.producer, self.sequence, self.last = self.producer + 1, 0, None

    # -- ends and beginnings -----------------------------------------------------------------------

    @rule()
    def reopen_in_order(self) -> None:
        self.log.close()
        self.durable = self.end
        self.reopen(is_clean=True)

    @rule()
    def reopen_after_a_kill(self) -> None:
        self.disk.fs = self.disk.fs.crash()
        self.reopen(is_clean=False)

    @rule(seed=st.integers(0, 2**16), cut=st.sampled_from(["torn", "flushed"]))
    def reopen_after_a_loss_of_power(self, seed: int, cut: Any) -> None:
        self.disk.fs = self.disk.fs.crash(cut, names="torn", seed=seed)
        self.reopen(is_clean=False)
        assert self.durable <= self.log.log_end_offset <= self.end
        self.end_at(self.log.log_end_offset)

    def reopen(self, *, is_clean: bool) -> None:
        self.log = self.disk.open(
            is_clean=is_clean,
            recovery_point=self.log.recovery_point,
            log_start_offset=self.start,
            **CONFIG,
        )
        if self.last is not None and self.last[2] < self.start:
            self.forget_the_producer()

    # -- reading -----------------------------------------------------------------------------------

    @invariant()
    def both_hold_the_same(self) -> None:
        held = [(r.offset, r.timestamp, r.key, r.value) for r in records_of(self.log)]
        assert held == [(r.offset, r.timestamp, r.key, r.value) for r in self.records]

    @invariant()
    def bounds_agree(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.durable <= self.log.recovery_point <= self.end

    @invariant()
    def it_keeps_its_promises(self) -> None:
        self.log.validate()

    @invariant()
    def every_live_segment_has_its_file(self) -> None:
        live = [f"{segment.base_offset:020d}{LOG_SUFFIX}" for segment in self.log.segments]
        assert self.disk.names(LOG_SUFFIX) == live
        assert self.disk.names(".cleaned") == self.disk.names(".swap") == []

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 900))
    def read(self, share: float, max_bytes: int) -> None:
        offset = self.start + int((self.end - self.start) * share)
        expected = [record.offset for record in self.records if record.offset >= offset]
        assert [record.offset for record in records_of(self.log, offset, max_bytes)] == expected

    @rule(timestamp=st.integers(-1, 62))
    def look_up_a_time(self, timestamp: int) -> None:
        wanted = T0 + timestamp
        expected = next(
            (record.offset for record in self.records if record.timestamp >= wanted), None
        )
        found = self.log.offset_for_timestamp(wanted)
        assert (found and found.offset) == expected


TestLogAndRecords = LogAndRecords.TestCase
TestLogAndRecords.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
