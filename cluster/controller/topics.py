"""The Controller's methods for topics: create, alter the config, add partitions, delete, describe.

A topic is published, by its record in the metadata log, when all of its partitions serve; until
then a failure removes what was made. The same goes for partitions that are added. The name is
reserved meanwhile.

A changed config is a record first. Its version rises with each change. The partitions are told at
once; those that cannot be reached are told when the watch finds them (``Placement.outdated``).
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from raylog.actors.errors import (
    NoLogDirs,
    TopicBusy,
    TopicExists,
    UnknownTopicOrPartition,
)
from raylog.actors.events import warn
from raylog.actors.messages import ConfigEntry, Placed
from raylog.actors.runtime.calls import Call, gather
from raylog.actors.runtime.handles import kill
from raylog.actors.runtime.names import log_actor_name
from raylog.actors.runtime.stubs import LogManagerStub
from raylog.cluster.client.connection import PartitionMetadata, TopicMetadata
from raylog.cluster.controller.metadata import Topic, topic_record, topic_removed_record
from raylog.cluster.controller.opening import Opening
from raylog.cluster.controller.placement import TopicDescription, Wanted, wanted_of
from raylog.cluster.controller.settings import (
    altered,
    broker_entries,
    topic_entries,
    topic_overrides,
)
from raylog.cluster.controller.state import LeftOver, all_answers, gather_patiently
from raylog.cluster.controller.versions import CONFIRMATION_S
from raylog.storage.config import LogConfig
from raylog.storage.errors import InvalidPartitions, RaylogError
from raylog.storage.names import TopicPartition, check_topic_name, collision_key
from raylog.storage.state.properties import random_id

logger = logging.getLogger(__name__)

# How long a request waits for a node where there was one.
NODE_PATIENCE_S = 10.0
# A partition is a process of about 50 MB; beyond this it is more likely a mistake than a wish.
MAX_PARTITIONS = 10_000
# How often it is looked whether the partitions report a changed config.
REPORT_INTERVAL_S = 0.5


class Home(NamedTuple):
    """A partition that is being made, its node, and the LogManager there."""

    partition: TopicPartition
    node: str
    manager: LogManagerStub


class Topics(Opening):
    """The Controller's methods for topics."""

    # -- making ------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None,
        config: Mapping[str, Any],
        validate_only: bool = False,
    ) -> TopicDescription:
        """Make a topic; when this returns its partitions serve.

        Nothing is left of it if that fails. ``validate_only``: raise what would keep it from being
        made now, and make nothing; the answer has neither an id nor partitions then.
        """
        partitions = self._config.num_partitions if partitions is None else partitions
        check_topic_name(name)
        _check_partitions(partitions, least=1)
        topic = Topic(
            name=name,
            topic_id=random_id(),
            config=self._checked(topic_overrides(config)),
            directories=(),
        )
        self._wait_for_a_node()
        with self._reserve(name, "created", must_be_free=True):
            if validate_only:
                with self._lock:
                    self._homes(name, 0, partitions)
                return TopicDescription(name, topic_id="", config=topic.config, partitions=())
            self._clear(name)
            with self._made(topic, 0, partitions) as made:
                self._publish(topic, made, topic.version)
        return self.describe_topic(name)

    def add_partitions(
        self, name: str, total: int, validate_only: bool = False
    ) -> TopicDescription:
        """Extend a topic to ``total`` partitions; when this returns they serve.

        Nothing is left of the new ones if that fails. ``validate_only``: raise what would keep it
        from being extended now, and change nothing.
        """
        self._wait_for_a_node()
        with self._reserve(name, "extended"):
            with self._lock:
                topic = self._topic(name)
            count = len(topic.directories)
            _check_partitions(total, least=count + 1)
            if validate_only:
                with self._lock:
                    self._homes(name, count, total - count)
                return self.describe_topic(name)
            self._clear(name)
            with self._made(topic, count, total - count) as made, self._lock:
                self._publish(self._same(topic), made, topic.version)
        return self.describe_topic(name)

    def _same(self, topic: Topic) -> Topic:
        """The topic as it is now; UnknownTopicOrPartition if it was deleted meanwhile."""
        now = self._state.topics.get(topic.name)
        if now is None or now.topic_id != topic.topic_id:
            raise UnknownTopicOrPartition(
                topic.name, None, "the topic was deleted during the request"
            )
        return now

    @contextmanager
    def _made(self, topic: Topic, first: int, count: int) -> Iterator[list[tuple[Home, Placed]]]:
        """``count`` new partitions of a topic, which serve; they are unmade if the body fails."""
        with self._lock:
            homes = self._homes(topic.name, first, count)
            self._nodes_of_new += [home.node for home in homes]
            self._topics_being_made.add(topic.topic_id)
        try:
            yield self._make_partitions(topic, homes)
        except BaseException:
            self._unmake_partitions(topic, homes)
            raise
        finally:
            with self._lock:
                self._topics_being_made.discard(topic.topic_id)
                for home in homes:
                    self._nodes_of_new.remove(home.node)

    def _wait_for_a_node(self) -> None:
        """Where the only LogManager was started again, it takes part in a moment."""
        end_s = time.monotonic() + NODE_PATIENCE_S
        while self._is_between_nodes() and time.monotonic() < end_s:
            if self._stopped.wait(0.05):
                return

    def _is_between_nodes(self) -> bool:
        with self._lock:
            is_without = not self._placement.nodes and not self._placement.why_offline()
            return is_without and self._has_joined

    def _homes(self, name: str, first: int, count: int) -> list[Home]:
        """Where each of the new partitions is to be made."""
        if not self._placement.nodes:
            problems = [*self._node_problems.values(), *self._placement.why_offline()]
            raise NoLogDirs("; ".join(problems) or "no LogManager is running on any node")
        nodes = self._placement.spread(count, self._wanted(), self._nodes_of_new)
        return [
            Home(TopicPartition(name, number), node, self._managers[node])
            for number, node in enumerate(nodes, start=first)
        ]

    def _make_partitions(self, topic: Topic, homes: list[Home]) -> list[tuple[Home, Placed]]:
        """All the folders, then all the actors.

        Raises the first failure, when every call has been answered.
        """
        folders = all_answers(
            {home: home.manager.create_partition(home.partition, topic.topic_id) for home in homes}
        )
        places = all_answers(
            {
                home: self._opening(home.manager, home.partition, topic, folder.directory_id)
                for home, folder in folders.items()
            }
        )
        return list(places.items())

    def _unmake_partitions(self, topic: Topic, homes: list[Home]) -> None:
        self._remove(
            [
                LeftOver(partition=home.partition, topic_id=topic.topic_id, node=home.node)
                for home in homes
            ]
        )
        # An actor whose node is away would wait for it, and then serve a partition that has moved.
        for home in homes:
            if home.node not in self._managers:
                kill(log_actor_name(home.partition), self._namespace)

    def _remove_left_over(self) -> None:
        with self._lock:
            due = [
                left_over
                for left_over in self._left_over.values()
                if left_over.partition.topic not in self._reserved
            ]
        self._remove(due)

    def _remove(self, partitions: list[LeftOver]) -> list[Exception]:
        """Have these removed; returns what kept some of them.

        The watch asks for those again, until it is done: a folder that stays would be in the way of
        the next topic of that name.
        """
        with self._lock:
            for left_over in partitions:
                self._note_left_over(left_over)
            calls = {
                left_over: self._managers[left_over.node].delete_partition(
                    left_over.partition, left_over.topic_id
                )
                for left_over in partitions
                if left_over.node in self._managers
            }
        gathered = gather_patiently(calls)
        for left_over in gathered.answers:
            self._removed(left_over)
        for left_over, error in gathered.errors.items():
            self._not_removed(left_over, error)
        return list(gathered.errors.values())

    def _removed(self, left_over: LeftOver) -> None:
        key = left_over.partition, left_over.topic_id
        with self._lock:
            # Else its folder was found on another node meanwhile.
            if self._left_over.get(key) is left_over:
                del self._left_over[key]

    def _not_removed(self, left_over: LeftOver, error: Exception) -> None:
        key = left_over.partition, left_over.topic_id
        with self._lock:
            if self._left_over.get(key) is not left_over:
                return  # its folder was found on another node meanwhile
            self._left_over[key] = left_over._replace(why=str(error))
        if str(error) != left_over.why:
            warn(logger, "partition-left-over", partition=left_over.partition, why=error)

    def _clear(self, name: str) -> None:
        """Remove what is left over of this name, on nodes that are there: it would be in the way.

        A removal that comes later could not tell a partition that is added from the try before it.
        """
        with self._lock:
            in_the_way = [
                left_over
                for left_over in self._left_over.values()
                if left_over.partition.topic == name and left_over.node in self._managers
            ]
        for error in self._remove(in_the_way):
            raise TopicBusy(
                name, f"cleaned up after an earlier topic of this name, which failed: {error}"
            )

    def _publish(self, topic: Topic, made: list[tuple[Home, Placed]], version: int) -> None:
        """The commit point of new partitions.

        ``version``: that of the config that they were opened with.
        """
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
        self,
        name: str,
        changes: Mapping[str, Any],
        delete: Iterable[str],
        validate_only: bool = False,
    ) -> TopicDescription:
        """Change a topic's config; when this returns, all partitions within reach obey it.

        The answer names the others in ``outdated``. They obey it when they are back, and nothing
        is removed from them under the config of before. ``validate_only``: raise what would keep it
        from being changed now, and change nothing; the answer has the config that the topic would
        have.
        """
        with self._lock:
            topic = self._topic(name)
            config = self._checked(altered(topic.config, changes, delete))
            if validate_only:
                return self.describe_topic(name)._replace(config=config)
            topic = topic._replace(config=config, version=topic.version + 1)
            self._log.append(topic_record(topic))
        self._see_through(topic, time.monotonic())
        return self.describe_topic(name)

    def _see_through(self, topic: Topic, changed_s: float) -> None:
        """Return when all partitions obey a changed config, or when the others remove nothing.

        A partition that does not report it may still have the right to remove records under the
        config of before; that right ends by itself. ``changed_s``: when the config was changed.
        """
        end_s = changed_s + CONFIRMATION_S
        while not self._stopped.is_set():
            with self._lock:
                now = self._same(topic)
            self._configure(now, max(end_s - time.monotonic(), 0))
            with self._lock:
                ends_s = [
                    self._confirming.over_s(wanted.directory_id, changed_s)
                    for wanted in self._placement.behind(topic)
                    if not self._placement.has_no_actor(wanted.partition)
                ]
            if time.monotonic() >= max(ends_s, default=0.0):
                return
            self._stopped.wait(REPORT_INTERVAL_S)

    def _configure(self, topic: Topic | None = None, timeout_s: float | None = None) -> None:
        """Tell partitions that serve with an old config the current one.

        Those that this does not reach are told by the watch. ``topic``: None means all.
        ``timeout_s``: for all answers; None waits as long as answers arrive.
        """
        calls: dict[TopicPartition, Call[int]] = {}
        asked: list[tuple[Wanted, LogManagerStub]] = []
        with self._lock:
            for wanted in self._placement.outdated(wanted_of([topic]) if topic else self._wanted()):
                manager = self._manager_of(wanted.directory_id)
                if manager is not None:
                    calls[wanted.partition] = self._configuring(manager, wanted)
                    asked.append((wanted, manager))
        if timeout_s is None:
            gathered = gather_patiently(calls)
        else:
            gathered = gather(calls, timeout_s)
            gathered.raise_faults()
        for partition, error in gathered.errors.items():
            warn(logger, "config-not-told", partition=partition, why=error)
        for wanted, manager in asked:
            if wanted.partition in gathered.answers:
                with self._lock:
                    if self._manager_of(wanted.directory_id) is manager:
                        version = gathered.answers[wanted.partition]
                        self._placement.configured(wanted.partition, version)

    def _configuring(self, manager: LogManagerStub, wanted: Wanted) -> Call[int]:
        topic = wanted.topic
        config = self._config_of(topic)
        return manager.reconfigure(wanted.partition, topic.topic_id, config, topic.version)

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
                nodes = {
                    wanted.partition: self._placement.node_of.get(wanted.directory_id)
                    for wanted in wanted_of([topic])
                }
            within_reach = [
                LeftOver(partition=partition, topic_id=topic.topic_id, node=node)
                for partition, node in nodes.items()
                if node is not None
            ]
            errors = self._remove(within_reach)
            # Those of a node that is away are set aside as strays when it returns; actors that wait
            # for it end now.
            for partition, node in nodes.items():
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

    def topic_metadata(self, name: str) -> TopicMetadata:
        """A topic as clients know it. Raises UnknownTopicOrPartition."""
        with self._lock:
            topic = self._topic(name)
            described = self._placement.describe(topic)
        config = LogConfig.parse(topic.config, self._config.topic_defaults)
        return TopicMetadata(
            topic=name,
            topic_id=topic.topic_id,
            partitions=tuple(
                # The epoch is the LogActor's own matter: its answers tell it.
                PartitionMetadata(entry.partition, leader_epoch=-1, node_id=entry.node_id)
                for entry in described.partitions
            ),
            max_message_bytes=config.max_message_bytes,
        )

    def explain(self, topic: str, partition: int) -> RaylogError | None:
        """Why a partition cannot be reached; None if it ought to be."""
        with self._lock:
            known_topic = self._state.topics.get(topic)
            if known_topic is None:
                return UnknownTopicOrPartition(topic, partition, "the topic does not exist")
            return self._placement.explain(known_topic, partition)


def _check_partitions(partitions: object, least: int) -> None:
    is_whole = isinstance(partitions, int) and not isinstance(partitions, bool)
    if not is_whole or not least <= partitions <= MAX_PARTITIONS:  # type: ignore[operator]
        raise InvalidPartitions(partitions, least, MAX_PARTITIONS)
