"""Every operation of the storage that promises durability, once, on real files.

``python -m tests.faults.durable_operations FOLDER`` runs them all, each in a log dir of its own
under FOLDER. ``test_syscalls.py`` runs this under strace. A function here prepares a log, and marks
where the operation begins and returns. It calls what the broker calls, and no part of it.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from raylog.actors.control import LogId
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node.disk_work import DiskWork
from raylog.actors.node.instructions import Adopt, Copy, Doom, MakeFolder
from raylog.actors.partition.partition import Partition
from raylog.storage.cleaner.cleanable import Cleanable
from raylog.storage.cleaner.cleaner import Buffers, clean
from raylog.storage.config import LogConfig
from raylog.storage.files import RealFileSystem, write_atomically
from raylog.storage.loader import create_log, open_log
from raylog.storage.log import Log
from raylog.storage.log_dir import CheckpointedOffsets, LogDir
from raylog.storage.names import TopicPartition
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.encode import encode_records
from raylog.storage.state.epochs import LeaderEpochs
from raylog.storage.state.properties import random_id
from raylog.storage.testing.clock import T0, ManualClock
from raylog.storage.testing.logs import TOPIC_ID, of_producer
from raylog.storage.validation import COORDINATOR
from tests.harness.in_turn import in_turn
from tests.harness.syscalls import mark

FS = RealFileSystem()
PARTITION = TopicPartition("orders", 0)
LOG = LogId(partition=PARTITION, topic_id=TOPIC_ID)
FAILED = "failed"
BUFFERS = Buffers(dedupe_bytes=1 << 12, load_factor=0.9, chunk_bytes=4096)


class Work:
    """A log dir with one partition's folder."""

    def __init__(self, name: str, log_dir: str) -> None:
        self.name, self.log_dir = name, log_dir
        self.clock = ManualClock()
        self.folder = os.path.join(log_dir, str(PARTITION))
        FS.make_dir(log_dir)
        FS.sync_dir(os.path.dirname(log_dir))

    @contextmanager
    def operation(self) -> Iterator[None]:
        """The body is the operation."""
        mark(f"{self.name} begins")
        yield
        mark(f"{self.name} returns")

    def create(self, **config: Any) -> Log:
        create_log(FS, self.folder, TOPIC_ID)
        return self.open(**config)

    def open(self, *, is_clean: bool = True, recovery_point: int = 0, **config: Any) -> Log:
        fields = {"index_interval_bytes": 0, "file_delete_delay_ms": 0} | config
        return open_log(
            FS,
            self.clock,
            self.folder,
            PARTITION,
            LogConfig(**fields),
            is_clean=is_clean,
            recovery_point=recovery_point,
        )

    def three_segments(self, **config: Any) -> Log:
        """Flushed: offsets 0 to 3, 4 to 7, and 8 to 11 in the active one."""
        log = self.create(**config)
        for number in range(3):
            if number:
                log.roll()
            append(log, 4, number)
        log.flush()
        return log

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)


def append(log: Log, count: int, number: int = 0) -> None:
    """One batch for each record, so that each gets an entry of the index."""
    for n in range(count):
        rows = [(T0 + 10 * number + n, b"key-%d" % (n % 2), b"value", ())]
        log.append(encode_records(rows))


def compact(log: Log, clock: ManualClock) -> None:
    """A round over all sealed segments."""
    bound = log.segments[-1].base_offset
    section = Cleanable(first_dirty_offset=0, bound=bound, clean_bytes=0, cleanable_bytes=1)
    clean(FS, clock, log, section, BUFFERS)


# -- the operations --------------------------------------------------------------------------------


def creating(work: Work) -> None:
    with work.operation():
        create_log(FS, work.folder, TOPIC_ID)


def flushing(work: Work) -> None:
    log = work.create()
    append(log, 4)
    with work.operation():
        log.flush()


def appending_with_flush(work: Work) -> None:
    partition = Partition(work.create(flush_messages=1), work.clock)
    with work.operation():
        partition.append(encode_records([(T0, None, b"value", ())]))


def flushing_several_segments(work: Work) -> None:
    log = work.create()
    for number in range(3):
        append(log, 4, number)
        log.roll()
    append(log, 4, 3)
    with work.operation():
        log.flush()


def flushing_after_a_roll(work: Work) -> None:
    """What upkeep does: the sealed segment is flushed, the active one is not yet."""
    log = work.create()
    append(log, 4)
    log.roll()
    with work.operation():
        log.flush_due()


def deleting_old_segments(work: Work) -> None:
    log = work.three_segments(retention_bytes=0)
    with work.operation():
        assert log.delete_old_segments() == 3, "the active one too, behind a roll"


def purging(work: Work) -> None:
    log = work.three_segments(retention_bytes=0)
    log.delete_old_segments()
    with work.operation():
        log.purge_deleted()


def deleting_records(work: Work) -> None:
    log = work.create()
    log.epochs.assign(3, 0)
    append(log, 4)
    with work.operation():
        assert log.delete_records(2) == 2


def compacting(work: Work) -> None:
    log = work.create(cleanup_policy="compact")
    for number in range(3):
        append(log, 4, number)
        abort_a_transaction(log, number)
        log.roll()
    log.flush()
    with work.operation():
        compact(log, work.clock)


def abort_a_transaction(log: Log, sequence: int) -> None:
    rows = [(T0, b"key", b"aborted", ())]
    log.append(
        encode_records(
            rows, producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True
        )
    )
    marker = encode_marker(Marker(True, 0, T0), producer_id=7, producer_epoch=0)
    log.append(marker, origin=COORDINATOR)


def truncating(work: Work) -> None:
    log = work.three_segments()
    with work.operation():
        assert log.truncate_to(9)


def truncating_segments_away(work: Work) -> None:
    log = work.three_segments()
    with work.operation():
        assert log.truncate_to(2)


def truncating_below_a_checkpoint(work: Work) -> None:
    log_dir = LogDir(FS, work.log_dir, "cluster", 1)
    log = work.three_segments()
    log_dir.write_offsets({PARTITION: CheckpointedOffsets(12, 0, 12)})

    def lower(offset: int) -> None:
        log_dir.write_offsets({PARTITION: CheckpointedOffsets(offset, 0, offset)})

    with work.operation():
        assert log.truncate_to(9, lower)


def truncating_fully(work: Work) -> None:
    log = work.three_segments()
    with work.operation():
        log.truncate_fully(20)


def closing(work: Work) -> None:
    log = work.create()
    log.append(of_producer(0))
    append(log, 4)
    with work.operation():
        log.close()


def flushing_an_aborted_transaction(work: Work) -> None:
    """The file of the transaction index is made with its first entry."""
    log = work.create()
    append(log, 4)
    log.flush()
    abort_a_transaction(log, 0)
    with work.operation():
        log.flush()


def replacing_a_file(work: Work) -> None:
    path = os.path.join(work.log_dir, "file")
    write_atomically(FS, path, b"old")
    with work.operation():
        write_atomically(FS, path, b"new")


def writing_checkpoints(work: Work) -> None:
    log_dir = LogDir(FS, work.log_dir, "cluster", 1)
    with work.operation():
        log_dir.write_offsets({PARTITION: CheckpointedOffsets(12, 4, 12)})


def writing_leader_epochs(work: Work) -> None:
    work.create()
    epochs = LeaderEpochs(FS, work.folder)
    with work.operation():
        epochs.assign(4, 0)


def opening_after_a_kill(work: Work) -> None:
    """What was appended last may be in the page cache alone."""
    log = work.three_segments()
    abort_a_transaction(log, 0)
    with work.operation():
        assert work.open(is_clean=False, recovery_point=8).log_end_offset == 14


def opening_a_cut_tail(work: Work) -> None:
    """The last batch of a crashed log is torn."""
    log = work.three_segments()
    path = log.segments[-1].path
    os.truncate(path, os.path.getsize(path) - 3)
    with work.operation():
        assert work.open(is_clean=False, recovery_point=8).log_end_offset == 11


def opening_without_a_middle_tail(work: Work) -> None:
    """A crash took the end of a segment that was not flushed, and left those behind it."""
    log = work.three_segments()
    path = log.segments[0].path
    os.truncate(path, os.path.getsize(path) - 3)
    with work.operation():
        assert work.open(is_clean=False).log_end_offset == 3


def opening_an_unfinished_swap(work: Work) -> None:
    """A crash came between the renames to ``.swap`` and the one that takes the suffix off."""
    log = work.three_segments()
    for suffix in (".log", ".index", ".timeindex"):
        name = work.path(log.segments[1].path.rpartition("/")[2].removesuffix(".log") + suffix)
        os.rename(name, name + ".swap")
    FS.sync_dir(work.folder)
    with work.operation():
        assert work.open(is_clean=False).log_end_offset == 12


def opening_a_swap_that_had_not_begun(work: Work) -> None:
    """A crash came between the renames of the cleaned segment's files to ``.swap``."""
    log = work.three_segments()
    stem = log.segments[1].path.removesuffix(".log")
    FS.write_file(stem + ".log.swap", FS.read_file(stem + ".log"))
    FS.write_file(stem + ".index.cleaned", b"")
    FS.write_file(stem + ".timeindex.cleaned", b"")
    FS.sync_dir(work.folder)
    with work.operation():
        assert work.open(is_clean=False).log_end_offset == 12


def opening_without_an_index(work: Work) -> None:
    log = work.three_segments()
    os.unlink(log.segments[1].path.removesuffix(".log") + ".index")
    FS.sync_dir(work.folder)
    with work.operation():
        work.open(is_clean=False, recovery_point=8)


def locking_a_new_dir(work: Work) -> None:
    with work.operation():
        LogDir(FS, os.path.join(work.log_dir, "new"), "cluster", 1)


def locking_a_dir_that_was_closed(work: Work) -> None:
    LogDir(FS, work.log_dir, "cluster", 1).close(clean=True)
    with work.operation():
        assert LogDir(FS, work.log_dir, "cluster", 1).was_clean


def disk_work(work: Work, *log_dirs: str) -> tuple[DiskWork, list[str]]:
    """The disk work of a node with these log dirs, and their ids."""
    disks = DiskWork(
        FS,
        work.clock,
        cluster_id="cluster",
        node_number=1,
        delete_delay_ms=0,
        copy_rate=1e9,
        beside=in_turn,
    )
    found = disks.open(log_dirs or (work.log_dir,))
    return disks, [str(dir.directory_id) for dir in found.dirs]


def stopping_in_order(work: Work) -> None:
    """The log is closed, then its dir."""
    disks, [directory_id] = disk_work(work)
    disks.carry_out(MakeFolder(token=1, log=LOG, directory_id=directory_id))
    disks.began_opening(LOG, directory_id)
    log = work.open()
    append(log, 4)
    with work.operation():
        log.close()
        assert disks.unlock({LOG: PartitionOffsets(0, 4, 4, 4)}, set())


def moving_to_another_dir(work: Work) -> None:
    """The last round of a copy, and the name that makes it the partition."""
    LogDir(FS, work.log_dir, "cluster", 1).close(clean=False)  # it gets its identity
    log = work.three_segments()
    log.close()
    target = os.path.join(work.log_dir, "target")
    disks, [source_id, target_id] = disk_work(work, work.log_dir, target)
    copy = Copy(token=1, log=LOG, directory_id=source_id, target_id=target_id, is_last=False)
    disks.carry_out(copy)
    with work.operation():
        disks.carry_out(replace(copy, is_last=True))
        disks.carry_out(Adopt(token=3, log=LOG, directory_id=target_id))


def deleting_a_partition(work: Work) -> None:
    disks, [directory_id] = disk_work(work)
    disks.carry_out(MakeFolder(token=1, log=LOG, directory_id=directory_id))
    with work.operation():
        disks.carry_out(Doom(token=2, log=LOG, directory_id=directory_id))


def making_a_partition_again(work: Work) -> None:
    """The checkpoint files still name the one of before."""
    disks, [directory_id] = disk_work(work)
    disks.carry_out(MakeFolder(token=1, log=LOG, directory_id=directory_id))
    disks.record_offsets(LOG, directory_id, PartitionOffsets(0, 4, 4, 4))
    disks.write_recovery_points(directory_id)
    disks.carry_out(Doom(token=2, log=LOG, directory_id=directory_id))
    later = LogId(partition=PARTITION, topic_id=random_id())
    with work.operation():
        disks.carry_out(MakeFolder(token=3, log=later, directory_id=directory_id))


OPERATIONS: dict[str, Callable[[Work], None]] = {
    operation.__name__: operation
    for operation in (
        creating,
        flushing,
        appending_with_flush,
        flushing_several_segments,
        flushing_after_a_roll,
        deleting_old_segments,
        purging,
        deleting_records,
        compacting,
        truncating,
        truncating_segments_away,
        truncating_below_a_checkpoint,
        truncating_fully,
        closing,
        flushing_an_aborted_transaction,
        replacing_a_file,
        writing_checkpoints,
        writing_leader_epochs,
        opening_after_a_kill,
        opening_a_cut_tail,
        opening_without_a_middle_tail,
        opening_an_unfinished_swap,
        opening_a_swap_that_had_not_begun,
        opening_without_an_index,
        locking_a_new_dir,
        locking_a_dir_that_was_closed,
        stopping_in_order,
        moving_to_another_dir,
        deleting_a_partition,
        making_a_partition_again,
    )
}


def main() -> None:
    (root,) = sys.argv[1:]
    for name, operation in OPERATIONS.items():
        try:
            operation(Work(name, os.path.join(root, name)))
        except Exception:
            with open(os.path.join(root, name + "." + FAILED), "w") as file:
                traceback.print_exc(file=file)


if __name__ == "__main__":
    main()
