"""One Kafka for all tests here, or a clear word why there is none.

The tests ask two questions, the same from both sides: does Kafka read what raylog wrote, and raylog what Kafka
wrote? ``./dev test --kafka`` runs them; without Java 17, mvn and Maven Central they are skipped.
"""

import pytest

from tests.kafka.distribution import Kafka, NotHere, find_kafka
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
