"""A broker under one client: produce and fetch, records/s and MB/s, and the waits; beside Kafka and Ray's queue.

Every cell is measured in turn with a real Kafka on the same machine, where one can be had (``tests/kafka`` knows
how), driven by confluent-kafka with the same linger.ms and batch.size. ``fsynced`` is ``flush.messages=1`` on the
topic, in both. Clients and brokers share the machine's cores.

One send at a time waits for its acknowledgement, then pauses, so that nothing queues. End to end is from before
``send`` to after the ``poll`` that brings the record, in a thread of the same process.
"""

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from ray.util.queue import Queue

import raylog
from benchmarks.measure import alternate, rate
from raylog.cluster.broker import Broker

PARTITIONS = (1, 4, 16)
SIZES = {"100 B": 100, "1 KB": 1000}
LINGER_MS, BATCH_BYTES = 5, 1_000_000
PAUSE_S = 0.004
FSYNCED = {"flush.messages": 1}


class Amount(NamedTuple):
    """How much is measured."""

    record_bytes: int  # of values, in one run of a throughput
    waits: int
    rounds: int


FULL = Amount(30_000_000, 200, 3)
QUICK = Amount(2_000_000, 30, 1)


class System(Protocol):
    """A broker that is measured; each with its own client."""

    name: str

    def create(self, topic: str, partitions: int, config: dict[str, Any]) -> None: ...

    def delete(self, topic: str) -> None: ...

    def produce(self, topic: str, values: Sequence[bytes]) -> None:
        """Returns when all are acknowledged."""

    def fetch(self, topic: str, count: int) -> None:
        """Read the last ``count`` records."""

    def sender(self, topic: str) -> "_Sender":
        """Sends one record and waits for its acknowledgement."""

    def poller(self, topic: str) -> "_Poller":
        """A consumer at the topic's end."""


class _Sender(Protocol):
    def __call__(self, value: bytes) -> None: ...

    def close(self) -> None: ...


class _Poller(Protocol):
    def __call__(self) -> list[bytes]: ...

    def close(self) -> None: ...
