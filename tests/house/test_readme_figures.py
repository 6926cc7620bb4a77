"""The README's figures are those of docs/PERFORMANCE.md, below the heading of their command."""

import re

import pytest

from tests.harness.paths import DOCS, ROOT

COMMAND = re.compile(r"`(\./dev bench \w+)` \|$")
NUMBER = re.compile(r"\d[\d,.]*\d|\d")


def figure_rows() -> list[str]:
    """The rows of the README's tables that end with a command of ``./dev bench``."""
    return [line for line in (ROOT / "README.md").read_text().splitlines() if COMMAND.search(line)]


def lines_below(command: str) -> list[str]:
    """The lines of docs/PERFORMANCE.md below the heading that names the command."""
    sections = re.split(r"^## ", (DOCS / "PERFORMANCE.md").read_text(), flags=re.MULTILINE)
    [lines] = [text.splitlines() for text in sections if f"(`{command}`)\n" in text]
    return lines


def test_there_are_figures() -> None:
    assert len(figure_rows()) > 5


@pytest.mark.parametrize("row", figure_rows())
def test_one_line_of_the_page_has_all_figures_of_a_row(row: str) -> None:
    command = COMMAND.search(row)
    assert command is not None
    _, ours, theirs, _ = row.strip("| ").split(" | ")
    numbers = set(NUMBER.findall(f"{ours} {theirs}"))
    assert numbers
    assert any(numbers <= set(NUMBER.findall(line)) for line in lines_below(command[1]))
