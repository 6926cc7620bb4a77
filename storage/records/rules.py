"""What a log demands of the records that a client appends, as both kernels take it."""

from typing import NamedTuple


class RecordRules(NamedTuple):
    """The limits of one topic; ``LogConfig`` keeps them ready for every append.

    Timestamps have bounds only on topics of CreateTime: elsewhere both are 2^63-1.
    """

    max_bytes: int  # of a batch, as it is sent
    before_max_ms: int  # a record's timestamp may be so far before the current time,
    after_max_ms: int  # or so far after it
    is_create_time: bool  # whether a header's maximum timestamp must be its records'
    needs_keys: bool
