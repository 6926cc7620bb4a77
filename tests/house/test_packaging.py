"""What is declared: what the code imports, and no more tightly than it must be."""

import ast
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from typing import Any

import pytest

from tests.harness.paths import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
OURS = {"raylog", "storage", "actors", "cluster", "tests", "examples", "benchmarks"}
# Folder -> the extras that its code may use.
FOLDERS = {
    "storage": [],
    "actors": [],
    "cluster": ["spark"],
    "raylog": [],
    "examples": ["demo"],
    "benchmarks": ["dev"],
    "tests": ["dev"],
}


def name_of(requirement: str) -> str:
    """``raylog[spark]>=1; marker`` -> ``raylog``."""
    for mark in "[<>=!~; ":
        requirement = requirement.partition(mark)[0]
    return requirement.lower().replace("_", "-")


def declared(extras: Iterable[str]) -> set[str]:
    """The names of the core's packages and of these extras'."""
    found = {name_of(requirement) for requirement in PROJECT["dependencies"]}
    for extra in extras:
        for requirement in EXTRAS[extra]:
            if name_of(requirement) == "raylog":
                inner = requirement.partition("[")[2].partition("]")[0]
                found |= declared(inner.split(","))
            found.add(name_of(requirement))
    return found


# They run in an environment of their own, with the packages of tests/clients/table.py.
CLIENTS = ROOT / "tests" / "clients" / "programs"


def imports_of(folder: str) -> dict[str, str]:
    """The packages of others that a folder's code imports, each with a file that does."""
    found: dict[str, str] = {}
    for path in (ROOT / folder).rglob("*.py"):
        if path.resolve().is_relative_to(ROOT / folder) and not path.is_relative_to(CLIENTS):
            for name in _imported(ast.parse(path.read_text())):
                found[name.partition(".")[0]] = str(path.relative_to(ROOT))
    return {
        name: path
        for name, path in found.items()
        if name not in OURS and name not in sys.stdlib_module_names
    }


def _imported(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_package_that_is_imported_is_declared(folder: str) -> None:
    distributions = packages_distributions()
    known = declared(FOLDERS[folder])
    undeclared = {
        name: path
        for name, path in imports_of(folder).items()
        if not known & {name_of(dist) for dist in distributions.get(name, [name])}
    }
    assert undeclared == {}


def test_the_core_goes_into_a_ray_cluster_that_is_there() -> None:
    [ray] = [entry for entry in PROJECT["dependencies"] if name_of(entry) == "ray"]
    assert ray == "ray>=2.52"
    assert f'"ray=={ray.removeprefix("ray>=")}.*"' in (ROOT / "dev").read_text(), (
        "./dev rays tests the oldest Ray that the core takes"
    )


def test_spark_on_ray_is_pinned_and_the_source_alone_is_not() -> None:
    pinned = {"ray", "pyspark", "raydp"}
    exact = {name_of(entry) for entry in EXTRAS["spark"] if "==" in entry}
    assert exact == pinned
    assert EXTRAS["spark-source"] == ["pyspark>=4.2"]
