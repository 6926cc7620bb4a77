"""Both clusters, asked the same, and kept alike."""

import time
from typing import Final

from raylog.actors.plane.apis.configs import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from raylog.actors.plane.apis.topics import CREATE_TOPICS, DELETE_TOPICS
from raylog.actors.plane.apis.transactions import LIST_TRANSACTIONS
from raylog.storage.schemas.types import Value
from raylog.storage.testing.waiting import wait_for
from tests.kafka.differential.alike import Difference, differences
from tests.kafka.differential.known import reason_of
from tests.kafka.differential.question import OF_TRANSACTIONS, Question
from tests.kafka.differential.records import LASTING_TOPICS, PRODUCERS
from tests.kafka.differential.side import Side

TIMEOUT_S: Final = 60.0
# What is asked again where answers differ: a change may be on its way to who answers.
TRIES: Final = 4
PAUSE_S: Final = 0.25
_BARRIER: Final = "barrier"
_CHANGING: Final = frozenset(
    (
        "Produce",
        "InitProducerId",
        "DeleteRecords",
        "JoinGroup",
        "SyncGroup",
        "LeaveGroup",
        "OffsetCommit",
        "OffsetDelete",
        "DeleteGroups",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
    )
)
_ENDING: Final = frozenset(("InitProducerId", "EndTxn"))


class Pair:
    """See the module's head."""

    def __init__(self, kafka: Side, raylog: Side) -> None:
        self.kafka, self.raylog = kafka, raylog
        self._changes = 0

    def ask(self, question: Question) -> list[Difference]:
        """Where the answers are not alike."""
        found = self._ask(question)
        if question.api.name in _ENDING:
            self._end_transactions()
        if question.changes_cluster:
            self._settle()
        elif question.api.name not in _CHANGING:
            for _ in range(TRIES):
                if all(reason_of(question, one) for one in found):
                    break
                time.sleep(PAUSE_S)
                found = self._ask(question)
        return found

    def _ask(self, question: Question) -> list[Difference]:
        seen = [(side, side.ask(question)) for side in (self.kafka, self.raylog)]
        if question.changes_cluster:
            for side, _ in seen:
                side.look()
        return differences(question, *seen)

    # -- alike -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make the topics whose records are compared, and the producers."""
        self._make(LASTING_TOPICS)
        self._make({_BARRIER: (1, {})})
        self._settle()
        for side in (self.kafka, self.raylog):
            side.producer_id(PRODUCERS - 1)

    def check_topics(self) -> None:
        """Fail unless both have the same topics, with as many partitions, before long."""
        wait_for(self._have_same_topics, TIMEOUT_S, "both have the same topics", poll_s=0.02)

    def _have_same_topics(self) -> bool:
        kafka, raylog = self.kafka.look(), self.raylog.look()
        return {name: len(parts) for name, parts in kafka.items()} == {
            name: len(parts) for name, parts in raylog.items()
        }

    def level(self, question: Question) -> None:
        """Make both alike again after one has done what the other refused.

        What the question names goes, and of it the topics that are to last are made anew.
        """
        for side in (self.kafka, self.raylog):
            self._delete(side, question.topics & side.look().keys())
        self._settle()
        again = {name: LASTING_TOPICS[name] for name in question.topics & LASTING_TOPICS.keys()}
        if again:
            self._make(again)
            self._settle()

    def _make(self, topics: dict[str, tuple[int, dict[str, str]]]) -> None:
        body = {
            "topics": [_topic(name, *told) for name, told in topics.items()],
            "timeoutMs": 60_000,
            "validateOnly": False,
        }
        for side in (self.kafka, self.raylog):
            seen = side.ask(Question(CREATE_TOPICS, 7, body))
            assert isinstance(seen, dict), f"{side.name}: {seen}"
            assert not any(one["errorCode"] for one in seen["topics"]), f"{side.name}: {seen}"

    @staticmethod
    def _delete(side: Side, names: set[str]) -> None:
        if names:
            body = {"topicNames": sorted(names), "timeoutMs": 60_000}
            seen = side.ask(Question(DELETE_TOPICS, 5, body))
            assert isinstance(seen, dict)
            assert not any(one["errorCode"] for one in seen["responses"]), f"{side.name}: {seen}"

    def _settle(self) -> None:
        """Wait until both clusters tell what was changed, and do it.

        Kafka answers once a change is written. A broker applies changes in their order: once it
        tells the second of two more, all before them are done.
        """
        if (_BARRIER, 0) in self.kafka.leaders:
            for _ in range(2):
                self._changes += 1
                self._change_barrier(str(10_000_000 + self._changes))
        wait_for(self._is_led, TIMEOUT_S, "every partition has a leader", poll_s=0.02)

    def _is_led(self) -> bool:
        seen = [side.look() for side in (self.kafka, self.raylog)]
        return not any(any(errors) for topics in seen for errors in topics.values())

    def _end_transactions(self) -> None:
        """Wait until both have written the markers of what is decided."""
        prepared = {"stateFilters": ["PrepareCommit", "PrepareAbort"], "producerIdFilters": []}
        question = Question(LIST_TRANSACTIONS, 0, prepared, OF_TRANSACTIONS)

        def is_complete() -> bool:
            seen = [side.ask(question) for side in (self.kafka, self.raylog)]
            return all(isinstance(one, dict) and not one["transactionStates"] for one in seen)

        wait_for(is_complete, TIMEOUT_S, "transactions have ended", poll_s=0.005)

    def _change_barrier(self, value: str) -> None:
        own = {"resourceType": 2, "resourceName": _BARRIER}
        config = {"name": "retention.ms", "configOperation": 0, "value": value}
        change = {"resources": [{**own, "configs": [config]}], "validateOnly": False}
        self.kafka.ask(Question(INCREMENTAL_ALTER_CONFIGS, 1, change))
        look = {
            "resources": [{**own, "configurationKeys": ["retention.ms"]}],
            "includeSynonyms": False,
            "includeDocumentation": False,
        }

        def is_told() -> bool:
            seen = self.kafka.ask(Question(DESCRIBE_CONFIGS, 4, look))
            assert isinstance(seen, dict)
            (result,) = seen["results"]
            return [one["value"] for one in result["configs"]] == [value]

        wait_for(is_told, TIMEOUT_S, "Kafka tells a change", poll_s=0.005)


def _topic(name: str, count: int, config: dict[str, str]) -> Value:
    return {
        "name": name,
        "numPartitions": count,
        "replicationFactor": 1,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in config.items()],
    }
