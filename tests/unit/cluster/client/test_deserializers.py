"""What a consumer's deserializers promise: no record is lost to a function that raises."""

import asyncio
import json
import pickle
from typing import Any

import pytest

from raylog.cluster.client.consumer import AsyncConsumer
from raylog.errors import DeserializationFailed, InvalidConfig
from raylog.storage.records.encode import encode_records
from raylog.storage.testing.clock import T0
from tests.harness.consuming import FakeConnection


def connection_with(*values: bytes | None, partitions: int = 1) -> FakeConnection:
    """A topic ``t`` whose first partition has these values, each under the key ``k``."""
    made = FakeConnection(t=partitions)
    rows = [(T0 + n, b"k", value, (("h", b"x"),)) for n, value in enumerate(values)]
    made.topics["t"][0].partition.append(encode_records(rows))
    return made


def test_keys_and_values_are_what_the_functions_make_of_them() -> None:
    connection = connection_with(b'{"a": 1}', None, b"[2]")
    settings = {"key.deserializer": bytes.decode, "value_deserializer": json.loads}
    consumer = connection.consumer("t", from_="earliest", to="latest", **settings)
    first = consumer.poll_one()
    assert first is not None
    assert (first.key, first.value, first.offset, first.timestamp) == ("k", {"a": 1}, 0, T0)
    assert [(r.key, r.value) for r in consumer] == [("k", None), ("k", [2])]
    assert dict(first.headers) == {"h": b"x"}
    again = connection.consumer("t", from_="earliest", to="latest", **settings)
    assert again.poll_arrow().column("value").to_pylist() == [b'{"a": 1}', None, b"[2]"]


def test_what_raises_comes_behind_the_records_before_it_and_moves_no_position() -> None:
    connection = connection_with(b"0", b"1", b"no number", b"3")
    consumer = connection.consumer("t", from_="earliest", value_deserializer=int)
    assert [record.value for record in consumer.poll()] == [0, 1]
    for _ in range(2):
        with pytest.raises(DeserializationFailed, match=r"t-0.*offset 2.*value.*no number") as at:
            consumer.poll()
        assert (at.value.partition, at.value.offset, at.value.what) == ("t-0", 2, "value")
        assert isinstance(at.value.__cause__, ValueError)
        assert pickle.loads(pickle.dumps(at.value)).offset == 2
        assert consumer.position("t", 0) == 2
    consumer.seek("t", 0, 3)
    assert [record.value for record in consumer.poll()] == [3]


def test_an_iteration_meets_it_at_its_record() -> None:
    connection = connection_with(b"0", b"1", b"no number", b"3")
    consumer = connection.consumer("t", from_="earliest", value_deserializer=int)
    records = iter(consumer)
    assert [next(records).value, next(records).value] == [0, 1]
    with pytest.raises(DeserializationFailed):
        next(records)
    assert consumer.position("t", 0) == 2


def test_the_other_partitions_go_on() -> None:
    connection = connection_with(b"no number", partitions=2)
    connection.topics["t"][1].partition.append(encode_records([(T0, None, b"7", ())]))
    consumer = connection.consumer("t", from_="earliest", value_deserializer=int)
    outcomes: list[Any] = []
    for _ in range(4):
        try:
            outcomes += [record.value for record in consumer.poll()]
        except DeserializationFailed as error:
            outcomes.append(error.offset)
    assert sorted(outcomes[:2]) == [0, 7]
    assert outcomes[2:] == [0, 0]


def test_an_interrupt_within_a_function_loses_no_record() -> None:
    connection = connection_with(b"0", b"1")
    raised = [KeyboardInterrupt()]

    def interrupted(value: bytes) -> int:
        if value == b"1" and raised:
            raise raised.pop()
        return int(value)

    consumer = connection.consumer("t", from_="earliest", value_deserializer=interrupted)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    assert [record.value for record in consumer.poll()] == [0, 1]


def test_an_async_consumer_has_them_too() -> None:
    connection = connection_with(b"5")

    async def read() -> None:
        async with AsyncConsumer(
            connection,  # type: ignore[arg-type]
            "t",
            from_="earliest",
            value_deserializer=int,
        ) as consumer:
            assert [record.value for record in await consumer.poll()] == [5]

    asyncio.run(asyncio.wait_for(read(), 30))


def test_what_is_no_function_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"value.deserializer.*function"):
        connection_with(b"").consumer("t", value_deserializer="json")
