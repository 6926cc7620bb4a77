"""Groups and their assignments in short, for tests of the assignors.

``"t1=3 t2=2"``: topic t1 has 3 partitions, and t2 has 2. ``"t1-0,2 t2-1"``: two partitions of t1,
one of t2.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from hypothesis import strategies as st

from raylog.actors.coordinators.assignment.assignors import COOPERATIVE_STICKY, Assignor
from raylog.actors.coordinators.assignment.subscription import NO_GENERATION, Assigned, Subscription
from raylog.storage.names import TopicPartition


class Member(NamedTuple):
    """A member of a group, whatever its assignor is."""

    topics: str
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


class Drawn(NamedTuple):
    """A group that hypothesis has drawn; members may claim anything."""

    topics: dict[str, int]
    members: dict[str, Member]


Group: TypeAlias = Mapping[str, Member]


def counts(text: str) -> dict[str, int]:
    pairs = (word.split("=") for word in text.split())
    return {topic: int(count) for topic, count in pairs}


def partitions(text: str) -> tuple[TopicPartition, ...]:
    listed = []
    for word in text.split():
        topic, numbers = word.split("-")
        listed += [TopicPartition(topic, int(number)) for number in numbers.split(",")]
    return tuple(listed)


def member(topics: str, owned: str = "", generation: int = 1) -> Member:
    """``owned``: what it got in ``generation``."""
    return Member(topics, partitions(owned), generation if owned else NO_GENERATION)


def group(topics: str, **owned: str) -> dict[str, Member]:
    """Members who all subscribe to ``topics``, and what each owns."""
    return {name: member(topics, text) for name, text in owned.items()}


def subscriptions(assignor: Assignor, members: Group) -> dict[str, Subscription]:
    """What the members send: an eager member owns nothing when it joins, but it remembers."""
    sent = {}
    for name, (topics, owned, generation) in members.items():
        is_cooperative = assignor is COOPERATIVE_STICKY
        sent[name] = Subscription(
            topics=tuple(topics.split()),
            owned=owned if is_cooperative else (),
            generation=generation if is_cooperative else NO_GENERATION,
            user_data=assignor.user_data(owned, generation),
        )
    return sent


def assign(assignor: Assignor, topics: Mapping[str, int], members: Group) -> Assigned:
    return assignor.assign(topics, subscriptions(assignor, members))


def expected(**texts: str) -> Assigned:
    return {name: partitions(text) for name, text in texts.items()}


def next_group(members: Group, assigned: Assigned, generation: int) -> dict[str, Member]:
    """The same members when they join again, after they got ``assigned`` in ``generation``."""
    return {
        name: old._replace(owned=assigned[name], generation=generation)
        for name, old in members.items()
    }


def wanted(topics: Mapping[str, int], members: Group) -> list[TopicPartition]:
    """All partitions of topics to which somebody subscribes."""
    subscribed = {topic for one in members.values() for topic in one.topics.split()}
    return [
        TopicPartition(topic, number)
        for topic, count in sorted(topics.items())
        for number in range(count)
        if topic in subscribed
    ]


def all_of(assigned: Assigned) -> list[TopicPartition]:
    """Every partition, as often as it is assigned."""
    return sorted(partition for share in assigned.values() for partition in share)


def owner(claimed: TopicPartition, members: Group) -> str | None:
    """Who claims a partition in a newer generation than all others who claim it."""
    claims = [(one.generation, name) for name, one in members.items() if claimed in one.owned]
    newest = [name for generation, name in claims if generation == max(claims)[0]]
    return newest[0] if len(newest) == 1 else None


def keepable(topics: Mapping[str, int], members: Group) -> dict[str, set[TopicPartition]]:
    """What each member owns, and may still read."""
    owned: dict[str, set[TopicPartition]] = {name: set() for name in members}
    for partition in wanted(topics, members):
        name = owner(partition, members)
        if name is not None and partition.topic in members[name].topics.split():
            owned[name].add(partition)
    return owned


TOPICS = st.sampled_from("abcd")
NUMBERS = st.integers(0, 6)


@st.composite
def _claims(draw: st.DrawFn) -> tuple[TopicPartition, ...]:
    """All of some topics, and more: of topics and partitions, too, that are not there."""
    claims = draw(st.lists(st.builds(TopicPartition, TOPICS, NUMBERS), max_size=4))
    for topic in sorted(draw(st.sets(TOPICS, max_size=2))):
        claims += [TopicPartition(topic, number) for number in range(7)]
    return tuple(claims)


@st.composite
def _groups(draw: st.DrawFn, are_equal: bool) -> Drawn:
    texts = st.sets(TOPICS).map(sorted).map(" ".join)
    common = draw(texts)
    members = {}
    for name in draw(st.lists(st.sampled_from("uvwxyz"), min_size=1, max_size=5, unique=True)):
        members[name] = Member(
            topics=common if are_equal else draw(texts),
            owned=draw(_claims()),
            generation=draw(st.integers(-1, 3)),
        )
    return Drawn(draw(st.dictionaries(TOPICS, NUMBERS, min_size=2)), members)


GROUPS_OF_EQUALS = _groups(are_equal=True)
GROUPS = GROUPS_OF_EQUALS | _groups(are_equal=False)
