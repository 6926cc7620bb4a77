"""Readers that race with a writer: with appends, rolls, retention, compaction and truncation of
real files."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptRecord, OffsetOutOfRange
from raylog.storage.files import RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.locks import NoLock
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0, ManualClock
from raylog.storage.testing.logs import TOPIC_ID
from raylog.storage.testing.waiting import wait_for

READERS = 3
# After so many rounds the writer waits for the others: a busy machine may let one thread run alone.
ROUNDS_ALONE = 25
FS, CLOCK = RealFileSystem(), ManualClock()
CONFIG = LogConfig(
    internal_segment_bytes=2000,
    index_interval_bytes=0,
    cleanup_policy="compact,delete",
    file_delete_delay_ms=10**9,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    folder = str(tmp_path / "races-0")
    create_log(FS, folder, TOPIC_ID)
    opened = open_log(FS, CLOCK, folder, TopicPartition("races", 0), CONFIG)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield opened
    finally:
        sys.setswitchinterval(before)
        opened.close()


class Race:
    """One writer and some readers, who hold each record against what was ever written at its
    offset.

    They meet: the writer goes on only when everybody else has done something meanwhile.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.written: list[set[bytes]] = []  # by offset: more than one value after a truncation
        self.may_have_gaps = False  # after a compaction
        self.cuts = 0  # two for each truncation, odd while one goes on
        self._laps: dict[str, int] = {}  # by thread
        self._threads: list[Future[None]] = []

    def rounds(self, count: int) -> Iterator[int]:
        """The numbers of the writer's rounds."""
        for number in range(count):
            yield number
            if number % ROUNDS_ALONE == ROUNDS_ALONE - 1:
                self._meet()

    def _meet(self) -> None:
        """Return when every other thread has done something, or one has failed."""
        before = {**self._laps}

        def have_met() -> bool:
            has_failed = any(thread.done() for thread in self._threads)
            return has_failed or all(self._laps[name] > laps for name, laps in before.items())

        wait_for(have_met, what="all have done something")

    @contextmanager
    def beside(self, steps: dict[str, Callable[[], bool]]) -> Iterator[None]:
        """Take each step again and again in a thread of its own, until the block ends.

        A step returns whether it has done something.
        """
        is_over = threading.Event()

        def repeat(name: str) -> None:
            while not is_over.is_set():
                self._laps[name] += steps[name]()

        self._laps.update(dict.fromkeys(steps, 0))
        with ThreadPoolExecutor(len(steps)) as pool:
            threads = [pool.submit(repeat, name) for name in steps]
            self._threads += threads
            try:
                yield
            finally:
                is_over.set()
        for name, thread in zip(steps, threads, strict=True):
            thread.result()
            del self._laps[name]
            self._threads.remove(thread)

    def append(self, generation: int) -> None:
        base = self.log.log_end_offset
        values = [b"%d:%d" % (base + n, generation) for n in range(3)]
        for offset, value in enumerate(values, base):
            if offset == len(self.written):
                self.written.append(set())
            self.written[offset].add(value)  # before anyone can read it
        rows = [(T0 + base + n, b"%d" % (n % 2), value, ()) for n, value in enumerate(values)]
        self.log.append(encode_records(rows))

    def is_cut(self, cuts: int) -> bool:
        """Whether a truncation went on since ``cuts`` was taken."""
        return self.cuts != cuts or cuts % 2 == 1

    def look(self, random: Random) -> bool:
        """One read from somewhere; whether there were records."""
        log = self.log
        cuts, end = self.cuts, log.log_end_offset
        offset = max(
            random.choice([end, end, end - 3, random.randint(0, end)]), log.log_start_offset
        )
        try:
            found = log.read(offset, random.choice([1, 500, 5000]))
            records = decode_records(found.read(), start_offset=offset)
        except OffsetOutOfRange:
            assert self.is_cut(cuts) or offset < log.log_start_offset
            return False
        except CorruptRecord:
            assert self.is_cut(cuts)
            return False
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        for record in records:
            assert record.value in self.written[record.offset]
        assert not records or offsets[0] == offset or self.may_have_gaps
        # before it is asked whether the log was cut: a cut may have lowered the end
        ends = (end, log.log_end_offset)
        assert not records or offsets[-1] < max(ends) or self.is_cut(cuts)
        return bool(records)

    def look_up(self, random: Random) -> None:
        """One lookup by time."""
        log = self.log
        cuts, start, end = self.cuts, log.log_start_offset, log.log_end_offset
        wanted = random.randint(start, max(end - 1, start))
        try:
            found = log.offset_for_timestamp(T0 + wanted)
        except CorruptRecord:
            assert self.is_cut(cuts)
            return
        if found is not None and not self.is_cut(cuts):
            assert found.offset == found.timestamp - T0 >= wanted

    def run(self, write: Callable[["Race"], None]) -> None:
        def reader(seed: int) -> Callable[[], bool]:
            random = Random(seed)

            def read() -> bool:
                self.look_up(random)
                return self.look(random)

            return read

        with self.beside({f"reader {seed}": reader(seed) for seed in range(READERS)}):
            write(self)


def appending(race: Race) -> None:
    for _ in race.rounds(400):
        race.append(0)


def retaining(race: Race) -> None:
    for n in race.rounds(300):
        race.append(0)
        if n % 10 == 9:
            race.log.delete_records(race.log.log_end_offset - 20)
            race.log.delete_old_segments()


def compacting(race: Race) -> None:
    race.may_have_gaps = True
    buffers = Buffers(dedupe_bytes=1 << 12, load_factor=0.9, chunk_bytes=4096)
    for n in race.rounds(300):
        race.append(0)
        if n % 30 == 29:
            bound = race.log.segments[-1].base_offset
            clean(
                FS,
                CLOCK,
                race.log,
                Cleanable(first_dirty_offset=0, bound=bound, clean_bytes=0, cleanable_bytes=1),
                buffers,
            )


def truncating(race: Race) -> None:
    for n in race.rounds(300):
        race.append(n)
        if n % 10 == 9:
            race.cuts += 1
            race.log.truncate_to(max(race.log.log_end_offset - 12, 0))
            race.cuts += 1


def by_two_owners(race: Race) -> None:
    """The end's owner appends and rolls, while the old segments' owner deletes and swaps, and a
    third flushes."""
    race.may_have_gaps = True
    log, random, buffers = race.log, Random(0), Buffers(1 << 12, 0.9, 4096)
    locks = log.locks
    locks.use(threading.Lock)

    def own_the_old() -> bool:
        bound = log.segments[-1].base_offset
        with locks.old, locks.flush:
            if random.random() < 0.5 and bound > log.log_start_offset:
                section = Cleanable(
                    first_dirty_offset=log.log_start_offset,
                    bound=bound,
                    clean_bytes=log.log_start_offset,
                    cleanable_bytes=1,
                )
                clean(FS, CLOCK, log, section, buffers)
            else:
                log.delete_records(max(log.log_end_offset - 60, log.log_start_offset))
                log.delete_old_segments()
        return True

    def flush() -> bool:
        with locks.flush:
            log.flush_due()
        log.purge_deleted()
        return True

    with race.beside({"retention and compaction": own_the_old, "flush": flush}):
        for _ in race.rounds(600):
            with locks.end:
                race.append(0)
    bases = [segment.base_offset for segment in log.segments]
    assert bases == sorted(set(bases))
    assert log.log_end_offset == len(race.written) == 1800
    log.locks.use(NoLock)
    tail = log.log_end_offset - 3
    found = log.read(tail, 10_000)
    assert [record.offset for record in decode_records(found.read(), start_offset=tail)][-1] == 1799


@pytest.mark.parametrize("write", [appending, retaining, compacting, truncating, by_two_owners])
def test_readers_see_what_was_written_and_nothing_beyond_the_end(
    log: Log, write: Callable[[Race], None]
) -> None:
    Race(log).run(write)
