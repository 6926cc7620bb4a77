"""What the dump tells of files that no golden folder has: damaged, cut, empty, of other kinds."""

import struct
from typing import Any

import pytest

from raylog.storage.indexes.transaction_index import AbortedTransaction
from raylog.storage.records.batch import empty_batch, read_header
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.encode import encode_records
from raylog.storage.records.legacy import encode_legacy
from raylog.storage.testing.clock import T0
from raylog.storage.testing.logs import flip
from raylog.storage.testing.memory import MemoryFileSystem
from raylog.storage.tools.dump import decoders
from raylog.storage.tools.dump.logs import LogOptions
from raylog.storage.tools.dump.tool import DumpOptions, dump_files

BATCHES = DumpOptions()
STRINGS = decoders.plain(decoders.DECODERS["string"], decoders.DECODERS["string"])
DATA = DumpOptions(LogOptions(is_deep=True, parser=STRINGS))
DEEP = DumpOptions(LogOptions(is_deep=True))
LOG, INDEX, TIME_INDEX = (
    "00000000000000000100.log",
    "00000000000000000100.index",
    "00000000000000000100.timeindex",
)
ROWS: list[Any] = [
    (T0, b"k1", b"v1", ()),
    (T0 + 5, None, b"hello", [("h1", b"x"), ("h2", None)]),
    (T0 + 3, b"k2", None, ()),
]


def vector(**fields: Any) -> bytearray:
    """The worked batch of the format's description."""
    return encode_records(ROWS, base_offset=100, leader_epoch=7, **fields)


class Folder:
    """Files in memory, and what the tool says of them."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.fs.make_dir("/t-0")
        self.err: list[str] = []
        self.is_whole = True

    def put(self, name: str, content: bytes | bytearray) -> "Folder":
        self.fs.write_file(f"/t-0/{name}", bytes(content))
        return self

    def dump(self, *names: str, options: DumpOptions = BATCHES) -> list[str]:
        """The lines on standard output, without those that name the files."""
        out: list[str] = []
        self.err.clear()
        paths = [f"/t-0/{name}" for name in names]
        self.is_whole = dump_files(self.fs, paths, options, out.append, self.err.append)
        assert [line for line in out if line.startswith("Dumping")] == [
            f"Dumping {path}" for path in paths
        ]
        return [line for line in out if not line.startswith("Dumping")]


def log_of(*batches: bytes | bytearray) -> Folder:
    return Folder().put(LOG, b"".join(batches))


# -- batches and records ---------------------------------------------------------------------------

BATCH_LINE = (
    "baseOffset: 100 lastOffset: 102 count: 3 baseSequence: -1 lastSequence: -1 producerId: -1 "
    "producerEpoch: -1 "
    "partitionLeaderEpoch: 7 isTransactional: false isControl: false deleteHorizonMs: "
    "OptionalLong.empty "
    "position: 0 CreateTime: 1700000000005 size: 102 magic: 2 compresscodec: none crc: 1102960445 "
    "isvalid: true"
)


def test_by_default_batches_are_told_and_no_records() -> None:
    assert log_of(vector()).dump(LOG) == ["Log starting offset: 100", BATCH_LINE]


def test_a_deep_look_tells_records_without_their_content() -> None:
    assert log_of(vector()).dump(LOG, options=DEEP)[2:] == [
        (
            "| offset: 100 CreateTime: 1700000000000 keySize: 2 valueSize: 2 sequence: -1 "
            "headerKeys: []"
        ),
        (
            "| offset: 101 CreateTime: 1700000000005 keySize: -1 valueSize: 5 sequence: -1 "
            "headerKeys: [h1,h2]"
        ),
        (
            "| offset: 102 CreateTime: 1700000000003 keySize: 2 valueSize: -1 sequence: -1 "
            "headerKeys: []"
        ),
    ]


def test_the_content_follows_the_record_and_what_is_null_is_left_out() -> None:
    ends = [line.split("headerKeys: ")[1] for line in log_of(vector()).dump(LOG, options=DATA)[2:]]
    assert ends == ["[] key: k1 payload: v1", "[h1,h2] payload: hello", "[] key: k2"]


def test_records_metadata_can_be_left_out() -> None:
    options = DumpOptions(LogOptions(is_deep=True, parser=STRINGS, skip_metadata=True))
    lines = log_of(vector()).dump(LOG, options=options)
    assert lines[1:] == [BATCH_LINE, "| key: k1 payload: v1", " payload: hello", "| key: k2"]


def test_sequences_wrap() -> None:
    batch = vector(producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    lines = log_of(batch).dump(LOG, options=DEEP)
    assert "baseSequence: 2147483646 lastSequence: 0" in lines[1]
    assert [line.split("sequence: ")[1].split()[0] for line in lines[2:]] == [
        "2147483646",
        "2147483647",
        "0",
    ]


def test_a_delete_horizon_is_told_and_an_empty_batch_has_no_records() -> None:
    horizon = log_of(vector(delete_horizon_ms=T0 + 86_400_000)).dump(LOG, options=DEEP)
    assert "deleteHorizonMs: OptionalLong[1700086400000] position" in horizon[1]
    assert "offset: 100 CreateTime: 1700000000000 " in horizon[2]
    batch = empty_batch(read_header(vector()))
    (_, line) = log_of(batch).dump(LOG, options=DATA)
    assert line.startswith("baseOffset: 100 lastOffset: 102 count: 0 ")


@pytest.mark.parametrize(("is_abort", "name"), [(True, "ABORT"), (False, "COMMIT")])
def test_a_marker_is_told_and_its_content_never_printed(is_abort: bool, name: str) -> None:
    marker = encode_marker(
        Marker(is_abort, 5, T0), producer_id=4242, producer_epoch=3, base_offset=100
    )
    line = log_of(marker).dump(LOG, options=DATA)[2]
    assert line.endswith(
        f"keySize: 4 valueSize: 6 sequence: -1 headerKeys: [] endTxnMarker: {name} "
        "coordinatorEpoch: 5"
    )
    quiet = DumpOptions(LogOptions(is_deep=True, parser=STRINGS, skip_metadata=True))
    assert log_of(marker).dump(LOG, options=quiet)[2] == ""


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (2, b"\0\0", "controlType: LEADER_CHANGE(2)"),
        (
            3,
            bytes.fromhex("0000 000000000000000a 00"),
            'SnapshotHeader {"version":0,"lastContainedLogTimestamp":10}',
        ),
        (4, bytes.fromhex("0000 00"), 'SnapshotFooter {"version":0}'),
        (5, bytes.fromhex("0000 0001 00"), 'KRaftVersion {"version":0,"kRaftVersion":1}'),
        (
            6,
            bytes.fromhex(
                "0000 02 00000001" + "00" * 16 + "02 02 41 02 68 2384 00 0000 0001 00 00 00"
            ),
            'KRaftVoters {"version":0,"voters":[{"voterId":1,'
            '"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",'
            '"endpoints":[{"name":"A","host":"h","port":9092}],'
            '"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}',
        ),
        (77, b"", "controlType: UNKNOWN(77)"),
    ],
)
def test_other_control_records_are_told_by_their_kind(kind: int, value: bytes, told: str) -> None:
    record = encode_records(
        [(T0, struct.pack(">hh", 0, kind), value, ())], base_offset=100, control=True
    )
    assert log_of(record).dump(LOG, options=DATA)[2].split("headerKeys: [] ")[1] == told


def test_messages_of_the_older_versions_have_their_crc_and_kafkas_brace() -> None:
    old = encode_legacy([(-1, b"k", b"hello")], magic=0, base_offset=42)
    assert log_of(old).dump(LOG, options=DATA)[1:] == [
        "offset: 42 position: 0 NoTimestampType: -1 size: 32 magic: 0 compresscodec: none crc: "
        "2764942138 "
        "isvalid: true",
        "| offset: 42 NoTimestampType: -1 keySize: 1 valueSize: 5 isValid: true crc: 2764942138} "
        "key: k "
        "payload: hello",
    ]


def test_a_wrong_crc_is_told_and_the_records_too() -> None:
    lines = log_of(flip(18)(bytes(vector()))).dump(LOG, options=DEEP)
    assert lines[1].endswith("isvalid: false")
    assert len(lines) == 5


def test_a_torn_batch_at_the_end_is_told_in_bytes() -> None:
    assert log_of(vector(), vector()[:50]).dump(LOG)[2:] == [
        f"Found 50 invalid bytes at the end of {LOG}"
    ]
    assert log_of(vector(), bytes(14)).dump(LOG)[2:] == [
        f"Found 14 invalid bytes at the end of {LOG}"
    ]


def test_with_a_limit_of_bytes_whole_batches_are_read_and_the_rest_is_not_called_invalid() -> None:
    folder = log_of(vector(), vector())
    assert len(folder.dump(LOG, options=DumpOptions(LogOptions(max_bytes=203)))) == 2
    assert len(folder.dump(LOG, options=DumpOptions(LogOptions(max_bytes=204)))) == 3
    assert len(folder.dump(LOG, options=DumpOptions(LogOptions(max_bytes=60)))) == 1


def test_damage_that_hides_all_behind_it_is_named_and_the_next_file_is_dumped() -> None:
    folder = log_of(vector(), bytes(200)).put("00000000000000000500.log", b"")
    lines = folder.dump(LOG, "00000000000000000500.log")
    assert lines == ["Log starting offset: 100", BATCH_LINE, "Log starting offset: 500"]
    assert len(folder.err) == 1
    assert folder.err[0].startswith(f"error: /t-0/{LOG}: corrupt record batch at position 102")
    assert not folder.is_whole


def test_records_that_do_not_follow_each_other_are_told_at_the_end_the_last_one_first() -> None:
    batches = [encode_records(ROWS[:1], base_offset=offset) for offset in (100, 103, 104, 110)]
    folder = log_of(*batches)
    assert len(folder.dump(LOG, options=DEEP)) == 9
    assert folder.err == [
        f"Non-consecutive offsets in /t-0/{LOG}",
        "  104 is followed by 110",
        "  100 is followed by 103",
    ]
    folder.dump(LOG)
    assert folder.err == [], "only a deep look sees them"


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("bootstrap.checkpoint", "KRaft bootstrap snapshot"),
        ("00000000000000000170-0000000001.checkpoint", "Snapshot end offset: 170, epoch: 1"),
    ],
)
def test_snapshots_of_the_metadata_log_are_told_as_logs(name: str, head: str) -> None:
    assert Folder().put(name, vector()).dump(name) == [head, BATCH_LINE]


# -- indexes ---------------------------------------------------------------------------------------

TWO = [encode_records(ROWS, base_offset=offset) for offset in (100, 103)]
SIZE = len(TWO[0])


def indexed(*entries: tuple[int, int]) -> Folder:
    return log_of(*TWO).put(INDEX, b"".join(struct.pack(">ii", *entry) for entry in entries))


def timed(*entries: tuple[int, int]) -> Folder:
    return indexed((5, SIZE)).put(
        TIME_INDEX, b"".join(struct.pack(">qi", *entry) for entry in entries)
    )


def test_index_entries_are_told_and_held_against_their_batches() -> None:
    folder = indexed((2, 0), (5, SIZE))
    assert folder.dump(INDEX) == ["offset: 102 position: 0", f"offset: 105 position: {SIZE}"]
    assert folder.err == []


def test_entries_that_lie_are_told_at_the_end_the_last_one_first() -> None:
    folder = indexed((1, 0), (4, SIZE))
    assert folder.dump(INDEX, options=DumpOptions(verify_only=True)) == []
    assert folder.err == [
        f"Mismatches in :/t-0/{INDEX}",
        "  Index offset: 104, log offset: 105",
        "  Index offset: 101, log offset: 102",
    ]
    assert folder.is_whole


def test_an_index_ends_at_its_zero_tail() -> None:
    assert indexed((2, 0), (0, 0), (0, 0)).dump(INDEX) == ["offset: 102 position: 0"]
    assert timed((T0 + 5, 5), (0, 0)).dump(TIME_INDEX) == ["timestamp: 1700000000005 offset: 105"]


def test_an_index_may_begin_with_the_base_offset_itself() -> None:
    folder = log_of(encode_records(ROWS[:1], base_offset=100))
    folder.put(INDEX, struct.pack(">ii", 0, 0)).put(TIME_INDEX, struct.pack(">qi", T0, 0))
    assert folder.dump(INDEX, TIME_INDEX) == [
        "offset: 100 position: 0",
        f"timestamp: {T0} offset: 100",
    ]
    assert folder.err == []


def test_an_empty_offset_index_is_told_so_and_an_empty_time_index_is_not() -> None:
    assert indexed().dump(INDEX) == [f"/t-0/{INDEX} is empty."]
    assert indexed().dump(INDEX, options=DumpOptions(sanity_only=True)) == [
        f"/t-0/{INDEX} is empty."
    ]
    assert timed().dump(TIME_INDEX) == []


@pytest.mark.parametrize("position", [2 * SIZE, 1000, -1])
def test_an_entry_that_points_to_no_batch_is_named(position: int) -> None:
    folder = indexed((2, 0), (5, position))
    assert folder.dump(INDEX) == ["offset: 102 position: 0"]
    assert (
        f"/t-0/{INDEX}: index of segment 100, entry 1: no batch of up to 5242880 bytes at "
        f"position {position}" in folder.err[0]
    )
    assert not folder.is_whole


def test_a_batch_over_the_size_of_a_message_is_not_looked_for() -> None:
    folder = indexed((2, 0))
    assert folder.dump(INDEX, options=DumpOptions(max_message_bytes=SIZE - 1)) == []
    assert f"no batch of up to {SIZE - 1} bytes" in folder.err[0]
    assert folder.dump(INDEX, options=DumpOptions(max_message_bytes=SIZE)) == [
        "offset: 102 position: 0"
    ]


def test_time_index_entries_are_held_against_the_records_timestamps() -> None:
    folder = timed((T0 + 5, 2), (T0 + 9, 5))
    assert folder.dump(TIME_INDEX) == [
        "timestamp: 1700000000005 offset: 102",
        "timestamp: 1700000000009 offset: 105",
    ]
    assert folder.err == [
        f"Found timestamp mismatch in :/t-0/{TIME_INDEX}",
        "  Index timestamp: 1700000000009, log timestamp: 1700000000005",
    ]


def test_timestamps_that_do_not_rise_and_offsets_that_end_no_batch_are_told() -> None:
    folder = timed((T0 + 5, 2), (T0 + 5, 5), (T0 + 6, 104 - 100), (T0 + 7, 50))
    assert len(folder.dump(TIME_INDEX)) == 4
    assert folder.err == [
        f"Found out of order timestamp in :/t-0/{TIME_INDEX}",
        "  Index timestamp: 1700000000005, Previously indexed timestamp: 1700000000005",
        "The following indexed offsets are not found in the log.",
        "Indexed offset: 104, found log offset: 105",
        "Indexed offset: 150, found log offset: -1",
    ]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        (INDEX, struct.pack(">ii", 2, 0) + b"\0", "1 bytes too many"),
        (INDEX, struct.pack(">ii", -3, 0), "below the segment's base offset"),
        (TIME_INDEX, struct.pack(">qi", T0, 2) + b"\0\0", "2 bytes too many"),
        (TIME_INDEX, struct.pack(">qiqi", T0, 2, T0 - 1, 5), "older than the first entry"),
        (TIME_INDEX, struct.pack(">qi", T0, -2), "below the segment's base offset"),
    ],
)
def test_a_sanity_check_names_what_a_broker_would_not_take(
    name: str, content: bytes, why: str
) -> None:
    folder = log_of(*TWO).put(name, content)
    assert folder.dump(name, options=DumpOptions(sanity_only=True)) == []
    assert why in folder.err[0]
    assert not folder.is_whole


def test_a_sanity_check_prints_no_entries() -> None:
    folder = timed((T0 + 5, 2))
    sanity = DumpOptions(sanity_only=True)
    assert folder.dump(INDEX, TIME_INDEX, options=sanity) == [
        f"/t-0/{INDEX} passed sanity check.",
        f"/t-0/{TIME_INDEX} passed sanity check.",
    ]


def test_a_transaction_index_is_told_and_one_of_a_newer_version_refused() -> None:
    name = "00000000000000000000.txnindex"
    entry = struct.pack(">hqqqq", 0, *AbortedTransaction(4242, 100, 150, 151))
    folder = Folder().put(name, entry + entry[:10])
    assert folder.dump(name) == [
        "version: 0 producerId: 4242 firstOffset: 100 lastOffset: 150 lastStableOffset: 151"
    ]
    folder.put(name, b"\0\1" + entry[2:]).dump(name)
    assert "unknown version 1" in folder.err[0]


def test_a_producer_snapshot_is_told_and_a_torn_one_refused() -> None:
    name = "00000000000000000001.snapshot"
    content = bytes.fromhex(
        "0001 7315ca59 00000001 0000000000001092 0003 00000011 0000000000000000 00000000 "
        "0000018bcfe56800"
        "ffffffff 0000000000000000"
    )
    folder = Folder().put(name, content)
    assert folder.dump(name) == [
        "producerId: 4242 producerEpoch: 3 coordinatorEpoch: -1 currentTxnFirstOffset: "
        "OptionalLong[0] "
        "lastTimestamp: 1700000000000 firstSequence: 17 lastSequence: 17 lastOffset: 0 "
        "offsetDelta: 0 "
        "timestamp: 1700000000000"
    ]
    folder.put(name, content[:-1]).dump(name)
    assert "CRC of this producer snapshot is wrong" in folder.err[0]
    assert folder.err[0].count(name) == 1


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "7.log", f"{LOG}.deleted", "x.checkpoint", "notes.txt"]
)
def test_a_file_of_no_known_kind_is_told_as_kafka_tells_it(name: str) -> None:
    folder = Folder().put(name, b"")
    assert folder.dump(name) == []
    assert folder.err == [f"Ignoring unknown file /t-0/{name}"]
    assert not folder.is_whole


def test_a_file_that_is_missing_or_a_folder_is_named() -> None:
    folder = Folder()
    folder.fs.make_dir(f"/t-0/{LOG}")
    folder.dump(LOG, INDEX)
    assert folder.err[0].startswith(f"error: /t-0/{LOG}: this is a folder; give a file")
    assert folder.err[1].startswith(f"error: /t-0/{INDEX}: No such file or directory; give a file")


def test_an_index_needs_its_log() -> None:
    folder = Folder().put(INDEX, struct.pack(">ii", 2, 0))
    folder.dump(INDEX)
    assert folder.err[0].startswith(f"error: /t-0/{INDEX}: /t-0/{LOG}: No such file")
