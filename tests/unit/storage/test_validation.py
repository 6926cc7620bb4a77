"""The kernel's glance at a batch lets nothing pass that the closer look refuses, and changes no error."""

from collections.abc import Iterator

import numpy as np
import pytest

from raylog.storage.config import LogConfig
from raylog.storage.errors import CorruptRecord, InvalidRecord, InvalidTimestamp, RaylogError, RecordTooLarge
from raylog.storage.records import _kernel_py, kernel
from raylog.storage.records.batch import BatchHeader, seal
from raylog.storage.records.encode import encode_records
from raylog.storage.validation import check_append

NOW_MS = 1_700_000_000_000
MAX_INT64 = 2**63 - 1


def batch(timestamp: int = NOW_MS, **changed: int) -> bytes:
    encoded = encode_records([(timestamp, b"k", b"v", ()), (timestamp + 1, None, None, ())])
    if not changed:
        return bytes(encoded)
    header = BatchHeader(0, 0, -1, 2, 0, 0, 1, timestamp, timestamp + 1, -1, -1, -1, 2)
    return bytes(seal(bytearray(encoded), header._replace(**changed)))


def outcome(records: bytes) -> str:
    try:
        return repr(check_append(records, LogConfig(), NOW_MS).header)
    except RaylogError as error:
        return repr(error)


def damaged() -> Iterator[bytes]:
    whole = batch()
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
    yield from (whole[:size] for size in range(len(whole)))
    yield whole + b"\0"
    for attributes in range(-1, 0x81):
        yield batch(attributes=attributes)
    for count in (-1, 0, 1, 3):
        yield batch(count=count)
        yield batch(last_offset_delta=count)
    for timestamp in (-MAX_INT64 - 1, -1, 0, NOW_MS + 3_600_000, NOW_MS + 3_600_001, MAX_INT64):
        yield batch(max_timestamp=timestamp)
    yield batch(producer_id=7, producer_epoch=1, base_sequence=MAX_INT64 >> 32)


def test_both_kernels_judge_every_damage_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = list(damaged())
    compiled = [outcome(case) for case in cases]
    monkeypatch.setattr(kernel, "ops", _kernel_py)
    assert [outcome(case) for case in cases] == compiled
    assert len({text.split("(")[0] for text in compiled}) >= 5, "the cases reach several errors"


@pytest.mark.skipif(kernel.KERNEL != "compiled", reason="there is no compiled kernel here")
def test_a_plain_batch_needs_no_closer_look() -> None:
    for records in (batch(), bytearray(batch()), np.frombuffer(batch(), np.uint8)):
        assert kernel.ops.plain_header(records, 1 << 20, NOW_MS, MAX_INT64) == outcome_header(batch())


def outcome_header(records: bytes) -> BatchHeader:
    return check_append(records, LogConfig(), NOW_MS).header


def test_the_content_is_bytes_whatever_the_array_is_made_of() -> None:
    encoded = bytes(encode_records([(NOW_MS, None, b"v" * 24, ())]))
    words = np.frombuffer(encoded, np.int16 if len(encoded) % 4 else np.int32)
    checked = check_append(words.data, LogConfig(), NOW_MS)
    assert bytes(checked.content) == encoded
    assert len(checked.content) == len(encoded)


@pytest.mark.parametrize(
    ("records", "config", "error"),
    [
        (batch(), LogConfig(max_message_bytes=20), RecordTooLarge),
        (batch(NOW_MS + 10_000), LogConfig(message_timestamp_after_max_ms=9_999), InvalidTimestamp),
        (b"", LogConfig(), CorruptRecord),
        ("text", LogConfig(), InvalidRecord),
        (np.zeros((99, 4), np.uint8)[:, 1], LogConfig(), InvalidRecord),
    ],
)
def test_what_is_refused(records: bytes, config: LogConfig, error: type[RaylogError]) -> None:
    with pytest.raises(error):
        check_append(records, config, NOW_MS)
