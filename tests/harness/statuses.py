"""What health sees of a partition, without one."""

from collections.abc import Sequence

from raylog.actors.messages import AsideFile, PartitionOffsets, PartitionStatus
from raylog.actors.partition.opening import report_of
from raylog.storage.report import Mended


def serving_status(
    *mended: Mended,
    asides: Sequence[AsideFile] = (),
    partition: str = "t-0",
    folder: str = "/disk/t-0",
) -> PartitionStatus:
    """Of a partition that serves, and whose opening did what ``mended`` says."""
    return PartitionStatus(
        partition=partition,
        folder=folder,
        pid=1,
        kernel="compiled",
        leader_epoch=0,
        offsets=PartitionOffsets(0, 0, 0, 0),
        size_bytes=0,
        segments=1,
        is_offline=False,
        report=report_of(mended, asides),
    )
