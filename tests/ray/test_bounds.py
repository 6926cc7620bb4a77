"""More callers than a partition takes on: refused by name, served all the same."""

import threading

import pytest
import ray

from raylog.actors.errors import TooManyPolls
from raylog.actors.partition.bounds import PARKED_FETCHES
from raylog.actors.runtime.calls import Call
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
            Call(reference, topic).get()
    assert ray.get(handle.fetch.remote(0), timeout=30).records is None
    assert (
        ray.get(
            handle.append.remote(bytes(encode_records([(1, None, b"x", ())]))), timeout=30
        ).base_offset
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

    readers = [
        threading.Thread(target=read, args=(number,), daemon=True) for number in range(count)
    ]
    for reader in readers:
        reader.start()
    with broker.producer() as producer:
        for value in (b"a", b"b"):
            producer.send(topic, value, partition=0).result()
    for reader in readers:
        reader.join(90)
    assert found == [[b"a", b"b"]] * count
