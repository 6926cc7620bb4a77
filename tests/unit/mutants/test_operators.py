"""Which errors are planted, where, and that the source stays a program."""

import ast
from pathlib import Path

import pytest

from tests.harness.paths import ROOT
from tests.mutants.operators import Mutant, mutants_of, with_keys

PATH = "storage/x.py"


def changes(source: str, kind: str = "") -> set[str]:
    """The lines that mutants leave in place of the last line."""
    return {
        mutant.lines(source)[1] for mutant in mutants_of(source, PATH) if kind in ("", mutant.kind)
    }


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        ("if a < b: pass", "comparison", {"if a <= b: pass", "if a >= b: pass"}),
        ("if a == b: pass", "comparison", {"if a != b: pass"}),
        ("if a not in b: pass", "comparison", {"if a in b: pass"}),
        ("x = a is None", "comparison", {"x = a is not None"}),
        ("x = 0 < a <= b", "comparison", {
            "x = 0 <= a <= b", "x = 0 >= a <= b", "x = 0 < a < b", "x = 0 < a > b",
        }),
        ("x = a + b", "arithmetic", {"x = a - b"}),
        ("x = a // 2", "arithmetic", {"x = a * 2"}),
        ("x = a + 'text'", "arithmetic", set()),
        ("x = a and b", "and/or", {"x = a or b"}),
        ("x = not a", "not", {"x = (a)"}),
        ("x = 7", "constant", {"x = 8", "x = 6"}),
        ("x = 0", "constant", {"x = 1"}),
        ("x = True", "constant", {"x = False"}),
        ("f(a=True)", "constant", {"f(a=False)"}),
        ("zip(a, b, strict=True)", "constant", set()),
        ("if a.b(): pass", "negation", {"if (not (a.b())): pass"}),
        ("x = [a for a in b if a.c]", "negation", {"x = [a for a in b if (not (a.c))]"}),
        ("a.b(c)", "statement", {"pass"}),
        ("raise KeyError", "statement", {"pass"}),
        ("f(a, b, c)", "arguments", {"f(b, a, c)"}),
        ("f(a, *b)", "arguments", set()),
        ("min(a, b)", "arguments", set()),
        ("os.open(a, os.O_RDWR | os.O_CREAT, 0o644)", "arithmetic", set()),
        ("f(0o644)", "constant", set()),
        ("x = '<' < a", "comparison", {"x = '<' <= a", "x = '<' >= a"}),
    ],
)  # fmt: skip
def test_each_kind_of_error(line: str, kind: str, expected: set[str]) -> None:
    assert changes(line, kind) == expected


def test_in_a_function_a_kept_assignment_goes_and_a_local_one_stays() -> None:
    source = "def f(self):\n    x = y\n    self.x = y\n    self.n += y"
    dropped = [m.lines(source) for m in mutants_of(source, PATH) if m.kind == "statement"]
    assert dropped == [("self.x = y", "pass"), ("self.n += y", "pass")]


def test_an_answer_becomes_none() -> None:
    assert changes("def f():\n    return a", "return") == {"return None"}
    assert changes("def f():\n    return None", "return") == set()


def test_a_lock_is_not_taken() -> None:
    source = "with self.list_lock:\n    pass"
    (mutant,) = mutants_of(source, PATH)
    assert mutant.kind == "lock"
    assert "nullcontext" in mutant.apply(source)


def test_what_is_no_code_is_left_alone() -> None:
    source = '@cache(1)\ndef f(a: Literal[1]) -> Literal[2]:\n    "text"\n    assert a == 3\n'
    assert mutants_of(source, PATH) == []


def test_the_function_is_named_and_defaults_are_none_of_its_lines() -> None:
    source = "class A:\n    def f(self, n=0):\n        return n\n"
    assert [(m.function, m.kind) for m in mutants_of(source, PATH)] == [
        ("", "constant"),
        ("A.f", "return"),
    ]


def test_a_statement_of_several_lines_leaves_as_many() -> None:
    source = "def f():\n    g(\n        'ü',\n        a,\n    )\n    return a\n"
    for mutant in mutants_of(source, PATH):
        changed = mutant.apply(source)
        assert changed.count("\n") == source.count("\n")
        ast.parse(changed)


def test_equal_errors_in_a_function_have_keys_of_their_own() -> None:
    source = "def f():\n    g(a)\n    g(a)\n"
    keys = [key for key, mutant in with_keys(mutants_of(source, PATH), source)]
    assert keys == ["storage/x.py f\n- g(a)\n+ pass", "storage/x.py f\n- g(a)\n+ pass\n# 2"]


@pytest.mark.parametrize("path", sorted((ROOT / "storage").glob("*.py")), ids=lambda p: p.name)
def test_every_mutant_of_the_storage_is_a_program_with_as_many_lines(path: Path) -> None:
    source = path.read_text()
    seen: set[Mutant] = set()
    for mutant in mutants_of(source, f"storage/{path.name}"):
        changed = mutant.apply(source)
        assert changed != source
        assert changed.count("\n") == source.count("\n")
        compile(changed, path.name, "exec")
        seen.add(mutant)
    assert len(seen) == len(mutants_of(source, f"storage/{path.name}"))
