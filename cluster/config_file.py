"""A broker's configuration as a YAML file: a flat map of Kafka's keys (docs/CONFIG.md), see ``configs/``.

Only the file's form is judged here; which keys and values can be is ``raylog.storage.config``'s to say.
"""

import os
from collections.abc import Hashable
from typing import Any

import yaml

from raylog.storage.errors import InvalidConfig


class _UniqueKeys(yaml.SafeLoader):
    """YAML lets the last of two equal keys win; a broker must not guess which one was meant."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]  # type: ignore[no-untyped-call]
        for number, key in enumerate(keys):
            if key in keys[:number]:
                mark = node.value[number][0].start_mark
                raise yaml.MarkedYAMLError(problem=f"key {key!r} is there twice", problem_mark=mark)
        return super().construct_mapping(node, deep=deep)


def read_config_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings in a file. InvalidConfig, with file and line, if it is not a map of keys to values."""
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8") as file:
            settings = yaml.load(file, _UniqueKeys)
    except OSError as error:
        raise InvalidConfig("config file", name, error.strerror or str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfig("config file", name, " ".join(str(error).split())) from error
    if settings is None:
        return {}
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in settings):
        raise InvalidConfig("config file", name, "must be a map of keys to values, as in configs/broker.yaml")
    return settings
