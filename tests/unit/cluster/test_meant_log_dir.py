"""A log dir is named by its path or by its directory id."""

from pathlib import Path

import pytest

from raylog.cluster.meant_log_dir import meant_log_dir
from raylog.storage.state.properties import random_id

ID = random_id()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_relative_path_counts_from_the_working_directory(here: Path) -> None:
    assert meant_log_dir("disk/a") == f"{here}/disk/a"
    assert meant_log_dir("/disk/a") == "/disk/a"


def test_an_id_stays_an_id(here: Path) -> None:
    assert meant_log_dir(ID) == ID
    (here / ID).mkdir()  # a folder that is no log dir
    assert meant_log_dir(ID) == ID


def test_what_looks_like_an_id_is_a_path_where_a_log_dir_lies_there(here: Path) -> None:
    (here / ID).mkdir()
    (here / ID / "meta.properties").write_text("")
    assert meant_log_dir(ID) == f"{here}/{ID}"
