"""Where each target's fuzzing begins: what Kafka wrote, and small things that are right."""

import struct
from collections.abc import Iterator

from raylog.actors.plane.frames import parse
from raylog.storage.limits import MAX_LONG
from tests.fuzz.frames import VERSIONS
from tests.harness.paths import GOLDEN
from tests.unit.actors.plane.bodies import full_frame

MAX_SEED_BYTES = 4096  # a longer one is cut: mutations of small inputs reach further


def seeds(target: str) -> Iterator[bytes]:
    """The first inputs of a target."""
    yield from _SEEDS[target]()


def _files(pattern: str) -> Iterator[bytes]:
    for path in sorted(GOLDEN.glob(pattern)):
        if path.is_file():
            yield path.read_bytes()[:MAX_SEED_BYTES]


def _batches() -> Iterator[bytes]:
    yield from _files("kafka-clients-3.9.1-batches/*.bin")


def _streams() -> Iterator[bytes]:
    """The compressed streams of Kafka's batches, behind the id of their codec."""
    for batch in _files("kafka-clients-3.9.1-batches/m2-*.bin"):
        yield bytes([batch[22] & 7]) + batch[61:]


def _sealed() -> Iterator[bytes]:
    for batch in _files("kafka-clients-3.9.1-batches/m2-*.bin"):
        yield bytes([batch[22] & 7, batch[60]]) + batch[61:]


def _several() -> Iterator[bytes]:
    """Two batches of Kafka's records that are right, by a producer, and one that lies between."""
    for batch in _files("kafka-clients-3.9.1-batches/m2-*.bin"):
        codec, count, body = batch[22] & 7, batch[60], batch[61 : 61 + 255]
        for lie in (0, 1, 2, 4, 8, 32, 64):
            pieces = ((1, 0, 0), (1, count, lie), (1, count, 0), (0, 0, 0))
            yield b"".join(
                bytes([codec, count, producer, sequence, said, len(body)]) + body
                for producer, sequence, said in pieces
            )


def _messages() -> Iterator[bytes]:
    for batch in _files("kafka-clients-3.9.1-batches/m[01]-none-*.bin"):
        for way in range(8):
            yield bytes([way, 9]) + batch


def _indexes() -> Iterator[bytes]:
    for suffix in ("index", "timeindex", "txnindex"):
        yield from _files(f"kafka-3.9-*/*/*.{suffix}")


def _walks() -> Iterator[bytes]:
    """Four numbers, and what is looked through for them."""
    for numbers in ((3, 1000, 0, 50), (0, 100, 5, 1 << 40), (MAX_LONG, 0, 0, MAX_LONG)):
        for content in (*_batches(), *_indexes()):
            yield struct.pack(">qqqq", *numbers) + content


def _schemas() -> Iterator[bytes]:
    """A subscription, an assignment, a transaction and a group, each behind two choices."""
    yield bytes.fromhex("00 02 00000001 000174 ffffffff 00000000 ffffffff")
    yield bytes.fromhex("01 00 00000001 000174 00000002 00000000 00000001 ffffffff")
    yield bytes.fromhex(
        "02 01 00000000000003e8 0000 0000ea60 01 02 0274 03 00000000 00000001 00"
        "0000018bcfe56805 0000018bcfe56805 02 00 08 00000000000003e8 63 02 0002"
    )
    yield bytes.fromhex(
        "05 03 0008636f6e73756d6572 00000003 ffff ffff 0000018bcfe56800 00000001"
        "0003632d31 ffff 000163 0000 000493e0 0000afc8 00000001 aa 00000000"
    )


def _snapshots() -> Iterator[bytes]:
    for content in _files("kafka-3.9-*/g-*/*.snapshot"):
        yield content
        yield content[6:]


def _checkpoints() -> Iterator[bytes]:
    for pattern in (
        "*/*checkpoint",
        "*/*/*checkpoint",
        "*/meta.properties",
        "*/*/partition.metadata",
    ):
        yield from _files(pattern)


def _configs() -> Iterator[bytes]:
    yield (
        b"segment.bytes=1048576\nretention.ms=-1\n"
        b"cleanup.policy=compact,delete\ncompression.type=zstd"
    )
    yield (
        b"log.retention.hours=168\nlog.dirs=/a,/b\n"
        b"log.segment.bytes=1e6\nmessage.timestamp.type=LogAppendTime"
    )
    yield (
        b"min.cleanable.dirty.ratio=0.5\nlog.flush.interval.ms=None\n"
        b"preallocate=true\nmax.message.bytes= 12 "
    )


def _logs() -> Iterator[bytes]:
    for log in _files("kafka-3.9-*/*/00000000000000000000.log"):
        yield b"\1\0\0\0" + log[:1500]
        yield b"\5" + bytes(19) + log[:1500]


def _accumulated() -> Iterator[bytes]:
    """A limit, some memory, and four bytes a row."""
    for limit, free in ((255, 255), (10, 255), (40, 1), (0, 0)):
        yield bytes([limit, free]) + bytes.fromhex("0709020111ff5300010001f20305770401") * 4
        yield bytes([limit, free]) + bytes(range(256))


def _taken() -> Iterator[bytes]:
    """Where to begin and end, two budgets, and a fetch."""
    for content in _batches():
        for choices in (b"\0\1\x10\0", b"\1\2\5\2", b"\0\xff\xff\5"):
            yield choices + content


def _frames() -> Iterator[bytes]:
    """What clients sent, and of each API and version a request with all of its fields."""
    for line in (GOLDEN / "client-frames" / "frames.txt").read_text().splitlines():
        yield bytes.fromhex(line.rpartition(" | ")[2])
    for api, version in VERSIONS:
        yield full_frame(api, version)


def _requests() -> Iterator[bytes]:
    """Their bodies, each behind the number that chooses API and version."""
    for frame in _frames():
        request = parse(frame)
        choice = VERSIONS.index((request.api, request.version))
        yield bytes([choice]) + frame[request.body_position :]


_SEEDS = {
    "headers": _batches,
    "records": _batches,
    "sealed": _sealed,
    "appends": _sealed,
    "several": _several,
    "messages": _messages,
    "codecs": _streams,
    "markers": lambda: _files("kafka-clients-3.9.1-batches/m2-control-*.bin"),
    "schemas": _schemas,
    "indexes": _indexes,
    "walks": _walks,
    "snapshots": _snapshots,
    "checkpoints": _checkpoints,
    "configs": _configs,
    "logs": _logs,
    "accumulated": _accumulated,
    "taken": _taken,
    "frames": _frames,
    "requests": _requests,
}
