"""A real Kafka on partition folders that raylog wrote: what its clients see, and how it goes on
with them.

The logs are those of ``written.py``; when each is read and written by whom, ``lives.py`` tells.
"""

import re

import pytest

from tests.kafka.clients import COMMITTED, ISOLATIONS, UNCOMMITTED, Bounds
from tests.kafka.lives import Observed, assert_same, is_compaction_of, topic_of
from tests.kafka.written import SCENARIOS, Seen, Written

pytestmark = pytest.mark.timeout(300)  # the first may fetch Kafka, and starts it

# Whatever Kafka says of a log that it loads. It may say more of its start and our requests.
OF_LOGS = re.compile(
    r"LogLoader|UnifiedLog|LocalLog|LogSegment|Index|ProducerState|Snapshot|LeaderEpochCache|LogManager|Cleaner"
)


def of_logs(complaints: list[str]) -> list[str]:
    return [line for line in complaints if OF_LOGS.search(line)]


def without_times(records: list[Seen]) -> list[Seen]:
    return [record._replace(timestamp=0, timestamp_type=0) for record in records]


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_clients_see_every_record(
    second: Observed, written: dict[str, Written], name: str, isolation: str
) -> None:
    """Keys, values, headers, timestamps and their type, offsets; by librdkafka and by aiokafka."""
    log, key = written[name], (topic_of(name), isolation)
    expected = log.committed if isolation == COMMITTED else log.records
    assert second.seen[key] == expected
    assert second.seen_by_aiokafka[key] == expected


@pytest.mark.parametrize("name", SCENARIOS)
def test_kafka_tells_the_same_offsets(
    second: Observed, written: dict[str, Written], name: str
) -> None:
    log = written[name]
    expected = Bounds(log.log_start_offset, log.last_stable_offset, log.log_end_offset)
    assert second.bounds[topic_of(name)] == expected


@pytest.mark.parametrize("name", SCENARIOS)
def test_kafka_finds_records_by_their_time(
    second: Observed, written: dict[str, Written], name: str
) -> None:
    assert len(second.times[name]) > len(written[name].records) / 50
    for time, offset in second.times[name].items():
        later = [record.offset for record in written[name].records if record.timestamp >= time]
        assert offset == (later[0] if later else -1)


def test_kafka_trusts_what_an_orderly_stop_left(second: Observed) -> None:
    """It neither repairs nor recovers a log, an index, a snapshot."""
    assert of_logs(second.complaints) == []


def test_kafka_goes_on_with_raylogs_producers(
    second: Observed, written: dict[str, Written]
) -> None:
    """From raylog's snapshot it knows what each has sent."""
    again = written["idempotent"].batches
    first_offset = next(
        offset
        for offset, batch in reversed(again.items())
        if batch[43:51] == (4002).to_bytes(8, "big")
    )
    end = written["idempotent"].log_end_offset
    assert second.answers["again"] == (0, first_offset)
    assert second.answers["gap"].error == 45  # OUT_OF_ORDER_SEQUENCE_NUMBER
    assert second.answers["next"] == (0, end)
    assert second.answers["old epoch"].error == 47  # INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("name", SCENARIOS)
def test_raylog_reads_on_what_kafka_wrote_behind_it(
    second: Observed, third: Observed, written: dict[str, Written], name: str
) -> None:
    """Kafka's appends to raylog's log, after Kafka was killed."""
    topic = topic_of(name)
    found = third.read_by_raylog[topic]
    if written[name].is_compacted:
        assert is_compaction_of(found, written[name].records + second.acknowledged[topic])
        return
    known = len(written[name].records)
    assert found[:known] == written[name].records
    if name == "idempotent":
        assert [record.offset for record in found[known:]] == [130, 131, 132]
    else:
        assert without_times(found[known:]) == without_times(second.acknowledged[topic])


@pytest.mark.parametrize("name", SCENARIOS)
def test_kafka_recovers_what_a_killed_raylog_left(third: Observed, name: str) -> None:
    topic = topic_of(name)
    appended = third.appended[topic]
    assert_same(topic, third.seen[topic, UNCOMMITTED], third.read_by_raylog[topic] + appended)
    visible = [] if name == "open-transaction" else appended
    assert_same(topic, third.seen[topic, COMMITTED], third.committed_by_raylog[topic] + visible)


def test_kafka_cuts_off_half_a_batch_and_nothing_else(third: Observed) -> None:
    """And where raylog's leader epochs have overtaken its own, it forgets those, and no record."""
    cut = {}
    for line in of_logs(third.complaints):
        if found := re.search(
            r"partition=(\S+)-0, .* Corruption found in segment \d+, truncating to offset (\d+)",
            line,
        ):
            cut[found[1]] = int(found[2])
        else:
            assert re.search(
                r"LeaderEpochCache .* New epoch entry .* caused truncation of conflicting", line
            )
    assert len(cut) == len([*third.bounds][::2])
    assert cut == {topic: third.bounds[topic].high_watermark for topic in [*third.bounds][::2]}
