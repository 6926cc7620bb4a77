"""Where a Controller looks for the metadata after a config was applied."""

from collections.abc import Mapping, Sequence

import pytest

from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime.names import Node
from raylog.cluster.controller import ray_reach
from raylog.cluster.controller.copies import SurveyedDir
from raylog.cluster.controller.kept_log_dirs import KeptLogDirs
from raylog.cluster.controller.ray_reach import RayReach

GIVEN = ("/a",)


class FakeNotes:
    """Ray's head."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.writes = 0

    def keep(self, key: str, value: bytes) -> None:
        self.writes += 1
        self.kept[key] = value

    def find(self, prefix: str) -> Mapping[str, bytes]:
        return {key: value for key, value in self.kept.items() if key.startswith(prefix)}

    def forget(self, key: str) -> None:
        del self.kept[key]


def test_another_process_finds_what_was_kept() -> None:
    notes = FakeNotes()
    KeptLogDirs(notes, "raylog", "start").keep(("/a", "/b"))
    assert KeptLogDirs(notes, "raylog", "start").find(GIVEN) == ("/a", "/b")


def test_many_starts_of_nodes_with_the_same_ones_are_written_down_once() -> None:
    notes = FakeNotes()
    kept = KeptLogDirs(notes, "raylog", "start")
    for _ in range(3):
        kept.keep(["/a"])
    assert notes.writes == 1
    for _ in range(3):
        kept.keep(["/a", "/b"])
    assert notes.writes == 2


def test_without_a_note_those_of_the_start_count() -> None:
    assert KeptLogDirs(FakeNotes(), "raylog", "start").find(GIVEN) == GIVEN


def test_those_of_another_start_or_namespace_do_not_count() -> None:
    notes = FakeNotes()
    KeptLogDirs(notes, "raylog", "start").keep(("/a", "/b"))
    assert KeptLogDirs(notes, "raylog", "start-2").find(GIVEN) == GIVEN
    assert KeptLogDirs(notes, "other", "start").find(GIVEN) == GIVEN


def test_those_of_an_older_start_are_forgotten() -> None:
    notes = FakeNotes()
    KeptLogDirs(notes, "raylog", "older").keep(("/a", "/b"))
    KeptLogDirs(notes, "raylog", "newer").keep(("/a",))
    assert list(notes.kept) == ["raylog:raylog:log-dirs:newer"]


def test_a_survey_looks_at_the_log_dirs_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Node("0" * 56)
    looked: list[Sequence[str]] = []

    def survey_node(node: Node, config: BrokerConfig, tries_locks: bool) -> list[SurveyedDir]:
        looked.append(config.log_dirs)
        return []

    monkeypatch.setattr(ray_reach, "own_node", lambda: own)
    monkeypatch.setattr(ray_reach, "survey_node", survey_node)
    kept = KeptLogDirs(FakeNotes(), "raylog", "start")
    config = BrokerConfig.parse({"log.dirs": list(GIVEN)})
    reach = RayReach("raylog", config, is_on_node=True, log_dirs=kept.find)
    reach.survey(tries_locks=False, only_own=True)
    kept.keep(("/a", "/b"))
    reach.survey(tries_locks=False, only_own=True)
    assert looked == [("/a",), ("/a", "/b")]
