"""What is not alike, and why that is right: each by its name, with its reason.

A difference that no entry here knows fails the test. Entries that no difference needed are printed:
one that stays so over many long runs is to go.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from raylog.storage.config import TOPIC_KEYS
from raylog.storage.schemas.types import Value
from tests.kafka.differential.alike import MISSING, Difference
from tests.kafka.differential.question import Question, TopicId

Judging = Callable[[Question, Difference], bool]


class Known(NamedTuple):
    """``apis``: their names; all without any. ``path``: a pattern of the field's whole path."""

    name: str
    reason: str
    apis: tuple[str, ...]
    path: str
    fits: Judging

    def knows(self, question: Question, found: Difference) -> bool:
        """Whether this is the reason of a difference."""
        is_asked = not self.apis or question.api.name in self.apis
        has_path = re.fullmatch(self.path, found.path) is not None
        return is_asked and has_path and self.fits(question, found)


ANY: Final = object()


def codes(kafka: Any, raylog: Any) -> Judging:
    """Those values of the field. Each is one, a set of them, or ANY."""

    def is_one(value: Any, wanted: Any) -> bool:
        if isinstance(wanted, frozenset):
            return not isinstance(value, dict | list) and value in wanted
        return wanted is ANY or value == wanted

    return lambda _, found: is_one(found.kafka, kafka) and is_one(found.raylog, raylog)


ERROR: Final = frozenset(range(-1, 130)) - {0}


def _has_type(*kinds: int) -> Judging:
    """A resource of a request has one of these types."""
    return lambda question, _: any(
        one["resourceType"] in kinds for one in question.body["resources"]
    )


def _has_batch(*how: str) -> Judging:
    """The batch of a Produce request is made so."""

    def fits(question: Question, _: Difference) -> bool:
        return any(
            part["records"].how in how
            for topic in question.body["topicData"]
            for part in topic["partitionData"]
        )

    return fits


def _has_good_name(question: Question) -> bool:
    """Whether an ApiVersions request has the name and the version of a client's software."""
    names = ("clientSoftwareName", "clientSoftwareVersion")
    return all(re.fullmatch("[a-z0-9]+", question.body.get(name, "x")) for name in names)


def _is_of_its_place(question: Question) -> bool:
    """Whether the partition that is asked for is the one whose leader is asked."""
    return set(_places(question.body)) == {question.place}


def _places(body: Value) -> Iterator[tuple[Any, int]]:
    for topic in body.get("topics") or body.get("topicData") or ():
        named = topic.get("name", topic.get("topic", topic.get("topicId")))
        name = named.topic if isinstance(named, TopicId) else named
        for part in topic.get("partitions") or topic.get("partitionData") or ():
            yield name, next(part[key] for key in _INDEXES if key in part)
        for index in topic.get("partitionIndexes", []):
            yield name, index


def _is_transactional(question: Question) -> bool:
    return any(
        part["records"].is_transactional
        for topic in question.body["topicData"]
        for part in topic["partitionData"]
    )


def _deletes_unknown_key(question: Question) -> bool:
    return any(
        config["configOperation"] == 1 and config["name"] not in TOPIC_KEYS
        for resource in question.body["resources"]
        for config in resource["configs"]
    )


def _is_same_list(kafka: str, raylog: str) -> bool:
    def entries(text: str) -> set[str]:
        return {entry.strip().lower() for entry in text.split(",")}

    return entries(str(kafka)) == entries(str(raylog))


def _is_same_number(kafka: str, raylog: str) -> bool:
    try:
        return float(kafka) == float(raylog)
    except (TypeError, ValueError):
        return False


def _always(question: Question, found: Difference) -> bool:
    return True


_INDEXES: Final = ("index", "partition", "partitionIndex")
PARTITIONS: Final = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "DeleteRecords",
    "DescribeProducers",
)
ALTERING: Final = ("AlterConfigs", "IncrementalAlterConfigs")
CONFIG: Final = r"(results|topics)\[\d+\]\.configs\."
OWN_VALUES: Final = "|".join(
    re.escape(key)
    for key in (
        "group.initial.rebalance.delay.ms",
        "group.max.size",
        "listeners",
        "log.dirs",
        "log.cleaner.dedupe.buffer.size",
        "max.connections",
        "offsets.topic.num.partitions",
        "offsets.topic.segment.bytes",
        "transaction.state.log.num.partitions",
        "transaction.state.log.segment.bytes",
        "sasl.enabled.mechanisms",
        "ssl.keystore.type",
        "ssl.truststore.type",
    )
)
CODE: Final = r"(.*\.)?errorCode"

KNOWN: Final[tuple[Known, ...]] = (
    Known(
        "another partition",
        "a process knows its own partition alone: of any other it says that it does not lead it "
        "(6), and clients look their metadata up again",
        PARTITIONS,
        CODE,
        lambda question, found: (
            found.kafka in ERROR and found.raylog == 6 and not _is_of_its_place(question)
        ),
    ),
    Known(
        "another partition's transactions",
        "with that error Kafka gives an empty list, and null with others; no client reads it then",
        ("Fetch",),
        r".*\.abortedTransactions",
        codes([], None),
    ),
    Known(
        "no sessions",
        "there are no fetch sessions: clients take the id 0 for that",
        ("Fetch",),
        "sessionId",
        codes(ANY, 0),
    ),
    Known(
        "a coordinator that is there or in the making",
        "the topics of groups and of transactions may be in the making",
        ("FindCoordinator",),
        CODE,
        codes(frozenset((0, 15)), frozenset((0, 15))),
    ),
    Known(
        "a coordinator's place",
        "each partition is a broker of its own, and the words of why there is none are others",
        ("FindCoordinator",),
        r"(.*\.)?(host|port|nodeId|errorMessage)",
        codes(ANY, ANY),
    ),
    Known(
        "a transactional id",
        "each partition is a broker of its own, and the one that is asked coordinates none (16)",
        ("InitProducerId",),
        "errorCode|producerId|producerEpoch",
        lambda question, found: bool(question.body["transactionalId"]) and found.raylog in (16, -1),
    ),
    Known(
        "a transaction that is none",
        "where there is an error Kafka has its first producer id in the answer, 0",
        ("DescribeTransactions",),
        r"transactionStates\[\d+\]\.producerId",
        codes("<producer 0>", "<a producer>"),
    ),
    Known(
        "a partition that is none of an id that is none",
        "of two errors Kafka names the partition, raylog the id",
        ("AddPartitionsToTxn",),
        r".*\.partitionErrorCode",
        codes(frozenset((3, 55)), 42),
    ),
    Known(
        "Kafka's own failure",
        "Kafka meets an exception that nobody has foreseen (-1); raylog says what is wrong",
        (),
        CODE,
        codes(-1, ANY),
    ),
    Known(
        "a topic without partitions in the request",
        "Kafka's answer leaves such a topic out; no client sends it",
        PARTITIONS,
        "topics",
        codes([], ANY),
    ),
    Known(
        "a bad config of an unknown topic",
        "of two errors Kafka names the config, raylog that there is no such topic",
        ALTERING,
        CODE,
        codes(frozenset((40, 42)), frozenset((3, 17))),
    ),
    Known(
        "a bad config of a topic without a name",
        "of two errors Kafka names the config, raylog the name",
        ALTERING,
        CODE,
        lambda question, found: (found.kafka, found.raylog) == (40, 42) and "" in question.topics,
    ),
    Known(
        "null beside another bad config",
        "of two errors Kafka names the null, raylog the first in the request",
        ALTERING,
        CODE,
        lambda question, found: (
            (found.kafka, found.raylog) == (42, 40) and "'value': None" in str(question.body)
        ),
    ),
    Known(
        "the largest time of records that are deleted",
        "Kafka goes on to tell it, with an offset below the log start; raylog tells what is there",
        ("ListOffsets",),
        r".*\.(leaderEpoch|offset|timestamp)",
        lambda question, found: (
            found.raylog == -1
            and all(part["timestamp"] == -3 for part in question.body["topics"][0]["partitions"])
        ),
    ),
    Known(
        "a value as it is parsed",
        "Kafka tells the text that was given, raylog the value that counts",
        ("CreateTopics", "DescribeConfigs"),
        CONFIG + r".*\.(value|synonyms.*)",
        lambda _, found: _is_same_list(found.kafka, found.raylog),
    ),
    Known(
        "whole batches",
        "Kafka cuts where the bytes run out, and clients drop what is behind the last whole batch",
        ("Fetch",),
        r".*\.records\[\d+\]",
        lambda _, found: "bytes of one more" in str(found.raylog),
    ),
    Known(
        "no errors of single records",
        "raylog says in words what is wrong with a batch, and refuses it as a whole, as Kafka does",
        ("Produce",),
        r".*\.recordErrors",
        codes(ANY, []),
    ),
    Known(
        "a topic that cannot be made for two reasons",
        "of two errors Kafka names the name or the config, raylog the number or the config. More "
        "than 10,000 partitions of all topics are against a policy there (44), and a wrong number "
        "here (37)",
        ("CreateTopics",),
        CODE,
        lambda question, found: (
            found.kafka == 44
            or (found.kafka in (17, 36, 37, 40) and found.raylog in (37, 38, 39, 40))
        ),
    ),
    Known(
        "wrong acks and something else that is wrong",
        "of two errors Kafka names the other one, raylog the acks",
        ("Produce",),
        CODE,
        codes(frozenset((2, 3, 53, 76, 87, 100)), 21),
    ),
    Known(
        "the id of a topic that is only tried",
        "Kafka tells one, which no topic will have",
        ("CreateTopics",),
        r"topics\[\d+\]\.topicId",
        lambda question, found: question.body["validateOnly"] and found.raylog == "<no id>",
    ),
    Known(
        "no cleanup policy",
        "Kafka takes an empty list since 4.2: nothing is ever removed. raylog wants a policy",
        (*ALTERING, "CreateTopics"),
        CODE + r"|.*\.(numPartitions|replicationFactor)",
        lambda question, found: (
            found.kafka in (0, 1, 2)
            and found.raylog in (40, -1)
            and "cleanup.policy" in str(question.body)
        ),
    ),
    Known(
        "many partitions",
        "a topic of raylog has at most 10,000",
        ("CreatePartitions",),
        CODE,
        codes(0, 37),
    ),
    Known(
        "a name that collides",
        "a topic whose name differs in . and _ alone: Kafka calls the name invalid, raylog taken",
        ("CreateTopics",),
        CODE,
        codes(17, 36),
    ),
    Known(
        "an unknown type of resource",
        "Kafka refuses the whole request for it, raylog that resource",
        ("DescribeConfigs",),
        r"results\[\d+\].*",
        _has_type(0, 1, 99),
    ),
    Known(
        "assignments",
        "raylog chooses the places of partitions, and says so before anything else",
        ("CreateTopics", "CreatePartitions"),
        CODE + r"|.*\.(numPartitions|replicationFactor)",
        lambda question, found: (
            found.raylog in (39, -1)
            and any(topic["assignments"] is not None for topic in question.body["topics"])
        ),
    ),
    Known(
        "a transactional batch",
        "Kafka looks for the transactional id first, and raylog for the transaction",
        ("Produce",),
        CODE,
        lambda question, found: (
            found.kafka in ERROR and found.raylog in ERROR and _is_transactional(question)
        ),
    ),
    Known(
        "bits that nobody knows",
        "Kafka passes over unknown attributes of a batch, raylog refuses them",
        ("Produce",),
        CODE + r"|.*\.baseOffset|",
        _has_batch("unused attribute"),
    ),
    Known(
        "bytes behind a batch",
        "Kafka leaves them out, raylog refuses them; no client sends any",
        ("Produce",),
        CODE + r"|.*\.baseOffset|",
        _has_batch("a tail"),
    ),
    Known(
        "the time of a batch that comes again",
        "Kafka tells the batch's own time, as if the log had set it; raylog tells none",
        ("Produce",),
        r".*\.logAppendTimeMs",
        codes("<now>", -1),
    ),
    Known(
        "a wrong batch with a wrong time or codec",
        "of two errors Kafka names the first of its checks, raylog the time or the codec",
        ("Produce",),
        CODE,
        codes(frozenset((2, 87)), frozenset((32, 76))),
    ),
    Known(
        "an unknown key that is deleted",
        "Kafka has nothing to do then; raylog says that there is no such key: it may be a typo",
        ("IncrementalAlterConfigs",),
        CODE,
        lambda question, found: found.raylog == 40 and _deletes_unknown_key(question),
    ),
    Known(
        "configs of brokers",
        "they are changed by `raylog start --config FILE --apply`",
        ALTERING,
        CODE,
        lambda question, found: found.raylog == 42 and _has_type(4)(question, found),
    ),
    Known(
        "the log start beside an error",
        "Kafka tells it with some errors, raylog with others; clients read it without an error",
        ("Produce",),
        r".*\.logStartOffset",
        lambda _, found: -1 in (found.kafka, found.raylog),
    ),
    Known(
        "names of clients",
        "raylog makes no use of what a client calls itself, and takes any name",
        ("ApiVersions",),
        r"errorCode|apiKeys\..*|(finalized|supported)Features.*",
        lambda question, found: not _has_good_name(question),
    ),
    Known(
        "APIs that are not there",
        "no newer groups, ACLs, quotas, tokens, telemetry; nothing between brokers",
        ("ApiVersions",),
        r"apiKeys\.\d+",
        codes(ANY, MISSING),
    ),
    Known(
        "topics by their ids",
        "OffsetCommit and OffsetFetch of version 10 name topics by ids, which a coordinator lacks",
        ("ApiVersions",),
        r"apiKeys\.(8|9)\.maxVersion",
        codes(10, 9),
    ),
    Known(
        "no pattern of transactional ids",
        "ListTransactions of version 2 has a regular expression, and Python's may take for ever",
        ("ApiVersions",),
        r"apiKeys\.66\.maxVersion",
        codes(2, 1),
    ),
    Known(
        "no features",
        "clients are to use version 1 of transactions; there are no groups of the newer protocol",
        ("ApiVersions",),
        "(finalized|supported)Features.*",
        _always,
    ),
    Known(
        "an id before its version",
        "Kafka tells no brokers beside that error; raylog always tells them all",
        ("Metadata",),
        "brokers|controllerId|clusterAuthorizedOperations",
        lambda question, _: question.version in (10, 11),
    ),
    Known(
        "configs of groups and of clients' metrics",
        "raylog has neither",
        (*ALTERING, "DescribeConfigs"),
        CODE + r"|.*\.configs\..*",
        _has_type(16, 32),
    ),
    Known(
        "keys without effect",
        "a key of what raylog does not have is not shown",
        ("DescribeConfigs", "CreateTopics"),
        CONFIG + ".*",
        codes(ANY, MISSING),
    ),
    Known(
        "raylog's own keys",
        "Kafka does not have them",
        ("DescribeConfigs", "CreateTopics"),
        CONFIG + r"(log\.)?(check\.compressed\.batches|max\.plain\.batch\.bytes)",
        codes(MISSING, ANY),
    ),
    Known(
        "keys that Kafka hides",
        "Kafka has them, and tells a broker's only where they are set",
        ("DescribeConfigs",),
        CONFIG + r"(producer\.id\.expiration\.check\.interval\.ms|replica\.alter\..*)",
        codes(MISSING, ANY),
    ),
    Known(
        "a broker's config is read only",
        "it is changed by `raylog start --config FILE --apply`",
        ("DescribeConfigs",),
        CONFIG + r".*\.readOnly",
        codes(False, True),
    ),
    Known(
        "values of its own",
        "places, ports, and defaults of what raylog does otherwise (docs/CONFIG.md)",
        ("DescribeConfigs",),
        CONFIG + rf"({OWN_VALUES})\.(value|configSource|synonyms.*)",
        _always,
    ),
    Known(
        "a key that is not set",
        "Kafka tells null where another key, in another unit, counts; raylog tells what counts",
        ("DescribeConfigs",),
        CONFIG + r".*\.value",
        codes(None, ANY),
    ),
    Known(
        "a number as Java writes it, or as it was given",
        "E308 and e+308 are one number, and so are 1e-1 and 0.1",
        ("CreateTopics", "DescribeConfigs"),
        CONFIG + r".*\.value",
        lambda _, found: _is_same_number(found.kafka, found.raylog),
    ),
    Known(
        "another broker number",
        "each cluster gives its own",
        ("DescribeConfigs", *ALTERING),
        r"(results|responses)\[\d+\]\.resourceName",
        lambda _, found: found.kafka.isdecimal() and found.raylog.isdecimal(),
    ),
    Known(
        "one name for a setting",
        "Kafka's default of a time is that of its key in hours; raylog tells the finest key",
        ("DescribeConfigs",),
        CONFIG + r".*\.synonyms.*",
        _always,
    ),
    Known(
        "numbers are long",
        "nobody but a form in a browser asks which kind of number it is",
        ("DescribeConfigs",),
        CONFIG + r".*\.configType",
        codes(3, 5),
    ),
)


def reason_of(question: Question, found: Difference) -> Known | None:
    """Why a difference is right; None if it is not."""
    return next((one for one in KNOWN if one.knows(question, found)), None)
