"""One of the two clusters: who leads what, what it has given out, and its answers."""

from typing import Final, NamedTuple
from uuid import UUID

from raylog.actors.plane.apis.cluster import FIND_COORDINATOR, METADATA
from raylog.actors.plane.apis.records import INIT_PRODUCER_ID
from raylog.storage.schemas.types import Value
from raylog.storage.testing.waiting import wait_for
from tests.kafka.differential.link import Link, Seen
from tests.kafka.differential.question import Home, Member, Owner, Place, Question

_LOOK: Final = {
    "topics": None,
    "allowAutoTopicCreation": False,
    "includeTopicAuthorizedOperations": False,
}
_NEW_PRODUCER: Final = {
    "transactionalId": None,
    "transactionTimeoutMs": 60_000,
    "producerId": -1,
    "producerEpoch": -1,
}
TIMEOUT_S: Final = 60.0
INTERNAL: Final = "__"
MEMBER_ID_REQUIRED: Final = 79


class Leader(NamedTuple):
    """Of a partition."""

    port: int
    epoch: int


class Side:
    """See the module's head. ``name``: as a report calls it."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self._port = name, port
        self._links: dict[int, Link] = {}
        self._ids: dict[str, UUID] = {}
        self._producers: list[int] = []
        self._homes: dict[Home, int] = {}  # their ports
        self._members: dict[str, Member] = {}
        self._groups: dict[str, str] = {}  # of each member that there was
        self._owners: dict[str, Owner] = {}
        self.leaders: dict[Place, Leader] = {}
        self.broker = -1
        wait_for(self._is_known, TIMEOUT_S, f"{name} tells what there is", poll_s=0.1)

    def _is_known(self) -> bool:
        """A LogManager that was not told yet closes the connection."""
        seen = self._link(None).ask(METADATA, 12, METADATA.request.write(_LOOK, 12))
        return isinstance(seen, dict) and bool(seen["brokers"])

    def look(self) -> dict[str, tuple[int, ...]]:
        """The topics, and the errors of their partitions; what is known is renewed by that."""
        seen = self._link(None).ask(METADATA, 12, METADATA.request.write(_LOOK, 12))
        assert isinstance(seen, dict), f"{self.name}: {seen}"
        self.broker = seen["controllerId"]
        ports = {one["nodeId"]: one["port"] for one in seen["brokers"]}
        topics = [one for one in seen["topics"] if not one["name"].startswith(INTERNAL)]
        self._ids |= {topic["name"]: topic["topicId"] for topic in topics}
        self.leaders = {
            (topic["name"], part["partitionIndex"]): Leader(
                ports[part["leaderId"]], part["leaderEpoch"]
            )
            for topic in topics
            for part in topic["partitions"]
            if part["leaderId"] in ports
        }
        return {topic["name"]: _errors(topic) for topic in topics}

    def ask(self, question: Question) -> Seen:
        """What it answers."""
        seen = self._link(question.place).ask(
            question.api,
            question.version,
            question.written_for(self),
            is_answered=question.is_answered,
        )
        if isinstance(seen, dict):
            self._note(question, seen)
        return seen

    def _note(self, question: Question, seen: Value) -> None:
        """Remember what it has given out."""
        name, body = question.api.name, question.body
        if name == "JoinGroup" and seen["errorCode"] in (0, MEMBER_ID_REQUIRED):
            self._members[body["groupId"]] = Member(seen["memberId"], seen["generationId"])
            self._groups[seen["memberId"]] = body["groupId"]
        elif name == "LeaveGroup":
            codes = [seen["errorCode"], *(one["errorCode"] for one in seen.get("members", []))]
            has_members = question.version < 3 or len(codes) > 1
            if has_members and not any(codes):
                self._members.pop(body["groupId"], None)
        elif name in ("InitProducerId", "EndTxn") and seen.get("producerId", -1) >= 0:
            owner = Owner(seen["producerId"], seen["producerEpoch"])
            self._owners[body["transactionalId"] or ""] = owner

    def _link(self, place: Place | Home | None) -> Link:
        if isinstance(place, Home):
            port = self._home(place)
        else:
            leader = None if place is None else self.leaders.get(place)
            port = self._port if leader is None else leader.port
        return self._links.setdefault(port, Link(port))

    def _home(self, home: Home) -> int:
        """The port of a coordinator. There is one of each kind."""
        body = FIND_COORDINATOR.request.write({"key": "any", "keyType": home.kind}, 3)

        def is_known() -> bool:
            seen = self._link(None).ask(FIND_COORDINATOR, 3, body)
            assert isinstance(seen, dict), f"{self.name}: {seen}"
            if not seen["errorCode"]:
                self._homes[home] = seen["port"]
            return not seen["errorCode"]

        if home not in self._homes:
            wait_for(is_known, TIMEOUT_S, f"{self.name} has a coordinator", poll_s=0.1)
        return self._homes[home]

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    # -- what it has given out, for questions and for reading answers ------------------------------

    def topic_id(self, topic: str) -> UUID:
        """Of a topic that was never there: none."""
        return self._ids.get(topic, UUID(int=(1 << 90) + 5))

    def epoch(self, topic: str, partition: int) -> int:
        leader = self.leaders.get((topic, partition))
        return 0 if leader is None else leader.epoch

    def producer_id(self, number: int) -> int:
        wait_for(lambda: self._has_producer(number), TIMEOUT_S, "a producer id", poll_s=0.05)
        return self._producers[number]

    def member(self, group: str) -> Member | None:
        return self._members.get(group)

    def owner(self, transactional_id: str) -> Owner:
        return self._owners.get(transactional_id, Owner(-1, -1))

    def group_of_member(self, member_id: str) -> str | None:
        """The group whose member has an id, or had it, or was told it."""
        return self._groups.get(member_id)

    def id_of_owner(self, producer_id: int) -> str | None:
        """The transactional id that a producer id belongs to."""
        known = self._owners.items()
        return next((name for name, one in known if one.producer_id == producer_id), None)

    def _has_producer(self, number: int) -> bool:
        """Ask for one more until it is there; Kafka gives none while it fetches its first block."""
        if len(self._producers) <= number:
            body = INIT_PRODUCER_ID.request.write(_NEW_PRODUCER, 4)
            seen = self._link(None).ask(INIT_PRODUCER_ID, 4, body)
            assert isinstance(seen, dict), f"{self.name}: {seen}"
            if not seen["errorCode"]:
                self._producers.append(seen["producerId"])
        return len(self._producers) > number

    def name_of_id(self, topic_id: UUID) -> str | None:
        """The topic that has an id, or had it."""
        return next((name for name, one in self._ids.items() if one == topic_id), None)

    def number_of_producer(self, producer_id: int) -> int | None:
        """The producer with an id; None if it is another's."""
        return self._producers.index(producer_id) if producer_id in self._producers else None


def _errors(topic: Value) -> tuple[int, ...]:
    return tuple(part["errorCode"] for part in topic["partitions"])
