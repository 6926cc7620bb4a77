"""The table, the equivalents, and the choice of tests."""

import pytest

from tests.harness.paths import ROOT
from tests.mutants.__main__ import EQUIVALENTS
from tests.mutants.operators import mutants_of
from tests.mutants.report import Outcome, Result, read_equivalents, summary, with_equivalents
from tests.mutants.run import (
    MOST_SECONDS,
    Known,
    Planted,
    all_mutants,
    choose_tests,
    draw,
    run_fast,
)
from tests.mutants.worker import exchange, outcome_of

KEY = "storage/log.py Log.flush\n- a < b\n+ a <= b"


def result(outcome: Outcome, key: str = KEY, file: str = "storage/log.py") -> Result:
    return Result(key, f"{file}:3", "comparison", outcome, "", 0.1)


def test_a_reason_makes_a_living_mutant_equivalent_and_no_killed_one() -> None:
    reasons = read_equivalents(f"## a note\n\n{KEY}\n= they are equal here\n")
    assert reasons == {KEY: "they are equal here"}
    results = [result("living"), result("killed"), result("living", "another")]
    assert [each.outcome for each in with_equivalents(results, reasons)] == [
        "equivalent",
        "killed",
        "living",
    ]


def test_an_equivalent_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="reason"):
        read_equivalents(KEY)


def test_every_equivalent_is_still_an_error_of_the_source() -> None:
    reasons = read_equivalents(EQUIVALENTS.read_text())
    paths = {key.split(" ")[0] for key in reasons}
    assert {*reasons} <= {each.key for each in all_mutants(ROOT, sorted(paths))}


def test_the_share_counts_timeouts_as_killed_and_leaves_equivalents_out() -> None:
    results = [
        result("killed"),
        result("timeout"),
        result("living", file="storage/files.py"),
        result("equivalent"),
        result("unreached"),
    ]
    lines = summary(results)
    assert lines[-5].startswith("living: ") or "50.0 %" in "".join(lines)
    assert [line.split()[:6] for line in lines if line.startswith("all")] == [
        ["all", "5", "1", "1", "2", "1"]
    ]
    assert "unreached: storage/log.py:3 (comparison)" in lines


def test_tests_that_run_the_line_are_chosen_fastest_first_within_the_time() -> None:
    (mutant,) = mutants_of("def f():\n    return a\n", "storage/log.py")
    here, there = {"storage/log.py": frozenset({2})}, {"storage/log.py": frozenset({1})}
    known = {
        "slow": Known(MOST_SECONDS, here),
        "fast": Known(1.0, here),
        "faster": Known(0.5, here),
        "elsewhere": Known(0.1, there),
    }
    assert choose_tests(mutant, known) == ["faster", "fast"]
    assert choose_tests(mutant, {"slow": Known(2 * MOST_SECONDS, here)}) == ["slow"]


def planted(number: int) -> Planted:
    (mutant,) = mutants_of("def f():\n    return a\n", "storage/log.py")
    return Planted(f"key {number}", mutant, source="")


def test_a_seed_draws_the_same_and_a_change_elsewhere_exchanges_few() -> None:
    every = [planted(number) for number in range(100)]
    drawn = draw(every, 10, 20)
    assert drawn == draw([*reversed(every)], 10, 20) != draw(every, 11, 20)
    changed = [planted(100), *every[1:]]
    assert len({*drawn} & {*draw(changed, 10, 20)}) >= 19
    assert len(draw(every, 10, 0)) == 100


class FakeWorker:
    """Answers each order with the same outcome."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def run(self, _planted: Planted, tests: list[str], _seconds: float) -> dict[str, str]:
        assert tests
        return {"outcome": self.outcome, "by": ""}


@pytest.mark.parametrize(
    ("outcome", "expected"), [("killed", "killed"), ("timeout", "timeout"), ("living", "suspect")]
)
def test_what_the_fast_tests_let_live_is_a_suspect(outcome: Outcome, expected: Outcome) -> None:
    known = {"fast": Known(0.1, {"storage/log.py": frozenset({2})})}
    worker = FakeWorker(outcome)
    assert run_fast(worker, planted(1), known).outcome == expected  # type: ignore[arg-type]
    assert run_fast(worker, planted(1), {}).outcome == "suspect"  # type: ignore[arg-type]


def test_outside_of_functions_every_test_of_the_file_may_notice() -> None:
    mutant, *_ = mutants_of("A = 1\n", "storage/log.py")
    known = {"one": Known(1.0, {"storage/log.py": frozenset({9})}), "two": Known(1.0, {})}
    assert choose_tests(mutant, known) == ["one"]


def test_how_pytest_ends_is_what_became_of_the_mutant() -> None:
    assert [outcome_of(code) for code in (None, 24, 0, 1, 2, 3, 9)] == [
        "timeout",
        "timeout",
        "living",
        "killed",
        "killed",
        "killed",
        "killed",
    ]
    assert outcome_of(pytest.ExitCode.NO_TESTS_COLLECTED) == "error"


def test_a_function_gets_the_code_of_another_source() -> None:
    source = "def f():\n    def g():\n        return 1\n    return g()\n"
    space: dict = {}
    exec(compile(source, "/copy/storage/log.py", "exec"), space)
    exchange([space["f"]], "storage/log.py", source.replace("1", "2"))
    assert space["f"]() == 2
