"""What opening a log did to its files: nothing that recovery does is silent."""

from typing import Literal, NamedTuple

# cut: bytes behind the last good batch were taken off a segment (they are kept aside)
# set_aside: a whole segment was taken out of the log, and is kept under a name of its own
# rebuilt: an index or another file that the log can make again was made again
# removed: a file that holds no record of its own was removed
# lost: fsynced records are missing, and somebody accepted it
Kind = Literal["cut", "set_aside", "rebuilt", "removed", "lost"]


class Mended(NamedTuple):
    """One thing that opening a log did."""

    kind: Kind
    file: str  # its name in the partition's folder
    size_bytes: int
    first_offset: int  # of the records that it may hold; -1 where there are none
    end_offset: int  # behind the last of them; -1 where there are none
    why: str
    kept_as: str = ""  # the name that the bytes have now, where they are kept


class Progress(NamedTuple):
    """How far the recovery of one log has come: of what it must read, how much it has read."""

    bytes_done: int
    bytes_total: int
    segments_done: int
    segments_total: int
