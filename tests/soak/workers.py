"""The worker processes of a run: started, killed and replaced, told to end, waited for."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

# Those of Kafka are librdkafka's clients, by the same sockets.
ROLES = (
    *("produce", "produce", "kafka-produce"),
    *("consume", "consume", "kafka-consume"),
    *("group", "group"),
    *("transact", "change"),
)
SENDING, READING = ("produce", "kafka-produce", "transact"), ("consume", "kafka-consume", "group")
# Those whose rate a run sets.
PACED = ("produce", "kafka-produce")
# The last reads' number; it is below those of all workers.
READER = 0
# One that makes topics is killed only with all of Ray: then the next one begins without its topics.
MORTAL = (*SENDING, *READING)
END_S = 400.0


class Running(NamedTuple):
    """One process; its number names its files."""

    number: int
    role: str
    process: "subprocess.Popen[bytes]"


class Workers:
    """Use it as a context manager: at its end nobody is left."""

    def __init__(self, folder: Path, told: Callable[[], Mapping[str, Any]]) -> None:
        """``told``: what they must know; Ray's address may be another one after a while."""
        self._folder, self._told, self._last = folder, told, READER
        self._running: list[Running] = []
        self._abandoned: list[Running] = []
        self._lock = threading.Lock()  # ``dead`` is asked in another thread

    def __enter__(self) -> Self:
        self.start_again()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_all()

    def abandon(self) -> None:
        """Ray has ended: from now on some may end by themselves, and all must be killed."""
        with self._lock:
            self._abandoned += self._running
            self._running.clear()

    def kill_all(self) -> None:
        """SIGKILL all, also who makes topics: Ray has ended, and nobody outlives it."""
        self.abandon()
        for worker in self._abandoned:
            worker.process.kill()
        for worker in self._abandoned:
            worker.process.wait()
        self._abandoned.clear()

    def start_again(self) -> None:
        """Start one of each role."""
        assert not self._running
        (self._folder / "run.json").write_text(json.dumps(self._told()))
        with self._lock:
            for role in ROLES:
                self._start(role)

    def _start(self, role: str) -> None:
        self._last += 1
        with (self._folder / f"w{self._last}.log").open("wb") as said:
            command = [
                sys.executable,
                "-m",
                "tests.soak.worker",
                str(self._folder),
                str(self._last),
                role,
            ]
            process = subprocess.Popen(command, stdout=said, stderr=said)
        self._running.append(Running(self._last, role, process))

    def are_ready(self) -> bool:
        """Whether all have connected to the broker."""
        return all(
            (self._folder / f"w{worker.number}.history").exists() for worker in self._running
        )

    def kill_one(self, pick: float) -> str:
        """SIGKILL one that may be killed, and start another in its place; returns who it was."""
        with self._lock:
            mortals = [worker for worker in self._running if worker.role in MORTAL]
            victim = mortals[int(pick * len(mortals))]
            self._running.remove(victim)
            victim.process.kill()
            victim.process.wait()
            self._start(victim.role)
        return f"w{victim.number} ({victim.role})"

    def dead(self) -> list[str]:
        """Those that have ended by themselves."""
        with self._lock:
            return [
                f"w{worker.number}" for worker in self._running if worker.process.poll() is not None
            ]

    def end(self, what: str, roles: Iterable[str]) -> list[str]:
        """Tell those of some roles to end, and wait; returns what was wrong with them."""
        (self._folder / what).touch()
        deadline, problems = time.monotonic() + END_S, []
        for number, _, process in [worker for worker in self._running if worker.role in roles]:
            try:
                code = process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                problems.append(f"worker {number} did not end: see w{number}.log")
                continue
            if code:
                problems.append(f"worker {number} ended with {code}: see w{number}.log")
        return problems
