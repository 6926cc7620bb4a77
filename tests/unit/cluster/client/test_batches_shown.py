"""Which records share a batch, as ``raylog log dump`` shows it."""

import re
from pathlib import Path

import pytest

from tests.harness.shell import run_here
from tests.unit.cluster.client.test_producer import Lab

BATCH = re.compile(r"baseSequence: (\d+) lastSequence: (\d+)")


@pytest.mark.parametrize(("linger_ms", "batch_size"), [(0, 16_384), (1000, 1_000_000)])
def test_records_sent_one_by_one_have_batches_of_their_own_and_those_sent_at_once_share_one(
    tmp_path: Path, linger_ms: int, batch_size: int
) -> None:
    lab = Lab()
    lab.connection.create("t", 1)
    producer = lab.producer(linger_ms=linger_ms, batch_size=batch_size)
    for _ in range(3):
        lab.elsewhere(producer, lambda: producer.send("t", b"one by one").result())
    for _ in range(100):
        producer.send("t", b"at once")
    lab.advance(linger_ms / 1000)
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(b"".join(bytes(request.records) for request in lab.connection.requests))
    dump = run_here("log", "dump", "--files", str(segment)).stdout
    assert BATCH.findall(dump) == [("0", "0"), ("1", "1"), ("2", "2"), ("3", "102")]
    producer._sender.stop()
