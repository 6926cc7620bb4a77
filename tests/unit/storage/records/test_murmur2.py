"""Kafka's partitioner."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.storage.errors import InvalidPartitions
from raylog.storage.records.murmur2 import murmur2, partition_for_key, partitions_for_column

KAFKAS = {
    b"": 275646681, b"0": 971027396, b"a": -1563381124, b"ab": 316155434, b"abc": 479470107,
    b"abcd": -1323649548, b"21": -973932308, b"foobar": -790332482, b"kafka": -798503068,
    b"key-1": 193331640, b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"\xff" * 4: 644171429, (1).to_bytes(8, "big"): 2100486060,
}  # fmt: skip


@pytest.mark.parametrize(("key", "expected"), KAFKAS.items())
def test_a_key_hashes_as_in_kafka(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected
    assert murmur2(bytearray(key)) == murmur2(memoryview(key)) == expected


@pytest.mark.parametrize(("key", "of_10", "of_3"), [(b"a", 4, 1), (b"kafka", 0, 1), (b"21", 0, 0)])
def test_a_key_goes_to_kafkas_partition(key: bytes, of_10: int, of_3: int) -> None:
    assert (partition_for_key(key, 10), partition_for_key(key, 3)) == (of_10, of_3)


@given(st.lists(st.none() | st.text(max_size=30)), st.integers(1, 2**31 - 1), st.integers(0, 3))
def test_a_column_goes_where_its_keys_go(
    keys: list[str | None], partitions: int, first: int
) -> None:
    expected = [-1 if key is None else partition_for_key(key.encode(), partitions) for key in keys][
        first:
    ]
    for kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string()):
        array = pa.array(keys, pa.string()).cast(kind).slice(first)
        found = partitions_for_column(array, partitions)
        assert found.dtype == "int32"
        assert found.tolist() == expected


@pytest.mark.parametrize("partitions", [0, -1, 2**31])
def test_a_number_of_partitions_that_no_topic_has_is_a_named_error(partitions: int) -> None:
    with pytest.raises(InvalidPartitions, match=f"invalid number of partitions {partitions}"):
        partition_for_key(b"k", partitions)
    with pytest.raises(InvalidPartitions):
        partitions_for_column(pa.array(["k"]), partitions)
