"""Whose records a reader of committed does not get."""

from raylog.storage.records.aborted import without_aborted
from raylog.storage.records.control import Marker, encode_marker
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records

T0 = 1_700_000_000_000


def of(producer: int, offset: int, *, transactional: bool = True) -> bytes:
    return bytes(
        encode_records(
            [(T0, None, b"%d" % producer, ())],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
    )


def end_of(producer: int, offset: int, *, is_abort: bool) -> bytes:
    marker = Marker(is_abort=is_abort, coordinator_epoch=0, timestamp=T0)
    return bytes(encode_marker(marker, producer_id=producer, producer_epoch=0, base_offset=offset))


def offsets(fetched: object) -> list[int]:
    return [record.offset for record in decode_records(fetched)]  # type: ignore[arg-type]


def test_what_was_aborted_is_left_out_from_its_begin_to_its_marker() -> None:
    fetch = b"".join(
        [
            of(1, 0),
            of(2, 1),
            of(1, 2, transactional=False),
            of(1, 3),
            end_of(1, 4, is_abort=True),
            of(1, 5),
            end_of(2, 6, is_abort=False),
            of(2, 7),
            end_of(1, 8, is_abort=False),
            of(3, 9)[:-1],
        ]
    )
    assert without_aborted(fetch, []) is fetch
    assert offsets(without_aborted(fetch, [(1, 0)])) == [1, 2, 5, 7]
    assert offsets(without_aborted(fetch, [(2, 7)])) == [0, 1, 2, 3, 5]
    assert offsets(without_aborted(fetch, [(2, 7), (1, 3)])) == [0, 1, 2, 5]
    assert offsets(without_aborted(fetch, [(1, 0), (2, 1)])) == [2, 5]
