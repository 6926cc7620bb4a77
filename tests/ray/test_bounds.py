"""More callers than a partition takes on: refused by name, served all the same."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import ray
from ray.exceptions import PendingCallsLimitExceeded

from raylog.actors.bounds import CALLS_OF_A_PROCESS, PARKED_FETCHES
from raylog.actors.messages import TooManyCalls, TooManyPolls
from raylog.actors.runtime import send, wait_for
from raylog.cluster.broker import Broker
from raylog.storage.records.encode import encode_records

MORE = 20


def test_more_polls_than_places_are_refused_while_appends_and_fetches_are_served(
    broker: Broker, topic: str
) -> None:
    handle = broker.partition(topic, 0)
    polls = [handle.poll.remote(0, 1000, 1, 60_000) for _ in range(PARKED_FETCHES + MORE)]
    refused, parked = ray.wait(polls, num_returns=MORE, timeout=60)
    assert (len(refused), len(parked)) == (MORE, PARKED_FETCHES)
    for reference in refused:
        with pytest.raises(TooManyPolls):
            wait_for(reference, topic)
    assert ray.get(handle.fetch.remote(0), timeout=30).records is None
    assert (
        ray.get(handle.append.remote(bytes(encode_records([(1, None, b"x", ())]))), timeout=30).base_offset
        == 0
    )
    assert all(found.records is not None for found in ray.get(parked, timeout=60))


def test_more_consumers_than_places_all_read_on(broker: Broker, topic: str) -> None:
    count = PARKED_FETCHES + MORE
    consumers = [broker.consumer(topic, partitions=[0], from_="earliest") for _ in range(count)]
    found: list[list[bytes | None]] = [[] for _ in consumers]

    def read(number: int) -> None:
        while len(found[number]) < 2:
            found[number] += [record.value for record in consumers[number].poll(500)]

    readers = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(count)]
    for reader in readers:
        reader.start()
    with broker.producer() as producer:
        for value in (b"a", b"b"):
            producer.send(topic, value, partition=0).result()
    for reader in readers:
        reader.join(90)
    assert found == [[b"a", b"b"]] * count


def test_a_wild_caller_fails_by_name(broker: Broker, topic: str) -> None:
    handle = broker.partition(topic, 1)
    payload = np.frombuffer(encode_records([(1, None, b"x", ())]), np.uint8)
    sent: list[Any] = []

    def call_for_ever(call: Callable[[], Any]) -> None:
        while len(sent) < 100 * CALLS_OF_A_PROCESS:
            sent.append(call())

    with pytest.raises(PendingCallsLimitExceeded):
        call_for_ever(lambda: handle.poll.remote(0, 1000, 1, 20_000))
    assert len(sent) >= CALLS_OF_A_PROCESS
    with pytest.raises(TooManyCalls, match=topic):
        call_for_ever(lambda: send(handle.append, payload, what=topic))
    ray.wait(sent, num_returns=len(sent), timeout=60)
