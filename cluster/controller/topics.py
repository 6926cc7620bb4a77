"""What can be done to topics: create, change the config, add partitions, delete, describe. The
Controller's half.

A topic is published, by its record in the metadata log, when all of its partitions serve; until
then a failure removes what was made. The same goes for partitions that are added. The name is
reserved meanwhile.

A changed config is a record first. Its version rises with each change; the partitions are told at
once, and those that cannot be reached when the watch finds them again: ``Placement.outdated``.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from raylog.actors.errors import (
    InvalidPartitions,
    NoLogDirs,
    TopicBusy,
    TopicExists,
    UnknownTopicOrPartition,
)
from raylog.actors.events import warn
from raylog.actors.messages import ConfigEntry
from raylog.actors.node.dirs import Placed
from raylog.actors.runtime.handles import kill
from raylog.actors.runtime.names import log_actor_name
from raylog.cluster.controller.metadata import Topic, topic_record, topic_removed_record
from raylog.cluster.controller.opening import Opening
from raylog.cluster.controller.placement import TopicDescription, Wanted, wanted_of
from raylog.cluster.controller.settings import (
    altered,
    broker_entries,
    topic_entries,
    topic_overrides,
)
from raylog.cluster.controller.state import LeftOver, all_answers, answers_of
from raylog.storage.config import LogConfig
from raylog.storage.errors import RaylogError
from raylog.storage.names import TopicPartition, check_topic_name, collision_key
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)

# A partition is a process of about 50 MB; beyond this it is more likely a mistake than a wish.
MAX_PARTITIONS = 10_000


class Home(NamedTuple):
    """A partition that is being made, its node, and the LogManager there."""

    partition: TopicPartition
    node: str
    manager: Any


class Topics(Opening):
    """The Controller's methods for topics."""

    # -- making ------------------------------------------------------------------------------------

    def create_topic(
        self, name: str, partitions: int | None, config: Mapping[str, Any]
    ) -> TopicDescription:
        """Make a topic; when this returns its partitions serve. Nothing is left of it if that
        fails."""
        partitions = self._config.num_partitions if partitions is None else partitions
        check_topic_name(name)
        _check_partitions(partitions, least=1)
        topic = Topic(name, random_id(), self._checked(topic_overrides(config)), ())
        with self._reserve(name, "created", must_be_free=True):
            self._clear(name)
            with self._made(topic, 0, partitions) as made:
                self._publish(topic, made, topic.version)
        return self.describe_topic(name)

    def add_partitions(self, name: str, total: int) -> TopicDescription:
        """Extend a topic to ``total`` partitions; when this returns they serve. Nothing is left if
        that fails."""
        with self._reserve(name, "extended"):
            with self._lock:
                topic = self._topic(name)
            count = len(topic.directories)
            _check_partitions(total, least=count + 1)
            self._clear(name)
            with self._made(topic, count, total - count) as made, self._lock:
                self._publish(self._same(topic), made, topic.version)
        return self.describe_topic(name)

    def _same(self, topic: Topic) -> Topic:
        """The topic as it is now; UnknownTopicOrPartition if it was deleted meanwhile."""
        now = self._state.topics.get(topic.name)
        if now is None or now.topic_id != topic.topic_id:
            raise UnknownTopicOrPartition(topic.name, None, "it was deleted meanwhile")
        return now

    @contextmanager
    def _made(self, topic: Topic, first: int, count: int) -> Iterator[list[tuple[Home, Placed]]]:
        """So many partitions of a topic, that serve; they are unmade if the body fails."""
        with self._lock:
            homes = self._homes(topic.name, first, count)
            self._making += [home.node for home in homes]
            self._made_now.add(topic.topic_id)
        try:
            yield self._make_partitions(topic, homes)
        except BaseException:
            self._unmake_partitions(topic, homes)
            raise
        finally:
            with self._lock:
                self._made_now.discard(topic.topic_id)
                for home in homes:
                    self._making.remove(home.node)

    def _homes(self, name: str, first: int, count: int) -> list[Home]:
        """Where each of the new partitions goes."""
        if not self._placement.nodes:
            problems = [*self._node_problems.values(), *self._placement.why_offline()]
            raise NoLogDirs("; ".join(problems) or "no node's LogManager runs")
        nodes = self._placement.spread(count, self._wanted(), self._making)
        return [
            Home(TopicPartition(name, number), node, self._managers[node])
            for number, node in enumerate(nodes, start=first)
        ]

    def _make_partitions(self, topic: Topic, homes: list[Home]) -> list[tuple[Home, Placed]]:
        """All the folders, then all the actors. Raises the first failure, when every call has been
        answered."""
        made = [
            home.manager.create_partition.remote(home.partition, topic.topic_id) for home in homes
        ]
        places = all_answers(made, f"creating {topic.name}")
        opened = [
            self._opening(home.manager, home.partition, topic, place.directory_id)
            for home, place in zip(homes, places, strict=True)
        ]
        return list(zip(homes, all_answers(opened, f"opening {topic.name}"), strict=True))

    def _unmake_partitions(self, topic: Topic, homes: list[Home]) -> None:
        self._remove([LeftOver(home.partition, topic.topic_id, home.node) for home in homes])
        # an actor whose node is away would wait for it, and serve there what lies elsewhere then
        for home in homes:
            if home.node not in self._managers:
                kill(log_actor_name(home.partition), self._namespace)

    def _remove_left_over(self) -> None:
        with self._lock:
            left_over = [
                one for one in self._left_over.values() if one.partition.topic not in self._reserved
            ]
        self._remove(left_over)

    def _remove(self, partitions: list[LeftOver]) -> list[RaylogError]:
        """Have these removed; returns what kept some of them. Those the watch asks for again, until
        it is done: a folder that stays would be in the way of the next topic of that name."""
        calls: dict[Any, LeftOver] = {}
        with self._lock:
            for one in partitions:
                self._note_left_over(one)
                if one.node in self._managers:
                    call = self._managers[one.node].delete_partition.remote(
                        one.partition, one.topic_id
                    )
                    calls[call] = one
        answers = answers_of({call: f"removing {one.partition}" for call, one in calls.items()})
        for call, one in calls.items():
            self._removed(one, answers[call])
        return [answer for answer in answers.values() if isinstance(answer, RaylogError)]

    def _removed(self, one: LeftOver, answer: Any) -> None:
        key = one.partition, one.topic_id
        with self._lock:
            if self._left_over.get(key) is not one:
                return  # its folder was found on another node meanwhile
            if not isinstance(answer, RaylogError):
                del self._left_over[key]
                return
            self._left_over[key] = one._replace(why=str(answer))
        if str(answer) != one.why:
            warn(logger, "partition-left-over", partition=one.partition, why=answer)

    def _clear(self, name: str) -> None:
        """Remove what is left over of this name, on nodes that are there: it would be in the way.
        And a removal that comes later could not tell a partition that is added from the try before
        it."""
        with self._lock:
            left_over = [
                one
                for one in self._left_over.values()
                if one.partition.topic == name and one.node in self._managers
            ]
        for error in self._remove(left_over):
            raise TopicBusy(name, f"cleaned up after an earlier one: {error}")

    def _publish(self, topic: Topic, made: list[tuple[Home, Placed]], version: int) -> None:
        """The commit point of new partitions. ``version``: of the config that they were opened
        with."""
        directories = (*topic.directories, *(place.directory_id for _, place in made))
        with self._lock:
            self._log.append(topic_record(topic._replace(directories=directories)))
            for home, place in made:
                self._left_over.pop((home.partition, topic.topic_id), None)  # it has been made anew
                # Where the LogManager is another by now, it has yet to be told of the partition:
                # the watch does it.
                if self._managers.get(home.node) is home.manager:
                    self._placement.opened(home.partition, place, version)

    # -- reserving ---------------------------------------------------------------------------------

    @contextmanager
    def _reserve(self, name: str, what: str, *, must_be_free: bool = False) -> Iterator[None]:
        """Until this ends, nobody else makes, extends or deletes a topic of this name."""
        with self._lock:
            for other, doing in self._reserved.items():
                if collision_key(other) == collision_key(name):
                    raise TopicBusy(other, doing)
            if must_be_free:
                self._check_free(name)
            self._reserved[name] = what
        try:
            yield
        finally:
            with self._lock:
                del self._reserved[name]

    def _check_free(self, name: str) -> None:
        key = collision_key(name)
        for existing in self._state.topics:
            if collision_key(existing) == key:
                raise TopicExists(name, existing)

    # -- configs -----------------------------------------------------------------------------------

    def _checked(self, config: dict[str, Any]) -> dict[str, Any]:
        """``config``, if a topic can have it."""
        LogConfig.parse(config, self._config.topic_defaults)
        return config

    def alter_topic_config(
        self, name: str, changes: Mapping[str, Any], delete: Iterable[str]
    ) -> TopicDescription:
        """Change a topic's config; when this returns, all partitions that can be reached obey
        it."""
        with self._lock:
            topic = self._topic(name)
            config = self._checked(altered(topic.config, changes, delete))
            topic = topic._replace(config=config, version=topic.version + 1)
            self._log.append(topic_record(topic))
        self._configure()
        return self.describe_topic(name)

    def _configure(self) -> None:
        """Tell partitions that serve with an old config the one of now. Whom this does not reach
        the watch tells."""
        with self._lock:
            outdated = self._placement.outdated(self._wanted())
            calls = {
                self._configuring(manager, one): (one, manager)
                for one in outdated
                if (manager := self._manager_of(one.directory_id)) is not None
            }
        answers = answers_of(
            {call: f"configuring {one.partition}" for call, (one, _) in calls.items()}
        )
        for call, (one, manager) in calls.items():
            if isinstance(answers[call], RaylogError):
                warn(logger, "config-not-told", partition=one.partition, why=answers[call])
                continue
            with self._lock:
                if self._manager_of(one.directory_id) is manager:
                    self._placement.configured(one.partition, one.topic)

    def _configuring(self, manager: Any, one: Wanted) -> Any:
        topic = one.topic
        return manager.reconfigure.remote(
            one.partition, topic.topic_id, self._config_of(topic), topic.version
        )

    def topic_config(self, name: str) -> list[ConfigEntry]:
        """Every key that a topic has, with its value and who set it."""
        with self._lock:
            topic = self._topic(name)
        return topic_entries(topic.config, self._config.topic_defaults)

    def broker_config(self) -> list[ConfigEntry]:
        """Every key that a broker has, with its value and who set it."""
        return broker_entries(self._config)

    # -- deleting, describing ----------------------------------------------------------------------

    def delete_topic(self, name: str) -> None:
        """Remove a topic and its records.

        Raises UnknownTopicOrPartition, or what kept records from being removed at once: the topic
        is gone then, and the watch goes on removing them.
        """
        with self._reserve(name, "deleted"):
            with self._lock:
                topic = self._topic(name)
                self._log.append(topic_removed_record(name))
                self._placement.forget(topic)
                all_of_it = wanted_of([topic])
                homes = {
                    one.partition: self._placement.node_of.get(one.directory_id)
                    for one in all_of_it
                }
            here = [
                LeftOver(one, topic.topic_id, node)
                for one, node in homes.items()
                if node is not None
            ]
            errors = self._remove(here)
            # Those of a node that is away are set aside as strays when it returns; actors that wait
            # for it end now.
            for partition, node in homes.items():
                if node is None:
                    kill(log_actor_name(partition), self._namespace)
        if errors:
            raise errors[0]

    def list_topics(self) -> list[str]:
        with self._lock:
            return sorted(self._state.topics)

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic, its config, and where its partitions are. Raises UnknownTopicOrPartition."""
        with self._lock:
            return self._placement.describe(self._topic(name))

    def explain(self, topic: str, partition: int) -> RaylogError | None:
        """Why a partition cannot be reached; None if it ought to be."""
        with self._lock:
            found = self._state.topics.get(topic)
            if found is None:
                return UnknownTopicOrPartition(topic, partition, "no such topic")
            return self._placement.explain(found, partition)


def _check_partitions(partitions: object, least: int) -> None:
    is_whole = isinstance(partitions, int) and not isinstance(partitions, bool)
    if not is_whole or not least <= partitions <= MAX_PARTITIONS:  # type: ignore[operator]
        raise InvalidPartitions(partitions, least, MAX_PARTITIONS)
