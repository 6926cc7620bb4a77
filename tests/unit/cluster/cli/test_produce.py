"""Lines on their way: each is acknowledged or refused by its number, none waits for another."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from raylog.cluster.cli import produce
from raylog.cluster.cli.interrupts import Interrupts
from raylog.cluster.cli.lines import Row, from_json
from raylog.cluster.cli.produce import Sending
from raylog.cluster.client.producer import Producer
from raylog.storage.errors import InvalidRecord
from raylog.storage.testing.waiting import wait_for
from tests.harness.connections import FakeConnection

NEVER_EMPTY = open(os.devnull, "rb")  # noqa: SIM115  # something to read, always


@pytest.fixture
def connection() -> FakeConnection:
    made = FakeConnection()
    made.create("t", 1)
    return made


@pytest.fixture
def sending(connection: FakeConnection) -> Iterator[Sending]:
    producer = Producer(connection, linger_ms=0, retry_backoff_ms=1)
    yield Sending(producer, "t", Row(None), is_shown=False)
    producer.close()


class Source:
    """An input that comes in these pieces; a number among them is a signal."""

    def __init__(self, *pieces: bytes | int) -> None:
        self.pieces = list(pieces)

    def fileno(self) -> int:
        return NEVER_EMPTY.fileno()

    def read1(self, _: int) -> bytes:
        piece = self.pieces.pop(0) if self.pieces else b""
        while self.pieces and isinstance(self.pieces[0], int):
            signal.raise_signal(self.pieces.pop(0))  # type: ignore[arg-type]
        assert isinstance(piece, bytes)
        return piece


def send(sending: Sending, *pieces: bytes | int, parse: Any = Row) -> int:
    """Send an input to its end; returns the exit status of a signal."""
    source: Any = Source(*pieces)
    with Interrupts() as interrupts:
        produce._send_all(sending, source, parse, interrupts)
        produce._finish(sending, interrupts)
        return interrupts.exit_status


def test_lines_may_come_in_pieces_and_the_last_one_needs_no_end(
    sending: Sending, connection: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    assert send(sending, b"o", b"ne\ntwo\r\n\nth", b"ree") == 0
    assert connection.values() == [b"one", b"two", b"", b"three"]
    assert capsys.readouterr().err == "4 records acknowledged\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_input_and_what_was_read_whole_is_sent(
    sending: Sending,
    connection: FakeConnection,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    assert send(sending, b"one\ntwo\nthr", number, b"ee\n") == 128 + number
    assert connection.values() == [b"one", b"two"]
    assert capsys.readouterr().err == "2 records acknowledged\n"


def test_a_refused_line_ends_the_input_and_is_named(
    sending: Sending, connection: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = b'{"value": "one"}\n \n{"value": 2}\n{"value": "three"}\n'
    sending.is_json = True
    send(sending, lines, parse=from_json)
    assert connection.values() == [b"one"]
    refused, count = capsys.readouterr().err.splitlines()
    assert refused.startswith("error: line 3 was refused: value is neither")
    assert count == "1 record acknowledged"


def test_lines_that_the_log_refuses_are_named_too(
    sending: Sending, connection: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.create("t", 1, max_message_bytes=200)
    connection.topics["t"].told_max_bytes = 1 << 20
    send(sending, b"one\n" + b"x" * 300 + b"\n" + b"y" * 300 + b"\nfour\n")
    assert connection.values() == [b"one", b"four"]
    refused, count = capsys.readouterr().err.splitlines()
    assert refused.startswith("error: lines 2-3 were refused: ")
    assert count == "2 records acknowledged"


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    with pytest.raises(InvalidRecord, match="more than 100 bytes"):
        list(produce._lines(iter([b"one\n", *[b"x" * 60] * 2]), 100))


def test_records_that_nobody_knows_about_are_named(
    connection: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.faults.extend(["hangs"] * 5)
    producer = Producer(connection, linger_ms=0, delivery_timeout_ms=60_000)
    sending = Sending(producer, "t", Row(None), is_shown=False)
    # the second signal comes while the end waits for the partition
    with Interrupts() as interrupts:
        source: Any = Source(b"one\n", signal.SIGINT)
        produce._send_all(sending, source, Row, interrupts)
        signal.raise_signal(signal.SIGTERM)
        produce._finish(sending, interrupts)
    unknown, count = capsys.readouterr().err.splitlines()
    assert unknown.startswith("error: line 1: no answer came, so it is not known whether it was")
    assert count == "0 records acknowledged"


def test_lines_whose_time_is_over_without_an_answer_are_not_called_refused(
    connection: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.faults.append("hangs")
    producer = Producer(connection, linger_ms=0, delivery_timeout_ms=200, request_timeout_ms=200)
    sending = Sending(producer, "t", Row(None), is_shown=False)
    send(sending, b"one\n")
    unknown, count = capsys.readouterr().err.splitlines()
    assert unknown.startswith("error: line 1: no answer came, so it is not known whether it was")
    assert (count, sending.has_failed) == ("0 records acknowledged", True)


def test_lines_that_were_not_sent_when_the_command_ended_are_told_apart(
    connection: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.faults.extend(["hangs"] * 5)
    producer = Producer(connection, linger_ms=0, delivery_timeout_ms=60_000)
    sending = Sending(producer, "t", Row(None), is_shown=False)
    with Interrupts() as interrupts:
        sending.send(1, b"one", Row)
        wait_for(lambda: bool(connection.held), 10, "the first line is on its way")
        sending.send(2, b"two", Row)
        sending.send(3, b"three", Row)
        signal.raise_signal(signal.SIGTERM)
        produce._finish(sending, interrupts)
    unknown, unsent, _ = capsys.readouterr().err.splitlines()
    assert unknown.startswith("error: line 1: no answer came")
    assert unsent == "error: lines 2-3: not sent, since the command ended before"


def test_lines_whose_turn_did_not_come_in_time_were_not_sent(
    connection: FakeConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.faults.extend(["hangs"] * 5)
    now_s = 1000.0
    producer = Producer(connection, clock=lambda: now_s, linger_ms=0, delivery_timeout_ms=60_000)
    sending = Sending(producer, "t", Row(None), is_shown=False)
    with Interrupts() as interrupts:
        sending.send(1, b"one", Row)
        wait_for(lambda: bool(connection.held), 10, "the first line is on its way")
        sending.send(2, b"two", Row)
        sending.send(3, b"three", Row)
        now_s += 60
        produce._finish(sending, interrupts)
    unknown, unsent, _ = capsys.readouterr().err.splitlines()
    assert unknown.startswith("error: line 1: no answer came")
    assert unsent == "error: lines 2-3: not sent within delivery.timeout.ms; send again"


def test_options_say_what_holds_for_all_records(
    sending: Sending, connection: FakeConnection
) -> None:
    sending.given = Row(None, headers=(("h", None),), timestamp=7)
    sending.ignores_partition = True
    line = b'{"value": "v", "key": "k", "headers": [["h", "x"]], "partition": 5, "timestamp": 3}\n'
    send(sending, line, parse=from_json)
    (record,) = connection.records()
    assert record[1:] == (7, b"k", b"v", (("h", b"x"), ("h", None)))


def test_offsets_are_printed_in_the_order_of_the_lines(
    sending: Sending, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    sending.is_shown = True
    for number, line in enumerate([b"a", b"b"], 1):
        sending.send(number, line, Row)
    sending.producer.flush()
    sending.settle()
    assert capsysbinary.readouterr().out == b"line\tpartition\toffset\n1\t0\t0\n2\t0\t1\n"


def test_options_for_text_are_refused_for_json() -> None:
    assert produce._parser(produce.Input.json, None, None, None) is from_json
    assert produce._parser(produce.Input.text, None, None, None) is Row
    keyed = produce._parser(produce.Input.text, None, ":", None)(b"k:v")
    assert (keyed.key, keyed.value) == (b"k", b"v")
    for given in [("k", None, None), (None, ":", None), (None, None, "")]:
        with pytest.raises(typer.BadParameter, match="for --format text"):
            produce._parser(produce.Input.json, *given)
