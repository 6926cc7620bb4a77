"""What Ray's head remembers of the Controllers: whether one may have gone on without a copy.

A Controller that is lost may have left copies of the metadata out, and gone on with fewer, or
alone. Then the copies that are in reach lack what it did last, and cannot know that. So before it
leaves one out it says so to Ray's head, with the end of its log at that time::

    asked at 120, copies recorded at 118       it may have gone on without this copy
    asked at 120, copies recorded at 121       this copy has the record of who was left out

A copy of which the second holds for every life of a Controller, or where none has asked, lacks
nothing that was committed. That needs a proof that Ray is the same one as in those lives: each
leaves its mark when it begins, and when Ray ends they are all gone.

The mark of a beginning takes the place of those before, so it says what they did: a copy that lacks
the last record of who is in sync may have been left out by that. Who begins over metadata of one
cluster neither settles nor obeys the marks of another one that was in the same Ray cluster.

A mark behind a copy's record refutes what that copy says of itself: that it ends with an orderly
stop, or has heard its Controller of late. A Controller may have begun over it since, and gone on
without it. Without any mark (Ray was started again) nothing is refuted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgpack

# There was no question yet.
NOT_ASKED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a life of a Controller has left. ``epoch``: of the metadata over which it began.

    ``asked_at``: the end of its log when it was to leave a copy out last. Before that, and where it
    did not do so, the number of the last record of who is in sync; -1 for none. ``cluster_id``: of
    the metadata; empty where an older raylog left the mark.
    """

    epoch: int
    asked_at: int = NOT_ASKED
    cluster_id: str = ""


class Notes(Protocol):
    """What Ray's head keeps. Each method raises what Ray raises."""

    def keep(self, key: str, value: bytes) -> None: ...
    def find(self, prefix: str) -> Mapping[str, bytes]: ...
    def forget(self, key: str) -> None: ...


class Witness:
    """The marks of the Controllers of a namespace.

    ``life``, ``cluster_id``: the own one's id, and that of its metadata; both empty for who only
    looks.
    """

    def __init__(self, notes: Notes, namespace: str, life: str = "", cluster_id: str = "") -> None:
        self._notes, self._cluster_id = notes, cluster_id
        self._prefix = f"raylog:{namespace}:controller:"
        self._key = self._prefix + life
        self._epoch = 0

    def marks(self) -> list[Mark]:
        """Those of all lives that may matter."""
        return [_decoded(value) for value in self._notes.find(self._prefix).values()]

    def begin(self, epoch: int, copies_at: int, is_controller: Callable[[], bool]) -> bool:
        """A life begins over complete metadata of this epoch: what was before is settled.

        ``copies_at``: the number of the last record in it of who is in sync; -1 for none.
        ``is_controller``: asks Ray whether this process still is it; may raise. Returns what it
        said. A process that Ray has replaced changes nothing: it may have stood still since it
        looked, and what its successor has left is not settled. Whoever is replaced only later
        forgets no mark of the successor either: it has seen which there are before it asked.
        """
        self._epoch = epoch
        before = self._notes.find(self._prefix)
        if not is_controller():
            return False
        self._keep(copies_at)
        for key, value in before.items():
            if key != self._key and _is_of(_decoded(value), self._cluster_id):
                self._notes.forget(key)
        return True

    def ask(self, end: int) -> None:
        """A copy is to be left out. ``end``: of the log now."""
        self._keep(end)

    def take_back(self, copies_at: int) -> None:
        """None was left out since it was to be, nor will be before the next ``ask``.

        ``copies_at``: the number of the last record of who is in sync; -1 for none.
        """
        self._keep(copies_at)

    def _keep(self, asked_at: int) -> None:
        mark = Mark(epoch=self._epoch, asked_at=asked_at, cluster_id=self._cluster_id)
        self._notes.keep(self._key, _encoded(mark))


def of_cluster(marks: Iterable[Mark], cluster_id: str) -> list[Mark]:
    """Those of the lives that may have had metadata of this cluster; all where it is empty."""
    return [mark for mark in marks if _is_of(mark, cluster_id)]


def _is_of(mark: Mark, cluster_id: str) -> bool:
    return not cluster_id or mark.cluster_id in ("", cluster_id)


def is_settled(marks: Iterable[Mark], epoch: int, copies_at: int) -> bool:
    """Whether a copy lacks nothing that was committed, if it was in sync.

    ``epoch``: of its last Controller. ``copies_at``: the number of its last record of who is in
    sync.
    """
    known = list(marks)
    is_same_ray = any(mark.epoch <= epoch for mark in known)
    return is_same_ray and not is_left_out(known, copies_at)


def is_last(marks: Iterable[Mark], epoch: int) -> bool:
    """Whether no Controller has begun over metadata of this epoch or a higher one."""
    known = list(marks)
    return bool(known) and not later(known, epoch)


def later(marks: Iterable[Mark], epoch: int) -> list[Mark]:
    """Those of the lives that began over metadata of this epoch or a higher one."""
    return [mark for mark in marks if mark.epoch >= epoch]


def is_left_out(marks: Iterable[Mark], copies_at: int) -> bool:
    """Whether one of these lives may have gone on without a copy that was in sync.

    ``copies_at``: the number of its last record of who is in sync.
    """
    return any(mark.asked_at > copies_at for mark in marks)


def _encoded(mark: Mark) -> bytes:
    fields = {
        "v": 1,
        "epoch": mark.epoch,
        "asked_at": mark.asked_at,
        "cluster_id": mark.cluster_id,
    }
    return bytes(msgpack.packb(fields))


def _decoded(value: bytes) -> Mark:
    fields = msgpack.unpackb(value)
    return Mark(
        epoch=fields["epoch"],
        asked_at=fields["asked_at"],
        cluster_id=fields.get("cluster_id", ""),
    )
