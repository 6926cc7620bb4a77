"""What each client does on a broker: topics, records with all their parts, places, bounds."""

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from raylog.cluster.broker import Broker
from raylog.storage.testing.waiting import wait_for
from tests.clients.program import Failed, Lacks, Program, Record, from_json, to_json
from tests.clients.table import ALL_CODECS, Client
from tests.clients.topics import WIDE, Topic, in_order
from tests.harness.librdkafka import Librdkafka

pytestmark = pytest.mark.timeout(600)

# Some time in 2020: no client may put its own in the place of it.
CREATED_MS = 1_600_000_000_000
MIB = 1 << 20
# With the record's and the batch's own bytes it is below max.message.bytes, 1,048,588.
ALMOST_MIB = MIB - 500
# A topic whose segments are small, so that compaction has something to do.
KEYS, REWRITES = 20, 40
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": 16 << 10,
    "min.cleanable.dirty.ratio": 0.01,
}
COMPACTION_S = 120.0
ENOUGH = 10 * MIB  # of what the client itself lets pass


def records(count: int, partitions: int = 2) -> list[Record]:
    """Records with and without keys, values and headers, some of them empty, partition by partition
    in turn.

    None lacks both key and value: kafka-python and aiokafka do not take it.
    """
    return [
        Record(
            partition=number % partitions,
            key=key(number),
            value=value(number),
            timestamp=CREATED_MS + number,
            headers=headers(number),
        )
        for number in range(count)
    ]


def key(number: int) -> bytes | None:
    if number % 3 == 0:
        return None
    return b"" if number % 12 == 2 else b"key %d" % number


def value(number: int) -> bytes | None:
    if number % 6 == 1:
        return None
    return b"" if number % 12 == 3 else b"value %d " % number * 10


def headers(number: int) -> tuple[tuple[str, bytes | None], ...]:
    """None; one with an empty value; a name that is there twice."""
    kinds: list[tuple[tuple[str, bytes | None], ...]] = [
        (),
        (("empty", b""),),
        (("twice", b"1"), ("twice", b"%d" % number), ("ümlaut", bytes(range(256)))),
    ]
    return kinds[number % len(kinds)]


def seen_by(client: Client, wanted: list[Record]) -> list[Record]:
    """The records as far as the client can tell them apart."""
    if not client.blurs_empty:
        return wanted
    return [
        Record(
            partition=one.partition,
            key=one.key or None,
            value=one.value or None,
            timestamp=one.timestamp,
            headers=tuple((name, value or None) for name, value in one.headers),
            offset=one.offset,
        )
        for one in wanted
    ]


def without_offsets(found: list[Record]) -> list[Record]:
    return [Record(one.partition, one.key, one.value, one.timestamp, one.headers) for one in found]


def asked(program: Program, client: Client, deed: str, **fields: Any) -> Any:
    """What the deed gives; the test is skipped where the client has no such."""
    try:
        return program.ask(deed, **fields)
    except Lacks as why:
        pytest.skip(f"{client.name}: {why}")


@pytest.fixture
def own(broker: Broker) -> Iterator[Topic]:
    """A topic of this test alone, with one partition."""
    name = f"own-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, partitions=1, config={"retention.ms": -1})
    topic = Topic(broker, name, 1)
    topic.wait_for_leaders(Librdkafka(broker))
    yield topic
    broker.delete_topic(name)


@pytest.fixture
def compacted(broker: Broker) -> Iterator[Topic]:
    """Each key was written often, and all but the last segment is compacted."""
    name = f"compacted-{uuid.uuid4().hex[:8]}"
    broker.create_topic(name, 1, COMPACTED)
    topic = Topic(broker, name, 1)
    topic.wait_for_leaders(Librdkafka(broker))
    for round_number in range(REWRITES):
        topic.write(
            Record(0, b"%d" % key, b"%d" % round_number * 50, CREATED_MS) for key in range(KEYS)
        )

    def is_compacted() -> bool:
        found = [one for one in broker.compaction() if one.partition == f"{name}-0"]
        last_round = found[0].last_round if found else None
        return last_round is not None and last_round.end_offset >= topic.active_segment(0)

    wait_for(is_compacted, COMPACTION_S, "the topic is compacted")
    yield topic
    broker.delete_topic(name)


def produce(
    program: Program,
    topic: Topic,
    wanted: list[Record],
    codec: str = "none",
    idempotent: bool = True,
    largest: int = MIB,
) -> list[int]:
    """The offsets that the client tells."""
    told = program.ask(
        "produce",
        topic=topic.name,
        codec=codec,
        idempotent=idempotent,
        largest=largest,
        records=[to_json(record) for record in wanted],
    )
    offsets = told["offsets"]
    assert isinstance(offsets, list)
    return offsets


def consume(
    program: Program, client: Client, topic: Topic, places: dict[int, int | str], count: int
) -> list[Record]:
    """So many records from these places on."""
    told = asked(program, client, "consume", topic=topic.name, places=places, count=count)
    return in_order([from_json(record) for record in told["records"]])


def test_it_is_the_version_of_the_table(program: Program, client: Client) -> None:
    assert program.ask("hello")["version"].startswith(client.version)


def test_it_sees_topics_and_a_leader_for_each_partition(
    program: Program, topic: Topic, wide: Topic
) -> None:
    told = program.ask("metadata", topic=wide.name)
    assert {topic.name, wide.name} <= set(told["topics"])
    leaders = {int(number): leader for number, leader in told["leaders"].items()}
    assert leaders.keys() == set(range(WIDE))
    assert len(set(leaders.values())) == WIDE, "each partition is a broker of its own"
    assert told["brokers"] > WIDE, "and the node is one"


@pytest.mark.parametrize("codec", ALL_CODECS)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_what_it_writes_raylog_reads(
    program: Program, client: Client, topic: Topic, codec: str, idempotent: bool
) -> None:
    if codec not in client.codecs:
        pytest.skip(f"{client.name}: it has no {codec}")
    starts = topic.ends()
    wanted = records(60)
    offsets = produce(program, topic, wanted, codec, idempotent)
    found = topic.read(starts)
    by_partition = sorted(wanted, key=lambda record: record.partition)
    assert seen_by(client, without_offsets(found)) == seen_by(client, by_partition)
    told = sorted((one.partition, offset) for one, offset in zip(wanted, offsets, strict=True))
    assert told == [(one.partition, one.offset) for one in found]
    assert topic.codecs(starts) == {codec}


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_what_raylog_writes_it_reads(
    program: Program, client: Client, topic: Topic, codec: str
) -> None:
    if codec not in client.codecs:
        pytest.skip(f"{client.name}: it has no {codec}")
    starts = topic.ends()
    written = topic.write(records(60), codec)
    found = consume(program, client, topic, dict(starts), len(written))
    assert seen_by(client, found) == seen_by(client, written)


def test_a_record_of_almost_1_mib_goes_both_ways(
    program: Program, client: Client, topic: Topic
) -> None:
    starts = topic.ends()
    large = Record(0, None, os.urandom(ALMOST_MIB), CREATED_MS)
    produce(program, topic, [large], largest=ENOUGH)
    written = topic.read(starts)
    assert without_offsets(written) == [large]
    assert consume(program, client, topic, {0: starts[0]}, 1) == written


def test_a_record_that_is_too_large_is_refused_by_name_and_the_next_one_is_not(
    program: Program, client: Client, topic: Topic
) -> None:
    starts = topic.ends()
    with pytest.raises(Failed) as raised:
        produce(program, topic, [Record(0, None, os.urandom(2 * MIB), CREATED_MS)], largest=ENOUGH)
    assert raised.value.name == client.too_large
    small = Record(0, None, b"small", CREATED_MS)
    produce(program, topic, [small])
    assert without_offsets(topic.read(starts)) == [small]


def test_16_partitions_have_every_record_once(
    program: Program, client: Client, wide: Topic
) -> None:
    starts = wide.ends()
    wanted = records(WIDE * 40, WIDE)
    produce(program, wide, wanted)
    written = wide.read(starts)
    by_partition = sorted(wanted, key=lambda record: record.partition)
    assert seen_by(client, without_offsets(written)) == seen_by(client, by_partition)
    found = consume(program, client, wide, dict(starts), len(wanted))
    assert seen_by(client, found) == seen_by(client, written)


def test_it_reads_from_the_earliest_record(program: Program, client: Client, wide: Topic) -> None:
    wide.write(records(4, 4))
    all_of_it = wide.read({3: 0})
    found = consume(program, client, wide, {3: "earliest"}, len(all_of_it))
    assert seen_by(client, found) == seen_by(client, all_of_it)


def test_it_reads_what_compaction_has_left(
    program: Program, client: Client, compacted: Topic
) -> None:
    """Offsets with large gaps between them; a batch may have no record any more."""
    if client.sticks_in_gaps:
        pytest.skip(f"{client.name}: it does not get past them")
    left = compacted.read({0: 0})
    assert len(left) < REWRITES * KEYS, "most of them are gone"
    assert consume(program, client, compacted, {0: 0}, len(left)) == left
    gap = left[0].offset - 1 if left[0].offset else left[0].offset + 1
    from_there = [record for record in left if record.offset >= gap]
    assert consume(program, client, compacted, {0: gap}, len(from_there)) == from_there


def test_it_reads_from_an_offset_and_from_a_time(
    program: Program, client: Client, topic: Topic
) -> None:
    first_ms = topic.newest_ms(1) + 1000
    written = topic.write(
        Record(1, None, b"%d" % number, first_ms + number) for number in range(20)
    )
    first = written[0].offset

    def offset(at: int | str) -> int:
        found = program.ask("offset", topic=topic.name, partition=1, at=at)["offset"]
        assert isinstance(found, int)
        return found

    assert offset("earliest") == 0
    assert offset("latest") == first + 20
    assert offset(first_ms + 12) == first + 12
    assert consume(program, client, topic, {1: first + 7}, 13) == written[7:]


def test_its_admin_client_makes_and_deletes_a_topic(
    program: Program, client: Client, broker: Broker
) -> None:
    name = f"of-{client.name}-{uuid.uuid4().hex[:8]}"
    wanted: dict[str, Any] = {
        "topic": name,
        "partitions": 1,
        "config": {"retention.ms": "86400000"},
    }
    program.ask("create_topic", **wanted)
    assert broker.describe_topic(name).config == {"retention.ms": 86_400_000}
    with pytest.raises(Failed) as raised:
        program.ask("create_topic", **wanted)
    assert raised.value.name == client.exists
    program.ask("delete_topic", topic=name)
    assert name not in broker.list_topics()
    with pytest.raises(Failed) as raised:
        program.ask("delete_topic", topic=name)
    assert raised.value.name == client.unknown


def test_its_admin_client_tells_and_changes_configs(
    program: Program, client: Client, broker: Broker, own: Topic
) -> None:
    config = asked(program, client, "topic_config", topic=own.name)
    assert config["retention.ms"] == "-1"
    asked(program, client, "alter_config", topic=own.name, config={"segment.bytes": "1048576"})
    assert broker.describe_topic(own.name).config["segment.bytes"] == 1_048_576


def test_its_admin_client_adds_partitions(
    program: Program, client: Client, broker: Broker, own: Topic
) -> None:
    asked(program, client, "add_partitions", topic=own.name, total=2)
    assert len(broker.describe_topic(own.name).partitions) == 2


def test_its_admin_client_deletes_records(program: Program, client: Client, own: Topic) -> None:
    written = own.write(records(10, 1))
    told = asked(program, client, "delete_records", topic=own.name, partition=0, before=6)
    assert told == {"low": 6}
    assert own.read({0: 6}) == written[6:]
    first = program.ask("offset", topic=own.name, partition=0, at="earliest")
    assert first == {"offset": 6}
