"""A request that is put to both clusters, and what in it is each cluster's own.

A topic's id, a producer's id, a leader epoch, a group's member and the number of a broker are given
by a cluster, so a question has a symbol in their place. Each side puts its own value there before
it is asked.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from raylog.actors.plane.apis.api import Api
from raylog.storage.errors import UnwritableValue
from raylog.storage.schemas.types import Value

Drawn = TypeVar("Drawn")
Place = tuple[str, int]  # a partition, whose leader is asked


class Home(NamedTuple):
    """A coordinator, of groups (0) or of transactions (1): Kafka's key types."""

    kind: int


# A transactional id that any broker is asked for: of both clusters Kafka's alone has it afterwards.
ASTRAY: Final = "tx"
OF_GROUPS: Final = Home(0)
OF_TRANSACTIONS: Final = Home(1)


class Member(NamedTuple):
    """Of a group. ``generation``: -1 before it has joined one."""

    member_id: str
    generation: int


class Owner(NamedTuple):
    """The last producer of a transactional id; -1 where there was none."""

    producer_id: int
    epoch: int


class Knowledge(Protocol):
    """What a side knows of its cluster."""

    def topic_id(self, topic: str) -> UUID:
        """The id that the topic has, or had last."""

    def epoch(self, topic: str, partition: int) -> int:
        """Of its leader."""

    def producer_id(self, number: int) -> int:
        """The id of a producer, by its number; the first one by default."""

    def member(self, group: str) -> Member | None:
        """Who is in a group, or was told an id to join it with."""

    def owner(self, transactional_id: str) -> Owner:
        """Who writes with a transactional id."""

    @property
    def broker(self) -> int:
        """The number of the broker that takes commands."""


class Symbol(Protocol):
    """Something that each side has its own value for."""

    def of(self, side: Knowledge) -> Any:
        """The side's value."""


@dataclass(frozen=True)
class TopicId:
    """The id of a topic."""

    topic: str

    def of(self, side: Knowledge) -> UUID:
        return side.topic_id(self.topic)


@dataclass(frozen=True)
class Epoch:
    """The epoch of a partition's leader, and by how much the question has another one."""

    topic: str
    partition: int
    more: int = 0

    def of(self, side: Knowledge) -> int:
        return side.epoch(self.topic, self.partition) + self.more


@dataclass(frozen=True)
class MemberId:
    """Of the member of a group, or what it was told; a strange one where nobody was."""

    group: str

    def of(self, side: Knowledge) -> str:
        member = side.member(self.group)
        return "no-such" if member is None else member.member_id


@dataclass(frozen=True)
class Generation:
    """Of the member of a group, and by how much the question has another one."""

    group: str
    more: int = 0

    def of(self, side: Knowledge) -> int:
        member = side.member(self.group)
        return (-1 if member is None else member.generation) + self.more


@dataclass(frozen=True)
class ProducerId:
    """Of the last producer of a transactional id."""

    transactional_id: str

    def of(self, side: Knowledge) -> int:
        return side.owner(self.transactional_id).producer_id


@dataclass(frozen=True)
class ProducerEpoch:
    """Of the last producer of a transactional id, and by how much the question has another one."""

    transactional_id: str
    more: int = 0

    def of(self, side: Knowledge) -> int:
        return side.owner(self.transactional_id).epoch + self.more


@dataclass(frozen=True)
class BrokerNumber:
    """The number of the broker that takes commands, as a number or as text."""

    is_text: bool = False

    def of(self, side: Knowledge) -> int | str:
        return str(side.broker) if self.is_text else side.broker


class Question(NamedTuple):
    """One request. ``place``: who is asked; None where any broker may be."""

    api: Api
    version: int
    body: Value
    place: Place | Home | None = None
    is_answered: bool = True

    def written_for(self, side: Knowledge) -> bytes:
        """The body's bytes. Raises UnwritableValue."""
        if not self.api.serves(self.version):
            return b""
        return self.api.request.write(resolved(self.body, side), self.version)

    @property
    def changes_cluster(self) -> bool:
        """Whether topics or their configs may be others afterwards."""
        return self.api.name in _CHANGING and not self.body.get("validateOnly")

    @property
    def topics(self) -> set[str]:
        """The topics that it names."""
        return set(_names(self.body))


_CHANGING: Final = frozenset(
    ("CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs")
)
_NAMING: Final = frozenset(("name", "topic", "resourceName"))


def _names(value: Any) -> list[str]:
    if isinstance(value, TopicId):
        return [value.topic]
    if isinstance(value, list | tuple):
        return [name for entry in value for name in _names(entry)]
    if not isinstance(value, Mapping):
        return []
    own = [value[field] for field in _NAMING & value.keys() if isinstance(value[field], str)]
    own += value.get("topicNames", [])
    return own + [name for entry in value.values() for name in _names(entry)]


def resolved(value: Any, side: Knowledge) -> Any:
    """A body with the side's values in the place of symbols."""
    if isinstance(value, Mapping):
        return {name: resolved(entry, side) for name, entry in value.items()}
    if isinstance(value, list):
        return [resolved(entry, side) for entry in value]
    return value.of(side) if hasattr(value, "of") else value


class Draw:
    """Values out of pools, by one seed. ``is_writable``: whether a question has its version."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def one(self, *pool: Drawn) -> Drawn:
        return self.random.choice(pool)

    def usually(self, value: Drawn, *others: Drawn) -> Drawn:
        """``value`` three times of four."""
        return value if self.random.random() < 0.75 else self.one(value, *others)

    def some(self, most: int, make: Callable[[], Drawn]) -> list[Drawn]:
        """A list of one to ``most``, mostly of one; seldom an empty one."""
        count = self.usually(1, 0, *range(1, most + 1))
        return [make() for _ in range(count)]

    def version(self, api: Api) -> int:
        return self.random.randint(api.first_version, api.last_version)

    def chance(self, share: float) -> bool:
        return self.random.random() < share


Making = Callable[[Draw], Question]


def drawn(draw: Draw, making: Making, side: Knowledge) -> Question:
    """A question whose version has what it says."""
    while True:
        question = making(draw)
        try:
            question.written_for(side)
        except UnwritableValue:
            continue
        return question
