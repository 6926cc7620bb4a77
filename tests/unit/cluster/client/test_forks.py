"""What a process gets that is forked off from one with clients: a name for it, at once."""

import subprocess
import sys

from raylog.storage.testing.waiting import DEADLINE_S
from tests.harness.paths import ROOT

# The child inherits a producer with a record on its way and one that waits, and a consumer.
SCRIPT = """
import os, sys
from raylog.cluster.client.producer import Producer
from raylog.errors import ForkedProcess
from tests.harness import connections, consuming

connection = connections.FakeConnection()
connection.create()
connection.faults.append("hangs")
hour_ms = 3_600_000
producer = Producer(
    connection, linger_ms=0, request_timeout_ms=hour_ms, delivery_timeout_ms=hour_ms
)
sent = producer.send("t", b"hangs", partition=0)
while not connection.held:
    pass
producer.send("t", b"waits", partition=0)
reading = consuming.FakeConnection(t=1)
consumer = reading.consumer("t")
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    connection.answer_held()
    producer.close()
    print("parent:", connection.values(), consumer.poll(1))
    sys.exit()
def send_own():
    return Producer(connection, linger_ms=0).send("t", b"own", partition=1).result().offset

for name, call in (
    ("send", lambda: producer.send("t", b"x")),
    ("flush", producer.flush),
    ("result", sent.result),
    ("poll", consumer.poll),
    ("close", producer.close),
    ("own", send_own),
):
    try:
        print(name, call())
    except ForkedProcess as error:
        print(name, "ForkedProcess", error.what)
"""


def test_a_forked_process_hears_at_once_that_its_parents_clients_are_not_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "send ForkedProcess producer",
        "flush ForkedProcess producer",
        "result ForkedProcess producer",
        "poll ForkedProcess consumer",
        "close None",
        "own 0",
        "parent: [b'hangs', b'waits'] []",
    ], done.stderr
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_that_look_after_requests_are_begun_anew_in_a_forked_process() -> None:
    script = """
import os
from concurrent.futures import Future
from raylog.cluster.client import background, deadlines
from raylog.errors import RequestTimedOut

def use():
    future, worked = Future(), Future()
    deadlines.DEADLINES.watch(future, "an answer", 0.001)
    background.BACKGROUND.run(lambda: worked.set_result("done"))
    print(type(future.exception(60)).__name__, worked.result(60), flush=True)

use()
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    use()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.stdout.splitlines() == ["RequestTimedOut done"] * 2, done.stderr
