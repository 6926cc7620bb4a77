"""docs/CLIENTS.md says of calls, settings and defaults what the code has.

Its Python is run by ``tests/ray/test_clients_page.py``.
"""

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.aio
import pytest

from raylog import errors
from raylog.cluster.broker import Broker
from raylog.cluster.client.consumer import AsyncConsumer, Consumer
from raylog.cluster.client.consumer.config import ConsumerConfig
from raylog.cluster.client.producer import AsyncProducer, Producer, SentRecord
from raylog.cluster.client.producer.config import ProducerConfig
from tests.harness.paths import ROOT

PAGE = (ROOT / "docs" / "CLIENTS.md").read_text()
PRODUCERS, _, CONSUMERS = PAGE.partition("\n## Consumers\n")

OURS = (Broker, Producer, AsyncProducer, SentRecord, Consumer, AsyncConsumer)
CONFLUENT = (
    confluent_kafka,
    confluent_kafka.Producer,
    confluent_kafka.Consumer,
    confluent_kafka.aio,
)
AIOKAFKA = (aiokafka, aiokafka.AIOKafkaProducer, aiokafka.AIOKafkaConsumer)
# What kafka-python alone has, which is not installed here.
KAFKA_PYTHON = {"KafkaProducer", "KafkaConsumer", "poll", "close", "get", "add_callback"}
# Words of Python, and of objects that are no client's.
PYTHON = {"await", "with", "as", "for", "record", "in", "consumer", "producer", "async", "broker"}


def rows(text: str, columns: int) -> Iterator[list[str]]:
    """The rows of all tables with so many columns, without their heads."""
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        for line in table.splitlines()[2:]:
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            if len(cells) == columns:
                yield cells


def names(cell: str) -> set[str]:
    """The names of calls in a cell, without those of their arguments."""
    found = set()
    for code in re.findall("`([^`]+)`", cell):
        bare = re.sub(r"\([^()]*\)", "", code)
        found |= {name for name in re.findall(r"[A-Za-z_]\w*", bare) if name not in PYTHON}
    return found


def missing(cells: list[str], places: tuple[Any, ...], known: set[str]) -> set[str]:
    return {
        name
        for cell in cells
        for name in names(cell)
        if name not in known and not any(hasattr(place, name) for place in places)
    }


@pytest.mark.parametrize("half", [PRODUCERS, CONSUMERS], ids=["producers", "consumers"])
def test_every_call_side_by_side_is_there(half: str) -> None:
    beside = [row for row in rows(half, 4) if row[0] != "what"]
    assert len(beside) > 8
    assert missing([row[1] for row in beside], OURS, set()) == set()
    assert missing([row[2] for row in beside], CONFLUENT, set()) == set()
    assert missing([row[3] for row in beside], AIOKAFKA, KAFKA_PYTHON) == set()


@pytest.mark.parametrize(
    ("half", "config"),
    [(PRODUCERS, ProducerConfig), (CONSUMERS, ConsumerConfig)],
    ids=["producers", "consumers"],
)
def test_every_setting_stands_there_with_its_default(half: str, config: Any) -> None:
    told: dict[str, str] = {}
    for keys, default, _ in rows(half, 3):
        settings = re.findall("`([a-z0-9.]+)`", keys)
        shared = default.split(", ")
        each = shared if len(shared) == len(settings) else [default] * len(settings)
        told |= dict(zip(settings, each, strict=True))
    own: dict[str, Any] = {
        field.name.replace("_", "."): field.default for field in dataclasses.fields(config)
    }
    assert set(told) == set(own)
    for key, default in own.items():
        if told[key] not in ("", "none", "see above", "the codec's"):
            assert told[key] == str(default), key
        else:
            assert default in (None, "", "none"), key


def test_every_error_that_the_page_names_is_there() -> None:
    ours = re.sub(r"^\| [^|]* \|", "|", PAGE.partition("\n## Errors\n")[2], flags=re.MULTILINE)
    named = set(re.findall(r"\b([A-Z][a-z]+(?:[A-Z][a-z]+)+)\b", ours))
    assert len(named) > 10
    assert {name for name in named if not hasattr(errors, name)} <= {
        "RaylogError",
        "TypeError",
        "TimeoutError",
    }
    said = set(re.findall(r"\b(?:raises?|gets?) ([A-Z]\w+)", PRODUCERS + CONSUMERS))
    assert {name for name in said if not hasattr(errors, name)} <= {"BufferError", "Python"}
