"""ray_cluster.yaml: what Ray's own schema and validation say of it, and whether what it runs exists."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import yaml

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())  # type: ignore[no-any-return]


def test_it_is_what_rays_schema_asks_for(cluster: dict[str, Any]) -> None:
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    jsonschema.validate(cluster, schema)


def test_ray_itself_takes_it(cluster: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(cluster))


def test_head_and_workers_install_raylog_and_the_head_starts_the_broker(cluster: dict[str, Any]) -> None:
    assert any("pip install" in command and "raylog" in command for command in cluster["setup_commands"])
    started = [
        command for command in cluster["head_start_ray_commands"] if command.startswith("raylog start")
    ]
    assert len(started) == 1
    config = re.search(r"--config ~/raylog/(\S+)", started[0])
    assert config is not None
    assert (ROOT / config[1]).exists()


def test_the_mounted_folders_are_those_of_the_config(cluster: dict[str, Any]) -> None:
    settings = yaml.safe_load((ROOT / "configs" / "production.yaml").read_text())
    made = " ".join(cluster["setup_commands"])
    assert all(folder in made for folder in settings["log.dirs"])
