"""Transactional ids as records: Kafka's bytes, and what is raylog's own in them."""

from dataclasses import replace

import pytest

from raylog.actors.coordinators.transactions.records import (
    read,
    transaction_key,
    transaction_record,
)
from raylog.actors.coordinators.transactions.transaction import VERSION_2, State, Transaction
from raylog.storage.errors import InvalidRecord
from raylog.storage.names import TopicPartition
from raylog.storage.schemas.transactions import TRANSACTION_VALUE

T0 = 1_700_000_000_000
KEY = bytes.fromhex("0000 0002 7478")
EMPTY = Transaction(
    transactional_id="tx",
    producer_id=1000,
    epoch=0,
    timeout_ms=60_000,
    state=State.EMPTY,
    updated_ms=T0,
)
BOTH = frozenset({TopicPartition("t", 1), TopicPartition("t", 0)})
ONGOING = replace(
    EMPTY, state=State.ONGOING, updated_ms=T0 + 5, start_ms=T0 + 5, partitions=BOTH, version=2
)
COMMITTED = replace(
    ONGOING,
    state=State.PREPARE_COMMIT,
    updated_ms=T0 + 9,
    epoch=1,
    previous_producer_id=1000,
)
VECTORS = [
    (
        EMPTY,
        "0001 00000000000003e8 0000 0000ea60 00 00 0000018bcfe56800 ffffffffffffffff 00",
    ),
    (
        ONGOING,
        "0001 00000000000003e8 0000 0000ea60 01 02 0274 03 00000000 00000001 00 "
        "0000018bcfe56805 0000018bcfe56805 01 02 02 0002",
    ),
    (
        COMMITTED,
        "0001 00000000000003e8 0001 0000ea60 02 02 0274 03 00000000 00000001 00 "
        "0000018bcfe56809 0000018bcfe56805 02 00 08 00000000000003e8 02 02 0002",
    ),
]


@pytest.mark.parametrize(("transaction", "written"), VECTORS)
def test_the_bytes_are_kafkas(transaction: Transaction, written: str) -> None:
    record = transaction_record(transaction)
    assert record.key == KEY
    assert record.value == bytes.fromhex(written)
    assert read(record.key, record.value) == ("tx", transaction)


def test_what_older_kafkas_write_is_read() -> None:
    empty = "0000 00000000000003e8 0000 0000ea60 00 ffffffff 0000018bcfe56800 ffffffffffffffff"
    assert read(KEY, bytes.fromhex(empty)) == ("tx", EMPTY)
    ongoing = (
        "0000 00000000000003e8 0000 0000ea60 01 00000001 000174 00000002 00000000 00000001 "
        "0000018bcfe56805 0000018bcfe56805"
    )
    assert read(KEY, bytes.fromhex(ongoing)) == ("tx", replace(ONGOING, version=1))
    completed = "0000 00000000000003e8 0000 0000ea60 04 00000000 0000018bcfe5680c 0000018bcfe56805"
    _, known = read(KEY, bytes.fromhex(completed))
    assert known is not None
    assert (known.state, known.partitions) == (State.COMPLETE_COMMIT, frozenset())


def test_every_field_is_there_when_it_is_read_again() -> None:
    full = Transaction(
        transactional_id="tx",
        producer_id=7,
        epoch=32_767,
        timeout_ms=1,
        state=State.PREPARE_ABORT,
        updated_ms=5,
        partitions=BOTH | {TopicPartition("a", 9)},
        start_ms=4,
        last_epoch=32_766,
        previous_producer_id=6,
        next_producer_id=8,
        version=VERSION_2,
    )
    prepared = replace(ONGOING, is_prepared=True, last_epoch=0, epoch=1)
    for transaction in (full, prepared, replace(EMPTY, last_epoch=3, epoch=4)):
        record = transaction_record(transaction)
        assert read(record.key, record.value) == ("tx", transaction)


def test_what_is_raylogs_own_is_passed_over_by_who_does_not_know_it() -> None:
    mine = transaction_record(replace(ONGOING, is_prepared=True, last_epoch=0, epoch=1)).value
    assert mine is not None
    _, value = TRANSACTION_VALUE.read_versioned(mine)
    assert value["unknown_tags"] == {10_000: b"\0\0", 10_001: b""}
    known = {name: content for name, content in value.items() if name != "unknown_tags"}
    plain = transaction_record(replace(ONGOING, epoch=1)).value
    assert plain is not None
    assert known == TRANSACTION_VALUE.read_versioned(plain)[1]


def test_a_tombstone_has_only_a_key() -> None:
    assert transaction_key("tx") == KEY
    assert read(KEY, None) == ("tx", None)


@pytest.mark.parametrize("state", [6, 7, -1])
def test_a_state_that_is_in_no_record_is_refused(state: int) -> None:
    value = bytearray.fromhex(VECTORS[0][1])
    value[16] = state & 0xFF
    with pytest.raises(InvalidRecord, match="no record has"):
        read(KEY, bytes(value))


def test_only_an_open_transaction_is_prepared() -> None:
    record = transaction_record(replace(ONGOING, is_prepared=True))
    assert record.value is not None
    value = bytearray(record.value)
    value[16] = State.PREPARE_ABORT.value
    _, known = read(KEY, bytes(value))
    assert known is not None
    assert not known.is_prepared


def test_kafkas_version_1_is_one_of_records_and_not_of_transactions() -> None:
    value = bytearray.fromhex(VECTORS[1][1])
    assert value[-1] == VERSION_2
    value[-1] = 1
    _, known = read(KEY, bytes(value))
    assert known is not None
    assert known.version == 1


@pytest.mark.parametrize("content", [b"", b"\0", b"\0\0\0"])
def test_an_epoch_before_of_another_size_is_passed_over(content: bytes) -> None:
    record = transaction_record(replace(ONGOING, last_epoch=0, epoch=1))
    assert record.value is not None
    version, value = TRANSACTION_VALUE.read_versioned(record.value)
    value["unknown_tags"][10_000] = content
    _, known = read(KEY, TRANSACTION_VALUE.write_versioned(value, version))
    assert known == replace(ONGOING, epoch=1)
