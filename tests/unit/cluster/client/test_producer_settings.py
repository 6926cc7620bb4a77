"""What a producer says of settings that it does not have, and of limits that a record exceeds."""

import threading
from typing import Any

import pyarrow as pa
import pytest

from raylog.actors.errors import BufferExhausted, RecordTooLargeToSend, RequestTimedOut
from raylog.cluster.cli import produce
from raylog.cluster.client.producer import Producer
from raylog.cluster.client.producer.config import MOST_REQUEST_BYTES, ProducerConfig
from raylog.cluster.client.settings import no_such_setting
from raylog.storage.errors import InvalidConfig
from tests.harness.connections import FakeConnection

NAMES = tuple(ProducerConfig.__dataclass_fields__)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("bootstrap.servers", r"raylog\.connect\(address\)"),
        ("bootstrap_servers", r"raylog\.connect\(address\)"),
        ("metadata.broker.list", r"raylog\.connect\(address\)"),
        ("retries", r"delivery\.timeout\.ms"),
        ("message.send.max.retries", r"delivery\.timeout\.ms"),
        ("message.timeout.ms", r"delivery\.timeout\.ms"),
        ("queue.buffering.max.messages", r"buffer\.memory"),
        ("queue.buffering.max.ms", r"linger\.ms"),
        ("message.max.bytes", r"max\.request\.size"),
        ("batch.num.messages", r"batch\.size"),
        ("request.required.acks", "acks"),
        ("compression.codec", r"compression\.type"),
        ("compression.level", r"compression\.gzip\.level"),
        ("max.in.flight", r"max\.in\.flight\.requests\.per\.connection"),
        ("partitioner.class", "murmur2, sticky, round_robin"),
        ("partitioner_ignore_keys", "sticky"),
        ("interceptor.classes", "callback"),
        ("on_delivery", "add_done_callback"),
        ("delivery.report.only.error", "add_done_callback"),
        ("error_cb", "raise errors"),
        ("stats_cb", "raylog status"),
        ("api_version", "understand each other"),
        ("api.version.request", "understand each other"),
        ("security.protocol", "Ray's own network"),
        ("sasl.mechanism", "Ray's own network"),
        ("ssl.ca.location", "Ray's own network"),
    ],
)
def test_a_setting_of_kafkas_clients_is_refused_with_what_to_do_here(key: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says) as refused:
        ProducerConfig.of({key: 3})
    assert refused.value.key == key
    assert "no such setting" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("linger", r"did you mean linger\.ms\?"),
        ("retrie", "no such setting"),
        ("transactional", r"did you mean transactional\.id\?"),
        ("sslx", "no such setting"),
    ],
)
def test_any_other_setting_is_refused_with_the_nearest_or_all(key: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        ProducerConfig.of({key: 3})


def test_what_to_use_instead_is_there_and_hides_no_setting() -> None:
    for name in NAMES:
        ProducerConfig.of({name: getattr(ProducerConfig(), name)})
    instead = {"a.": "all of a", "b": "b"}
    assert no_such_setting("a_c", ["d"], instead) == "all of a"
    assert no_such_setting("b", ["d"], instead) == "b"
    assert no_such_setting("b.c", ["d"], instead).startswith("no such setting")
    assert no_such_setting("a", ["d"], instead).startswith("no such setting")


def test_a_request_that_no_partition_would_take_is_refused_at_once() -> None:
    assert ProducerConfig(max_request_size=MOST_REQUEST_BYTES).max_request_size > 90 << 20
    with pytest.raises(InvalidConfig, match="at most 100000000"):
        ProducerConfig(max_request_size=MOST_REQUEST_BYTES + 1)


def full(connection: FakeConnection, **settings: Any) -> Producer:
    """A producer without room, whose time to wait for it is over at once."""
    connection.create("t", 1)
    times = iter(range(0, 10_000_000, 60))
    producer = Producer(
        connection,
        clock=lambda: next(times),
        is_threaded=False,
        buffer_memory=2000,
        delivery_timeout_ms=2**31 - 1,
        **settings,
    )
    producer.send("t", b"x" * 1800)
    return producer


def test_a_full_buffer_says_that_the_record_was_not_taken() -> None:
    producer = full(FakeConnection(), max_block_ms=7000)
    with pytest.raises(BufferExhausted) as refused:
        producer.send("t", b"y" * 400)
    with pytest.raises(BufferExhausted) as table:
        producer.send_arrow("t", pa.table({"value": [b"y" * 400]}))
    assert isinstance(refused.value, RequestTimedOut)
    assert (refused.value.timeout_ms, refused.value.buffer_memory) == (7000, 2000)
    assert "the record was not taken" in str(refused.value)
    assert "the rest of the table was not taken" in str(table.value)
    assert "buffer.memory=2000" in str(refused.value)
    assert "7000 ms" in str(refused.value)
    assert "may have taken effect" not in str(refused.value)
    producer._sender.stop()
    producer._sender.take_failures()


def test_a_full_buffer_is_not_waited_for_in_a_callback() -> None:
    producer = full(FakeConnection(), max_block_ms=7000)
    sender = producer._sender
    own, sender.thread = sender.thread, threading.current_thread()
    with pytest.raises(BufferExhausted, match="no room within 0 ms") as refused:
        producer.send("t", b"y" * 400)
    assert refused.value.timeout_ms == 0
    sender.thread = own
    sender.stop()
    sender.take_failures()


def test_the_advice_for_a_large_record_holds_for_programs_and_for_the_command() -> None:
    said = str(RecordTooLargeToSend(2 << 20, "max.request.size", 1 << 20))
    assert "raise max.message.bytes of the topic, and in a program also max.request.size" in said
    said = str(RecordTooLargeToSend(2000, "buffer.memory", 1000))
    assert said.endswith("exceeds buffer.memory=1000 of the producer; raise it")


@pytest.mark.parametrize("topic_bytes", [1000, 1 << 20, 100 << 20])
def test_the_command_takes_whatever_the_topic_takes(topic_bytes: int) -> None:
    """So its user raises max.message.bytes, and nothing else."""
    connection = FakeConnection()
    connection.create("t", 1, max_message_bytes=topic_bytes)
    with produce._producer(connection, "t", None, produce.Compression.none) as producer:
        config = producer.config
    assert config.max_request_size == min(max(1 << 20, topic_bytes), MOST_REQUEST_BYTES)
    assert config.buffer_memory >= config.max_request_size
    assert config.buffer_memory >= ProducerConfig().buffer_memory


@pytest.mark.parametrize("name", ["", "x" * 32_768, 3])
def test_a_transactional_id_is_a_str_that_a_record_can_hold(name: object) -> None:
    with pytest.raises(InvalidConfig, match="1 to 32767 bytes"):
        ProducerConfig.of({"transactional.id": name})
    ProducerConfig.of({"transactional.id": "x" * 32_767})


def test_transactions_need_idempotence() -> None:
    with pytest.raises(InvalidConfig, match=r"enable\.idempotence"):
        ProducerConfig.of({"transactional.id": "x", "enable.idempotence": False})
