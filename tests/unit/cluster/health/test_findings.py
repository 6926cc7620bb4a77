"""Findings: what is wrong is named once, with what to do; what is well is not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.errors import LabelShared, NotLeader
from raylog.actors.messages import (
    ActorProcess,
    AsideFile,
    CompactionStatus,
    LogDirStatus,
    PartitionOffsets,
    PartitionStatus,
    RetentionStatus,
)
from raylog.cluster.controller.describe import (
    BEING_OPENED,
    BROKER_STOPS,
    FAILED_COPIES,
    MANAGER_ENDS,
    MANAGER_LEARNS,
    MANAGER_STARTS,
    METADATA_COPIES,
    NODE_STOPPED,
    ONLINE_AGAIN,
    SILENT,
    UPKEEP_OF,
    PartitionDescription,
    TopicDescription,
    offline_error,
)
from raylog.cluster.controller.leaving_dirs import TAKEN_OFFLINE
from raylog.cluster.controller.node_states import NodeDescription, NodeState
from raylog.cluster.controller.records import DirRecord
from raylog.cluster.health.facts import ERROR, INFO, WARNING, Facts, Finding
from raylog.cluster.health.findings import findings, notes
from raylog.storage.log_dir import CHECKPOINTS
from raylog.storage.state.checkpoints import LOG_START_OFFSETS


def topic(*problems: str | None, name: str = "t") -> TopicDescription:
    partitions = tuple(
        PartitionDescription(number, "dir-a", "node-1", f"/{name}-{number}", problem)
        for number, problem in enumerate(problems)
    )
    return TopicDescription(name, "id", {}, partitions)


def status(partition: str, kernel: str = "compiled", is_offline: bool = False) -> PartitionStatus:
    offsets = PartitionOffsets(0, 0, 0, 0)
    return PartitionStatus(partition, f"/{partition}", 1, kernel, 0, offsets, 0, 1, is_offline)


def facts(
    *problems: str | None,
    silent: Mapping[str, str] | None = None,
    statuses: list[PartitionStatus] | None = None,
) -> Facts:
    described = topic(*problems)
    well = [status(f"t-{one.partition}") for one in described.partitions if one.problem is None]
    silent = silent or {}
    answered = (
        [one for one in well if one.partition not in silent] if statuses is None else statuses
    )
    return Facts(topics=[described], partitions=answered, silent_partitions=silent)


def only(seen: Facts) -> Finding:
    (finding,) = findings(seen)
    return finding


def test_all_is_well() -> None:
    assert findings(facts(None, None)) == []


def test_partitions_with_one_reason_are_one_finding() -> None:
    finding = only(facts(*["the node with log dir x is away"] * 7, None))
    assert finding.severity == ERROR
    assert finding.subject == "t-0, t-1, t-2, t-3, t-4 and 2 more"
    assert "the node with log dir x is away" in finding.what


def test_reasons_that_differ_in_the_partitions_name_alone_are_one() -> None:
    finding = only(facts("/disk/t-0: gone", "/disk/t-1: gone"))
    assert (finding.subject, finding.what) == ("t-0, t-1", "away: /disk/t-0: gone")


def test_partitions_with_several_reasons_are_several_findings() -> None:
    assert [finding.subject for finding in findings(facts("one", "other"))] == ["t-0", "t-1"]


def test_a_partition_that_is_being_opened_is_a_warning() -> None:
    assert only(facts(BEING_OPENED, None)).severity == WARNING


def test_one_that_does_not_answer_is_an_error() -> None:
    finding = only(facts(None, None, silent={"t-1": "not within 3 s"}))
    assert (finding.severity, finding.subject) == (ERROR, "t-1")
    assert "not within 3 s" in finding.what


def test_one_that_does_not_answer_is_named_with_its_node_and_its_process() -> None:
    silent = facts(*[None] * 3, silent=dict.fromkeys(("t-0", "t-1", "t-2"), "not within 3 s"))
    labelled = [node("online")._replace(node_id="node-1")]
    known = replace(
        silent,
        node_list=labelled,
        processes={"Log:t-0": ActorProcess("node-1", 7), "Log:t-1": ActorProcess("node-1", 8)},
    )
    finding = only(known)
    assert finding.subject == "t-0, t-1, t-2"
    assert finding.what == "no answer: not within 3 s (node disk-1, pid 7, 8, not known)"
    assert only(replace(known, processes={})).what.endswith("(node disk-1)"), "by the Controller"


def test_the_node_of_a_process_is_named_where_the_controller_does_not_answer() -> None:
    key = "0123456789" + "a" * 46
    found = findings(
        Facts(
            controller_problem="not within 3 s",
            silent_partitions={"t-0": "not within 3 s", "t-1": "not within 3 s"},
            processes={"Log:t-0": ActorProcess(key, 7)},
        )
    )
    assert [finding.what for finding in found[1:]] == [
        "no answer: not within 3 s (node 01234567, pid 7)",
        "no answer: not within 3 s",
    ]


def test_one_without_a_process_is_an_error_though_the_controller_has_not_seen_it() -> None:
    finding = only(facts(None, None, statuses=[status("t-0")]))
    assert (finding.severity, finding.subject) == (ERROR, "t-1")
    assert "gone" in finding.what


def test_one_that_is_away_is_not_told_as_silent_too() -> None:
    assert len(findings(facts("the disk is away", silent={"t-0": "not within 3 s"}))) == 1


def test_one_that_is_offline_is_an_error() -> None:
    finding = only(facts(None, statuses=[status("t-0", is_offline=True)]))
    assert finding.severity == ERROR
    assert "disk" in finding.what


def test_the_slow_kernel_is_a_warning() -> None:
    assert only(facts(None, statuses=[status("t-0", kernel="pure Python")])).severity == WARNING


def test_a_controller_that_does_not_answer_is_an_error_and_silent_partitions_are_still_told() -> (
    None
):
    found = findings(
        Facts(controller_problem="not within 3 s", silent_partitions={"t-0": "not within 3 s"})
    )
    assert [(one.severity, one.subject) for one in found] == [(ERROR, "controller"), (ERROR, "t-0")]


HANGING_CONTROLLER = Facts(
    controller_problem="not within 3 s",
    hanging={"Controller"},
    processes={"Controller": ActorProcess("a" * 56, 4711)},
)


def test_a_controller_that_hangs_is_named_by_its_process() -> None:
    finding = only(HANGING_CONTROLLER)
    assert "not within 3 s (node aaaaaaaa, pid 4711). Partitions" in finding.what
    assert "still names this process after a minute" in finding.todo
    assert "`kill -9 4711`" in finding.todo


@pytest.mark.parametrize(
    "seen",
    [
        replace(HANGING_CONTROLLER, hanging=frozenset()),  # it answers an error
        replace(HANGING_CONTROLLER, processes={}),
    ],
)
def test_nobody_is_told_to_end_a_controller_that_answers_or_whose_process_is_not_known(
    seen: Facts,
) -> None:
    finding = only(seen)
    assert "pid" not in finding.what
    assert "kill" not in finding.todo


def test_a_log_manager_that_hangs_is_named_by_its_process_and_ended_only_if_no_disk_hangs() -> None:
    known = Facts(
        silent_nodes={LABEL: "not within 3 s"},
        nodes={RAYS_ID: f"the LogManager of node x {SILENT} 30 s"},
        node_list=[node("online")._replace(node=LABEL, node_id=RAYS_ID)],
        hanging={f"LogManager:{LABEL}"},
        processes={f"LogManager:{LABEL}": ActorProcess(RAYS_ID, 4711)},
    )
    found = [finding for finding in findings(known) if finding.subject == f"node {LABEL}"]
    assert len(found) == 2
    for finding in found:
        assert f"(node {LABEL}, pid 4711)" in finding.what
        assert "Only if no disk hangs there" in finding.todo
        assert "`kill -9 4711`" in finding.todo


def log_dir(usable_bytes: int = 500, loaded: int = 3) -> LogDirStatus:
    return LogDirStatus(
        "node-1", "/disk", "dir-a", True, None, 3, 100, 1000, usable_bytes, loaded, 3
    )


@pytest.mark.parametrize(
    ("seen", "severity", "says"),
    [
        (
            LogDirStatus.offline("node-1", "/disk", "dir-a", "input/output error"),
            ERROR,
            "input/output error",
        ),
        (log_dir(usable_bytes=99), WARNING, "9.9%"),
        (log_dir(usable_bytes=19), ERROR, "appends fail"),
        (log_dir(loaded=1), WARNING, "opened 1 of 3"),
        (log_dir()._replace(problem="its disk may hang"), WARNING, "suspect: its disk may hang"),
    ],
)
def test_log_dirs_that_fail_fill_or_load(seen: LogDirStatus, severity: str, says: str) -> None:
    assert findings(Facts(log_dirs=[log_dir(usable_bytes=100)])) == []
    finding = only(Facts(log_dirs=[log_dir(), seen]))
    assert (finding.severity, finding.subject) == (severity, "log dir /disk of node node-1")
    assert says in finding.what


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_damaged_checkpoint_is_told_until_its_copy_is_removed(name: str) -> None:
    finding = only(Facts(log_dirs=[log_dir()._replace(damaged_files=(name,))]))
    assert finding.severity == (ERROR if name == LOG_START_OFFSETS else WARNING)
    assert finding.what.startswith(f"{name} was damaged, and is kept as /disk/{name}.corrupt: ")
    assert finding.todo.endswith(f"Then remove /disk/{name}.corrupt")


def test_folders_that_belong_to_nobody_are_told_until_somebody_decides() -> None:
    name = "t-0.0123456789abcdef0123456789abcdef-stray"
    finding = only(Facts(log_dirs=[log_dir()._replace(strays=(name,))]))
    assert (finding.severity, finding.subject) == (WARNING, "log dir /disk of node node-1")
    assert name in finding.what
    assert finding.todo.endswith("remove the folder.")
    copy = f"__cluster_metadata-0.{'0' * 32}-stray"
    finding = only(Facts(log_dirs=[log_dir()._replace(strays=(copy, name))]))
    assert "is an old copy of the metadata, which nothing takes in again" in finding.todo


def test_what_was_taken_out_of_the_metadata_is_told_until_somebody_removes_it() -> None:
    """On whichever node the copy is; a write that a crash interrupted is only noted."""
    aside, torn = (AsideFile(f"0.log.aside-{number}", 134) for number in range(2))
    seen = log_dir()._replace(metadata_asides=(aside, torn._replace(is_unfinished=True)))
    finding = only(Facts(log_dirs=[log_dir(), seen]))
    assert (finding.severity, finding.subject) == (WARNING, "log dir /disk of node node-1")
    assert finding.what.endswith("kept there: 0.log.aside-0 (134 bytes)")
    assert "raylog log aside drop /disk/__cluster_metadata-0 0.log.aside-0" in finding.todo
    (note,) = notes(Facts(log_dirs=[log_dir(), seen]))
    assert (note.severity, note.subject) == (INFO, "log dir /disk of node node-1")
    assert "1 files with the beginning of a write of the metadata, 134 bytes" in note.what


def test_a_log_dir_that_others_may_look_into_is_noted_with_the_command_that_mends_it() -> None:
    shared = log_dir()._replace(path="/disks/of us", is_private=False)
    facts = Facts(log_dirs=[log_dir(), shared])
    assert findings(facts) == []
    (note,) = notes(facts)
    assert (note.severity, note.subject) == (INFO, "log dir /disks/of us of node node-1")
    assert "`chmod 700 '/disks/of us'`" in note.todo


def test_a_log_manager_that_does_not_answer_is_an_error() -> None:
    assert only(Facts(silent_nodes={"a" * 56: "not within 3 s"})).severity == ERROR


def compaction(
    uncleanable: str | None = None, problem: str | None = None, overdue_ms: int = 0
) -> CompactionStatus:
    return CompactionStatus("t-0", "n", 0.1, 0, 9, overdue_ms, False, 0, uncleanable, problem, None)


def retention(when_ms: int, problem: str | None = None) -> RetentionStatus:
    return RetentionStatus("t-0", "n", 0, 0, 0.1, when_ms, 0, 0, problem)


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (compaction(uncleanable="a bad batch"), "a bad batch"),
        (compaction(problem="no memory"), "no memory"),
        (compaction(overdue_ms=3_600_000), "60 minutes"),
    ],
)
def test_compaction_that_fails_or_is_late_is_a_warning(status: CompactionStatus, says: str) -> None:
    finding = only(Facts(compaction=[compaction(), status]))
    assert (finding.severity, finding.subject) == (WARNING, "t-0")
    assert says in finding.what


def test_retention_that_fails_or_stays_away_is_a_warning() -> None:
    def seen(*statuses: RetentionStatus) -> Facts:
        return Facts(retention=statuses, retention_interval_ms=300_000, now_ms=10_000_000)

    assert findings(seen(retention(9_000_000), retention(0))) == []
    assert "no rights" in only(seen(retention(9_000_000, problem="no rights"))).what
    assert "83 minutes" in only(seen(retention(5_000_000), retention(9_000_000))).what


def test_upkeep_that_does_not_answer_is_a_warning() -> None:
    finding = only(Facts(silent_upkeep={"Retention:" + "a" * 56: "not within 3 s"}))
    assert (finding.severity, finding.subject) == (WARNING, "retention of node aaaaaaaa")


def test_errors_come_first() -> None:
    seen = Facts(nodes={"a" * 56: "no log dirs"}, silent_partitions={"t-0": "why"})
    assert [one.severity for one in findings(seen)] == [ERROR, WARNING]


@pytest.mark.parametrize(
    "seen", [facts("x"), facts(BEING_OPENED), facts(None, silent={"t-0": "y"})]
)
def test_every_finding_says_what_to_do(seen: Facts) -> None:
    for finding in findings(seen):
        assert len(finding.todo) > 20
        assert "\n" not in finding.what + finding.todo


SILENT_MANAGER = "the LogManager of node a has not reported for 30 s"


def test_a_node_whose_log_manager_hangs_is_no_node_that_takes_no_part() -> None:
    finding = only(Facts(nodes={"a" * 56: SILENT_MANAGER}))
    assert finding.severity == ERROR
    assert "takes no part" not in finding.what
    finding = only(Facts(nodes={"a" * 56: "its log dirs are locked"}))
    assert finding.severity == WARNING
    assert "takes no part" in finding.what


@pytest.mark.parametrize(
    ("silent", "says"),
    [
        ((), "All of its partitions answer, and continue to serve"),
        (("t-1",), "2 of its 3 partitions answer, and continue to serve; no answer from t-1"),
        (("t-0", "t-1", "t-2"), "None of its partitions answers: the node may be dead"),
    ],
)
def test_a_node_whose_log_manager_is_silent_is_told_with_who_answers_there(
    silent: Sequence[str], says: str
) -> None:
    """Its LogManager may hang alone. Or the node is dead, and nothing there serves."""
    seen = facts(None, None, None, silent=dict.fromkeys(silent, "no answer within 3 s"))
    labelled = [node("suspect")._replace(node_id="node-1")]
    told = [
        replace(seen, node_list=labelled, nodes={labelled[0].node: SILENT_MANAGER}),
        replace(seen, node_list=labelled, silent_nodes={labelled[0].node: "no answer within 3 s"}),
    ]
    for known in told:
        (finding,) = (entry for entry in findings(known) if entry.subject.startswith("node "))
        assert says in finding.what
        assert "check whether the machine and its Ray run" in finding.todo


def test_a_silent_node_of_whose_partitions_nobody_tells_may_be_dead() -> None:
    finding = only(Facts(nodes={"a" * 56: SILENT_MANAGER}))
    assert "Nobody tells which of its partitions serve: the node may be dead" in finding.what


def test_metadata_that_cannot_be_written_is_an_error() -> None:
    finding = only(Facts(problems={"metadata": "/disk: EIO"}))
    assert (finding.severity, finding.subject) == (ERROR, "metadata")
    assert "EIO" in finding.what


def test_a_reserve_of_the_metadata_that_is_given_up_says_how_to_make_room() -> None:
    finding = only(Facts(problems={"metadata reserve": "/disk/metadata-reserve: no space left"}))
    assert (finding.severity, finding.subject) == (ERROR, "metadata reserve")
    assert "/disk/metadata-reserve: no space left" in finding.what
    assert "raylog topic delete" in finding.todo


def test_a_snapshot_of_the_metadata_that_was_not_made_says_what_to_do() -> None:
    finding = only(Facts(problems={"metadata snapshot": "/disk: no space left"}))
    assert (finding.severity, finding.subject) == (WARNING, "metadata snapshot")
    assert "/disk: no space left" in finding.what
    assert "make room on this disk" in finding.todo


def test_a_damaged_snapshot_of_the_metadata_is_a_warning_to_check_the_disk() -> None:
    finding = only(Facts(problems={"damaged metadata snapshot": "250-4.checkpoint: a CRC"}))
    assert (finding.severity, finding.subject) == (WARNING, "metadata snapshot")
    assert "250-4.checkpoint: a CRC" in finding.what
    assert "check this disk" in finding.todo


def test_older_metadata_is_an_error_that_somebody_must_decide() -> None:
    finding = only(Facts(problems={"older metadata": "it ends with the Controller of epoch 2"}))
    assert (finding.severity, finding.subject) == (ERROR, "metadata")
    assert "epoch 2" in finding.what
    assert "--older-metadata" in finding.todo


def test_a_node_where_nobody_removes_what_is_old_is_told() -> None:
    finding = only(Facts(problems={"upkeep of " + "b" * 56: "none has run for 40 s"}))
    assert (finding.severity, finding.subject) == (WARNING, "upkeep of node bbbbbbbb")


def test_an_offline_log_dir_says_how_it_is_used_again() -> None:
    offline = LogDirStatus.offline("n" * 56, "/disk", "id", "EIO")
    assert "raylog log-dirs online id" in only(Facts(log_dirs=[offline])).todo
    unread = offline._replace(directory_id="", path="/a disk", problem="this is a file")
    todo = only(Facts(log_dirs=[unread])).todo
    assert todo.startswith("mend that")
    assert "`raylog log-dirs online '/a disk'`" in todo


def test_the_partitions_of_a_log_dir_that_is_offline_do_not_repeat_its_advice() -> None:
    offline = LogDirStatus.offline("n" * 56, "/disk", "dir-a", "EIO")
    todo = ONLINE_AGAIN.format(argument="dir-a")
    away = PartitionDescription(0, "dir-a", None, None, "log dir /disk is offline: EIO", todo)
    described = TopicDescription("t", "id", {}, (away,))
    of_dir, of_partition = findings(Facts(log_dirs=[offline], topics=[described]))
    assert of_dir.todo == todo
    assert "`raylog health` says of log dir /disk" in of_partition.todo
    assert "online dir-a" not in of_partition.todo


def test_a_node_that_only_starts_is_waited_for() -> None:
    for problem in (MANAGER_STARTS, MANAGER_LEARNS):
        assert only(Facts(nodes={"a" * 56: problem})).todo.startswith("wait")


def test_a_node_with_an_error_that_says_what_to_do_gets_no_other_advice() -> None:
    shared = str(LabelShared("node-2", "raylog/log-node", "x"))
    assert "mount" not in only(Facts(nodes={"a" * 56: shared})).todo
    assert "RAYLOG_LOG_DIRS" in only(Facts(nodes={"a" * 56: "it has no log dir"})).todo


def test_a_reason_of_several_partitions_that_names_one_of_them_is_one_finding() -> None:
    finding = only(facts(*["/disk is offline: there are folders of partitions (t-0)"] * 3))
    assert finding.subject == "t-0, t-1, t-2"
    assert "(t-0)" in finding.what


def test_one_copy_of_the_metadata_is_a_warning_on_several_nodes_and_a_note_on_one() -> None:
    why = "the cluster's metadata has been on one disk only for 40 s (node b: no answer)"
    several = Facts(problems={METADATA_COPIES: why}, nodes={"a": None, "b": None})
    finding = only(several)
    assert (finding.severity, finding.subject) == (WARNING, "metadata")
    assert finding.what.startswith(why)
    assert notes(several) == []
    (note,) = notes(Facts(nodes={"a": None}))
    assert (note.severity, note.subject) == (INFO, "metadata")


def test_a_copy_of_the_metadata_that_fails_beside_others_is_a_warning() -> None:
    why = "node c: the copy and the Controller's log have gone on apart behind record 7"
    finding = only(Facts(problems={FAILED_COPIES: why}, nodes=dict.fromkeys("abc")))
    assert (finding.severity, finding.subject) == (WARNING, "metadata")
    assert why in finding.what
    assert "makes another copy" in finding.todo


# -- nodes that an operator has stopped or drained -------------------------------------------------


def node(state: NodeState, **facts: Any) -> NodeDescription:
    return NodeDescription(node="disk-1", node_id="n1", state=state, wanted=2, **facts)


def with_stopped(state: NodeState = "stopped", **more: Any) -> Facts:
    """Partition t-0 is on a node that is stopped; t-1 serves."""
    described = facts(NODE_STOPPED.format(node="disk-1"), None)
    nodes = {"n1": NODE_STOPPED.format(node="disk-1").removeprefix("its "), "n2": None}
    return replace(described, nodes=nodes, node_list=[node(state)], **more)


@pytest.mark.parametrize("state", ["stopping", "stopped"])
def test_a_stopped_node_and_its_partitions_are_a_note_and_no_problem(state: NodeState) -> None:
    stopped = with_stopped(state, silent_nodes={"disk-1": "it is stopping"})
    assert findings(stopped) == []
    (note,) = notes(stopped)
    assert (note.severity, note.subject) == (INFO, "node disk-1")
    assert "`raylog node start disk-1`" in note.todo
    assert "2 partitions" in note.what


def test_a_partition_that_is_closed_just_now_by_a_stop_is_no_problem() -> None:
    closing = [status("t-0", is_offline=True), status("t-1")]
    assert findings(with_stopped("stopping", partitions=closing)) == []


def test_a_drained_node_is_a_note_with_what_ends_it() -> None:
    drained = Facts(nodes={"n1": None, "n2": None}, node_list=[node("draining")])
    assert findings(drained) == []
    (note,) = notes(drained)
    assert "`raylog node drain --undo disk-1`" in note.todo


def test_a_log_dir_that_an_operator_took_offline_is_a_note_and_no_problem() -> None:
    record = DirRecord(
        directory_id="dir-a",
        node="n1",
        path="/d",
        state="offline",
        why=TAKEN_OFFLINE,
        is_ordered=True,
    )
    problem = offline_error(record).problem
    taken = LogDirStatus.offline("n1", "/d", "dir-a", TAKEN_OFFLINE, "what brings it back")
    taken = taken._replace(is_taken_offline=True)
    described = replace(facts(problem, None), nodes={"n1": None, "n2": None}, log_dirs=[taken])
    assert findings(described) == []
    (note,) = notes(described)
    assert (note.severity, note.todo) == (INFO, "what brings it back")
    by_its_node = replace(described, topics=[], log_dirs=[taken._replace(todo="")])
    (note,) = notes(by_its_node)
    assert note.todo == "`raylog log-dirs online dir-a` brings it back", "no disk is to be repaired"
    assert TAKEN_OFFLINE in note.what


# -- how nodes are named ---------------------------------------------------------------------------

LABEL, RAYS_ID = "rack-12-disks", "d" * 56
OF_LABELLED = {
    "a node that takes no part": Facts(nodes={RAYS_ID: "its log dirs are locked"}),
    "one that is silent": Facts(nodes={RAYS_ID: f"the LogManager of node x {SILENT} 30 s"}),
    "one that starts": Facts(nodes={RAYS_ID: MANAGER_STARTS}),
    "one that ends": Facts(nodes={RAYS_ID: MANAGER_ENDS}),
    "its LogManager": Facts(silent_nodes={LABEL: "not within 3 s"}),
    "its upkeep": Facts(silent_upkeep={f"Retention:{LABEL}": "not within 3 s"}),
    "missing upkeep": Facts(problems={UPKEEP_OF + RAYS_ID: "none has run for 40 s"}),
    "a log dir": Facts(log_dirs=[LogDirStatus.offline(RAYS_ID, "/disk", "id", "EIO")]),
    "a checkpoint": Facts(
        log_dirs=[log_dir()._replace(node_id=RAYS_ID, damaged_files=CHECKPOINTS[:1])]
    ),
    "a stray": Facts(log_dirs=[log_dir()._replace(node_id=RAYS_ID, strays=("t-0.x-stray",))]),
}


@pytest.mark.parametrize("what", OF_LABELLED)
def test_a_node_with_a_label_is_named_by_it(what: str) -> None:
    labelled = NodeDescription(node=LABEL, node_id=RAYS_ID, state="online")
    finding = only(replace(OF_LABELLED[what], node_list=[labelled]))
    assert finding.subject.endswith(f"node {LABEL}")


def test_a_log_dir_that_others_may_look_into_is_noted_with_the_label_of_its_node() -> None:
    shared = log_dir()._replace(node_id=RAYS_ID, is_private=False)
    labelled = NodeDescription(node=LABEL, node_id=RAYS_ID, state="online")
    (note,) = notes(Facts(log_dirs=[shared], node_list=[labelled]))
    assert note.subject == f"log dir /disk of node {LABEL}"


def test_a_topic_that_no_log_can_have_the_config_of_is_one_error_with_its_way_out() -> None:
    described = topic("no", "no", "its node is away")._replace(problem="no", todo="`do`")
    first, second = findings(replace(facts(), topics=[described], partitions=[]))
    assert (first.severity, first.subject) == (ERROR, "t-2")
    assert (second.severity, second.subject) == (ERROR, "topic t")
    assert second.what.startswith("no. No partition of it is opened")
    assert second.todo == "`do`. Its partitions open then by themselves"


def test_of_a_broker_that_is_being_stopped_there_is_one_finding() -> None:
    """A `raylog stop` was interrupted: what has ended already is no failed disk."""
    stops = str(NotLeader("the broker", BROKER_STOPS))
    facts = Facts(controller_problem=stops, silent_nodes={"n1": stops})
    (found,) = findings(facts)
    assert (found.subject, found.severity) == ("broker", ERROR)
    assert "`raylog stop`" in found.todo


def test_a_node_that_left_the_cluster_is_named_once_with_what_brings_it_back() -> None:
    """Ray tells of its actors for a minute and more."""
    away = NodeDescription(node="two", node_id=None, state="away")
    finding = only(
        Facts(
            node_list=[away],
            silent_nodes={"two": "no answer within 3 s"},
            silent_upkeep={"Retention:two": "no answer within 3 s"},
        )
    )
    assert (finding.severity, finding.subject) == (ERROR, "node two")
    assert "not in the Ray cluster any more" in finding.what
    assert "`ray start`" in finding.todo


@pytest.mark.parametrize(("names", "count"), [(["t"], 0), (["t", "a-b"], 1), (None, 1)])
def test_a_process_of_a_topic_that_is_deleted_need_not_answer(
    names: list[str] | None, count: int
) -> None:
    seen = replace(facts(None), topic_names=names, silent_partitions={"a-b-0": "no answer"})
    assert len(findings(seen)) == count
