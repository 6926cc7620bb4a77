"""Configuration files: what is taken, and what is refused with its file and line."""

from pathlib import Path

import pytest

from raylog.cluster.cli.config_doc import page
from raylog.cluster.config_file import read_config_file
from raylog.storage.config import BrokerConfig
from raylog.storage.errors import InvalidConfig

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_the_files_that_we_ship_are_valid(path: Path) -> None:
    assert BrokerConfig.parse(read_config_file(path)).log_dirs


def test_the_page_in_docs_is_the_one_that_the_tables_give() -> None:
    assert (ROOT / "docs" / "CONFIG.md").read_text() == page()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("log.dirs: [/a\n", "line 2"),
        ("log.dirs: /a\nlog.dirs: /b\n", "'log.dirs' is there twice.*line 2"),
        ("- log.dirs\n", "map of keys"),
        ("1: 2\n", "map of keys"),
        ("\x00", "not allowed"),
    ],
)
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(content)
    with pytest.raises(InvalidConfig, match=says) as refused:
        read_config_file(path)
    assert str(path) in str(refused.value)


def test_a_missing_file_is_named_and_an_empty_one_is_no_settings(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="No such file"):
        read_config_file(tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert read_config_file(tmp_path / "empty.yaml") == {}
