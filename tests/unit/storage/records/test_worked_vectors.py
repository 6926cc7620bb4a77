"""Batches worked out byte by byte from Kafka's sources, and Kafka's varint table."""

from collections.abc import Callable

import pytest
from crc32c import crc32c

from raylog.storage.records.batch import check_crc, empty_batch, read_header
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import HEADER_SIZE

T0 = 1_700_000_000_000

BATCH_A = """
    0000000000000064 0000005a 00000007 02 41bdd73d 0000 00000002 0000018bcfe56800 0000018bcfe56805
    ffffffffffffffff ffff ffffffff 00000003
    14 00 00 00 04 6b31 04 7631 00
    28 00 0a 02 01 0a 68656c6c6f 04 04 6831 02 78 04 6832 01
    10 00 06 04 04 6b32 01 00"""
TRANSACTIONAL = """
    0000000000000000 0000003a ffffffff 02 366bc9af 0010 00000000 0000018bcfe56800 0000018bcfe56800
    0000000000001092 0003 00000011 00000001 10000000026102 3100"""
COMMIT = """
    00000000000000c8 00000042 00000007 02 8630596e 0030 00000000 0000018bcfe56800 0000018bcfe56800
    0000000000001092 0003 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000005 00"""
TOMBSTONES = """
    0000000000000064 0000003d 00000007 02 94563a8a 0040 00000002 0000018bd50bc400 0000018bcfe56803
    ffffffffffffffff ffff ffffffff 00000001 16 00 f9efb252 04 04 6b32 01 00"""
EMPTY = """
    0000000000000064 00000031 00000007 02 a3e4b59b 0000 00000002 ffffffffffffffff 0000018bcfe56805
    0000000000001092 0003 00000011 00000000"""


def encoded() -> dict[str, bytearray]:
    txn = {"producer_id": 4242, "producer_epoch": 3, "transactional": True}
    marker = {**txn, "leader_epoch": 7, "control": True}
    return {
        BATCH_A: encode_records(
            [
                (T0, b"k1", b"v1", ()),
                (T0 + 5, None, b"hello", [("h1", b"x"), ("h2", None)]),
                (T0 + 3, b"k2", None, ()),
            ],
            base_offset=100,
            leader_epoch=7,
        ),
        TRANSACTIONAL: encode_records([(T0, b"a", b"1", ())], base_sequence=17, **txn),  # type: ignore[arg-type]
        COMMIT: encode_records(
            [(T0, bytes.fromhex("00000001"), bytes.fromhex("000000000005"), ())],
            base_offset=200,
            **marker,  # type: ignore[arg-type]
        ),
        TOMBSTONES: encode_records(
            [(T0 + 3, b"k2", None, ())],
            base_offset=100,
            leader_epoch=7,
            offsets=[102],
            delete_horizon_ms=T0 + 86_400_000,
        ),
    }


@pytest.mark.parametrize("vector", [BATCH_A, TRANSACTIONAL, COMMIT, TOMBSTONES])
def test_a_batch_is_encoded_to_the_vector(vector: str) -> None:
    assert encoded()[vector].hex() == bytes.fromhex(vector).hex()


def test_an_abort_marker_differs_in_key_and_offset() -> None:
    batch = encode_records(
        [(T0, bytes(4), bytes.fromhex("000000000005"), ())],
        base_offset=201,
        leader_epoch=7,
        producer_id=4242,
        producer_epoch=3,
        transactional=True,
        control=True,
    )
    assert read_header(batch).crc == 0x720E8F26


def test_an_empty_batch_is_the_vector() -> None:
    header = read_header(bytes.fromhex(EMPTY))
    assert empty_batch(header).hex() == bytes.fromhex(EMPTY).hex()
    assert decode_records(bytes.fromhex(EMPTY)) == []


@pytest.mark.parametrize("vector", [BATCH_A, TRANSACTIONAL, COMMIT, TOMBSTONES, EMPTY])
def test_a_vector_has_its_crc(vector: str) -> None:
    batch = bytes.fromhex(vector)
    check_crc(batch, 0, read_header(batch))


def test_the_vectors_decode_to_their_records() -> None:
    assert decode_records(bytes.fromhex(BATCH_A)) == [
        (100, T0, b"k1", b"v1", ()),
        (101, T0 + 5, None, b"hello", (("h1", b"x"), ("h2", None))),
        (102, T0 + 3, b"k2", None, ()),
    ]
    assert decode_records(bytes.fromhex(TOMBSTONES)) == [(102, T0 + 3, b"k2", None, ())]
    assert decode_records(bytes.fromhex(COMMIT)) == []
    assert [record.value for record in decode_records(bytes.fromhex(COMMIT), control=True)] == [
        bytes.fromhex("000000000005")
    ]


def test_crc32c_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


VARINTS = {
    0: "00", -1: "01", 1: "02", -2: "03", 63: "7e", -64: "7f", 64: "8001", -65: "8101", 300: "d804",
    8191: "fe7f", -8192: "ff7f", 8192: "808001", -8193: "818001", 1048575: "feff7f",
    134217727: "feffff7f", 134217728: "8080808001", 2147483647: "feffffff0f",
    -2147483648: "ffffffff0f", 2147483648: "8080808010", T0: "80a0abfef962", -86399997: "f9efb252",
    2**63 - 1: "feffffffffffffffff01", -(2**63): "ffffffffffffffffff01",
}  # fmt: skip


@pytest.mark.parametrize(("number", "expected"), VARINTS.items())
def test_a_timestamp_delta_is_kafkas_varint_and_reads_back(number: int, expected: str) -> None:
    timestamp = -1 if number < 0 else T0
    horizon = (timestamp - number + 2**63) % 2**64 - 2**63
    batch = encode_records([(timestamp, None, None, ())], delete_horizon_ms=horizon)
    delta = bytes.fromhex(expected)
    assert batch[HEADER_SIZE + 2 : HEADER_SIZE + 2 + len(delta)].hex() == expected
    assert len(batch) == HEADER_SIZE + 2 + len(delta) + 4
    assert decode_records(batch)[0].timestamp == timestamp


@pytest.mark.parametrize(
    ("number", "expected"), [(n, v) for n, v in VARINTS.items() if 0 <= n < 2**31]
)
def test_an_offset_delta_is_kafkas_varint_and_reads_back(number: int, expected: str) -> None:
    batch = encode_records([(T0, None, None, ())], offsets=[number])
    assert batch[HEADER_SIZE + 3 : -3].hex() == expected
    assert decode_records(batch)[0].offset == number


@pytest.mark.parametrize("delta", ["ff" * 10 + "01", "80" * 11])
def test_an_overlong_varint_is_corrupt(delta: str, batch_of: Callable[..., bytearray]) -> None:
    body = bytes(1) + bytes.fromhex(delta) + bytes.fromhex("00010100")
    with pytest.raises(Exception, match="corrupt"):
        decode_records(batch_of(bytes([2 * len(body)]) + body))
