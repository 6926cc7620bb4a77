"""The memory of a producer whose partitions hang: bounded by ``buffer.memory`` and a little.

A process of its own sends until ``send`` finds no room. Private memory is compared with that before
the first record. Once nobody keeps what ``send`` returns, and once every record has a callback.
"""

import os
import subprocess
import sys
from concurrent.futures import Future
from typing import Any

from benchmarks.clients_sending import TOPIC, VALUE, AtOnce
from benchmarks.measure import Figure
from raylog.actors.errors import RequestTimedOut
from raylog.cluster.client.producer import Producer
from tests.harness.nodes import private_bytes

MB = 1 << 20
BUFFER_MB, MORE_MB = 32, 10


class Hanging(AtOnce):
    """A connection whose partitions answer nothing."""

    def __init__(self) -> None:
        self.held: list[Future[Any]] = []

    def produce(self, request: Any, *, timeout_s: float) -> "Future[Any]":
        self.held.append(Future())
        return self.held[-1]


def run(quick: bool = False) -> list[dict[str, Any]]:
    return [_figure("nobody waits"), _figure("callbacks")]


def _figure(how: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.clients_memory", how]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / MB
    most = BUFFER_MB + MORE_MB
    what = f"a producer's memory, its partitions hang, {how}"
    limit = "buffer.memory + 10 MB"
    return Figure(what, grown, "MB", limit, most, grown / most, "under 1").as_dict()


def _grown(how: str) -> int:
    """Bytes of private memory, from the first record to the last that found room."""
    producer = Producer(Hanging(), buffer_memory=BUFFER_MB * MB, max_block_ms=1)
    producer._taking.topic(TOPIC)
    before, sent = private_bytes(os.getpid()), 0
    try:
        while True:
            receipt = producer.send(TOPIC, VALUE)
            if how == "callbacks":
                receipt.add_done_callback(_nothing)
            sent += 1
    except RequestTimedOut:
        grown = private_bytes(os.getpid()) - before
    assert sent > 10_000
    return grown


def _nothing(_: object) -> None:
    pass


if __name__ == "__main__":
    print(_grown(sys.argv[1]), flush=True)
    os._exit(0)  # what hangs is not waited for
