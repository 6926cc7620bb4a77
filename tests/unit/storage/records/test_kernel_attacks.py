"""No object and no number of a caller ends the process: each attack runs in one of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raylog.storage.records import kernel

ATTACKS = Path(__file__).with_name("attacks.py")


def names() -> list[str]:
    lines = ATTACKS.read_text().splitlines()
    ends = "() -> None:"
    return [line[4 : -len(ends)] for line in lines if line.startswith("def ") and ends in line]


# The largest size of a batch and of a fetch, made small before the kernel takes it.
SMALL_LIMIT = """
from array import array
from raylog.storage.records import compression
compression.MAX_PLAIN_BYTES = 1000
from raylog.storage.errors import InvalidRecord
from raylog.storage.records import kernel
from raylog.storage.records.decode import decode_records
from raylog.storage.records.encode import encode_records

def is_refused(call, *arguments):
    try:
        call(*arguments)
    except InvalidRecord:
        return True
    return False

for size in range(900, 1010):
    records = encode_records if size % 2 else lambda rows: encode_records(iter(rows))
    assert is_refused(records, [(0, None, bytes(size), ())]) == (size > 930), size
    assert is_refused(records, [(0, None, None, [("h", bytes(size))])]) == (size > 927), size
assert is_refused(encode_records, [(0, None, bytes(40), ())] * 50)
large = [("h", bytes(2000))]
assert is_refused(encode_records, [(0, None, None, large * 9)])
batch = bytes(encode_records([(0, None, bytes(400), ())]))
assert len(decode_records(batch * 2)) == 2
assert is_refused(decode_records, batch * 3)

for size in (900, 931, 1005):
    values = kernel.ops.TextColumn(array("i", [0, size]), bytes(size), None, 0, 1)
    encoder = kernel.ops.TableEncoder(1, None, 0, None, values, None, None, None)
    assert is_refused(encoder.encode, 0, 10_000) == (size > 930), size
"""


def survives(*arguments: str | Path) -> None:
    pure = {"RAYLOG_PURE_PYTHON": "1"} if kernel.ops.KERNEL == "pure Python" else {}
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | pure, capture_output=True, text=True
    )
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stderr[-3000:]}"


@pytest.mark.parametrize("attack", names())
def test_the_process_lives_and_the_answer_has_a_name(attack: str) -> None:
    survives(ATTACKS, attack)


def test_batches_end_at_the_largest_size() -> None:
    survives("-c", SMALL_LIMIT)
