"""Ray on this machine for a test or a benchmark.

It has a short folder of its own. In any case Ray is ended, and the folder is removed. Several
nodes of one cluster are in ``nodes.py``.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

# Ray puts Unix sockets below its folder, and the path of one may have 107 bytes.
SHORT_PATHS = "/tmp"
# More than the machine may have: Ray starts a worker beforehand for each, and Spark's executor and
# master ask for one each. The broker's own actors take none.
CPUS = 8


@contextmanager
def short_folder() -> Iterator[Path]:
    """A new folder with a short path; it is removed in the end."""
    folder = tempfile.mkdtemp(prefix="rl-", dir=SHORT_PATHS)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def local_ray(*, num_cpus: int = CPUS, **options: Any) -> Iterator[Path]:
    """Ray with this process as its driver; yields a folder for what goes with it, as log dirs.

    ``options`` go to ``ray.init``.
    """
    settings = {
        "num_cpus": num_cpus,
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": "ERROR",
        **options,
    }
    with short_folder() as folder:
        ray.init("local", _temp_dir=str(folder / "ray"), **settings)
        try:
            yield folder
        finally:
            ray.shutdown()


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """This process's environment with these variables; afterwards it is as before."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
