"""A reader beside who closes, removes or drops its file, at every line, with numbers used again.

Every descriptor that a close frees is taken at once by a foreign file. So a read by a stale number
would give foreign bytes.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from raylog.storage.config import LogConfig
from raylog.storage.errors import LogClosed, OffsetOutOfRange, SegmentDeleted
from raylog.storage.files import RealFile, RealFileSystem
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.names import TopicPartition
from raylog.storage.testing.clock import ManualClock
from raylog.storage.testing.logs import batch_of_size, offsets_of
from tests.harness.interleaving import Meeting, Outcome, Schedule, schedules

OWN, FOREIGN = b"own bytes", b"FOREIGN!!"
FILES = ("storage/files.py",)


class Place:
    """A file that is read, and foreign files that take each number that becomes free."""

    def __init__(self, folder: Path, max_sealed: int) -> None:
        folder.mkdir()
        self.fs = RealFileSystem(max_sealed)
        (folder / "foreign").write_bytes(FOREIGN)
        self._foreign = RealFileSystem(max_sealed=64)
        self._folder = folder
        self.file = self.fs.open(str(folder / "own"), create=True)
        self.file.append([OWN])
        self.held: list[RealFile] = []

    def take_numbers(self) -> None:
        """Open foreign files, which get the numbers that are free."""
        path = str(self._folder / "foreign")
        self.held += [self._foreign.open(path, create=True) for _ in range(3)]

    def sealed(self) -> "Place":
        self.file.flush()
        self.file.seal()
        return self


Work = Callable[[Place], object]
ENDS: dict[str, tuple[Work, type[Exception] | None]] = {
    "close": (lambda place: place.file.close(), LogClosed),
    "remove": (lambda place: place.file.remove(), SegmentDeleted),
    "rename": (lambda place: place.file.rename(place.file.path + ".deleted"), None),
    "drop": (lambda place: place.fs.open(place.file.path), None),
    "seal": (lambda place: place.file.seal(), None),
    "unseal": (lambda place: place.file.append([b"more"]), None),
}


def meet(place: Place, end: str, schedule: Schedule) -> Outcome:
    work, _ = ENDS[end]

    def finish() -> None:
        work(place)
        place.take_numbers()

    return Meeting(FILES, schedule).run(lambda: place.file.read(len(OWN), 0), finish)


@pytest.mark.parametrize("max_sealed", [0, 1])
@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_a_reader_gets_its_own_bytes_or_a_named_error(
    tmp_path: Path, end: str, is_sealed: bool, max_sealed: int
) -> None:
    def begun(name: str) -> Place:
        place = Place(tmp_path / name, max_sealed)
        return place.sealed() if is_sealed else place

    alone = meet(begun("alone"), end, Schedule())
    met = 0
    # Two pre-emptions where numbers are freed; for the others one finds what there is.
    pre_emptions = 2 if end in ("close", "remove") and max_sealed == 0 else 1
    for number, schedule in enumerate(
        schedules(alone.lines, pre_emptions=pre_emptions, stride=pre_emptions)
    ):
        outcome = meet(begun(str(number)), end, schedule)
        error, expected = outcome.errors[0], ENDS[end][1]
        assert outcome.errors[1] is None
        if error is None:
            assert outcome.answers[0] == OWN, schedule
        else:
            assert expected is not None, (schedule, outcome.places, error)
            assert isinstance(error, expected), (schedule, outcome.places, error)
        met += 1
    assert met > 10


# -- a log with file.delete.delay.ms=0 -------------------------------------------------------------

LOG_FILES = (
    "storage/files.py",
    "storage/log.py",
    "storage/log_end.py",
    "storage/doomed.py",
    "storage/readable.py",
    "storage/segment.py",
)
CONFIG = LogConfig(
    segment_bytes=400,
    index_interval_bytes=0,
    retention_bytes=400,
    retention_ms=-1,
    file_delete_delay_ms=0,
)


def filled(folder: Path) -> Log:
    fs = RealFileSystem(max_sealed=1)
    create_log(fs, str(folder), "5eGdu6PVSRS-s9xHKXlyPg")
    log = open_log(fs, ManualClock(), str(folder), TopicPartition("orders", 0), CONFIG)
    for _ in range(12):
        log.append(batch_of_size(100))
    log.flush()
    return log


def retain(log: Log, foreign: Path) -> list[RealFile]:
    log.delete_old_segments()
    log.purge_deleted()
    fs = RealFileSystem(max_sealed=64)
    return [fs.open(str(foreign / str(number)), create=True) for number in range(6)]


def read(log: Log) -> list[int]:
    try:
        return offsets_of(log, 0, max_bytes=200)
    except OffsetOutOfRange:
        return []
    except SegmentDeleted:
        return []


def test_a_fetch_beside_retention_without_a_delay_reads_no_foreign_byte(tmp_path: Path) -> None:
    def meet_retention(name: str, schedule: Schedule) -> Outcome:
        folder, foreign = tmp_path / name / "orders-0", tmp_path / name / "foreign"
        foreign.mkdir(parents=True)
        for number in range(6):
            (foreign / str(number)).write_bytes(b"\x01" * 1000)
        log = filled(folder)
        return Meeting(LOG_FILES, schedule).run(lambda: read(log), lambda: retain(log, foreign))

    alone = meet_retention("alone", Schedule())
    stride = 23
    offset = Random(7).randrange(stride)
    for number, schedule in enumerate(
        schedules(alone.lines, pre_emptions=1, stride=stride, offset=offset)
    ):
        outcome = meet_retention(str(number), schedule)
        assert outcome.errors == [None, None], (schedule, outcome.places)
        offsets = outcome.answers[0]
        assert offsets == list(range(len(offsets))), (schedule, outcome.places)
