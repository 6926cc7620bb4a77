"""Which partition of an internal topic a group or a transactional id belongs to."""

from typing import Final

_INT, _UINT = 0x7FFF_FFFF, 0xFFFF_FFFF
_BYTE: Final = 256


def partition_of(key: str, partitions: int) -> int:
    """The partition whose LogActor coordinates a group or a transactional id.

    Source: ``GroupCoordinatorService.partitionFor``, ``TransactionStateManager.partitionFor`` of
    Kafka.
    """
    number = 0
    text = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(text[::2], text[1::2], strict=True):
        number = (31 * number + _BYTE * high + low) & _UINT
    if number > _INT:  # Java's numbers have a sign
        number = -(number - _UINT - 1)
    return (number & _INT) % partitions
