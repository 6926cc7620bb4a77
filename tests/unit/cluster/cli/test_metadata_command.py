"""``raylog metadata``: where it looks, what it shows, and how a copy is named."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from raylog.actors.errors import BrokerNotFound, InvalidRequest
from raylog.actors.metadata_snapshot import DAMAGED_TODO
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.runtime import clusters
from raylog.cluster import machines, metadata_work
from raylog.cluster.controller.copies import SurveyedDir
from raylog.cluster.controller.standings import Restoration, Standing
from raylog.storage.names import TopicPartition
from tests.harness.shell import run_here


class Rays:
    """The Ray clusters of this machine: which of them a command works on, with which log dirs."""

    def __init__(self) -> None:
        self.joined: list[str | None] = []
        self.log_dirs: tuple[str, ...] = ()
        self.standings: list[Standing] = []
        self.adopted: list[str] = []

    def join_with(self, has_broker: object, namespace: str, address: str | None) -> None:
        self.joined.append(address)

    def nodes(self, namespace: str, config: BrokerConfig) -> None:
        self.log_dirs = config.log_dirs

    def this_machine(self, log_dirs: tuple[str, ...]) -> None:
        self.log_dirs = log_dirs

    def work(self, machines: None, **_: object) -> "Rays":
        return self

    def status(self) -> list[Standing]:
        return self.standings

    def restore(self, source: str, *, keep_configs: bool) -> metadata_work.Restored:
        found = SurveyedDir(node_id="1" * 56, path="/a", node="a", has_metadata=True)
        lacks = ("what only node b may have",)
        restoration = Restoration(source=found, epoch=10_000, lacks=lacks)
        own = {"old": {}, "t 2": {"retention.ms": 1000, "cleanup.policy": "compact"}}
        return metadata_work.Restored(found=restoration, before={} if keep_configs else own)

    def adopt(self, folders: list[str], *, make_missing: bool) -> metadata_work.TakenIn:
        self.adopted = folders
        made = (TopicPartition("t", 0),) if make_missing else ()
        return metadata_work.TakenIn(partitions=(TopicPartition("t", 1),), made=made)


@pytest.fixture
def rays(monkeypatch: pytest.MonkeyPatch) -> Rays:
    made = Rays()
    monkeypatch.delenv("RAYLOG_LOG_DIRS", raising=False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(clusters, "join_ray_with", made.join_with)
    monkeypatch.setattr(machines, "RayMachines", made.nodes)
    monkeypatch.setattr(machines, "ThisMachine", made.this_machine)
    monkeypatch.setattr(metadata_work, "MetadataWork", made.work)
    monkeypatch.setattr(machines, "log_dirs_of", lambda namespace: "/of/the/broker")
    return made


def test_with_address_local_no_ray_is_needed_to_look_at_the_log_dirs_that_are_given(
    rays: Rays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else runs here, and whatever the shell's variable says, as with `raylog start`."""
    monkeypatch.setenv("RAYLOG_LOG_DIRS", "/of/the/shell")
    done = run_here("metadata", "status", "--address", "local", "--log-dir", "/mnt/a")
    assert (done.returncode, done.stderr) == (0, "no log dir has metadata\n")
    assert (rays.joined, rays.log_dirs) == ([], ("/mnt/a",))


def test_with_address_local_and_no_log_dir_nothing_is_looked_at(rays: Rays) -> None:
    done = run_here("metadata", "status", "--address", "local")
    assert (done.returncode, rays.joined) == (2, [])
    assert "--log-dir DIR" in done.stderr


def test_without_an_address_it_is_the_ray_that_has_the_broker(rays: Rays) -> None:
    run_here("metadata", "status")
    assert (rays.joined, rays.log_dirs) == ([None], ("/of/the/broker",))


def test_a_ray_cluster_of_an_address_is_joined_also_without_a_broker(
    rays: Rays, monkeypatch: pytest.MonkeyPatch
) -> None:
    def join_with(*_: object) -> NoReturn:
        raise BrokerNotFound("raylog")

    def join(address: str | None) -> str:
        rays.joined.append(f"any {address}")
        return "there:1"

    monkeypatch.setattr(clusters, "join_ray_with", join_with)
    monkeypatch.setattr(clusters, "join_ray", join)
    run_here("metadata", "status", "--address", "there:1", "--log-dir", "/mnt/a")
    assert (rays.joined, rays.log_dirs) == (["any there:1"], ("/mnt/a",))


def looked_at(node: str, *paths: str) -> list[SurveyedDir]:
    return [SurveyedDir(node_id=node, path=path, node=node) for path in paths]


@pytest.mark.parametrize(
    ("only_reads", "advice"),
    [
        (True, "--address local to look at /mnt/a on this machine"),
        (False, "the --address of the Ray cluster that /mnt/a is of"),
    ],
)
def test_log_dirs_that_no_node_looks_at_are_refused(only_reads: bool, advice: str) -> None:
    """The nodes' Ray was started with log dirs of their own: those are looked at.

    A Ray of its own would change a cluster without having seen its other machines.
    """
    dirs = [*looked_at("one", "/mnt/x"), *looked_at("5f" * 28, "/mnt/x", "/mnt/y")]
    with pytest.raises(InvalidRequest) as raised:
        metadata_work.check_looked_at(["/mnt/a"], dirs, only_reads=only_reads)
    assert str(raised.value) == (
        "--log-dir='/mnt/a' is on no node of this Ray cluster, which was started with "
        f"RAYLOG_LOG_DIRS and has /mnt/x, /mnt/y; leave --log-dir out to look at these, or give "
        f"{advice}"
    )


@pytest.mark.parametrize(
    "dirs", [[], [*looked_at("one", "/mnt/x"), *looked_at("two", "/mnt/a/", "/mnt/b")]]
)
def test_log_dirs_that_some_node_looks_at_are_fine(dirs: list[Any]) -> None:
    metadata_work.check_looked_at(["/mnt/a"], dirs)


def test_a_log_dir_that_is_a_folder_on_no_node_is_refused() -> None:
    """It is misspelt, or its disk is not mounted: then there may be a copy, and partitions."""
    there = looked_at("one", "/mnt/a", "/mnt/b")
    missing = [replace(entry, is_missing=True) for entry in looked_at("two", "/mnt/a", "/mnt/b")]
    metadata_work.check_looked_at(["/mnt/a", "/mnt/b"], [*there, *missing])
    with pytest.raises(InvalidRequest, match=r"'/mnt/b' is no folder.*mounted"):
        metadata_work.check_looked_at(["/mnt/a", "/mnt/b"], [there[0], *missing], only_reads=True)


def test_relative_log_dirs_count_from_the_users_folder(
    rays: Rays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_here("metadata", "status", "--address", "local", "--log-dir", "logs")
    assert rays.log_dirs == (str(tmp_path / "logs"),)


def test_relative_log_dirs_of_the_environment_count_from_the_users_folder(
    rays: Rays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAYLOG_LOG_DIRS", "logs, more")
    run_here("metadata", "status", "--address", "local")
    assert rays.log_dirs == (f"{tmp_path}/logs", f"{tmp_path}/more")
    assert os.environ["RAYLOG_LOG_DIRS"] == "logs, more"


def test_folders_to_adopt_count_from_the_users_folder(
    rays: Rays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes have them by their whole paths; a shell completes a name with a slash."""
    monkeypatch.chdir(tmp_path)
    done = run_here("topic", "adopt", "logs/t-0.1-stray/", "../b/t-1.1-stray", "/c/t-2.1-stray")
    assert done.returncode == 0
    assert rays.adopted == [
        f"{tmp_path}/logs/t-0.1-stray",
        f"{tmp_path.parent}/b/t-1.1-stray",
        "/c/t-2.1-stray",
    ]


def test_partitions_that_begin_empty_beside_an_adopted_folder_are_named(rays: Rays) -> None:
    done = run_here("topic", "adopt", "/c/t-1.1-stray", "--make-missing")
    assert done.stderr == "t-0 begins empty: its folder was not found\n"
    assert done.stdout == "t-1 is a partition again; it serves when the broker runs\n"


def test_the_copies_are_shown_with_names_that_from_takes(rays: Rays) -> None:
    rays.standings = [
        Standing(node="5f" * 28, path="/a", state="newest", is_in_sync=True, behind=0),
        Standing(node="disk-1", path="/b", state="newest", behind=0),
        Standing(node="disk-2", path="/c", state="behind", behind=2, asides=("0.log.aside-0",)),
        Standing(node="6f" * 28, path="/d", state="unreadable", problem="EIO"),
        Standing(node="7f" * 28, path="", state="missed", is_in_sync=True),
        Standing(
            node="disk-3",
            path="/e",
            state="behind",
            is_in_sync=None,
            behind=9,
            damaged_snapshots=("9-1.checkpoint: it is cut off",),
        ),
    ]
    done = run_here("metadata", "status", "--address", "local", "--log-dir", "/a")
    header, *rows = (line.split("\t") for line in done.lines())
    assert header[:4] == ["node", "log dir", "state", "has every change"]
    assert [(row[0], row[3]) for row in rows] == [
        ("5f5f5f5f", "yes"),
        ("disk-1", "not known"),
        ("disk-2", "no"),
        ("6f6f6f6f", "not known"),
        ("7f7f7f7f", "yes"),
        ("disk-3", "not known"),
    ]
    assert done.stderr == (
        "/c of node disk-2: recovery took bytes out of this copy, and kept them: 0.log.aside-0 "
        "(docs/OPERATIONS.md, Damaged metadata)\n"
        "/d of node 6f6f6f6f: EIO\n"
        "/e of node disk-3: a snapshot of this copy is damaged: 9-1.checkpoint: it is cut off. "
        f"Nothing is lost; {DAMAGED_TODO}\n"
    )


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("topic", "adopt", "/mnt/a/t-0.x-stray"), "folders may have their names back already"),
        (("metadata", "restore", "--from", "/mnt/a"), "the metadata may have been changed"),
        (("metadata", "rebuild"), "the metadata may have been changed"),
    ],
)
def test_one_that_is_interrupted_says_what_may_have_become_of_it(
    rays: Rays, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], says: str
) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    for name in ("adopt", "restore", "rebuild"):
        monkeypatch.setattr(Rays, name, interrupted, raising=False)
    done = run_here(*command, "--address", "local", "--log-dir", "/mnt/a")
    assert done.returncode == 130
    assert done.stderr.startswith(f"interrupted: {says}")


def test_a_restore_says_from_what_nothing_is_removed_any_more_and_how_to_change_that(
    rays: Rays,
) -> None:
    done = run_here("metadata", "restore", "--from", "a", "--log-dir", "/a")
    assert done.returncode == 0
    missing, why, old, other = done.stderr.splitlines()
    assert missing == "may be missing: what only node b may have"
    assert why.startswith("a config that kept records may be among what is missing: nothing is ")
    assert old == (
        "raylog config set old --delete cleanup.policy --delete retention.bytes "
        "--delete retention.ms"
    )
    assert other == (
        "raylog config set 't 2' retention.ms=1000 cleanup.policy=compact --delete retention.bytes"
    )
    assert done.stdout.startswith("the cluster goes on from the copy in /a of node 1111")
    kept = run_here("metadata", "restore", "--from", "a", "--log-dir", "/a", "--keep-configs")
    assert kept.stderr.splitlines() == [missing]


@pytest.mark.parametrize("have_them", [True, False])
def test_where_no_broker_runs_the_nodes_say_which_log_dirs_they_have(
    rays: Rays, monkeypatch: pytest.MonkeyPatch, have_them: bool
) -> None:
    monkeypatch.setattr(machines, "log_dirs_of", lambda namespace: "")
    monkeypatch.setattr(machines, "every_node_names_log_dirs", lambda: have_them)
    done = run_here("metadata", "status")
    assert done.returncode == (0 if have_them else 2)
    assert rays.log_dirs == ()
