"""ray_cluster.yaml: what Ray's own schema and validation say of it, and whether what it runs
exists."""

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
import typer
import yaml

from raylog.actors.runtime.names import NODE_LABEL
from raylog.cluster.cli.main import app
from tests.harness.paths import ROOT

TOKEN = "~/.ray/auth_token"


@pytest.fixture(scope="module")
def cluster() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())  # type: ignore[no-any-return]


def test_it_is_what_rays_schema_asks_for(cluster: dict[str, Any]) -> None:
    schema = json.loads((Path(ray.__file__).parent / "autoscaler" / "ray-schema.json").read_text())
    jsonschema.validate(cluster, schema)


def test_ray_itself_takes_it(cluster: dict[str, Any]) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(cluster))


def test_all_of_ray_wants_the_token_that_each_machine_gets(cluster: dict[str, Any]) -> None:
    assert cluster["file_mounts"][TOKEN] == TOKEN
    starts = [command for command in commands(cluster) if "ray start --" in command]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in command for command in starts)


def commands(cluster: dict[str, Any]) -> list[str]:
    names = ("setup", "head_setup", "head_start_ray", "worker_start_ray")
    return [command for name in names for command in cluster[f"{name}_commands"]]


def test_head_and_workers_install_raylog_with_java_for_spark(cluster: dict[str, Any]) -> None:
    everywhere = "\n".join(cluster["setup_commands"])
    (mounted,) = (path for path in cluster["file_mounts"] if path != TOKEN)
    assert f'pip install -q "{mounted.replace("~", "$HOME")}[spark]"' in everywhere
    assert "openjdk-17" in everywhere


def test_every_raylog_command_is_one_with_its_options(cluster: dict[str, Any]) -> None:
    known = typer.main.get_command(app)
    assert isinstance(known, typer.core.TyperGroup)
    run = [shlex.split(command) for command in commands(cluster) if command.startswith("raylog ")]
    assert [words[1] for words in run] == ["stop", "start"]
    for _, verb, *rest in run:
        options = {name for parameter in known.commands[verb].params for name in parameter.opts}
        assert {word for word in rest if word.startswith("--")} <= options


def test_the_files_of_the_project_that_it_names_are_there(cluster: dict[str, Any]) -> None:
    named = {
        path for command in commands(cluster) for path in re.findall(r"~/raylog/(\S+)", command)
    }
    assert named == {"configs/production.yaml", "configs/mount_disks.sh"}
    assert all((ROOT / path).is_file() for path in named)


def test_ray_and_the_pin_of_the_project_are_the_same(cluster: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    spark = project["optional-dependencies"]["spark"]
    (pin,) = (one.removeprefix("ray") for one in spark if one.startswith("ray=="))
    assert any(f'"ray[default]{pin}"' in command for command in cluster["setup_commands"])


def test_every_machine_has_a_volume_for_each_log_dir_and_tells_its_actors(
    cluster: dict[str, Any],
) -> None:
    log_dirs = yaml.safe_load((ROOT / "configs" / "production.yaml").read_text())["log.dirs"]
    assert log_dirs == [f"/mnt/raylog-{number}" for number in range(len(log_dirs))]
    for kind in cluster["available_node_types"].values():
        assert len(kind["node_config"]["BlockDeviceMappings"]) == 1 + len(log_dirs)
    for role in ("head", "worker"):
        (start,) = (
            one
            for one in cluster[f"{role}_start_ray_commands"]
            if "ray start " in one.replace("raylog", "")
        )
        assert f"RAYLOG_LOG_DIRS={','.join(log_dirs)} ray start" in start
        assert f"--labels={NODE_LABEL}=$(hostname -s)" in start


def test_the_script_that_mounts_disks_is_bash() -> None:
    subprocess.run(["bash", "-n", str(ROOT / "configs" / "mount_disks.sh")], check=True)
