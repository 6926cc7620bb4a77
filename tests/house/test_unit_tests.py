"""Unit tests take no time: what they wait for either is there or never comes."""

import re

import pytest

from tests.harness.paths import ROOT

UNIT = ROOT / "tests" / "unit"
# A look at a real clock, a rest that is more than a yield, a bound that a busy machine can exceed.
REAL_TIME = {
    "the clock": r"^import time\b[\s\S]*\btime\.(monotonic|perf_counter)\(",
    "a rest": r"^import time\b[\s\S]*\btime\.sleep\((?!0\))",
    "a short wait": r"\b(result|exception|join|wait)\(0?\.\d",
}


@pytest.mark.parametrize("what", REAL_TIME)
def test_no_unit_test_depends_on_real_time(what: str) -> None:
    pattern = re.compile(REAL_TIME[what], re.MULTILINE)
    users = [str(path.relative_to(ROOT)) for path in UNIT.rglob("*.py")]
    assert [path for path in sorted(users) if pattern.search((ROOT / path).read_text())] == []
