"""What the fuzzer begins with is right, and a target tells a find from an answer."""

import itertools
import subprocess
import sys

import pytest

from raylog.storage.records import kernel
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS, Disagreement, agreed


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_takes_its_seeds(target: str) -> None:
    some = list(itertools.islice(seeds(target), 0, 30, 3))
    assert some
    for data in (*some, b"", b"\0", b"\xff" * 100):
        TARGETS[target](data)


@pytest.mark.parametrize(
    ("target", "data"),
    [
        ("sealed", "00030e000010010261000e000002010262000e00000401026300"),
        ("sealed", "0001200100030e000000e70de7e7e7e7e72e0075757de775"),
        (
            "markers",
            "7fffffffffffffff0000001b0000000501000000000001200000000000000000000000000000d400000000",
        ),
    ],
    ids=["offsets that fall", "bytes behind the last record", "the last offset of all"],
)
def test_what_was_found_is_mended(target: str, data: str) -> None:
    TARGETS[target](bytes.fromhex(data))


@pytest.mark.skipif(kernel.KERNEL != "compiled", reason="there is no compiled kernel here")
def test_kernels_that_disagree_are_a_find() -> None:
    with pytest.raises(Disagreement, match="compiled"):
        agreed(lambda: kernel.ops.KERNEL)
    with pytest.raises(ZeroDivisionError):
        agreed(lambda: 1 // 0)


def test_an_input_can_be_repeated() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "markers", "--replay", "00ff"], check=False
    )
    assert done.returncode == 0
