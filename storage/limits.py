"""The limits of the integers in Kafka's formats and configs, which Java's types set."""

from typing import Final

MAX_INT: Final = 2**31 - 1  # an int32: sizes, positions and relative offsets on disk, epochs
MAX_LONG: Final = 2**63 - 1  # an int64: offsets, times
