"""Small histories, from which the tests of the soak's checker are made.

Where a test does not say when something was done, all was done at the same time.
"""

from tests.soak.checker import check
from tests.soak.history import (
    KEEP,
    NO_KEY,
    OK,
    Bounds,
    Op,
    Partition,
    Poll,
    Send,
    TopicChange,
    ints,
)

HERE = Partition("t", "id-1", 0)
THERE = Partition("t", "id-1", 1)


def send(
    values: list[int],
    offsets: list[int] | None,
    outcome: str = OK,
    *,
    at: Partition = HERE,
    producer: str = "p",
    keys: list[int] | None = None,
    invoked: int = 0,
    completed: int = 1,
) -> Send:
    return Send(
        producer,
        at,
        invoked,
        completed,
        outcome,
        ints(values),
        ints(keys or [NO_KEY] * len(values)),
        ints(offsets or []),
    )


def poll(
    offsets: list[int],
    values: list[int],
    consumer: str = "c",
    *,
    at: Partition = HERE,
    keys: list[int] | None = None,
    completed: int = 1,
    is_final: bool = False,
) -> Poll:
    return Poll(
        consumer,
        at,
        completed - 1,
        completed,
        ints(offsets),
        ints(values),
        ints(keys or [NO_KEY] * len(values)),
        is_final,
    )


def final(offsets: list[int], values: list[int], **more: object) -> Poll:
    return poll(offsets, values, "final", is_final=True, **more)  # type: ignore[arg-type]


def created(
    policy: str = KEEP, topic_id: str = "id-1", invoked: int = 0, outcome: str = OK
) -> TopicChange:
    return TopicChange("create", "t", topic_id, invoked, invoked + 1, outcome, policy)


def deleted(topic_id: str = "id-1", invoked: int = 5, outcome: str = OK) -> TopicChange:
    return TopicChange("delete", "t", topic_id, invoked, invoked + 1, outcome, KEEP)


def kinds(*ops: Op) -> set[str]:
    return {finding.kind for finding in check(ops)}


END = Bounds(HERE, 0, 3)
ALL = send([10, 11, 12], [0, 1, 2])
SEEN = final([0, 1, 2], [10, 11, 12])
