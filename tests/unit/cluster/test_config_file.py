"""Configuration files: what is taken, and what is refused with its file and line."""

import pickle
from pathlib import Path

import pytest

import raylog
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.cli.config_doc import page
from raylog.cluster.config_file import InvalidConfigFile, read_config_file
from tests.harness.paths import ROOT


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name
)
def test_the_files_that_we_ship_are_valid(path: Path) -> None:
    assert BrokerConfig.parse(read_config_file(path)).log_dirs


def test_the_page_in_docs_is_the_one_that_the_tables_give() -> None:
    assert (ROOT / "docs" / "CONFIG.md").read_text() == page()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("log.dirs: [/a\n", "line 2"),
        ("log.dirs: /a\nlog.dirs: /b\n", "line 2.*'log.dirs' appears twice"),
        ("- log.dirs\n", "map of keys"),
        ("1: 2\n", "map of keys"),
        ("\x00", "not allowed"),
        ("a: b: c\n", "line 1, column 5: mapping values are not allowed"),
        ("? [1]\n: 2\n", "line 1.*unhashable"),
        ("log.dirs: /a\n---\nlog.dirs: /b\n", "line 2.*another document"),
        (
            "# our broker\nlog.dirs: /a\nlog.segment.byte: 1\n",
            "line 3: .*unknown key.*log.segment.bytes",
        ),
        ("log.dirs: /a\nsegment.bytes: 1\n", "line 2: .*a topic key"),
        (
            "log.dirs: /a\nnum.partitions: many\n",
            "line 2: config num.partitions='many': must be an integer",
        ),
        ("log.dirs: {a: b}\n", "line 1: .*a list of folders"),
        ("<<: {num.partitions: 0}\nlog.dirs: /a\n", "line 1.*merge"),
        ("log.retention.hours: x\n", "line 1: config log.retention.hours='x'"),
    ],
)
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(content)
    with pytest.raises(InvalidConfigFile, match=says) as refused:
        read_config_file(path)
    assert str(refused.value).startswith(f"config file {path}: ")
    assert len(str(refused.value).splitlines()) == 1


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_bytes(b"log.dirs: \xff\xfe\n")
    with pytest.raises(InvalidConfigFile, match="codec can't decode"):
        read_config_file(path)


def test_start_takes_a_path_and_says_what_is_wrong_before_it_starts_anything(
    tmp_path: Path,
) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("num.partitions: 0\n")
    for given in (path, str(path)):
        with pytest.raises(InvalidConfigFile, match=r"num\.partitions=0"):
            raylog.start(config=given)


def test_the_error_survives_a_pickle(tmp_path: Path) -> None:
    error = InvalidConfigFile("/a", "why")
    assert str(pickle.loads(pickle.dumps(error))) == str(error) == "config file /a: why"


def test_a_missing_file_is_named_and_an_empty_one_is_no_settings(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigFile, match="No such file"):
        read_config_file(tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert read_config_file(tmp_path / "empty.yaml") == {}
