"""Batches that Kafka's own library wrote
(tests/golden/kafka-clients-3.9.1-batches/PROVENANCE.md)."""

from pathlib import Path

import pytest

from raylog.storage.records.batch import check_crc, iter_batches, read_header
from raylog.storage.records.compression import CODECS
from raylog.storage.records.decode import decode_records, decode_table
from raylog.storage.testing.logs import encoded_again
from tests.harness.paths import GOLDEN

FOLDER = GOLDEN / "kafka-clients-3.9.1-batches"
FILES = sorted(FOLDER.glob("m2-*.bin"))
T0 = 1_700_000_000_000
TYPES = ("CREATE_TIME", "LOG_APPEND_TIME")


def five_records(timestamp_type: str) -> list[tuple]:
    return [
        (
            100 + 2 * i,
            T0 + i if timestamp_type == "CREATE_TIME" else T0 + 99,
            None if i == 1 else b"k%d" % i,
            None if i == 3 else b"v%d" % i * 20,
            (("h", b"\x01"), ("n", None)) if i == 2 else (),
        )
        for i in range(5)
    ]


def test_the_files_are_there() -> None:
    assert len(FILES) == 15


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_one_batch_with_its_crc(path: Path) -> None:
    batch = path.read_bytes()
    ((position, header),) = iter_batches(batch)
    assert (position, header.size_bytes) == (0, len(batch))
    check_crc(batch, 0, header)


@pytest.mark.parametrize("timestamp_type", TYPES)
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_and_timestamp_type_decodes(codec: str, timestamp_type: str) -> None:
    batch = (FOLDER / f"m2-{codec}-{timestamp_type}.bin").read_bytes()
    expected = five_records(timestamp_type)
    assert decode_records(batch) == expected
    columns = decode_table(batch).to_pydict()
    assert columns["timestampType"] == [TYPES.index(timestamp_type)] * 5
    headers = [tuple((h["key"], h["value"]) for h in row) for row in columns["headers"]]
    rows = zip(
        columns["offset"],
        columns["timestamp"],
        columns["key"],
        columns["value"],
        headers,
        strict=True,
    )
    assert list(rows) == expected


@pytest.mark.parametrize(
    "name",
    [
        "none-CREATE_TIME",
        "none-LOG_APPEND_TIME",
        "idem-seqwrap",
        "empty-txn",
        "control-abort",
        "control-commit",
    ],
)
def test_an_uncompressed_batch_encodes_to_the_same_bytes(name: str) -> None:
    batch = (FOLDER / f"m2-{name}.bin").read_bytes()
    assert encoded_again(batch).hex() == batch.hex()


def test_headers_say_who_produced() -> None:
    wrapped = read_header((FOLDER / "m2-idem-seqwrap.bin").read_bytes())
    assert (wrapped.producer_id, wrapped.base_sequence, wrapped.last_sequence) == (
        1000,
        2**31 - 2,
        0,
    )
    transactional = read_header((FOLDER / "m2-txn-lz4.bin").read_bytes())
    assert (transactional.is_transactional, transactional.codec) == (True, CODECS["lz4"])
    empty = read_header((FOLDER / "m2-empty-txn.bin").read_bytes())
    assert (empty.count, empty.base_offset, empty.last_offset, empty.last_sequence) == (
        0,
        500,
        509,
        18,
    )


@pytest.mark.parametrize(("name", "kind"), [("abort", 0), ("commit", 1)])
def test_markers_are_for_the_log_only(name: str, kind: int) -> None:
    batch = (FOLDER / f"m2-control-{name}.bin").read_bytes()
    assert read_header(batch).is_control
    assert decode_records(batch) == []
    assert decode_table(batch).num_rows == 0
    (marker,) = decode_records(batch, control=True)
    assert marker.key == bytes((0, 0, 0, kind))
