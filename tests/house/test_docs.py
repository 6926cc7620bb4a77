"""What the documentation names is there."""

import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from typer.core import TyperGroup

from raylog.cluster.cli.main import app
from raylog.storage import errors as storage_errors
from raylog.storage.report import Kind
from tests.harness.paths import ROOT

# UsageError, of click or of what typer has in its place
WrongUse: type[Exception] = typer.BadParameter.__mro__[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
CONFORMANCE = (ROOT / "docs" / "CONFORMANCE.md").read_text()


def test_every_test_that_conformance_names_is_there() -> None:
    sources = {path: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    defined = set(re.findall(r"def (test_\w+)", "\n".join(sources.values())))
    named = set(re.findall(r"`(test_\w+)`", CONFORMANCE))
    assert len(named) > 20
    assert named <= defined
    files = set(re.findall(r"`((?:unit|faults|ray|nodes|kafka)/[\w/]+\.py)`", CONFORMANCE))
    assert len(files) > 30
    assert [name for name in files if not (ROOT / "tests" / name).exists()] == []


def test_every_fact_has_its_test() -> None:
    facts = (ROOT / "tests" / "unit" / "storage" / "test_fifteen_facts.py").read_text()
    assert {int(number) for number in re.findall(r"def test_fact_(\d+)_", facts)} == set(
        range(1, 16)
    )


def test_every_page_that_is_linked_is_there() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_file_that_the_glossary_and_the_architecture_name_is_there() -> None:
    for name in ("GLOSSARY.md", "ARCHITECTURE.md"):
        text = (ROOT / "docs" / name).read_text()
        folders = "storage|actors|cluster|raylog|tests|benchmarks|examples|docs|configs"
        named = re.findall(rf"`((?:{folders})/[\w./]*)`", text)
        assert named, name
        assert [path for path in named if not (ROOT / path).exists()] == [], name


OPERATIONS = (ROOT / "docs" / "OPERATIONS.md").read_text()


def error_rows() -> dict[str, str]:
    """The rows of the tables of errors: name -> what one sees."""
    _, _, section = OPERATIONS.partition("\n## Errors and what to do\n")
    section, _, _ = section.partition("\n## ")
    cells = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    rows = {row[0].removeprefix("| "): row[1] for row in cells}
    return {name: seen for name, seen in rows.items() if name not in ("error", "---")}


def test_operations_has_every_error_of_a_log_or_a_disk() -> None:
    classes = {
        name for name in vars(storage_errors) if isinstance(vars(storage_errors)[name], type)
    }
    named = {
        name
        for name in classes
        if issubclass(getattr(storage_errors, name), storage_errors.RaylogError)
    }
    assert set(error_rows()) == named - {"RaylogError"}


@pytest.mark.parametrize("name", error_rows())
def test_what_operations_says_one_sees_is_what_the_error_says(name: str) -> None:
    kind = getattr(storage_errors, name)
    sentence = str(kind(*(f"<{field}>" for field in kind.fields)))
    if kind.template != "{why}" and kind is not storage_errors.StorageError:
        assert [
            words for words in re.findall('"([^"]*)"', error_rows()[name]) if words not in sentence
        ] == []


def test_operations_has_every_kind_of_what_recovery_does() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| .* \| .* \| .* \|$", OPERATIONS, re.MULTILINE)) >= set(
        get_args(Kind)
    )


def raylog_commands(page: str) -> list[list[str]]:
    """The arguments of every ``raylog ...`` in the page's code: blocks, lines of four spaces and
    `spans`."""
    # Those of other languages, too: the end of one looks like the beginning of the next.
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    blocks = [block for language, block in fenced if language in ("", "sh", "bash")]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"^ {4}(?:\$ )?(\S.*)", page, re.MULTILINE)
    found = []
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:
            continue  # no shell's: a line of output
        starts = [
            at for at, word in enumerate(words) if word == "raylog" and _begins_command(words[:at])
        ]
        for start in starts:
            end = next(
                (at for at in range(start, len(words)) if _is_punctuation(words[at])),
                len(words),
            )
            found.append(words[start + 1 : end])
    return found


def _is_punctuation(word: str) -> bool:
    return word != "" and set(word) <= set("|&;<>()")


def _begins_command(before: list[str]) -> bool:
    return (
        not before
        or before[-1] in ("|", "&&", "||", ";", "!", "if", "while", "until")
        or "=" in before[-1]
    )


def parse(arguments: list[str]) -> None:
    """Raises what the command line would, before it does anything."""
    command: Any = typer.main.get_command(app)
    name: str | None = "raylog"
    parent = None
    while isinstance(command, TyperGroup):
        parent = command.make_context(name, list(arguments), parent=parent)
        rest = [*parent._protected_args, *parent.args]
        if not rest and command.invoke_without_command:
            return
        name, command, arguments = command.resolve_command(parent, rest)
    command.make_context(name, list(arguments), parent=parent)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_command_line_takes_every_raylog_command_of_the_docs(page: Path) -> None:
    for arguments in raylog_commands(page.read_text()):
        try:
            parse(arguments)
        except WrongUse as error:
            pytest.fail(f"{page.name}: raylog {shlex.join(arguments)}: {error}")


def test_the_pages_of_the_command_line_have_commands() -> None:
    for name in ("README.md", "docs/CLI.md", "docs/TOOLS.md"):
        assert len(raylog_commands((ROOT / name).read_text())) > 2, name


@pytest.mark.parametrize(
    "line", ["raylog frobnicate", "x | raylog topic list --fromat json", "raylog topic create"]
)
def test_a_command_that_is_none_is_seen(line: str) -> None:
    (arguments,) = raylog_commands(f"```sh\n{line}\n```\n")
    with pytest.raises(WrongUse):
        parse(arguments)


def quick_starts() -> tuple[str, str]:
    """The README's code in Python, and its block of the command line."""
    readme = (ROOT / "README.md").read_text()
    python = "".join(re.findall(r"```python\n(.*?)```", readme, re.DOTALL))
    lines = [line for line in readme.splitlines() if re.match(r"    .*\braylog [a-z]", line)]
    return python, "\n".join(lines)


def test_the_readmes_quick_starts_share_no_log_dir_and_no_topic() -> None:
    """Who tries one after the other meets nothing of the first in the second."""
    python, shell = quick_starts()
    used = set(re.findall(r'(?:log_dirs=\[|create_topic\()"([^"]+)"', python))
    named = set(re.findall(r"--log-dir (\S+)|topic create (\S+)", shell))
    assert len(used) > 1
    assert len(named) == 2
    assert not used & {name for pair in named for name in pair}


def test_the_readme_says_where_the_command_is_before_its_first_use() -> None:
    before, _, _ = (ROOT / "README.md").read_text().partition("    raylog start")
    assert ".venv/bin/raylog" in before
    assert ". .venv/bin/activate" in before
