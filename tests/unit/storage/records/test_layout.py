"""The batch's layout is one: in Python, in the compiled kernel, and in the header's own format."""

import re

import pytest

from raylog.storage.records import layout
from raylog.storage.records.batch import BatchHeader
from raylog.storage.records.compression import CODECS
from tests.harness.paths import ROOT

SOURCE = (ROOT / "storage/records/_kernel_layout.pxi").read_text()
NUMBERS = dict(re.findall(r"^    ([A-Z_]+) = (\w+)$", SOURCE, re.MULTILINE))
POSITIONS = [
    layout.AT_BASE_OFFSET,
    layout.AT_LENGTH,
    layout.AT_LEADER_EPOCH,
    layout.AT_MAGIC,
    layout.AT_CRC,
    layout.AT_ATTRIBUTES,
    layout.AT_LAST_OFFSET_DELTA,
    layout.AT_BASE_TIMESTAMP,
    layout.AT_MAX_TIMESTAMP,
    layout.AT_PRODUCER_ID,
    layout.AT_PRODUCER_EPOCH,
    layout.AT_BASE_SEQUENCE,
    layout.AT_COUNT,
]


@pytest.mark.parametrize("name", NUMBERS)
def test_the_kernel_has_the_numbers_of_the_layout(name: str) -> None:
    if name.startswith("FIELD_"):
        field = BatchHeader._fields[int(NUMBERS[name])]
        assert f"FIELD_{field.upper()}" == name
    else:
        assert int(NUMBERS[name], 0) == getattr(layout, name)


def test_the_kernel_states_all_positions() -> None:
    positions = {name for name in vars(layout) if name.startswith("AT_")}
    assert positions <= NUMBERS.keys()
    assert len(POSITIONS) == len(positions)


def test_each_field_stands_where_the_headers_format_has_it() -> None:
    form = layout.HEADER.format.removeprefix(">")
    assert len(form) == len(POSITIONS) == len(BatchHeader._fields)
    for index, position in enumerate(POSITIONS):
        assert layout.HEADER.unpack_from(bytes(position) + b"\1" + bytes(99))[index] != 0
    assert layout.HEADER.size == layout.HEADER_SIZE


def test_a_stamp_ends_where_the_magic_begins() -> None:
    stamped = layout.STAMP.unpack_from(layout.HEADER.pack(1, 2, 3, 4, *[0] * 9))
    assert (stamped, layout.STAMP.size) == ((1, 2, 3), layout.AT_MAGIC)


def test_the_last_codec_is_the_last() -> None:
    assert max(CODECS.values()) == layout.LAST_CODEC


def test_the_kernels_sources_are_100_columns_wide() -> None:
    """Ruff looks at Python alone."""
    sources = list((ROOT / "storage/records").glob("_kernel*.p[yx][xi]"))
    assert len(sources) >= 8
    for path in sources:
        assert max(map(len, path.read_text().splitlines())) <= 100, path.name
