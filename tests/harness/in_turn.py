"""Does in one thread, one after another, what the broker does in threads beside each other."""

from collections.abc import Callable, Mapping


def in_turn(jobs: Mapping[str, Callable[[], None]], is_enough: Callable[[], bool]) -> None:
    """Open the dirs in the order of their paths.

    So the n-th operation is the same in each run, and the Stopped of a disk that stops at it
    reaches the test.
    """
    for job in jobs.values():
        job()
