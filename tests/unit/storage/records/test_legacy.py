"""Messages of versions 0 and 1: what Kafka wrote is read, alone, in wrappers, mixed with version
2."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.buffers import Buffer
from raylog.storage.errors import CorruptRecord, InvalidRecord, UnsupportedCompressionType
from raylog.storage.records import legacy
from raylog.storage.records.batch import check_crc, iter_batches, read_header
from raylog.storage.records.compression import compress, decompress
from raylog.storage.records.decode import decode_records, decode_table
from raylog.storage.records.encode import encode_records
from raylog.storage.records.layout import LOG_OVERHEAD
from raylog.storage.records.legacy import encode_legacy, read_messages
from raylog.storage.records.lz4_frames import with_broken_checksum, with_right_checksum, xxh32
from tests.harness.paths import GOLDEN

FOLDER = GOLDEN / "kafka-clients-3.9.1-batches"
FILES = sorted(FOLDER.glob("m[01]-*.bin"))
T0 = 1_700_000_000_000
ROWS = [(T0, b"a", b"1"), (T0 + 9, b"b", b"2"), (T0 + 3, None, None)]
CODECS = ("none", "gzip", "snappy", "lz4")

V0 = "000000000000002a 00000014 a4cdab3a 00 00 00000001 6b 00000005 68656c6c6f"
V1 = "000000000000002a 0000001c aa1f6779 01 00 0000018bcfe56800 00000001 6b 00000005 68656c6c6f"
V1_NULLS = "0000000000000000 00000016 46f14185 01 08 0000018bcfe56800 ffffffff ffffffff"
V1_INNER = (
    "0000000000000000 00000018 70057b66 01 00 0000018bcfe56800 00000001 61 00000001 31"
    "0000000000000001 00000018 14d566f7 01 00 0000018bcfe56809 00000001 62 00000001 32"
)


def message(offset: int, magic: int, attributes: int, rest: bytes) -> bytes:
    """Any message, with a right CRC."""
    body = struct.pack(">bb", magic, attributes) + rest
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    inner: Buffer, offset: int = 11, *, magic: int = 1, codec: int = 1, append_time: bool = False
) -> bytes:
    """A message around any bytes; in version 1 its time is T0 + 9."""
    stream = compress(codec, inner)
    time = struct.pack(">q", T0 + 9) if magic else b""
    fields = time + struct.pack(">ii", -1, len(stream)) + bytes(stream)
    return message(offset, magic, codec | (8 if append_time else 0), fields)


def columns(buffer: Buffer, **options: Any) -> list[tuple]:
    """As ``decode_records`` gives them, and the type of each timestamp."""
    table = decode_table(buffer, **options).to_pydict()
    names = ("offset", "timestamp", "key", "value", "timestampType")
    return list(zip(*(table[name] for name in names), strict=True))


def both(buffer: Buffer) -> list[tuple]:
    """(offset, timestamp, key, value) of every record, which rows and columns agree on."""
    rows = [record[:4] for record in decode_records(buffer)]
    assert [row[:4] for row in columns(buffer)] == rows
    return rows


# -- Kafka's own -----------------------------------------------------------------------------------


def test_the_files_are_there() -> None:
    assert len(FILES) == 12


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kafkas_messages_decode(path: Path) -> None:
    magic, _, kind = path.stem.split("-")
    batch = path.read_bytes()
    times = [T0 + 99] * 5 if kind == "LOG_APPEND_TIME" else [T0 + i for i in range(5)]
    expected = [
        (
            100 + 2 * i,
            -1 if magic == "m0" else times[i],
            None if i == 1 else b"k%d" % i,
            None if i == 3 else b"v%d" % i * 20,
        )
        for i in range(5)
    ]
    assert both(batch) == expected
    number = -1 if magic == "m0" else int(kind == "LOG_APPEND_TIME")
    assert {row[4] for row in columns(batch)} == {number}
    for position, header in iter_batches(batch):
        check_crc(batch, position, header)
    headers = [header for _, header in iter_batches(batch)]
    assert headers[-1].last_offset == 108
    assert headers[-1].next_offset == 109
    assert sum(header.size_bytes for header in headers) == len(batch)
    assert (
        headers[-1].timestamp_type
        == {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}[number]
    )
    assert (headers[0].leader_epoch, headers[0].producer_id, headers[0].is_control) == (
        -1,
        -1,
        False,
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_messages_encode_as_kafka_does(path: Path) -> None:
    """To the byte where the codec is ours to choose; gzip and snappy are other libraries than
    Java's."""
    magic, codec, kind = path.stem.split("-")
    batch = path.read_bytes()
    records = decode_records(batch)
    encoded = encode_legacy(
        [record[1:4] for record in records],
        magic=int(magic[1]),
        offsets=[record.offset for record in records],
        compression_type=codec,
        log_append_time=T0 + 99 if kind == "LOG_APPEND_TIME" else None,
    )
    if codec in ("none", "lz4"):
        assert encoded.hex() == batch.hex()
    assert decode_records(encoded) == records
    assert columns(encoded) == columns(batch)


@pytest.mark.parametrize(
    ("text", "expected", "kind"),
    [
        (V0, (42, -1, b"k", b"hello"), -1),
        (V1, (42, T0, b"k", b"hello"), 0),
        (V1_NULLS, (0, T0, None, None), 1),
    ],
)
def test_a_worked_vector_decodes_and_encodes(text: str, expected: tuple, kind: int) -> None:
    batch = bytes.fromhex(text)
    assert columns(batch) == [(*expected, kind)]
    assert both(batch) == [expected]
    encoded = encode_legacy(
        [expected[1:]],
        magic=batch[16],
        base_offset=expected[0],
        log_append_time=T0 if kind == 1 else None,
    )
    assert encoded.hex() == batch.hex()


def test_the_worked_wrapper_has_relative_offsets() -> None:
    inner = bytes.fromhex(V1_INNER)
    expected = [(10, T0, b"a", b"1"), (11, T0 + 9, b"b", b"2")]
    assert both(wrapper(inner)) == expected
    encoded = encode_legacy(ROWS[:2], magic=1, base_offset=10, compression_type="gzip")
    header = read_header(encoded)
    assert (header.last_offset, header.max_timestamp, header.attributes, header.count) == (
        11,
        T0 + 9,
        1,
        -1,
    )
    assert bytes(decompress(1, encoded[34:])) == inner
    assert both(encoded) == expected


# -- offsets, timestamps, mixtures -----------------------------------------------------------------


def test_a_wrapper_of_version_0_has_absolute_offsets() -> None:
    inner = encode_legacy(ROWS, magic=0, offsets=[5, 7, 8])
    assert [row[0] for row in both(wrapper(inner, 8, magic=0))] == [5, 7, 8]


def test_a_compacted_wrapper_has_gaps() -> None:
    inner = encode_legacy(ROWS, magic=1, offsets=[0, 2, 6])
    assert [row[0] for row in both(wrapper(inner, 106))] == [100, 102, 106]


def test_a_wrapper_at_offset_0_begins_there() -> None:
    inner = encode_legacy(ROWS, magic=1)
    assert [row[0] for row in both(wrapper(inner, 0))] == [0, 1, 2]


def test_a_wrapper_before_its_last_message_is_corrupt() -> None:
    with pytest.raises(
        CorruptRecord, match="position 0: its last message has offset 2, but the set has 1"
    ):
        decode_records(wrapper(encode_legacy(ROWS, magic=1), 1))


@pytest.mark.parametrize("offsets", [[9, 1, 2], [2, 9, 1]])
def test_offsets_that_fall_behind_the_last_possible_one_are_corrupt(offsets: list[int]) -> None:
    """The compiled kernel raised OverflowError, without a raylog name."""
    highest = wrapper(encode_legacy(ROWS, magic=1, offsets=[0, 1, 2]), (1 << 63) - 2)
    assert [row[0] for row in both(highest)][-1] == (1 << 63) - 2
    data = wrapper(encode_legacy(ROWS, magic=1, offsets=offsets), (1 << 63) - 3)
    for read in (
        decode_records,
        decode_table,
        lambda data: read_messages(data, 0, read_header(data)),
    ):
        with pytest.raises(CorruptRecord, match="its message 9 would have offset 92233720368547"):
            read(data)


def test_the_append_time_is_the_wrappers() -> None:
    inner = encode_legacy(ROWS, magic=1)
    assert {row[1] for row in both(wrapper(inner, append_time=True))} == {T0 + 9}
    assert [row[1] for row in both(wrapper(inner))] == [T0, T0 + 9, T0 + 3]


def test_version_0_in_a_wrapper_of_version_1_has_no_timestamps() -> None:
    inner = encode_legacy(ROWS[:1], magic=0) + encode_legacy(ROWS[1:], magic=1, base_offset=1)
    assert [row[:2] for row in both(wrapper(inner, append_time=True))] == [
        (9, -1),
        (10, T0 + 9),
        (11, T0 + 9),
    ]


def test_a_buffer_may_mix_all_versions() -> None:
    mixed = b"".join(
        encode(ROWS, magic, codec, 10 * number)
        for number, (encode, magic, codec) in enumerate(
            [
                (old, 0, "none"),
                (old, 0, "lz4"),
                (new, 2, "lz4"),
                (old, 1, "snappy"),
                (new, 2, "none"),
                (old, 1, "none"),
            ]
        )
    )
    assert [row[0] for row in both(mixed)] == [10 * i + j for i in range(6) for j in range(3)]
    assert [row[4] for row in columns(mixed)] == [-1] * 6 + [0] * 12
    for start in range(60):
        offsets = [row[0] for row in columns(mixed, start_offset=start, end_offset=start + 12)]
        assert offsets == [row[0] for row in both(mixed) if start <= row[0] < start + 12]
    for size in range(len(mixed)):
        cut = both(mixed[:size])
        assert cut == both(mixed)[: len(cut)]


def old(rows: list, magic: int, codec: str, base_offset: int) -> bytes:
    return bytes(encode_legacy(rows, magic=magic, base_offset=base_offset, compression_type=codec))


def new(rows: list, magic: int, codec: str, base_offset: int) -> bytes:
    return bytes(
        encode_records(
            [(*row, ()) for row in rows], base_offset=base_offset, compression_type=codec
        )
    )


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 2**62),
            st.none() | st.binary(max_size=9),
            st.none() | st.binary(max_size=99),
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([0, 1]),
    st.sampled_from(CODECS),
    st.integers(0, 2**61),
)
def test_what_is_encoded_decodes(rows: list, magic: int, codec: str, base_offset: int) -> None:
    encoded = old(rows, magic, codec, base_offset)
    times = [row[0] if magic else -1 for row in rows]
    expected = [(base_offset + i, times[i], *row[1:]) for i, row in enumerate(rows)]
    assert both(encoded) == expected


# -- LZ4's two checksums ---------------------------------------------------------------------------


def test_version_0_has_the_broken_checksum_and_version_1_the_right_one() -> None:
    for magic, checksum in ((0, 0x1A), (1, 0x82)):
        frame = encode_legacy(ROWS, magic=magic, compression_type="lz4")[26 if magic == 0 else 34 :]
        assert frame[:7] == bytes.fromhex("04224d18 60 40") + bytes([checksum])


def test_any_checksum_is_read_in_version_0_and_only_the_right_one_in_version_1() -> None:
    inner, frame = (
        encode_legacy(ROWS, magic=0),
        bytearray(compress(3, encode_legacy(ROWS, magic=0))),
    )
    frame[6] ^= 0xFF
    fields = struct.pack(">ii", -1, len(frame)) + bytes(frame)
    assert len(both(message(2, 0, 3, fields))) == len(list(iter_batches(inner))) == 3
    with pytest.raises(CorruptRecord, match="malformed stream of codec 3"):
        decode_records(message(2, 1, 3, struct.pack(">q", T0) + fields))


def test_the_hash_is_xxh32() -> None:
    """Values of the reference implementation, seed 0."""
    assert xxh32(b"") == 0x02CC5D05
    assert xxh32(b"a") == 0x550D7456
    assert xxh32(b"abc") == 0x32D153FF
    assert xxh32(b"Nobody inspects the spammish repetition"[:16]) == xxh32(
        bytearray(b"Nobody inspects ")
    )
    assert xxh32(bytes.fromhex("6040")) >> 8 & 0xFF == 0x82


def test_a_frame_with_a_content_size_is_mended_where_its_checksum_is() -> None:
    import lz4.frame

    frame = lz4.frame.compress(b"hello" * 9, store_size=True)
    broken = with_broken_checksum(frame)
    assert broken != frame
    assert with_right_checksum(broken) == frame
    assert with_right_checksum(b"no frame") == b"no frame"


# -- what is refused -------------------------------------------------------------------------------

NULL_VALUE = struct.pack(">qii", T0, -1, -1)
INNER = bytes(encode_legacy(ROWS, magic=1))
MALFORMED: dict[str, tuple[bytes, str]] = {
    "zstd in version 0": (wrapper(INNER, magic=0, codec=4), "codec 4 does not exist in magic 0"),
    "zstd in version 1": (wrapper(INNER, codec=4), "codec 4 does not exist in magic 1"),
    "an unknown codec": (message(0, 1, 7, struct.pack(">qii", T0, -1, 0)), "codec 7"),
    "a null wrapper": (message(0, 1, 1, NULL_VALUE), "the value of a .* is null"),
    "an empty wrapper": (wrapper(b""), "set is empty"),
    "a wrapper of a cut message": (wrapper(INNER[:30]), "set is empty"),
    "a wrapper in a wrapper": (wrapper(wrapper(INNER)), "compressed message or a batch"),
    "a batch in a wrapper": (
        wrapper(bytes(encode_records([(*row, ()) for row in ROWS]))),
        "compressed message or a batch",
    ),
    "no stream": (message(0, 1, 1, struct.pack(">qii", T0, -1, 3) + b"abc"), "malformed stream"),
    "a key over the message": (
        message(0, 1, 0, struct.pack(">qii", T0, 5, -1)),
        "a field has 5 bytes",
    ),
    "a value over the message": (message(0, 0, 0, struct.pack(">ii", -1, 1)), "field has 1 bytes"),
    "a message without a value": (message(0, 0, 0, struct.pack(">i", 4) + b"abcd"), "shorter"),
    "a wrong inner CRC": (wrapper(INNER[:-1] + b"\x01"), "CRC-32 of its message"),
    "an inner message too small": (wrapper(struct.pack(">qi", 0, 13) + bytes(13)), "under 14"),
    "an inner message of a later version": (wrapper(message(0, 3, 0, bytes(30))), "magic"),
}  # fmt: skip


@pytest.mark.parametrize(("batch", "why"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_messages_are_corrupt_though_the_crc_is_right(batch: bytes, why: str) -> None:
    before = bytes(encode_legacy(ROWS, magic=1, compression_type="lz4"))
    for decode in (decode_records, decode_table):
        with pytest.raises(CorruptRecord, match=rf"position {len(before)}: .*{why}"):
            decode(before + batch)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_flipped_bit_is_seen_or_outside_of_the_crc(magic: int, codec: str) -> None:
    batch = old(ROWS[:2], magic, codec, 100)
    expected = both(batch)
    for bit in range(8 * len(batch)):
        flipped = bytearray(batch)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = decode_records(flipped, start_offset=-(2**63))
        except CorruptRecord:
            continue
        stripped = [record[1:4] for record in found]
        assert stripped == [row[1:] for row in expected][: len(stripped)]
        position = next(
            (p for p, header in iter_batches(batch) if p + header.size_bytes > bit >> 3), 0
        )
        assert (bit >> 3) - position < LOG_OVERHEAD


def test_a_message_too_small_for_its_version_is_corrupt() -> None:
    for magic, length in ((0, 13), (1, 21)):
        batch = bytearray(old(ROWS, magic, "none", 0))
        struct.pack_into(">i", batch, 8, length)
        for decode in (decode_records, decode_table, lambda b: list(iter_batches(b)), read_header):
            with pytest.raises(CorruptRecord):
                decode(batch)


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "MAX_SET_BYTES", 9_999_999)
    bomb = old([(T0, None, bytes(10_000_000))], 1, "gzip", 0)
    assert len(bomb) < 20_000
    for decode in (decode_records, decode_table):
        with pytest.raises(CorruptRecord, match="more than 9999999 bytes"):
            decode(bomb)
    monkeypatch.undo()
    assert len(decode_records(bomb)) == 1


@given(st.data())
def test_mangled_messages_never_crash(data: st.DataObject) -> None:
    """Random damage under a right CRC: records or CorruptRecord, and both decoders agree on
    which."""
    magic, codec = data.draw(st.sampled_from([0, 1])), data.draw(st.sampled_from(CODECS))
    batch = bytearray(old(ROWS[:1] if codec == "none" else ROWS, magic, codec, 5))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(17, len(batch) - 1))] = data.draw(st.integers(0, 255))
    struct.pack_into(">I", batch, 12, zlib.crc32(batch[16:]))
    outcomes: list[Any] = []
    for decode in (decode_records, decode_table):
        try:
            outcomes.append(len(decode(batch, start_offset=-(2**63))))
        except CorruptRecord as error:
            outcomes.append(error.args)
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"magic": 2}, InvalidRecord),
        ({"magic": 1, "compression_type": "zstd"}, InvalidRecord),
        ({"magic": 1, "compression_type": "brotli"}, UnsupportedCompressionType),
    ],
)
def test_what_the_versions_do_not_have_is_not_encoded(
    options: dict, error: type[Exception]
) -> None:
    with pytest.raises(error):
        encode_legacy(ROWS, **options)


def test_a_checked_message_may_skip_its_crc() -> None:
    batch = bytearray(old(ROWS[:1], 1, "none", 0))
    batch[12] ^= 1
    decoders: list[Callable[..., Any]] = [decode_records, decode_table]
    for decode in decoders:
        assert len(decode(batch, check_crc=False)) == 1
