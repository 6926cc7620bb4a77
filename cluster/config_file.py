"""A broker's configuration as a YAML file: a flat map of Kafka's keys.

``docs/CONFIG.md`` lists the keys, and ``configs/`` has examples. ``raylog.storage.config`` checks
keys and values. This module adds the file and the line to its errors.
"""

import os
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import yaml

from raylog.actors.node.broker_config import BrokerConfig, absolute
from raylog.storage.errors import DuplicateLogDir, InvalidConfig


class InvalidConfigFile(InvalidConfig):
    """The configuration file cannot be used.

    It cannot be read, is not a map of keys to values, or has an invalid key or value.
    """

    fields: ClassVar[tuple[str, ...]] = ("path", "why")
    path: str
    why: str
    template = "config file {path}: {why}"


def different(log_dirs: Sequence[str]) -> list[str]:
    """The dirs' absolute paths. Raises DuplicateLogDir before anything is started for them."""
    paths = absolute(log_dirs)
    path_by_real_path: dict[str, str] = {}
    for path in paths:
        other = path_by_real_path.setdefault(os.path.realpath(path), path)
        if other is not path:
            raise DuplicateLogDir(path, other, "are the same folder")
    return paths


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets the last of two equal keys win; a broker must not guess which one was meant."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]  # type: ignore[no-untyped-call]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                mark = node.value[number][0].start_mark
                raise yaml.MarkedYAMLError(problem=f"key {key!r} appears twice", problem_mark=mark)
        return super().construct_mapping(node, deep=deep)


def read_config_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings in a file; each key and value is valid for a broker.

    Raises InvalidConfigFile.
    """
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8") as file:
            settings, lines = _load(file.read())
    except OSError as error:
        raise InvalidConfigFile(name, error.strerror or str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfigFile(name, _where_and_why(error)) from error
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise InvalidConfigFile(
            name, "the file must be a map of keys to values, as in configs/broker.yaml"
        )
    for key, value in settings.items():
        try:
            BrokerConfig.parse({key: value})
        except InvalidConfig as error:
            raise InvalidConfigFile(name, f"line {lines[key]}: {error}") from error
    return settings


def _load(text: str) -> tuple[Any, dict[str, int]]:
    """The parsed text, and the line number of each key of its map."""
    loader = _UniqueKeys(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, {}
        entries = node.value if isinstance(node, yaml.MappingNode) else []
        scalars = [key for key, _ in entries if isinstance(key, yaml.ScalarNode)]
        lines = {key.value: key.start_mark.line + 1 for key in scalars}
        return loader.construct_document(node), lines  # type: ignore[no-untyped-call]
    finally:
        loader.dispose()  # type: ignore[no-untyped-call]


def _where_and_why(error: Exception) -> str:
    """YAML's message of several lines as one line: ``line 2: what is wrong``."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    if mark is None or problem is None:
        return " ".join(str(error).split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}"
