"""What a client of Kafka's protocol is answered by the process of its partitions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.errors import ActorAway, TooManyAppends
from raylog.actors.partition.partition import Partition
from raylog.actors.plane.apis.api import Api
from raylog.actors.plane.apis.cluster import DESCRIBE_LOG_DIRS, METADATA
from raylog.actors.plane.apis.connection import API_VERSIONS
from raylog.actors.plane.apis.records import (
    DELETE_RECORDS,
    DESCRIBE_PRODUCERS,
    FETCH,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from raylog.actors.plane.apis.table import APIS
from raylog.actors.plane.door import Door
from raylog.actors.plane.errors import (
    MalformedRequest,
    NotAcknowledged,
    PeerGone,
    UnsupportedRequest,
)
from raylog.actors.plane.frames import Request
from raylog.actors.plane.hosts import Host, Hosts
from raylog.actors.plane.parking import Parking
from raylog.actors.plane.sending import Piece
from raylog.storage.records.decode import decode_records
from raylog.storage.records.layout import AT_BASE_OFFSET, AT_LENGTH, AT_MAGIC
from raylog.storage.schemas.types import Value
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import batch, of_producer
from raylog.storage.testing.waiting import wait_for
from tests.unit.actors.plane.clients import TOPIC, TOPIC_ID, Client, client_of, hosts, partition
from tests.unit.actors.plane.peers import framed

LONG_MS = 300_000
VERSIONS_OF_PRODUCE = range(PRODUCE.first_version, PRODUCE.last_version + 1)
VERSIONS_OF_FETCH = range(FETCH.first_version, FETCH.last_version + 1)


def no_relay(request: Request, parking: Parking) -> Sequence[Piece]:
    raise AssertionError(f"{request.api.name} is relayed")


@pytest.fixture
def log(tmp_path: Path) -> Partition:
    return partition(tmp_path)


@pytest.fixture
def client(log: Partition) -> Iterator[Client]:
    door = Door(no_relay)
    door.hosts = hosts(log)
    with client_of(door) as one:
        yield one


def of_topic(*parts: Value) -> Value:
    """A topic of a Produce request of any version."""
    return {"name": TOPIC, "topicId": TOPIC_ID, "partitionData": list(parts)}


def produced(client: Client, version: int, records: bytes | None, **body: Any) -> Value:
    """The answer for partition 0."""
    part = {"index": 0, "records": records}
    body = {"acks": 1, "timeoutMs": 1000, "transactionalId": None, **body}
    answer = client.ask(PRODUCE, version, topicData=[of_topic(part)], **body)
    [topic] = answer["responses"]
    [found] = topic["partitionResponses"]
    return found


def fetch_body(
    *offsets: int, partition_bytes: int = 1 << 20, epoch: int = -1, **body: Any
) -> dict[str, Any]:
    """One partition for each offset."""
    parts = [
        {
            "partition": number,
            "fetchOffset": offset,
            "partitionMaxBytes": partition_bytes,
            "currentLeaderEpoch": epoch,
            "lastFetchedEpoch": -1,
            "logStartOffset": -1,
        }
        for number, offset in enumerate(offsets)
    ]
    return {
        "replicaId": -1,
        "maxWaitMs": 0,
        "minBytes": 1,
        "maxBytes": 1 << 20,
        "isolationLevel": 0,
        "sessionId": 0,
        "sessionEpoch": -1,
        "topics": [{"topic": TOPIC, "topicId": TOPIC_ID, "partitions": parts}],
        "forgottenTopicsData": [],
        "rackId": "",
        **body,
    }


def parts_of(answer: Value) -> list[Value]:
    [topic] = answer["responses"]
    return list(topic["partitions"])


def offsets(part: Value) -> list[int]:
    return [record.offset for record in decode_records(part["records"])]


# -- Produce ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS_OF_PRODUCE)
def test_what_is_produced_can_be_fetched_in_every_version(client: Client, version: int) -> None:
    for base_offset in (0, 3):
        found = produced(client, version, bytes(batch(3)))
        assert (found["errorCode"], found["baseOffset"]) == (0, base_offset)
    for fetch_version in VERSIONS_OF_FETCH:
        [part] = parts_of(client.ask(FETCH, fetch_version, **fetch_body(4)))
        assert (part["errorCode"], part["highWatermark"]) == (0, 6)
        assert offsets(part) == [3, 4, 5], "the batch that holds the offset comes whole"


def test_a_batch_that_is_sent_again_has_its_first_offset(client: Client) -> None:
    records = bytes(of_producer(0, 2))
    assert [produced(client, 9, records)["baseOffset"] for _ in range(2)] == [0, 0]


@pytest.mark.parametrize(
    ("records", "code"),
    [(None, 87), (b"", 87), (b"no batch", 87), (bytes(of_producer(5)), 0)],
    ids=["null", "empty", "no batch", "any first sequence"],
)
def test_what_cannot_be_appended_has_an_error(
    client: Client, records: bytes | None, code: int
) -> None:
    found = produced(client, 9, records)
    assert found["errorCode"] == code
    assert (found["baseOffset"] == -1) == bool(code)


def test_a_damaged_batch_and_a_gap_have_kafkas_codes(client: Client) -> None:
    damaged = batch(1)
    damaged[-1] ^= 1
    assert produced(client, 9, bytes(damaged))["errorCode"] == 2
    assert produced(client, 9, bytes(of_producer(0)))["errorCode"] == 0
    refused = produced(client, 9, bytes(of_producer(2)))
    assert (refused["errorCode"], refused["logStartOffset"]) == (45, 0)
    assert "sequence" in refused["errorMessage"]


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.parametrize(
    ("at", "byte"),
    [(AT_MAGIC, 0), (AT_MAGIC, 1), (AT_BASE_OFFSET + 7, 77), (AT_LENGTH + 2, 1)],
    ids=str,
)
def test_what_no_client_of_today_sends_is_refused_as_kafka_does(
    client: Client, log: Partition, at: int, byte: int, acks: int
) -> None:
    records = batch(1)
    records[at] = byte
    if acks:
        assert produced(client, 9, bytes(records))["errorCode"] == 87
    else:
        part = {"index": 0, "records": bytes(records)}
        body = {"acks": 0, "timeoutMs": 1, "transactionalId": None}
        client.send(PRODUCE, 9, topicData=[of_topic(part)], **body)
        assert client.received(1) == b""
    assert log.log.log_end_offset == 0


@pytest.mark.parametrize(("version", "code"), [(6, 76), (7, 0)])
def test_zstd_is_refused_before_its_version(client: Client, version: int, code: int) -> None:
    records = bytes(batch(1, compression_type="zstd"))
    assert produced(client, version, records)["errorCode"] == code


def test_other_acks_are_refused(client: Client, log: Partition) -> None:
    assert produced(client, 9, bytes(batch()), acks=2)["errorCode"] == 21
    assert log.log.log_end_offset == 0


def test_a_producer_may_ask_for_no_answer(client: Client, log: Partition) -> None:
    part = {"index": 0, "records": bytes(batch())}
    body = {"acks": 0, "timeoutMs": 1, "transactionalId": None}
    client.send(PRODUCE, 9, topicData=[of_topic(part)], **body)
    assert produced(client, 9, bytes(batch()))["baseOffset"] == 1


def test_without_answers_an_error_ends_the_connection(client: Client) -> None:
    part = {"index": 7, "records": bytes(batch())}
    body = {"acks": 0, "timeoutMs": 1, "transactionalId": None}
    client.send(PRODUCE, 9, topicData=[of_topic(part)], **body)
    assert client.received(1) == b""
    wait_for(lambda: client.ended is not None)
    assert isinstance(client.ended, NotAcknowledged)


def test_a_partition_that_is_not_here_has_another_leader(client: Client) -> None:
    part = {"index": 7, "records": bytes(batch())}
    body = {"acks": 1, "timeoutMs": 1, "transactionalId": None}
    answer = client.ask(PRODUCE, 9, topicData=[of_topic(part)], **body)
    assert answer["responses"][0]["partitionResponses"][0]["errorCode"] == 6


def test_a_refusal_for_want_of_room_is_one_that_every_client_retries(
    client: Client, log: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(records: object) -> None:
        raise TooManyAppends("orders-0", 1, 1)

    monkeypatch.setattr(log, "write_admitted", full)
    assert produced(client, 9, bytes(batch()))["errorCode"] == 19


# -- Fetch -----------------------------------------------------------------------------------------


def test_the_end_of_the_log_has_no_records_and_no_error(client: Client) -> None:
    [part] = parts_of(client.ask(FETCH, 16, **fetch_body(0)))
    assert (part["errorCode"], part["records"], part["highWatermark"]) == (0, b"", 0)
    assert part["abortedTransactions"] is None
    [part] = parts_of(client.ask(FETCH, 16, **fetch_body(0, isolationLevel=1)))
    assert part["abortedTransactions"] == []


@pytest.mark.parametrize(
    ("offset", "epoch", "code"),
    [(5, -1, 1), (-1, -1, 1), (0, 0, 0), (0, 7, 75), (0, -1, 0), (0, -2, 0)],
)
def test_offsets_and_epochs_have_kafkas_codes(
    client: Client, offset: int, epoch: int, code: int
) -> None:
    body = fetch_body(offset, maxWaitMs=LONG_MS if code else 0, epoch=epoch)
    [part] = parts_of(client.ask(FETCH, 16, **body))
    assert part["errorCode"] == code
    assert part["highWatermark"] == (-1 if code else 0)


def test_a_client_of_an_older_epoch_is_fenced(tmp_path: Path, client: Client) -> None:
    other = partition(tmp_path / "other")
    other.leader_epoch = 3
    door = Door(no_relay)
    door.hosts = hosts(other)
    with client_of(door) as one:
        [part] = parts_of(one.ask(FETCH, 16, **fetch_body(0, epoch=2)))
        assert part["errorCode"] == 74


def test_a_large_answer_goes_by_sendfile_and_is_the_same(client: Client, log: Partition) -> None:
    for _ in range(3):
        log.append(batch(1, value=bytes(100_000)))
    for version in (4, 11, 12, 17):
        [part] = parts_of(client.ask(FETCH, version, **fetch_body(0)))
        assert offsets(part) == [0, 1, 2]


def test_bounds_are_kept_but_for_the_first_batch(tmp_path: Path) -> None:
    several = [partition(tmp_path, number) for number in range(3)]
    for one in several[1:]:
        one.append(batch(1, value=bytes(1000)))
    door = Door(no_relay)
    door.hosts = hosts(*several)
    with client_of(door) as client:
        for bound in ({"maxBytes": 10}, {"partition_bytes": 0}):
            parts = parts_of(client.ask(FETCH, 16, **fetch_body(0, 0, 0, **bound)))
            assert [bool(part["records"]) for part in parts] == [False, True, False]
        parts = parts_of(client.ask(FETCH, 16, **fetch_body(0, 0, 0)))
        assert [bool(part["records"]) for part in parts] == [False, True, True]


def test_a_parked_fetch_is_woken_by_an_append(client: Client, log: Partition) -> None:
    asked = client.send(FETCH, 16, **fetch_body(0, maxWaitMs=LONG_MS))
    wait_for(lambda: log.waiting == 1)
    log.append(batch(2))
    [part] = parts_of(client.receive(FETCH, 16, asked))
    assert offsets(part) == [0, 1]
    assert log.waiting == 0


def test_a_parked_fetch_of_several_partitions_waits_for_all_its_bytes(tmp_path: Path) -> None:
    several = [partition(tmp_path, number) for number in range(2)]
    door = Door(no_relay)
    door.hosts = hosts(*several)
    size_bytes = len(batch())
    with client_of(door) as client:
        body = fetch_body(0, 0, maxWaitMs=LONG_MS, minBytes=3 * size_bytes)
        asked = client.send(FETCH, 16, **body)
        for number in (0, 1, 0):
            wait_for(lambda: all(one.waiting == 1 for one in several))
            several[number].append(batch())
        parts = parts_of(client.receive(FETCH, 16, asked))
        assert [offsets(part) for part in parts] == [[0, 1], [0]]
    assert [one.waiting for one in several] == [0, 0]


def test_a_parked_fetch_ends_with_the_partition(client: Client, log: Partition) -> None:
    asked = client.send(FETCH, 16, **fetch_body(0, maxWaitMs=LONG_MS))
    wait_for(lambda: log.waiting == 1)
    log.close()
    [part] = parts_of(client.receive(FETCH, 16, asked))
    assert part["errorCode"] != 0


def test_a_parked_fetch_ends_with_its_client(client: Client, log: Partition) -> None:
    client.send(FETCH, 16, **fetch_body(0, maxWaitMs=LONG_MS))
    wait_for(lambda: log.waiting == 1)
    client.close()
    wait_for(lambda: client.ended is not None)
    assert isinstance(client.ended, PeerGone)
    assert log.waiting == 0


def test_a_parked_fetch_is_answered_when_its_time_is_up(client: Client, log: Partition) -> None:
    [part] = parts_of(client.ask(FETCH, 16, **fetch_body(0, maxWaitMs=1)))
    assert (part["errorCode"], part["records"], log.waiting) == (0, b"", 0)


def test_a_reader_behind_the_newest_segment_does_not_wait(client: Client, log: Partition) -> None:
    log.append(batch())
    log.roll()
    body = fetch_body(0, maxWaitMs=LONG_MS, minBytes=1 << 19)
    [part] = parts_of(client.ask(FETCH, 16, **body))
    assert offsets(part) == [0]


def test_a_request_of_nothing_is_answered_at_once(client: Client) -> None:
    answer = client.ask(FETCH, 16, **fetch_body(0, maxWaitMs=LONG_MS, topics=[]))
    assert (answer["errorCode"], answer["responses"]) == (0, [])


def test_there_are_no_sessions_and_no_followers(client: Client) -> None:
    answer = client.ask(FETCH, 12, **fetch_body(0, sessionId=0, sessionEpoch=0))
    assert (answer["errorCode"], answer["sessionId"]) == (0, 0)
    answer = client.ask(FETCH, 12, **fetch_body(0, sessionId=5, sessionEpoch=1))
    assert (answer["errorCode"], answer["responses"]) == (70, [])
    answer = client.ask(FETCH, 12, **fetch_body(0, sessionId=0, sessionEpoch=1))
    assert (answer["errorCode"], answer["responses"]) == (70, [])
    answer = client.ask(FETCH, 12, **fetch_body(0, replicaId=1))
    assert (answer["errorCode"], answer["responses"]) == (31, [])


# -- ListOffsets, OffsetForLeaderEpoch -------------------------------------------------------------


def offset_at(client: Client, timestamp: int, version: int = 11, **fields: Any) -> tuple[int, ...]:
    """Error code, offset, leader epoch of partition 0."""
    part = {"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": timestamp, **fields}
    topic = {"name": TOPIC, "partitions": [part]}
    body = {"replicaId": -1, "isolationLevel": 0, "topics": [topic], "timeoutMs": 1}
    [answered] = client.ask(LIST_OFFSETS, version, **body)["topics"]
    [found] = answered["partitions"]
    return found["errorCode"], found["offset"], found["leaderEpoch"]


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_are_found_in_every_version(client: Client, log: Partition, version: int) -> None:
    """Older clients are told no epochs: aiokafka 0.14 asks by version 3."""
    log.append(batch(3))
    epoch = 0 if version >= 4 else -1
    assert offset_at(client, -1, version) == (0, 3, epoch)
    assert offset_at(client, -2, version) == (0, 0, epoch)


def test_offsets_are_found_by_time(client: Client, log: Partition) -> None:
    assert offset_at(client, -1) == (0, 0, 0)
    assert offset_at(client, -3) == (0, -1, -1)
    log.append(batch(3, step_ms=10))
    log.delete_records(1)
    assert offset_at(client, -1) == (0, 3, 0)
    assert offset_at(client, -2) == (0, 1, 0)
    assert offset_at(client, -3) == (0, 2, 0)
    assert offset_at(client, -4) == (0, 1, 0)
    assert offset_at(client, -5) == offset_at(client, -6) == (0, -1, -1)
    assert offset_at(client, T0 + 11) == (0, 2, 0)
    assert offset_at(client, T0 + 21) == (0, -1, -1)
    assert offset_at(client, -1, currentLeaderEpoch=1) == (75, -1, -1)
    assert offset_at(client, -1, partitionIndex=1) == (6, -1, -1)


@pytest.mark.parametrize(("timestamp", "version"), [(-7, 11), (-3, 6), (-4, 7), (-5, 8), (-6, 10)])
def test_a_special_timestamp_below_its_version_is_refused(
    client: Client, timestamp: int, version: int
) -> None:
    assert offset_at(client, timestamp, version)[0] == 35
    assert offset_at(client, timestamp, version, partitionIndex=1)[0] == 35
    if version >= 4:
        assert offset_at(client, timestamp, version, currentLeaderEpoch=1)[0] == 35


def test_a_partition_that_is_asked_for_twice_is_answered_once(client: Client) -> None:
    part = {"partitionIndex": 0, "currentLeaderEpoch": -1, "timestamp": -1}
    topic = {"name": TOPIC, "partitions": [part, part]}
    body = {"replicaId": -1, "isolationLevel": 0, "topics": [topic], "timeoutMs": 1}
    [answered] = client.ask(LIST_OFFSETS, 11, **body)["topics"]
    assert [found["errorCode"] for found in answered["partitions"]] == [42]


def test_ends_of_leader_epochs_are_found(client: Client, log: Partition) -> None:
    log.append(batch(3))

    def asked(epoch: int, current: int = -1, index: int = 0) -> tuple[int, ...]:
        part = {"partition": index, "currentLeaderEpoch": current, "leaderEpoch": epoch}
        topic = {"topic": TOPIC, "partitions": [part]}
        [answered] = client.ask(OFFSET_FOR_LEADER_EPOCH, 4, replicaId=-1, topics=[topic])["topics"]
        [found] = answered["partitions"]
        return found["errorCode"], found["leaderEpoch"], found["endOffset"]

    assert asked(0) == (0, 0, 3)
    assert asked(1) == asked(-1) == (0, -1, -1)
    assert asked(0, current=1) == (75, -1, -1)
    assert asked(0, index=1) == (6, -1, -1)


# -- the rest --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
def test_the_served_versions_are_told(client: Client, version: int) -> None:
    body = {"clientSoftwareName": "test", "clientSoftwareVersion": "1"} if version > 2 else {}
    answer = client.ask(API_VERSIONS, version, **body)
    assert answer["errorCode"] == 0
    assert {entry["apiKey"] for entry in answer["apiKeys"]} == APIS.keys()


def test_newer_api_versions_are_answered_in_the_oldest_form(client: Client) -> None:
    client.send_raw(framed(bytes.fromhex("0012 7fff 00000009 ffff")))
    head = client.received(4)
    content = client.received(int.from_bytes(head, "big"))
    assert content[:6] == bytes.fromhex("00000009 0023")


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        ("7fff 0000 00000001 ffff", UnsupportedRequest),
        ("0001 0010 00000001 ffff 00", MalformedRequest),
    ],
    ids=["unknown API", "no body"],
)
def test_what_is_no_request_ends_the_connection(client: Client, frame: str, kind: type) -> None:
    client.send_raw(framed(bytes.fromhex(frame)))
    assert client.received(1) == b""
    wait_for(lambda: client.ended is not None)
    assert isinstance(client.ended, kind)


def test_what_concerns_the_cluster_is_relayed(log: Partition) -> None:
    relayed: list[Api] = []

    def relay(request: Request, parking: Parking) -> Sequence[Piece]:
        relayed.append(request.api)
        return [b"an answer"]

    door = Door(relay)
    door.hosts = hosts(log)
    with client_of(door) as client:
        client.send(METADATA, 1, topics=None)
        assert client.received(9) == b"an answer"
    assert relayed == [METADATA]


def test_nothing_is_served_before_partitions_are_open(log: Partition) -> None:
    with client_of(Door(no_relay)) as client:
        [part] = parts_of(client.ask(FETCH, 16, **fetch_body(0, maxWaitMs=LONG_MS)))
        assert part["errorCode"] == 6


# -- records are removed, producers are told -------------------------------------------------------


def removed(client: Client, version: int, *offsets: int) -> list[tuple[int, int]]:
    """Of each partition from 0 on: the error code and the low watermark."""
    parts = [{"partitionIndex": number, "offset": offset} for number, offset in enumerate(offsets)]
    topics = [{"name": TOPIC, "partitions": parts}]
    [topic] = client.ask(DELETE_RECORDS, version, topics=topics, timeoutMs=1000)["topics"]
    assert [part["partitionIndex"] for part in topic["partitions"]] == list(range(len(offsets)))
    return [(part["errorCode"], part["lowWatermark"]) for part in topic["partitions"]]


@pytest.mark.parametrize("version", range(3))
def test_records_below_an_offset_are_removed(client: Client, log: Partition, version: int) -> None:
    log.append(batch(5))
    assert removed(client, version, 2, 2) == [(0, 2), (6, -1)], "the other one is not here"
    assert log.log.log_start_offset == 2
    assert removed(client, version, 1) == [(0, 2)], "they are gone already"
    assert removed(client, version, 6) == [(1, -1)], "beyond the end"
    assert removed(client, version, -2) == [(1, -1)]
    assert removed(client, version, -1) == [(0, 5)], "all that can be read"


def test_records_of_a_compacted_topic_are_not_removed(tmp_path: Path) -> None:
    log = partition(tmp_path, cleanup_policy="compact")
    door = Door(no_relay)
    door.hosts = hosts(log)
    with client_of(door) as client:
        assert removed(client, 2, -1) == [(44, -1)]


def test_a_removal_whose_outcome_is_unknown_says_so(log: Partition) -> None:
    def remove(offset: int) -> int:
        raise ActorAway("removing", "its LogManager died")

    door = Door(no_relay)
    door.hosts = Hosts([Host(TOPIC, TOPIC_ID.bytes, 0, log, remove)])
    with client_of(door) as client:
        assert removed(client, 2, 1) == [(7, -1)]


def test_the_producers_of_a_partition_are_told(client: Client, log: Partition) -> None:
    topics = [{"name": TOPIC, "partitionIndexes": [0, 1]}]
    log.append(of_producer(0, 3, epoch=2))
    [topic] = client.ask(DESCRIBE_PRODUCERS, 0, topics=topics)["topics"]
    own, other = topic["partitions"]
    assert (other["errorCode"], other["activeProducers"]) == (6, [])
    assert (own["errorCode"], own["errorMessage"]) == (0, None)
    assert own["activeProducers"] == [
        {
            "producerId": 7,
            "producerEpoch": 2,
            "lastSequence": 2,
            "lastTimestamp": T0,
            "coordinatorEpoch": -1,
            "currentTxnStartOffset": -1,
        }
    ]


# -- log dirs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
def test_the_disk_of_a_partition_is_told_with_its_size(
    client: Client, log: Partition, tmp_path: Path, version: int
) -> None:
    log.append(batch(5))
    answer = client.ask(DESCRIBE_LOG_DIRS, version, topics=None)
    [told] = answer["results"]
    assert (answer["throttleTimeMs"], answer.get("errorCode", 0)) == (0, 0)
    assert not told.get("isCordoned", False)
    part = {
        "partitionIndex": 0,
        "partitionSize": log.log.size_bytes,
        "offsetLag": 0,
        "isFutureKey": False,
    }
    assert (told["errorCode"], told["logDir"]) == (0, str(tmp_path))
    assert told["topics"] == [{"name": TOPIC, "partitions": [part]}]
    if version >= 4:
        assert told["totalBytes"] > told["usableBytes"] > 0


def test_of_the_disks_only_what_is_asked_for_is_told(
    client: Client, log: Partition, tmp_path: Path
) -> None:
    def asked(topic: str, *numbers: int) -> list[Value]:
        topics = [{"topic": topic, "partitions": list(numbers)}]
        results: list[Value] = client.ask(DESCRIBE_LOG_DIRS, 5, topics=topics)["results"]
        return results

    assert len(asked(TOPIC, 0, 1)) == 1
    assert asked(TOPIC, 1) == asked("other", 0) == []
    log.close()
    [told] = asked(TOPIC, 0)
    assert (told["errorCode"], told["topics"], told["totalBytes"]) == (56, [], -1)
