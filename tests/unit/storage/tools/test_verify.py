"""Whether all files of a partition agree: a whole folder is called whole, and no damage goes
unseen."""

import struct
from random import Random

import pytest

from raylog.storage.errors import NotAPartitionFolder
from raylog.storage.files import ReadOnlyFileSystem
from raylog.storage.log import Log
from raylog.storage.losses import accept_losses
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.encode import encode_records
from raylog.storage.state.checkpoints import RECOVERY_POINTS, write_offsets
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import (
    FOLDER,
    PARTITION,
    Disk,
    batch,
    flip,
    of_producer,
    offsets_of,
)
from raylog.storage.tools.verify import SegmentReport, verify_folder
from tests.harness.paths import GOLDEN
from tests.unit.storage.cleaner.test_swap import compact

FOLDERS = sorted(
    path.relative_to(GOLDEN).as_posix()
    for path in GOLDEN.glob("kafka-3.9-*/*-[0-9]")
    if path.name != "v0-appendtime-0"
)
# Of a batch these bytes are outside of the CRC: what they say is held against the neighbours alone.
OFFSET_BYTES, EPOCH_BYTES = range(8), range(12, 16)


def fill(disk: Disk) -> None:
    """Two segments: producer 7's sequences, 8's transaction aborted across the roll, 9's left
    open."""
    log = disk.open(index_interval_bytes=100)
    for number in range(3):
        log.append(of_producer(2 * number, 2, timestamp=T0 + number), leader_epoch=0)
    log.append(of_producer(0, 2, producer=8, transactional=True), leader_epoch=0)
    log.roll()
    log.append(of_producer(0, producer=9, transactional=True), leader_epoch=0)
    log.append(
        encode_marker(Marker(True, 3, T0), producer_id=8, producer_epoch=0), 0, "coordinator"
    )
    for number in range(3):
        log.append(of_producer(6 + number, timestamp=T0 + 5 + number), leader_epoch=0)
    log.close()


def told(disk: Disk) -> list[str]:
    """The files that have a problem."""
    return [
        problem.file for report in verify_folder(disk.fs, FOLDER) for problem in report.problems
    ]


def why(disk: Disk) -> str:
    return "; ".join(
        str(problem) for report in verify_folder(disk.fs, FOLDER) for problem in report.problems
    )


def test_a_whole_folder_is_whole(disk: Disk) -> None:
    fill(disk)
    first, second = verify_folder(disk.fs, FOLDER)
    assert first == SegmentReport(
        base_offset=0,
        next_offset=8,
        batches=4,
        size_bytes=len(disk.read("0" * 20 + ".log")),
        good_bytes=first.size_bytes,
        is_dense=True,
        problems=(),
    )
    assert (second.base_offset, second.next_offset, second.batches, second.problems) == (
        8,
        13,
        5,
        (),
    )
    assert len(disk.names(".snapshot")) == 2
    assert len(disk.names(".txnindex")) == 1


def test_looking_writes_nothing(disk: Disk) -> None:
    fill(disk)
    before, operations = {name: disk.read(name) for name in disk.names()}, disk.fs.operations
    verify_folder(disk.fs, FOLDER)
    assert {name: disk.read(name) for name in disk.names()} == before
    assert disk.fs.operations == operations


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_that_a_kafka_wrote_is_whole(folder: str) -> None:
    for report in verify_folder(ReadOnlyFileSystem(), str(GOLDEN / folder)):
        assert report.problems == ()


def test_kafkas_own_mismatch_in_messages_without_a_time_is_seen() -> None:
    (report,) = verify_folder(
        ReadOnlyFileSystem(), str(GOLDEN / "kafka-3.9-zk-v0-ibp0.9" / "v0-appendtime-0")
    )
    assert [problem.file for problem in report.problems] == ["00000000000000000000.timeindex"]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_no_flipped_bit_goes_unseen(suffix: str) -> None:
    disk = Disk()
    fill(disk)
    for name in disk.names(suffix):
        content = disk.read(name)
        free = _outside_of_crcs(content) if suffix == ".log" else set()
        for position in range(len(content)):
            if position in free:
                continue
            disk.write(name, flip(position, position % 8)(content))
            assert name in told(disk), f"{name}: byte {position}"
        disk.write(name, content)
    assert told(disk) == []


def _outside_of_crcs(content: bytes) -> set[int]:
    free, start = set(), 0
    while start < len(content):
        free |= {start + n for n in (*OFFSET_BYTES, *EPOCH_BYTES)}
        start += 12 + struct.unpack_from(">i", content, start + 8)[0]
    return free


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_no_lost_byte_at_the_end_goes_unseen(suffix: str) -> None:
    disk = Disk()
    fill(disk)
    name = disk.names(suffix)[-1]
    disk.damage(name, lambda content: content[:-1])
    assert name in told(disk)


@pytest.mark.parametrize(
    ("suffix", "told_why"),
    [
        (".index", "entry 0: the file does not exist"),
        (".timeindex", "entry 0: the file does not exist"),
        (".txnindex", "lacks producer 8's aborted offsets 6-9 (last stable offset 8)"),
    ],
)
def test_a_missing_file_is_seen(disk: Disk, suffix: str, told_why: str) -> None:
    fill(disk)
    name = disk.names(suffix)[-1]
    disk.fs.remove(disk.path(name))
    assert why(disk) == f"{name}: {told_why}"


def test_offsets_that_go_back_are_seen_within_a_segment_and_between_two(disk: Disk) -> None:
    name = "00000000000000000000.log"
    disk.write(name, bytes(batch(2, base_offset=0)) + bytes(batch(2, base_offset=1)))
    assert f"{name}: position {len(batch(2))}: the offset is 1, but it must be 2 or more" in why(
        disk
    )
    disk.write(name, bytes(batch(2, base_offset=0)) + bytes(batch(2, base_offset=2)))
    for suffix in (".log", ".index", ".timeindex"):
        disk.write(f"00000000000000000003{suffix}", b"")
    assert why(disk) == f"{name}: reaches offset 3, but 3 begins the next segment"


def test_a_segment_that_lost_its_tail_at_the_end_of_a_batch_is_seen(disk: Disk) -> None:
    log = disk.open()
    for _ in range(3):
        log.append(batch(2), leader_epoch=0)
    log.roll()
    log.append(batch(2), leader_epoch=0)
    log.close()
    disk.damage("00000000000000000000.log", lambda content: content[: len(batch(2)) * 2])
    disk.write("00000000000000000000.timeindex", b"")
    assert "ends at offset 4, but the next segment begins at 6: records are missing" in why(disk)


@pytest.mark.parametrize("left", ["", ".index"])
def test_a_segment_that_is_gone_in_the_middle_is_seen_until_that_is_accepted(
    disk: Disk, left: str
) -> None:
    log = disk.open()
    for number in range(3):
        log.append(batch(2, timestamp=T0 + number), leader_epoch=0)
        log.roll()
    log.close()
    for name in disk.names():
        if name.startswith(f"{2:020d}.") and (not left or not name.endswith(left)):
            disk.fs.remove(disk.path(name))
    assert "ends at offset 2, but the next segment begins at 4: records are missing" in why(disk)
    write_offsets(disk.fs, f"/logs/{RECOVERY_POINTS}", {PARTITION: 6})
    assert len(accept_losses(disk.fs, FOLDER)) == 1
    assert told(disk) == []


def test_gaps_that_compaction_left_are_no_problem(disk: Disk) -> None:
    disk.write("00000000000000000000.log", bytes(batch(1, base_offset=5)))
    for suffix in (".log", ".index", ".timeindex"):
        disk.write(f"00000000000000000010{suffix}", b"")
    assert told(disk) == []


def test_what_compaction_took_from_the_log_indexes_and_snapshots_may_still_tell(disk: Disk) -> None:
    fill(disk)
    whole = disk.read("00000000000000000000.log")
    ends = list(range(0, len(whole), len(whole) // 4))
    disk.write("00000000000000000000.log", whole[ends[1] :])  # its first batch is gone
    for suffix in (".index", ".timeindex"):
        disk.write(f"00000000000000000000{suffix}", b"")
    assert told(disk) == []
    disk.write("00000000000000000000.log", whole[: ends[3]])  # and here the transaction's data
    assert told(disk) == ["00000000000000000000.log"], (
        "the gap, which only a loss leaves in a log without others"
    )
    disk.write("00000000000000000000.log", whole[ends[1] : ends[3]])
    assert told(disk) == []


def record(log: Log, producer: int, sequence: int, key: bytes) -> None:
    batch = encode_records(
        [(T0, key, b"v", ())], producer_id=producer, producer_epoch=0, base_sequence=sequence
    )
    log.append(batch, leader_epoch=0)


def test_a_snapshot_may_know_a_batch_that_compaction_has_taken_since(disk: Disk) -> None:
    """It was the last one of its producer; when the log was compacted, there was another."""
    log = disk.open(cleanup_policy="compact")
    record(log, 7, 0, b"kept")
    record(log, 7, 1, b"written again")
    record(log, 8, 0, b"written again")
    log.roll()
    record(log, 7, 2, b"last")
    compact(disk, log)
    assert offsets_of(log) == [0, 2, 3]
    log.close()
    assert told(disk) == []


@pytest.mark.parametrize(("offset", "is_right"), [(2, True), (3, False)])
def test_a_snapshot_that_knows_a_batch_where_another_producers_is_is_seen(
    disk: Disk, offset: int, is_right: bool
) -> None:
    """Compaction took what is at 1 and 2, and nothing at 3."""
    log = disk.open(cleanup_policy="compact")
    record(log, 7, 0, b"kept")
    for sequence in range(3):
        record(log, 8, sequence, b"written again")
    log.roll()
    record(log, 8, 3, b"last")
    compact(disk, log)
    assert offsets_of(log) == [0, 3, 4]
    log.close()
    (name,) = (name for name in disk.names(".snapshot") if name.startswith(f"{4:020d}"))
    other = Disk()
    lying = other.open()
    record(lying, 7, 0, b"kept")
    record(lying, 8, 1, b"")
    for place in (2, 3):
        producer, sequence = (7, 1) if place == offset else (8, 2)
        record(lying, producer, sequence, b"")
    lying.roll()
    lying.close()
    disk.write(name, other.read(name))
    assert ("producer 7" not in why(disk)) is is_right


def test_half_an_entry_at_the_end_of_a_transaction_index_is_seen(disk: Disk) -> None:
    fill(disk)
    (name,) = disk.names(".txnindex")
    disk.damage(name, lambda content: content + content[:5])
    assert why(disk) == f"{name}: entry 1: the file has 5 bytes too many"


def test_a_time_index_that_hides_an_older_batch_with_a_larger_time_is_seen(disk: Disk) -> None:
    log = disk.open()
    log.append(batch(1, timestamp=T0 + 9), leader_epoch=0)
    log.append(batch(1, timestamp=T0 + 5), leader_epoch=0)
    log.close()
    disk.write("00000000000000000000.timeindex", struct.pack(">qi", T0 + 5, 1))
    assert "offset 1: no batch agrees with this entry of the time index" in why(disk)


def test_a_snapshot_behind_the_end_and_one_of_other_producers_are_seen(disk: Disk) -> None:
    fill(disk)
    (first, last) = disk.names(".snapshot")
    disk.write("00000000000000000099.snapshot", disk.read(last))
    assert why(disk) == "00000000000000000099.snapshot: is of offset 99, but the log ends at 13"
    disk.fs.remove(disk.path("00000000000000000099.snapshot"))
    disk.write(first, disk.read(last))
    assert told(disk) == [first] * 3
    assert "producer 7 at sequence 8, where the log has sequence 5 at offset 5" in why(disk)
    assert "producer 9 of epoch 0, which the log does not have" in why(disk)
    disk.write(first, bytes.fromhex("0001 48674bc7 00000000"))
    assert why(disk) == f"{first}: lacks producer 8, whose transaction is open from offset 6"


def test_a_snapshot_below_the_first_segment_is_decoded_but_not_compared(disk: Disk) -> None:
    fill(disk)
    (first, last) = disk.names(".snapshot")
    assert first == "00000000000000000008.snapshot"
    disk.write("00000000000000000005.snapshot", disk.read(last))
    for suffix in (".log", ".index", ".timeindex"):
        disk.fs.remove(disk.path("0" * 20 + suffix))
    assert told(disk) == []
    disk.damage("00000000000000000005.snapshot", flip(20))
    assert told(disk) == ["00000000000000000005.snapshot"]


# -- leader epochs and identity --------------------------------------------------------------------

EPOCHS, IDENTITY = "leader-epoch-checkpoint", "partition.metadata"


def fill_epochs(disk: Disk) -> None:
    """Epoch 1 from offset 0, epoch 4 from 2 on, over two segments, and epoch 6 without a batch."""
    log = disk.open()
    for epoch in (1, 4):
        log.epochs.assign(epoch, log.log_end_offset)
        log.append(batch(1), leader_epoch=epoch)
        log.append(batch(1), leader_epoch=epoch)
        log.roll()
    log.epochs.assign(6, log.log_end_offset)
    log.close()
    assert disk.read(EPOCHS) == b"0\n3\n1 0\n4 2\n6 4\n"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"0\n3\n1 0\n4 2\n6 4\n", None),
        (b"0\n2\n1 1\n4 2\n", None),  # as delete_records leaves it
        (b"0\n1\n4 3\n", None),
        (b"0\n0\n", None),  # the next opening begins a new epoch
        (b"0\n2\n1 0\n4 3\n", "has epoch 1 at offset 2, where the log has epoch 4"),
        (b"0\n2\n1 0\n4 1\n", "has epoch 4 at offset 1, where the log has epoch 1"),
        (b"0\n1\n1 0\n", "has epoch 1 at offset 2, where the log has epoch 4"),
        (b"0\n1\n3 3\n", "begins with epoch 3, where the log has epoch 4 before, at offset 2; "
         "has epoch 3 at offset 3, where the log has epoch 4"),
        (b"0\n3\n1 0\n4 2\n6 5\n", "has epoch 6 from offset 5, but the log ends at 4"),
        (b"0\n2\n1 0\n4 2", "its last line is incomplete"),
    ],
)  # fmt: skip
def test_leader_epochs_that_the_batches_contradict_are_seen(
    disk: Disk, content: bytes, problem: str | None
) -> None:
    fill_epochs(disk)
    disk.write(EPOCHS, content)
    expected = "; ".join(f"{EPOCHS}: {each}" for each in (problem or "").split("; ") if each)
    assert why(disk) == expected


def test_an_epoch_in_a_batch_that_was_changed_is_seen_though_no_crc_covers_it(disk: Disk) -> None:
    fill_epochs(disk)
    disk.damage("00000000000000000002.log", flip(15))
    assert why(disk) == f"{EPOCHS}: has epoch 4 at offset 2, where the log has epoch 5"


@pytest.mark.parametrize("seed", range(30))
def test_leader_epochs_agree_with_the_batches_through_many_lives(seed: int) -> None:
    """Each life begins an epoch, deletes from the start, and ends by a kill or a loss of power."""
    chance, disk, recovery_point, start = Random(seed), Disk(), 0, 0
    for _ in range(6):
        log = disk.open(
            is_clean=False,
            recovery_point=recovery_point,
            log_start_offset=start,
            segment_bytes=400,
            retention_bytes=800,
        )
        epoch = log.epochs.next
        log.epochs.assign(epoch, log.log_end_offset)
        for _ in range(chance.randrange(12)):
            log.append(batch(chance.randrange(1, 4)), leader_epoch=epoch)
            if chance.random() < 0.2:
                log.flush()
            if chance.random() < 0.2:
                log.delete_old_segments()
            if chance.random() < 0.2:
                log.delete_records(chance.randrange(log.log_end_offset + 1))
        recovery_point, start = log.recovery_point, log.log_start_offset
        assert EPOCHS not in told(disk), why(disk)
        disk = Disk(disk.fs.crash(chance.choice(["all", "flushed", "torn"]), seed=seed))


def test_behind_damage_leader_epochs_are_not_guessed_at(disk: Disk) -> None:
    fill_epochs(disk)
    disk.damage("00000000000000000000.log", flip(30))
    assert told(disk) == ["00000000000000000000.log"]


@pytest.mark.parametrize("content", [b"", b"version: 1\ntopic_id: x", b"version: 0\ntopic_id: x"])
def test_a_damaged_identity_is_seen_and_none_is_no_problem(disk: Disk, content: bytes) -> None:
    fill(disk)
    disk.write(IDENTITY, content)
    assert told(disk) == [IDENTITY]
    disk.fs.remove(disk.path(IDENTITY))
    assert told(disk) == []


def test_behind_damage_producers_are_not_guessed_at(disk: Disk) -> None:
    fill(disk)
    disk.damage("00000000000000000000.log", flip(30))
    assert told(disk) == ["00000000000000000000.log"]


def test_a_folder_without_a_log_is_an_error(disk: Disk) -> None:
    with pytest.raises(NotAPartitionFolder, match=r"has no \.log file"):
        verify_folder(disk.fs, "/logs")
    with pytest.raises(NotAPartitionFolder, match="the folder does not exist"):
        verify_folder(disk.fs, "/nowhere")
