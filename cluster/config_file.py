"""A broker's configuration as a file: a flat map of Kafka's keys.

It is YAML, or, where its name ends in ``.properties``, Kafka's own ``server.properties``
(``kafka_properties.py``). ``docs/CONFIG.md`` lists the keys, and ``configs/`` has examples.
``raylog.storage.config`` checks keys and values. This module adds the file and the line to its
errors.
"""

import logging
import os
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, ClassVar, Final

import yaml

from raylog.actors.node.broker_config import BrokerConfig, absolute, broker_keys
from raylog.cluster.kafka_properties import (
    ONLY,
    SUFFIX,
    Entry,
    entries,
    why_unused,
    without_controllers,
)
from raylog.storage.errors import DuplicateLogDir, InvalidConfig

logger: Final = logging.getLogger(__name__)


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

    Keys of a ``server.properties`` that have no use here are left out, and logged as warnings, with
    the reason. Raises InvalidConfigFile.
    """
    name = os.fspath(path)
    read = _properties if name.endswith(SUFFIX) else _yaml
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise InvalidConfigFile(name, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise InvalidConfigFile(name, str(error)) from error
    settings = read(name, text)
    for one in settings:
        try:
            BrokerConfig.check(one.key, one.value)
        except InvalidConfig as error:
            raise InvalidConfigFile(name, f"line {one.line}: {error}") from error
    return {one.key: one.value for one in settings}


def _yaml(name: str, text: str) -> list[Entry]:
    """The settings of a YAML file."""
    try:
        settings, lines = _load(text)
    except yaml.YAMLError as error:
        raise InvalidConfigFile(name, _where_and_why(error)) from error
    if settings is None:
        return []
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise InvalidConfigFile(
            name, "the file must be a map of keys to values, as in configs/broker.yaml"
        )
    return [Entry(key, value, lines[key]) for key, value in settings.items()]


def _properties(name: str, text: str) -> list[Entry]:
    """The settings of a ``server.properties`` that raylog has."""
    try:
        found = entries(text)
    except ValueError as error:
        raise InvalidConfigFile(name, str(error)) from error
    _check_once(name, found)
    found = without_controllers(found)
    unused = [one for one in found if one.key not in broker_keys() and why_unused(one.key)]
    _check_promises(name, unused)
    _warn_of_unused(name, unused)
    return [one for one in found if one not in unused]


def _check_once(name: str, found: Iterable[Entry]) -> None:
    lines: dict[str, int] = {}
    for one in found:
        first = lines.setdefault(one.key, one.line)
        if first != one.line:
            why = f"line {one.line}: key '{one.key}' appears twice, first in line {first}"
            raise InvalidConfigFile(name, why)


def _check_promises(name: str, unused: Iterable[Entry]) -> None:
    for one in unused:
        if one.value not in ONLY.get(one.key, (one.value,)):
            why = f"{one.key}={one.value} would not be obeyed, since {why_unused(one.key)}"
            raise InvalidConfigFile(name, f"line {one.line}: {why}; take it out of the file")


def _warn_of_unused(name: str, unused: Iterable[Entry]) -> None:
    """A line of the log for each reason."""
    keys_by_reason: dict[str, list[str]] = {}
    for one in unused:
        keys_by_reason.setdefault(why_unused(one.key), []).append(one.key)
    for why, keys in keys_by_reason.items():
        logger.warning("config file %s: without use here, since %s: %s", name, why, ", ".join(keys))


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
