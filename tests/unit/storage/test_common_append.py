"""The compiled common append: what the general path does, byte for byte, or nothing at all."""

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull, RaylogError, StorageError
from raylog.storage.files import RealFileSystem
from raylog.storage.limits import MAX_LONG
from raylog.storage.log import Log
from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import read_header
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import FOLDER, Disk, batch, batch_of_size, offsets_of, records_of
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.validation import check_append
from raylog.storage.writer import SegmentWriter
from tests.harness.limits import file_size_limit

compiled = pytest.mark.skipif(kernel.KERNEL != "compiled", reason="no compiled kernel")


@pytest.fixture(params=["compiled", "pure Python"])
def ops(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "pure Python":
        return _kernel_py
    if kernel.KERNEL != "compiled":
        pytest.skip("there is no compiled kernel here")
    return kernel.ops


@contextmanager
def serving(ops: ModuleType) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "ops", ops)
        yield


class Sent(NamedTuple):
    """One append of a history."""

    records: int
    value_bytes: int
    timestamp: int
    step_ms: int
    epoch: int
    producer_id: int
    is_checked_first: bool  # as a partition does; else by Log.append
    as_view: bool


def of_history(sent: Sent, sequences: dict[int, int]) -> bytes:
    fields: dict[str, int] = {}
    if sent.producer_id >= 0:
        sequence = sequences.get(sent.producer_id, 0)
        sequences[sent.producer_id] = sequence + sent.records
        fields = {
            "producer_id": sent.producer_id,
            "producer_epoch": 0,
            "base_sequence": sequence,
        }
    return bytes(
        batch(
            sent.records,
            timestamp=sent.timestamp,
            step_ms=sent.step_ms,
            value=b"v" * sent.value_bytes,
            **fields,
        )
    )


def append(log: Log, sent: Sent, records: bytes, now_ms: int) -> Any:
    content = memoryview(bytearray(records)) if sent.as_view else records
    try:
        if sent.is_checked_first:
            return log.append_checked(check_append(content, log.config, now_ms), now_ms, sent.epoch)
        return log.append(content, sent.epoch)
    except RaylogError as error:
        return type(error), str(error)


def state(log: Log) -> tuple[Any, ...]:
    end = log._log_end
    return end.end, end.high_watermark, end.writer._state


def state_after(history: list[Sent], ops: ModuleType, config: dict[str, Any]) -> Any:
    """All answers, what readers were told after each, and every file of the closed log."""
    with serving(ops):
        disk = Disk()
        log = disk.open(**config)
        told: list[Any] = []
        epoch, sequences = 0, dict[int, int]()
        for number, sent in enumerate(history):
            epoch = max(epoch, sent.epoch)
            if epoch > log.epochs.latest:
                log.epochs.assign(epoch, log.log_end_offset)
            answer = append(log, sent._replace(epoch=epoch), of_history(sent, sequences), T0)
            told.append((answer, *state(log)))
            if number % 11 == 10:
                log.flush()
        log.close()
        return told, {name: disk.read(name) for name in disk.names()}


sent = st.builds(
    Sent,
    records=st.integers(1, 4),
    value_bytes=st.integers(0, 120),
    timestamp=st.one_of(st.integers(T0 - 2000, T0 + 2000), st.just(-1), st.just(T0 + 3_600_000)),
    step_ms=st.integers(0, 5),
    epoch=st.integers(0, 3),
    producer_id=st.sampled_from([-1, -1, -1, 5, 6]),
    is_checked_first=st.booleans(),
    as_view=st.booleans(),
)
configs = st.fixed_dictionaries(
    {
        "index_interval_bytes": st.sampled_from([0, 100, 300, 4096]),
        "internal_segment_bytes": st.sampled_from([600, 3000, 1 << 20]),
        "segment_index_bytes": st.sampled_from([48, 240, 1 << 20]),
        "flush_messages": st.sampled_from([3, MAX_LONG]),
        "segment_ms": st.sampled_from([500, 7 * 86_400_000]),
    }
)


@compiled
@settings(deadline=None, max_examples=150)
@given(history=st.lists(sent, max_size=40), config=configs)
def test_it_leaves_the_bytes_and_answers_of_the_general_path(
    history: list[Sent], config: dict[str, Any]
) -> None:
    common = state_after(history, kernel.ops, config)
    general = state_after(history, _kernel_py, config)
    assert common == general


@compiled
def test_so_do_more_entries_than_are_held_in_memory() -> None:
    history = [Sent(1, 20, T0 + n % 50 + n, 0, 0, -1, False, False) for n in range(900)]
    config: dict[str, Any] = {"index_interval_bytes": 0}
    assert state_after(history, kernel.ops, config) == state_after(history, _kernel_py, config)


@compiled
def test_so_do_batches_that_reach_the_index_interval_exactly() -> None:
    history = [Sent(1, 32, T0 + n, 0, 0, -1, False, False) for n in range(50)]
    assert len(of_history(history[0], {})) == 100
    config: dict[str, Any] = {"index_interval_bytes": 300}
    assert state_after(history, kernel.ops, config) == state_after(history, _kernel_py, config)


@compiled
@pytest.mark.parametrize("is_checked_first", [False, True])
def test_the_general_path_writes_only_what_needs_a_decision(
    monkeypatch: pytest.MonkeyPatch, is_checked_first: bool
) -> None:
    general: list[int] = []
    write = SegmentWriter.append

    def counted(writer: SegmentWriter, pieces: Any) -> None:
        general.append(writer.segment.size)
        write(writer, pieces)

    monkeypatch.setattr(SegmentWriter, "append", counted)
    log = Disk().open(index_interval_bytes=200)
    for number in range(300):
        one = Sent(1, 50, T0 + number, 0, 0, -1, is_checked_first, False)
        append(log, one, of_history(one, {}), T0)
    assert general == [0]  # the segment's first


@compiled
@pytest.mark.parametrize("error", [DiskFull, StorageError])
@pytest.mark.parametrize("is_checked_first", [False, True])
def test_a_write_that_fails_changes_nothing_and_the_next_one_goes_on(
    error: Callable[..., StorageError], is_checked_first: bool
) -> None:
    disk = Disk()
    log = disk.open(index_interval_bytes=100)
    one = Sent(1, 50, T0, 0, 0, -1, is_checked_first, False)
    for number in range(10):
        append(log, one, of_history(one._replace(timestamp=T0 + number), {}), T0)
    later = of_history(one._replace(timestamp=T0 + 99), {})
    before = (*state(log), log.segments[-1].size)

    def fault(path: str) -> StorageError:
        return DiskFull(path) if error is DiskFull else StorageError(path, "Input/output error")

    with disk.fs.failing(fault, "append"):
        assert append(log, one, later, T0)[0] is error
    assert (*state(log), log.segments[-1].size) == before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SegmentWriter, "append", None)  # the compiled one is still armed
        assert append(log, one, later, T0).base_offset == 10
    assert log._log_end.writer._state.largest == (T0 + 99, 10)


@compiled
def test_a_sealed_segment_refuses_until_it_is_written_to_again() -> None:
    log = Disk().open()
    log.append(batch())
    writer = log._log_end.writer
    log.roll()
    header = read_header(batch())
    assert writer.append_one(batch(), header, log._log_end.end, 0, 0) is None
    assert log.append(batch()).base_offset == 1


def test_another_config_counts_from_the_next_append_on() -> None:
    disk = Disk()
    log = disk.open()
    log.append(batch())
    log.append(batch(timestamp=T0 - 5000))
    log.reconfigure(log.config.__class__(message_timestamp_before_max_ms=1000))
    with pytest.raises(RaylogError, match=r"before\.max\.ms"):
        log.append(batch(timestamp=T0 - 5000))


# -- write_stamped ---------------------------------------------------------------------------------

STAMP = bytes(range(16))
# around the size up to which all is copied into one piece
SIZES = (16, 17, 100, 4095, 4096, 4097, 4112, 70_000)


def batch_bytes(size: int) -> bytes:
    return bytes(n % 251 for n in range(size))


def stamped(size: int) -> bytes:
    return STAMP + batch_bytes(size)[16:]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_stamp_is_in_the_place_of_the_first_bytes(
    ops: ModuleType, tmp_path: Path, size: int, kind: type
) -> None:
    path = tmp_path / "f"
    content = kind(batch_bytes(size))
    with path.open("wb", buffering=0) as file:
        assert ops.write_stamped(file.fileno(), STAMP, content) == size
    assert path.read_bytes() == stamped(size)
    assert bytes(content) == batch_bytes(size), "the caller's bytes stay as they are"


def test_a_stamp_longer_than_the_batch_is_refused(ops: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "f"
    with path.open("wb", buffering=0) as file, pytest.raises(ValueError, match="longer"):
        ops.write_stamped(file.fileno(), STAMP, b"short")
    assert path.read_bytes() == b""


@pytest.mark.parametrize("size", [4096, 4097, 300_000])
@pytest.mark.parametrize("room", [1, 15, 16, 17, 4000])
def test_short_writes_go_on_where_they_stopped(ops: ModuleType, size: int, room: int) -> None:
    """A pipe takes what it has room for; the reader makes room in odd portions."""
    reader, writer = os.pipe()
    taken = bytearray()

    def read() -> None:
        while piece := os.read(reader, room):
            taken.extend(piece)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        assert ops.write_stamped(writer, STAMP, batch_bytes(size)) == size
    finally:
        os.close(writer)
        thread.join()
        os.close(reader)
    assert taken == stamped(size)


@pytest.mark.parametrize("size", [100, 4096, 4097, 300_000])
def test_a_full_device_is_an_error(ops: ModuleType, size: int) -> None:
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError) as raised:
        ops.write_stamped(full.fileno(), STAMP, batch_bytes(size))
    assert raised.value.errno == errno.ENOSPC


@pytest.mark.parametrize("size", [200, 4096, 5000, 70_000])
@pytest.mark.parametrize("left", [0, 1, 16, 20, 199])
def test_what_a_failed_write_left_is_cut_off(
    ops: ModuleType, tmp_path: Path, size: int, left: int
) -> None:
    file = RealFileSystem().open(str(tmp_path / "f"), create=True)
    with serving(ops):
        file.append_stamped(STAMP, batch_bytes(100))
        with file_size_limit(100 + left), pytest.raises(StorageError):
            file.append_stamped(STAMP, batch_bytes(size))
        assert (file.size, (tmp_path / "f").read_bytes()) == (100, stamped(100))
        file.append_stamped(STAMP, batch_bytes(size))
    assert (tmp_path / "f").read_bytes() == stamped(100) + stamped(size)


def test_a_signal_does_not_end_a_write(ops: ModuleType) -> None:
    """Its handler runs, and the write goes on: an interrupted call wrote nothing."""
    reader, writer = os.pipe()
    os.write(writer, bytes(1 << 16))  # full: the next write waits, until a signal interrupts it
    handled, is_over = threading.Event(), threading.Event()
    old = signal.signal(signal.SIGUSR1, lambda *_: handled.set())
    call = Path(f"/proc/self/task/{threading.get_native_id()}/syscall")
    main, taken = threading.get_ident(), bytearray()

    def is_waiting() -> bool:
        """Whether the main thread is in a call of the system whose first argument is the pipe."""
        return call.read_text().split()[1:2] == [hex(writer)]

    def interrupt_and_read() -> None:
        for _ in range(3):
            while not is_waiting() and not is_over.is_set():
                pass
            signal.pthread_kill(main, signal.SIGUSR1)
        while piece := os.read(reader, 1 << 16):
            taken.extend(piece)

    thread = threading.Thread(target=interrupt_and_read)
    thread.start()
    try:
        assert ops.write_stamped(writer, STAMP, batch_bytes(9000)) == 9000
    finally:
        is_over.set()
        os.close(writer)
        thread.join()
        os.close(reader)
        signal.signal(signal.SIGUSR1, old)
    assert handled.is_set()
    assert taken == bytes(1 << 16) + stamped(9000)


def test_files_in_memory_and_on_a_disk_stamp_alike(tmp_path: Path) -> None:
    disk = Disk()
    in_memory = disk.fs.open(f"{FOLDER}/f", create=True)
    real = RealFileSystem().open(str(tmp_path / "f"), create=True)
    for size in SIZES:
        content = batch_of_size(max(size, 100))
        in_memory.append_stamped(STAMP, content)
        real.append_stamped(STAMP, content)
    assert disk.read("f") == (tmp_path / "f").read_bytes()
    assert in_memory.size == real.size


# -- somebody looks at the indexes meanwhile -------------------------------------------------------


@pytest.mark.parametrize("leader_epoch", [None, 1], ids=["checked here", "a new epoch"])
def test_a_view_of_the_indexes_fails_no_append_that_was_written(
    ops: ModuleType, leader_epoch: int | None
) -> None:
    """A bytearray cannot grow while it is looked into; the batch is in the file by then."""
    with serving(ops):
        disk = Disk()
        log = disk.open(index_interval_bytes=0)
        for number in range(3):
            log.append(bytes(batch(timestamp=T0 + number)))
        segment = log.segments[-1]
        indexes = segment.offset_index, segment.time_index
        for looked_at in (indexes[:1], indexes[1:], indexes):
            views = [memoryview(index.changeable()) for index in looked_at]
            for _ in range(3):
                end = log.log_end_offset
                records = bytes(batch(timestamp=T0 + end))
                assert log.append(records, leader_epoch).base_offset == end
                assert log.append_checked(
                    check_append(bytes(batch(timestamp=T0 + end)), log.config, T0), T0
                ).base_offset == (end + 1)
            for view in views:
                view.release()
            log.append(bytes(batch(timestamp=T0 + log.log_end_offset)))
        end = log.log_end_offset
        assert offsets_of(log) == [*range(end)]
        for offset in range(end):
            assert log.read(offset, 0).size_bytes == len(batch())
        assert not log.wrong_indexes
        log.close()
        again = disk.open(index_interval_bytes=0)
        assert offsets_of(again) == [*range(end)]
        assert again.log_end_offset == end


# -- somebody changes the batch meanwhile ----------------------------------------------------------


def as_array(owner: bytearray) -> Any:
    return np.frombuffer(owner, np.uint8)


def appended(log: Log, records: Any) -> None:
    log.append(records)


def checked_and_appended(log: Log, records: Any) -> None:
    log.append_checked(check_append(records, log.config, T0), T0)


def appended_with_others(log: Log, records: Any) -> None:
    log.append_all([check_append(records, log.config, T0)], T0)


@pytest.mark.parametrize("append", [appended, checked_and_appended, appended_with_others])
@pytest.mark.parametrize("given", [bytearray, memoryview, as_array])
@pytest.mark.parametrize("topic", [{}, {"message_timestamp_type": "LogAppendTime"}])
def test_what_was_checked_is_written_whoever_changes_the_buffer_meanwhile(
    ops: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    append: Callable[[Log, Any], object],
    given: Callable[[bytearray], Any],
    topic: dict[str, Any],
) -> None:
    with serving(ops):
        disk = Disk()
        log = disk.open(**topic)
        log.append(bytes(batch()))  # the first of a segment goes another way
        owner = bytearray(batch(value=b"v" * 100))
        real = MemoryFileSystem.change

        def change(fs: MemoryFileSystem, verb: str, path: str) -> None:
            if verb == "append" and path.endswith(".log"):
                owner[-50] ^= 1
            real(fs, verb, path)

        monkeypatch.setattr(MemoryFileSystem, "change", change)
        append(log, given(owner))
        assert owner != batch(value=b"v" * 100)
        assert records_of(log)[1].value == b"v" * 100


def test_only_what_can_be_changed_is_copied() -> None:
    fixed = bytes(batch(value=b"v" * 100))
    config = LogConfig()
    assert check_append(fixed, config, T0).content is fixed
    views: list[Any] = [memoryview(fixed), np.frombuffer(fixed, np.uint8)]
    for records in views:
        content = check_append(records, config, T0).content
        assert np.shares_memory(np.frombuffer(content, np.uint8), np.frombuffer(fixed, np.uint8))
    assert type(check_append(bytearray(fixed), config, T0).content) is bytes
