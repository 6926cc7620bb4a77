"""A client's program, in its own language, which does what a test says.

Each program under ``programs/`` has one client of Kafka's protocol. It reads a *deed* a line from
its standard input, and writes what became of it as a line, all of them JSON::

    {"do": "offset", "topic": "orders", "partition": 0, "at": "latest"}     the test
    {"done": {"offset": 12}}                                                it is done
    {"failed": "UNKNOWN_TOPIC_OR_PART", "words": "..."}                     by the client's own name
    {"lacks": "it has no zstd"}                                             the client has no such
    {"progress": 150}                                                       before the answer

===================================================== ============================================
``hello``                                             ``version`` of the client
``metadata(topic)``                                   ``brokers``: how many; ``topics``;
                                                      ``leaders`` by partition
``produce(topic, codec, idempotent, largest,``        ``offsets`` of the records, in their order;
``records)``                                          ``largest``: bytes, the client's own limit
``consume(topic, places, count)``                     ``records``; ``places`` by partition: an
                                                      offset, or "earliest"; tells its progress
``offset(topic, partition, at)``                      ``offset`` at "earliest", "latest", or ms
``stream(topic, partitions, until)``                  sends the numbers 0, 1, ... until a file is
                                                      there, idempotently; ``acknowledged``,
                                                      ``failures``
``copy(source, target, group, id, count)``             ``copied``: so many records at least, as a
                                                      member of the group, in transactions of this
                                                      id; first one with a record ``aborted``,
                                                      which it aborts
``create_topic(topic, partitions, config)``,          nothing
``add_partitions(topic, total)``,
``alter_config(topic, config)``,
``delete_topic(topic)``
``topic_config(topic)``                               values by name
``delete_records(topic, partition, before)``          ``low``, the new first offset
===================================================== ============================================

A record is a ``Record``, with its bytes as base64, or null.
"""

import base64
import json
import queue
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# A busy machine starts a new process of a partition within a minute or two.
DEADLINE_S = 240.0
END_S = 10.0


class Failed(Exception):
    """The client's own error."""

    def __init__(self, name: str, words: str) -> None:
        super().__init__(name, words)
        self.name, self.words = name, words

    def __str__(self) -> str:
        return f"{self.name}: {self.words}"


class Lacks(Exception):
    """The client has no such deed; the text says why."""


@dataclass(frozen=True)
class Record:
    """A record as a client writes and reads it. ``offset`` is -1 before it is written."""

    partition: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


class Program:
    """The process of one client. It ends with ``close``, or when it does not answer in time."""

    def __init__(self, command: Sequence[str], errors: Path, cwd: Path | None = None) -> None:
        self._errors = errors
        with errors.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=cwd
            )
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, deed: str, *, deadline_s: float = DEADLINE_S, **fields: Any) -> Any:
        """What the deed gives. Raises Failed and Lacks; AssertionError if it is not in time."""
        self.begin(deed, **fields)
        return self.answer(deadline_s)

    def begin(self, deed: str, **fields: Any) -> None:
        """Say what is to be done, and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": deed, **fields}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self, deadline_s: float = DEADLINE_S) -> Any:
        """What the deed that has begun gives, as of ``ask``."""
        end = time.monotonic() + deadline_s
        while "progress" in (answer := self._line(end)):
            pass
        return self._result(answer)

    def reach(self, number: int, deadline_s: float = DEADLINE_S) -> int:
        """The progress of ``stream`` or ``consume``, once it is at least that number."""
        end = time.monotonic() + deadline_s
        reached = 0
        while reached < number:
            line = self._line(end)
            if "progress" not in line:
                self._result(line)
                raise AssertionError(f"it has ended: {line}")
            reached = line["progress"]
        return reached

    def _result(self, answer: dict[str, Any]) -> Any:
        if "failed" in answer:
            raise Failed(answer["failed"], answer["words"])
        if "lacks" in answer:
            raise Lacks(answer["lacks"])
        return answer["done"]

    def _line(self, end: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            self.close()
            raise AssertionError(f"no answer in time\n{self._said()}") from None
        if line is None:
            raise AssertionError(f"it ended: {self._process.wait(END_S)}\n{self._said()}")
        try:
            answer = json.loads(line)
        except ValueError:
            raise AssertionError(f"no JSON: {line!r}") from None
        assert isinstance(answer, dict)
        return answer

    def _said(self) -> str:
        return self._errors.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        with suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def to_json(record: Record) -> dict[str, Any]:
    return {
        "partition": record.partition,
        "key": _encoded(record.key),
        "value": _encoded(record.value),
        "timestamp": record.timestamp,
        "headers": [[name, _encoded(value)] for name, value in record.headers],
    }


def from_json(fields: dict[str, Any]) -> Record:
    return Record(
        partition=fields["partition"],
        key=_decoded(fields["key"]),
        value=_decoded(fields["value"]),
        timestamp=fields["timestamp"],
        headers=tuple((name, _decoded(value)) for name, value in fields["headers"] or ()),
        offset=fields["offset"],
    )


def _encoded(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
