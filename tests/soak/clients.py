"""What all worker processes share: ids and bytes of records, calls that are repeated while the
broker heals."""

import itertools
import random
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from raylog.actors.errors import TopicBusy
from raylog.actors.runtime.calls import CALL_TIMEOUT_S
from raylog.cluster.broker import Broker
from raylog.storage.errors import RaylogError
from tests.soak.history import NO_KEY, ProducerId, Surprise, Writer

Answer = TypeVar("Answer")

# How long the broker may take to heal before a worker gives up and says so.
PATIENCE_S = 300.0
RETRY_S = 0.2
# Each worker gives ids of a range of its own.
IDS_A_WORKER = 10**12
ID_HEADER = "id"

STOP_SENDING, STOP_READING = "stop-sending", "stop-reading"


class Worker:
    """One process's share of a run."""

    def __init__(self, broker: Broker, folder: Path, number: int, seed: int) -> None:
        self.broker, self.folder, self.name = broker, folder, f"w{number}"
        self.rng = random.Random(f"{seed}/{number}")
        self.ids = itertools.count(number * IDS_A_WORKER + 1)
        self._asked: Future[int] | None = None  # for a producer id
        self.writer = Writer(folder / f"{self.name}.history")

    def is_over(self, what: str) -> bool:
        return (self.folder / what).exists()

    def surprise(self, error: BaseException) -> None:
        """Take down an exception that no caller should see; it is a finding."""
        told = "".join(traceback.format_exception(error))
        print(told, flush=True)
        line = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        self.writer.write(Surprise(self.name, time.monotonic_ns(), line[:500]))

    def ask_for_producer_id(self) -> None:
        """Ask the Controller for one more id, and take down that which was asked for before.

        Returns at once: a Controller that is away holds nobody up.
        """
        if self._asked is not None:
            if not self._asked.done():
                return
            self._take_down(self._asked)
        self._asked = self.broker.connection().new_producer_id(timeout_s=CALL_TIMEOUT_S)

    def _take_down(self, answer: "Future[int]") -> None:
        try:
            given = answer.result()
        except RaylogError as error:
            if not may_pass(error):
                raise
            print(f"{self.name}: no producer id: {error}", flush=True)
            return
        self.writer.write(ProducerId(f"{self.name}.asks", given, time.monotonic_ns()))

    def patiently(self, call: Callable[[], Answer]) -> Answer:
        """Repeat a call that changes nothing, while it ends with an error that passes by itself."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call()
            except RaylogError as error:
                if not may_pass(error) or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_S)


def may_pass(error: RaylogError) -> bool:
    """Whether the same request may end well a little later."""
    return error.retriable or isinstance(error, TopicBusy)


def to_bytes(identity: int, padding: int) -> tuple[bytes | None, list[tuple[str, bytes | None]]]:
    """(value, headers) of a record; a tombstone, whose id is negative, carries it in a header."""
    if identity < 0:
        return None, [(ID_HEADER, b"%d" % identity)]
    return b"%d|" % identity + b"." * padding, []


def identity_of(value: bytes | None, headers: object) -> int:
    if value is None:
        return int(dict(headers)[ID_HEADER])  # type: ignore[call-overload]
    return int(value.partition(b"|")[0])


def key_of(key: bytes | None) -> int:
    return NO_KEY if key is None else int(key)
