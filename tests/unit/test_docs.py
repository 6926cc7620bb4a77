"""What the documentation names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFORMANCE = (ROOT / "docs" / "CONFORMANCE.md").read_text()


def test_every_test_that_conformance_names_is_there() -> None:
    sources = {path: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    defined = set(re.findall(r"def (test_\w+)", "\n".join(sources.values())))
    named = set(re.findall(r"`(test_\w+)`", CONFORMANCE))
    assert len(named) > 20
    assert named <= defined
    files = set(re.findall(r"`((?:unit|faults|ray|kafka)/[\w/]+\.py)`", CONFORMANCE))
    assert len(files) > 30
    assert [name for name in files if not (ROOT / "tests" / name).exists()] == []


def test_every_fact_has_its_test() -> None:
    facts = (ROOT / "tests" / "unit" / "storage" / "test_fifteen_facts.py").read_text()
    assert {int(number) for number in re.findall(r"def test_fact_(\d+)_", facts)} == set(range(1, 16))


def test_every_page_that_is_linked_is_there() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
