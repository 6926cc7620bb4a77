"""A module of the project with an error planted in it, for the process that asks for it.

The error is a text that takes the place of another in the module's source when it is imported. So
nothing on the disk changes, and the process has to plant it before anything imports the module.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from types import CodeType, ModuleType


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, name: str, loader: _Loader) -> None:
        self._name, self._loader = name, loader

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return spec_from_file_location(fullname, self._loader.path, loader=self._loader)


def mutated(module: str, *texts: tuple[str, str]) -> tuple[str, str]:
    """The file of a module, and its source with the second of each pair in the place of the first.

    Raises ValueError where the source does not have the first exactly once.
    """
    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    with open(found.origin, encoding="utf-8") as file:
        source = file.read()
    for old, new in texts:
        if source.count(old) != 1:
            raise ValueError(f"{module} has {source.count(old)} times: {old}")
        source = source.replace(old, new)
    return found.origin, source


def plant(module: str, *texts: tuple[str, str]) -> None:
    """Have ``module`` imported with the error. It must not be imported yet."""
    path, source = mutated(module, *texts)
    assert module not in sys.modules, f"{module} is imported already"
    sys.meta_path.insert(0, _Finder(module, _Loader(module, path, source)))
