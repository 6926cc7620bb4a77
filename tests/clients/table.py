"""The clients: which version, how it is started, and what it calls things."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients import installing
from tests.clients.installing import PROGRAMS

KAFKA_3, KAFKA_4 = "3.9.2", "4.3.1"
ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# As in pyproject.toml, but for kafka-python: the newest releases of November 2026. cramjam,
# python-snappy, lz4 and zstandard are the codecs of aiokafka and kafka-python.
PYTHON_PACKAGES = (
    "confluent-kafka==2.16.1",
    "kafka-python==3.0.12",
    "aiokafka==0.14.0",
    "cramjam==2.14.0",
    "python-snappy==0.7.3",
    "lz4==4.4.5",
    "zstandard==0.25.0",
)
# kafkajs 2.2.4 is its last release (2023). It brings gzip alone; kafkajs-snappy is the package that
# its documentation names.
KAFKAJS_PACKAGES = ("kafkajs@2.2.4", "kafkajs-snappy@1.1.0")
# The newest of November 2026. Where the binary that its makers built is out of reach, npm builds it
# from its source in C; "dynamic" takes the system's libraries: zlib, OpenSSL, zstd if it is there.
CONFLUENT_JS_PACKAGE = "@confluentinc/kafka-javascript@1.10.1"


@dataclass(frozen=True)
class Client:
    """One client of the matrix."""

    name: str
    version: str  # what it says of itself begins so
    command: Callable[[], Sequence[str]]  # without the servers; installs it. Raises NotHere
    codecs: Sequence[str]
    too_large: str  # its error for a record that the broker refuses as too large
    exists: str  # for a topic that is there already
    unknown: str  # for a topic that is not there, of an admin client
    # It does not come to the end of what compaction has left.
    sticks_in_gaps: bool = False
    # It makes null of empty keys and headers, and empty headers of null.
    blurs_empty: bool = False


def _python(program: str) -> Callable[[], Sequence[str]]:
    path = str(PROGRAMS / "python" / program)
    return lambda: [str(installing.python(*PYTHON_PACKAGES)), path]


def _kafkajs() -> Sequence[str]:
    return _node("kafkajs_program.js", *installing.node("kafkajs", *KAFKAJS_PACKAGES))


def _confluent_js() -> Sequence[str]:
    found = installing.node("confluent-js", CONFLUENT_JS_PACKAGE, CKJS_LINKING="dynamic")
    return _node("confluent_program.js", *found)


def _node(program: str, node: str, modules: Path) -> Sequence[str]:
    variables = [f"NODE_PATH={modules}", "KAFKAJS_NO_PARTITIONER_WARNING=1"]
    return ["/usr/bin/env", *variables, node, str(PROGRAMS / "node" / program)]


def _go(program: str) -> Callable[[], Sequence[str]]:
    return lambda: [str(installing.go(program))]


def _java(version: str) -> Client:
    return Client(
        name=f"kafka-clients-{version}",
        version=version,
        command=lambda: [*installing.java(version), "Deeds"],
        codecs=ALL_CODECS,
        too_large="RecordTooLargeException",
        exists="TopicExistsException",
        unknown="UnknownTopicOrPartitionException",
    )


CLIENTS = {
    client.name: client
    for client in [
        Client(
            name="confluent-kafka",
            version="2.16.1, librdkafka 2.16.0",
            command=_python("confluent_program.py"),
            codecs=ALL_CODECS,
            too_large="MSG_SIZE_TOO_LARGE",
            exists="TOPIC_ALREADY_EXISTS",
            unknown="UNKNOWN_TOPIC_OR_PART",
        ),
        Client(
            name="kafka-python",
            version="3.0.12",
            command=_python("kafka_python_program.py"),
            codecs=ALL_CODECS,
            too_large="MessageSizeTooLargeError",
            exists="TopicAlreadyExistsError",
            unknown="UnknownTopicOrPartitionError",
        ),
        Client(
            name="aiokafka",
            version="0.14.0",
            command=_python("aiokafka_program.py"),
            codecs=ALL_CODECS,
            too_large="MessageSizeTooLargeError",
            exists="TopicAlreadyExistsError",
            unknown="UnknownTopicOrPartitionError",
        ),
        Client(
            name="kafkajs",
            version="2.2.4",
            command=_kafkajs,
            codecs=("none", "gzip", "snappy"),
            too_large="MESSAGE_TOO_LARGE",
            exists="false",
            unknown="UNKNOWN_TOPIC_OR_PARTITION",
            sticks_in_gaps=True,
        ),
        Client(
            name="confluent-kafka-javascript",
            version="1.10.1, librdkafka 2.15.1",
            command=_confluent_js,
            codecs=("none", "gzip", "snappy", "lz4"),  # zstd, where it was built with its library
            too_large="ERR_MSG_SIZE_TOO_LARGE",
            exists="false",
            unknown="ERR_UNKNOWN_TOPIC_OR_PART",
            blurs_empty=True,
        ),
        # The versions of both are in programs/go/go.mod: the newest releases of November 2026.
        Client(
            name="franz-go",
            version="1.22.3",
            command=_go("franz"),
            codecs=ALL_CODECS,
            too_large="MESSAGE_TOO_LARGE",
            exists="TOPIC_ALREADY_EXISTS",
            unknown="UNKNOWN_TOPIC_OR_PARTITION",
        ),
        Client(
            name="sarama",
            version="1.61.1",
            command=_go("sarama"),
            codecs=ALL_CODECS,
            too_large="ErrMessageSizeTooLarge",
            exists="ErrTopicAlreadyExists",
            unknown="ErrUnknownTopicOrPartition",
        ),
        # The last line of Kafka 3, which many programs have, and the one of tests/kafka.
        _java(KAFKA_3),
        _java(KAFKA_4),
    ]
}
