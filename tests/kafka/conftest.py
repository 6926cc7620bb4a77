"""One Kafka for all tests here, or a clear word why there is none.

The tests ask two questions, the same from both sides: does Kafka read what raylog wrote, and raylog
what Kafka wrote? ``./dev test --kafka`` runs them; without Java 17, mvn and Maven Central they are
skipped.
"""

from collections.abc import Iterator

import pytest

from tests.kafka.broker import KafkaBroker
from tests.kafka.distribution import Kafka, NotHere, find_kafka
from tests.kafka.lives import Observed, first_life, second_life, third_life
from tests.kafka.written import Written, write_all


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    """Kafka's jars, fetched the first time."""
    try:
        return find_kafka()
    except NotHere as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    """The logs that raylog wrote, by scenario."""
    return write_all(tmp_path_factory.mktemp("written"))


@pytest.fixture(scope="session")
def broker(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A Kafka that the lives start and stop; whatever happens, its JVM ends with the tests."""
    node = KafkaBroker(kafka, tmp_path_factory.mktemp("kafka"))
    try:
        yield node
    finally:
        node.kill()


@pytest.fixture(scope="session")
def first(
    broker: KafkaBroker, written: dict[str, Written], tmp_path_factory: pytest.TempPathFactory
) -> Observed:
    return first_life(broker, written, tmp_path_factory.mktemp("first") / "logs")


@pytest.fixture(scope="session")
def second(
    first: Observed,
    broker: KafkaBroker,
    written: dict[str, Written],
    tmp_path_factory: pytest.TempPathFactory,
) -> Observed:
    return second_life(broker, written, tmp_path_factory.mktemp("second") / "logs")


@pytest.fixture(scope="session")
def third(
    second: Observed,
    broker: KafkaBroker,
    written: dict[str, Written],
    tmp_path_factory: pytest.TempPathFactory,
) -> Observed:
    return third_life(broker, written, tmp_path_factory.mktemp("third") / "logs")
