"""What Kafka's DumpLogSegments says of a partition's folder, taken apart.

Every line must be of a known shape: a line that is none of them is a complaint (of an index that
points into nowhere, of a batch whose CRC is wrong, of bytes behind the last batch), and
:func:`parse` keeps it as one.

One complaint is the tool's own mistake: since its rewrite in Java it says of every segment but that
of offset 0, also of Kafka's own, that "-1 is followed by" the offset of its first record. That
alone is passed over; other gaps, which compaction leaves, are sorted: Kafka 3 tells the last of a
file first, as raylog does, Kafka 4 the first.
"""

import re
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path

from raylog.storage.files import RealFileSystem
from raylog.storage.tools.dump import decoders
from raylog.storage.tools.dump.logs import LogOptions
from raylog.storage.tools.dump.tool import DumpOptions, dump_files
from tests.kafka.distribution import Kafka
from tests.kafka.written import CREATE_TIME, LOG_APPEND_TIME, Seen

DUMP = "org.apache.kafka.tools.DumpLogSegments"
DUMPED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

RECORD = re.compile(
    rb"\| offset: (\d+) (CreateTime|LogAppendTime): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) "
    rb"sequence: (-?\d+) headerKeys: \[(.*?)\] ?(.*)"
)
BATCH = re.compile(
    r"baseOffset: (?P<base>\d+) lastOffset: (?P<last>\d+) count: (?P<count>\d+) "
    r"baseSequence: (?P<sequence>-?\d+) "
    r"lastSequence: -?\d+ producerId: (?P<producer>-?\d+) producerEpoch: (?P<producer_epoch>-?\d+) "
    r"partitionLeaderEpoch: (?P<epoch>\d+) isTransactional: (?P<transactional>true|false) "
    r"isControl: (?P<control>true|false) deleteHorizonMs: (?P<horizon>OptionalLong\S+) "
    r"position: (?P<position>\d+) "
    r"(?P<type>CreateTime|LogAppendTime): (?P<timestamp>-?\d+) size: (?P<size>\d+) magic: 2 "
    r"compresscodec: (?P<codec>\w+) crc: \d+ isvalid: true"
)
MARKER = re.compile(rb"endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: (\d+)")
OFFSET_ENTRY = re.compile(r"offset: (\d+) position: (\d+)")
TIME_ENTRY = re.compile(r"timestamp: (-?\d+) offset: (\d+)")
ABORTED = re.compile(
    r"version: 0 producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
)
PRODUCER = re.compile(
    r"producerId: (?P<producer>\d+) producerEpoch: (?P<epoch>\d+) coordinatorEpoch: -?\d+ "
    r"currentTxnFirstOffset: OptionalLong(?:\.empty|\[(?P<open>\d+)\]) lastTimestamp: -?\d+ "
    r"(?:firstSequence: \d+ lastSequence: (?P<sequence>\d+) lastOffset: (?P<last>\d+) "
    r"offsetDelta: \d+ timestamp: -?\d+)?"
)
FINE = re.compile(
    r"Dumping .+|Log starting offset: \d+|Snapshot end offset: .*|\S+\.(time)?index is empty\.|"
)
GAP = re.compile(r"  (-?\d+) is followed by (\d+)")
GAPS = re.compile(r"Non-consecutive offsets in .+")


@dataclass
class Dump:
    """The lines of a folder's dump by what they are; numbers as numbers."""

    lines: list[str] = field(default_factory=list)
    # of headers only the names; their values are None
    records: list[Seen] = field(default_factory=list)
    batches: list[dict[str, str]] = field(default_factory=list)
    # offset, kind, coordinator epoch
    markers: list[tuple[int, str, int]] = field(default_factory=list)
    offset_entries: int = 0
    time_entries: int = 0
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)
    # by file: its producers
    snapshots: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    # records that are missing between two others
    gaps: list[tuple[int, int]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


def dump_folder(kafka: Kafka, folder: Path) -> Dump:
    """Kafka's dump of every file of a partition's folder that it can dump."""
    wanted = ["--deep-iteration", "--print-data-log", "--files", ",".join(dumped_names(folder))]
    return parse(kafka.run(DUMP, *wanted, cwd=folder))


def dump_by_raylog(folder: Path) -> list[str]:
    """raylog's dump of the same files, findings last, as Kafka's come."""
    lines: list[str] = []
    findings: list[str] = []
    names = dumped_names(folder)
    text = decoders.decoder("string")
    assert text
    options = DumpOptions(LogOptions(is_deep=True, parser=decoders.plain(text, text)))
    with chdir(folder):
        assert dump_files(
            RealFileSystem(), names, options, lines.append, findings.append, str(folder)
        )
    return _with_true_gaps([*lines, *findings])


def dumped_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix in DUMPED)


def parse(text: str) -> Dump:
    dump, file = Dump(_with_true_gaps(text.removesuffix("\n").split("\n"))), ""
    for line in dump.lines:
        if line.startswith("Dumping "):
            file = line.removeprefix("Dumping ")
            if file.endswith(".snapshot"):
                dump.snapshots[file] = []
        if not _take(dump, file, line) and not FINE.fullmatch(line):
            dump.complaints.append(line)
    return dump


def _with_true_gaps(lines: list[str]) -> list[str]:
    """The lines, with the gaps at the end by file, and without the one that the tool sees before
    the first record."""
    gaps: dict[str, list[str]] = {}
    others, file = [], ""
    for line in lines:
        if GAPS.fullmatch(line):
            file = line
        elif not GAP.fullmatch(line):
            others.append(line)
        elif not line.startswith("  -1 "):
            gaps.setdefault(file, []).append(line)
    return [*others, *(line for file in sorted(gaps) for line in (file, *sorted(gaps[file])))]


def _take(dump: Dump, file: str, line: str) -> bool:
    """Note one line; whether it was one to note."""
    if record := RECORD.fullmatch(line.encode()):
        _take_record(dump, record)
    elif batch := BATCH.fullmatch(line):
        dump.batches.append(batch.groupdict())
    elif file.endswith(".index") and OFFSET_ENTRY.fullmatch(line):
        dump.offset_entries += 1
    elif file.endswith(".timeindex") and TIME_ENTRY.fullmatch(line):
        dump.time_entries += 1
    elif file.endswith(".txnindex") and (entry := ABORTED.fullmatch(line)):
        producer, first, last, stable = map(int, entry.groups())
        dump.aborted.append((producer, first, last, stable))
    elif file.endswith(".snapshot") and (known := PRODUCER.fullmatch(line)):
        dump.snapshots[file].append(known.groupdict())
    elif gap := GAP.fullmatch(line):
        dump.gaps.append((int(gap[1]), int(gap[2])))
    else:
        return bool(GAPS.fullmatch(line))
    return True


def _take_record(dump: Dump, found: re.Match[bytes]) -> None:
    offset, kind, timestamp, key_size, value_size, _, names, text = found.groups()
    if marker := MARKER.fullmatch(text):
        dump.markers.append((int(offset), marker[1].decode(), int(marker[2])))
        return
    key, value = _split(text, int(key_size), int(value_size))
    timestamp_type = CREATE_TIME if kind == b"CreateTime" else LOG_APPEND_TIME
    headers = tuple((name, None) for name in names.decode().split(",")) if names else ()
    dump.records.append(Seen(int(offset), int(timestamp), timestamp_type, key, value, headers))


def _split(text: bytes, key_size: int, value_size: int) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record's line, by their sizes."""
    key = value = None
    if key_size >= 0:
        text = text.removeprefix(b"key: ")
        key, text = text[:key_size], text[key_size:].removeprefix(b" ")
    if value_size >= 0:
        value = text.removeprefix(b"payload: ")
        assert len(value) == value_size, text
    return key, value
