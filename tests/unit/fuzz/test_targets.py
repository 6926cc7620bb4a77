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
