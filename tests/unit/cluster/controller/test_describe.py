"""What the Controller answers to questions: where partitions are, or why they are not."""

from dataclasses import replace

import pytest

from raylog.actors.control import DirReport, DirState, LogReport, Report
from raylog.actors.errors import LogRefused, NotLeader, UnknownTopicOrPartition
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.places import READING_BACK
from raylog.cluster.controller.describe import (
    BEING_CREATED,
    BEING_OPENED,
    COPIES_PATIENCE_MS,
    Snapshot,
    TopicDescription,
    describe_nodes,
    describe_topic,
    explain,
    failed_copies,
    has_settled,
    is_settled,
    missing_copies,
    topic_metadata,
    why_unread,
)
from raylog.cluster.controller.desired import Desired
from raylog.cluster.controller.following import CopyStatus
from raylog.cluster.controller.leaving_dirs import TAKEN_OFFLINE
from raylog.cluster.controller.log_dir_states import describe_log_dirs
from raylog.cluster.controller.observed import SUSPECT_MS, Observed
from raylog.cluster.controller.records import (
    ControllerRecord,
    DirRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from raylog.storage.config import LogConfig
from raylog.storage.errors import (
    LogDirOffline,
    LogDirReturning,
    LogDirTakenOffline,
    LogMissing,
    RaylogError,
    TopicConfigConflict,
    TopicIdUnreadable,
)
from raylog.storage.names import TopicPartition
from tests.harness.control_nodes import entry, log_id

LOG = log_id("t", 0)
KEY = TopicPartition("t", 0)
ONLINE = PartitionRecord(log=LOG, state="online", node="a", directory="dir-a", kafka_id=1)
DIR = DirRecord(directory_id="dir-a", node="a", path="/disk", state="online")
NOW_MS = 1_000_000


def desired(*records: Record, version: int = 0) -> Desired:
    topic = TopicRecord(name="t", topic_id="id-t", config={"retention.ms": 5}, version=version)
    made = Desired()
    for record in (ControllerRecord(epoch=1, node="a"), DIR, topic, *records):
        made.apply(record)
    return made


def report(*logs: LogReport, orders: int = 1, directory_id: str | None = "dir-a") -> Report:
    """A report of node a, which obeys the Controller."""
    own = DirReport(directory_id=directory_id, path="/disk", state="online")
    return Report(
        node="a", life="l", number=1, controller_epoch=1, dirs=(own,), logs=logs, orders=orders
    )


def snapshot(shall: Desired, reported: Report | None = None, heard_ms: int = NOW_MS) -> Snapshot:
    seen = Observed(report=reported, heard_ms=heard_ms)
    return Snapshot(desired=shall, observed={"a": seen}, node_ids={"a": "ray-a"}, now_ms=NOW_MS)


def described(view: Snapshot) -> TopicDescription:
    return describe_topic(view, "t")


def test_a_partition_that_serves_is_where_its_record_says() -> None:
    view = snapshot(desired(ONLINE), report(entry(LOG, "dir-a")))
    (partition,) = described(view).partitions
    assert partition == (0, "dir-a", "ray-a", "/disk/t-0", None, None)
    assert described(view).outdated == ()
    assert explain(view, KEY) is None
    metadata = topic_metadata(view, "t", LogConfig())
    assert [entry.node_id for entry in metadata.partitions] == ["ray-a"]


def test_a_partition_that_is_moved_serves_where_it_was() -> None:
    moving = replace(ONLINE, state="moving", target="dir-b")
    view = snapshot(desired(moving), report(entry(LOG, "dir-a")))
    assert described(view).partitions[0].directory_id == "dir-a"
    assert explain(view, KEY) is None


def test_partitions_serve_on_while_their_log_manager_hangs() -> None:
    view = snapshot(desired(ONLINE), report(entry(LOG, "dir-a")), NOW_MS - SUSPECT_MS - 1)
    assert explain(view, KEY) is None
    assert "has not reported for 10 s" in (describe_nodes(view, {}, {})["ray-a"] or "")


@pytest.mark.parametrize(
    "record",
    [ONLINE, replace(ONLINE, state="moving", target="dir-b"), replace(ONLINE, state="creating")],
)
def test_a_folder_without_an_id_is_not_being_opened_whatever_lies_elsewhere(
    record: PartitionRecord,
) -> None:
    other = DirRecord(directory_id="dir-b", node="a", path="/other", state="online")
    logs = [entry(LOG, "dir-a", "found", topic_id=None), entry(LOG, "dir-b", "found")]
    view = snapshot(desired(other, record), report(*logs))
    assert isinstance(explain(view, KEY), TopicIdUnreadable)


def test_who_obeys_an_older_config_or_does_not_serve_is_outdated() -> None:
    other = replace(ONLINE, log=log_id("t", 1), kafka_id=2)
    third = replace(ONLINE, log=log_id("t", 2), kafka_id=3)
    shall = desired(ONLINE, other, third, version=2)
    logs = [entry(LOG, "dir-a", config_version=1), entry(other.log, "dir-a", config_version=2)]
    assert described(snapshot(shall, report(*logs))).outdated == (0, 2)


REFUSED = LogRefused("t-0", "LogMissing", "it has no .log file", "restore it")


@pytest.mark.parametrize(
    ("records", "reported", "problem"),
    [
        ([replace(ONLINE, state="creating", directory=None)], report(), BEING_CREATED),
        ([ONLINE], None, BEING_OPENED),
        ([ONLINE], report(entry(LOG, "dir-a", "opening")), BEING_OPENED),
        ([ONLINE], report(entry(LOG, "dir-a", "found")), BEING_OPENED),
        ([ONLINE], report(orders=-1), BEING_OPENED),
        ([replace(DIR, state="returning"), ONLINE], report(), BEING_OPENED),
        ([ONLINE], report(entry(LOG, "dir-a", "failed", problem=REFUSED)), REFUSED),
        ([ONLINE], report(), LogMissing),
        ([ONLINE], report(entry(LOG, "dir-a", "found", topic_id=None)), TopicIdUnreadable),
        ([replace(DIR, state="offline", why="EIO"), ONLINE], report(), LogDirOffline),
        ([replace(DIR, node="b"), ONLINE], report(), "dir-a is away"),
        ([replace(ONLINE, directory="unseen")], report(), "unseen is away"),
        ([ONLINE], report(directory_id=None), "its log dir /disk is offline"),
        (
            [replace(ONLINE, directory="unseen")],
            report(directory_id=None),
            "unseen is away, or this log dir is one of those",
        ),
    ],
)
def test_why_a_partition_does_not_serve(
    records: list[Record], reported: Report | None, problem: object
) -> None:
    view = snapshot(desired(*records), reported)
    why = explain(view, KEY)
    (partition,) = described(view).partitions
    assert (partition.node_id, partition.folder) == (None, None)
    assert partition.problem
    if isinstance(problem, str):
        assert isinstance(why, NotLeader)
        assert problem in partition.problem
        assert (partition.todo is None) == (problem in (BEING_OPENED, BEING_CREATED))
    elif isinstance(problem, type):
        assert type(why) is problem
        assert partition.todo
    else:
        assert why is problem
    assert is_settled(view) == (problem not in (BEING_OPENED, BEING_CREATED))


def test_a_log_that_no_config_opens_is_refused_by_its_name_and_nobody_waits() -> None:
    wide = BrokerConfig.parse({"log.cleaner.min.compaction.lag.ms": 60_000})
    shall = desired(ONLINE)
    shall.apply(replace(shall.topics["id-t"], config={"max.compaction.lag.ms": 1_000}))
    view = replace(snapshot(shall, report(entry(LOG, "dir-a", "found"))), config=wide)
    assert isinstance(explain(view, KEY), TopicConfigConflict)
    assert is_settled(view)
    assert described(view).problem == described(view).partitions[0].problem
    assert described(view).todo == described(view).partitions[0].todo
    assert topic_metadata(view, "t", wide.topic_defaults).partitions[0].node_id is None


def test_a_log_that_serves_with_the_config_of_before_serves_on_and_its_topic_is_told() -> None:
    wide = BrokerConfig.parse({"log.cleaner.min.compaction.lag.ms": 60_000})
    shall = desired(ONLINE)
    shall.apply(replace(shall.topics["id-t"], config={"max.compaction.lag.ms": 1_000}))
    view = replace(snapshot(shall, report(entry(LOG, "dir-a"))), config=wide)
    assert explain(view, KEY) is None
    assert described(view).problem is not None


def test_a_folder_in_another_log_dir_than_the_recorded_one_is_named_and_nobody_waits() -> None:
    other = replace(DIR, directory_id="dir-b", path="/other")
    view = snapshot(desired(other, ONLINE), report(entry(LOG, "dir-b", "found")))
    why = explain(view, KEY)
    assert isinstance(why, LogMissing)
    assert "the folder is /other/t-0" in str(why)
    assert is_settled(view)
    moved = report(entry(LOG, "dir-b", "moved", moved_to="dir-a"))
    assert not is_settled(snapshot(desired(other, ONLINE), moved))


def test_an_offline_log_dir_is_used_again_by_an_explicit_word_only() -> None:
    view = snapshot(desired(replace(DIR, state="offline", why="EIO"), ONLINE), report())
    assert "raylog log-dirs online /disk`" in (described(view).partitions[0].todo or "")
    (log_dir,) = describe_log_dirs(view)
    assert (log_dir.is_online, log_dir.problem, log_dir.partitions) == (False, "EIO", 1)
    assert "raylog log-dirs online /disk`" in log_dir.todo


@pytest.mark.parametrize(
    ("path", "places"), [("/disk", 1), ("/other", 0)], ids=["its own", "another one"]
)
def test_a_log_dir_that_its_node_cannot_read_is_the_place_of_what_was_at_its_path(
    path: str, places: int
) -> None:
    unread = DirReport(directory_id=None, path=path, state="offline", why="it is a file")
    view = snapshot(desired(ONLINE), replace(report(), dirs=(unread,)))
    assert [log_dir.partitions for log_dir in describe_log_dirs(view)] == [places]


def test_the_places_of_a_log_dir_that_is_in_use_are_not_at_another_path_too() -> None:
    unread = DirReport(directory_id=None, path="/disk", state="offline", why="it is a file")
    (own,) = report().dirs
    dirs = (unread, replace(own, path="/mounted/elsewhere"))
    view = snapshot(desired(ONLINE), replace(report(), dirs=dirs))
    assert [log_dir.partitions for log_dir in describe_log_dirs(view)] == [0, 1]


def test_a_log_dir_that_takes_no_orders_is_online_and_says_why() -> None:
    told = report()
    (dir,) = told.dirs
    view = snapshot(desired(DIR, ONLINE), replace(told, dirs=(replace(dir, why="it may hang"),)))
    (log_dir,) = describe_log_dirs(view)
    assert (log_dir.is_online, log_dir.problem, log_dir.todo) == (True, "it may hang", "")


UNREAD = DirReport(
    directory_id=None, path="/disk", state="offline", why="meta.properties is missing"
)


@pytest.mark.parametrize(
    ("record", "reported", "why"),
    [
        (DIR, report(), None),
        (DIR, replace(report(), dirs=(UNREAD,)), "meta.properties is missing"),
        (replace(DIR, path="/b"), replace(report(), dirs=(UNREAD,)), "no running node has it"),
        (replace(DIR, directory_id="unseen"), report(), "no running node has it"),
        (DIR, None, "no running node has it"),
    ],
)
def test_a_log_dir_that_is_recorded_as_online_may_be_read_by_nobody(
    record: DirRecord, reported: Report | None, why: str | None
) -> None:
    assert why_unread(snapshot(desired(record), reported), record) == why


def test_what_does_not_exist_is_refused_by_its_name() -> None:
    view = snapshot(desired(ONLINE), report())
    for wanted in (("t", 1), ("t", -1), ("other", 0)):
        assert isinstance(explain(view, TopicPartition(*wanted)), UnknownTopicOrPartition)
    with pytest.raises(UnknownTopicOrPartition):
        describe_topic(view, "other")


def test_partitions_that_are_being_removed_are_not_shown() -> None:
    other = replace(ONLINE, log=log_id("t", 1), state="removing", kafka_id=2)
    view = snapshot(desired(ONLINE, other), report(entry(LOG, "dir-a")))
    assert len(described(view).partitions) == 1
    assert is_settled(view)


# -- nodes -----------------------------------------------------------------------------------------


def test_a_node_takes_part_when_it_obeys() -> None:
    problem: dict[str, RaylogError] = {"a": NotLeader("LogManager:a", "it died")}
    starting, obeying = snapshot(desired()), snapshot(desired(), report())
    assert describe_nodes(starting, {}, {"ray-x": "a label"}) == {
        "ray-x": "a label",
        "ray-a": "its LogManager is being started",
    }
    assert "it died" in (describe_nodes(starting, problem, {})["ray-a"] or "")
    assert describe_nodes(obeying, problem, {}) == {"ray-a": None}
    unknown = snapshot(desired(), report(orders=-1))
    assert "does not obey" in (describe_nodes(unknown, {}, {})["ray-a"] or "")


def test_nodes_have_settled_when_each_obeys_or_it_is_known_why_not() -> None:
    starting = snapshot(desired())
    assert not has_settled(starting)
    assert has_settled(starting, ["a"])
    assert has_settled(snapshot(desired(), report()))
    assert has_settled(snapshot(desired(), heard_ms=NOW_MS - SUSPECT_MS - 1))
    assert not has_settled(Snapshot(desired=desired()))


def test_a_start_does_not_wait_for_partitions_of_a_node_that_cannot_be_reached() -> None:
    view = snapshot(desired(ONLINE))
    assert not is_settled(view)
    assert is_settled(view, ["a"])


def test_a_node_that_fell_silent_is_told_as_that_though_a_call_failed_too() -> None:
    report = Report(node="a", life="l", number=1, controller_epoch=1, dirs=(), logs=())
    silent = Snapshot(
        desired=Desired(),
        observed={"a": Observed(report=report, heard_ms=0)},
        now_ms=SUSPECT_MS + 1,
    )
    problems = {"a": "it died"}
    assert "has not reported for" in (describe_nodes(silent, problems, {})["a"] or "")
    never = replace(silent, observed={"a": Observed(heard_ms=0)})
    assert describe_nodes(never, problems, {}) == {"a": "it died"}


def test_a_silent_node_without_a_label_is_named_by_the_beginning_of_its_id() -> None:
    key = "0123456789abcd" * 4
    silent = Snapshot(
        desired=Desired(), observed={key: Observed(heard_ms=0)}, now_ms=SUSPECT_MS + 1
    )
    (told,) = describe_nodes(silent, {}, {}).values()
    assert told == "the LogManager of node 01234567 has not reported for 10 s"


def test_a_partition_in_a_log_dir_without_identity_does_not_wait_for_its_node() -> None:
    view = snapshot(desired(ONLINE), report(directory_id=None))
    (partition,) = described(view).partitions
    assert "is away" not in (partition.problem or "")
    assert "says of this log dir" in (partition.todo or "")
    assert "by itself" not in (partition.todo or "")


def test_a_node_that_is_away_is_to_be_started() -> None:
    view = snapshot(desired(replace(DIR, node="b"), ONLINE), report())
    (partition,) = described(view).partitions
    assert "start the node" in (partition.todo or "")


def test_a_folder_that_is_not_there_is_not_called_another_topics() -> None:
    (partition,) = described(snapshot(desired(ONLINE), report())).partitions
    assert "another topic" not in (partition.problem or "")
    assert "t-0.<id>-stray" in (partition.problem or "")


def test_a_log_dir_that_is_read_back_is_waited_for() -> None:
    view = snapshot(desired(replace(DIR, state="returning")), report())
    (log_dir,) = describe_log_dirs(view)
    assert log_dir.todo.startswith("wait")


@pytest.mark.parametrize(
    ("reported_why", "problem", "todo"),
    [
        (READING_BACK, READING_BACK, "wait"),
        ("EIO", READING_BACK, "wait"),  # its node has not heard of the order yet
        ("it is not there", "its logs cannot be read back: it is not there", "mend that"),
    ],
)
def test_why_the_logs_of_a_dir_cannot_be_read_back_is_said(
    reported_why: str, problem: str, todo: str
) -> None:
    own = DirReport(directory_id="dir-a", path="/disk", state="offline", why=reported_why)
    record = replace(DIR, state="returning", why="EIO")
    was_offline = LogDirOffline("/disk", reported_why)
    failed = entry(LOG, "dir-a", "failed", problem=was_offline)
    view = snapshot(desired(record, ONLINE), replace(report(failed), dirs=(own,)))
    (log_dir,) = describe_log_dirs(view)
    assert problem in (log_dir.problem or "")
    assert log_dir.todo.startswith(todo)
    why = explain(view, KEY)
    assert type(why) is LogDirReturning, "no client is told to repair the disk"
    assert problem in why.problem
    (partition,) = described(view).partitions
    assert (partition.todo or "").startswith(todo)


def test_what_a_person_took_offline_is_not_told_as_a_failed_disk() -> None:
    record = replace(DIR, state="offline", why=TAKEN_OFFLINE, is_ordered=True)
    view = snapshot(desired(record, ONLINE), report())
    told = explain(view, KEY)
    assert type(told) is LogDirTakenOffline
    assert told.advice == "`raylog log-dirs online /disk` brings it back"
    (partition,) = described(view).partitions
    assert partition.todo == told.advice


def test_where_a_node_has_another_key_since_its_start_both_causes_are_said() -> None:
    view = snapshot(desired(replace(DIR, node="before"), ONLINE), report(directory_id=None))
    (partition,) = described(view).partitions
    assert "is away, or this log dir is one of those that are offline" in (partition.problem or "")
    assert "says of the log dir that is offline" in (partition.todo or "")
    assert "start the node" in (partition.todo or "")


# -- copies of the metadata ------------------------------------------------------------------------


def test_it_is_told_when_no_other_node_has_had_a_copy_for_a_while() -> None:
    own = CopyStatus(node="a", end=9, epoch=1, is_in_sync=True)
    behind = CopyStatus(node="b", end=3, epoch=1, is_in_sync=False)
    failed = CopyStatus(node="c", end=0, epoch=0, is_in_sync=False, problem="EIO")
    alone = Snapshot(
        desired=Desired(),
        node_ids={"b": "ray-b", "c": "ray-c"},
        copies=(own, behind, failed),
        one_copy_since_ms=0,
        now_ms=COPIES_PATIENCE_MS + 1_000,
    )
    told = missing_copies(alone)
    assert "on one disk only for 31 s" in told
    assert "node ray-b: its copy is being brought up to date" in told
    assert "node ray-c: EIO" in told
    assert missing_copies(replace(alone, now_ms=COPIES_PATIENCE_MS)) == ""
    assert missing_copies(replace(alone, one_copy_since_ms=None)) == ""
    assert missing_copies(replace(alone, copies=(own,))) == ""


def test_a_copy_that_has_a_problem_is_told_also_where_another_one_is_in_sync() -> None:
    own = CopyStatus(node="a", end=9, epoch=1, is_in_sync=True)
    good = CopyStatus(node="b", end=9, epoch=1, is_in_sync=True)
    behind = CopyStatus(node="c", end=3, epoch=1, is_in_sync=False)
    failed = CopyStatus(node="d", end=0, epoch=0, is_in_sync=False, problem="gone on apart")
    several = Snapshot(
        desired=Desired(), node_ids={"d": "ray-d"}, copies=(own, good, behind, failed)
    )
    assert missing_copies(several) == ""
    assert failed_copies(several) == "node ray-d: gone on apart"
    assert failed_copies(replace(several, copies=(own, good, behind))) == ""
    waiting = replace(good, problem="no answer")  # it is dropped soon, if it stays so
    assert failed_copies(replace(several, copies=(own, waiting))) == ""


# -- two log dirs of a node that were at one path --------------------------------------------------

# A disk was not mounted, and the empty folder below it became a log dir.
MADE = replace(DIR, directory_id="dir-made")
IN_MADE = replace(ONLINE, log=log_id("t", 1), directory="dir-made", kafka_id=2)
RESTART = "`raylog node stop a` and `raylog node start a`"


def at_one_path(*dirs: DirReport, made: DirRecord = MADE) -> Snapshot:
    own = replace(report(), dirs=dirs)
    return snapshot(desired(made, ONLINE, IN_MADE), own)


def reported(directory_id: str, why: str = "") -> DirReport:
    state: DirState = "offline" if why else "online"
    return DirReport(directory_id=directory_id, path="/disk", state=state, why=why)


def test_a_log_dir_whose_disk_was_not_mounted_does_not_wait_for_its_node() -> None:
    first, _ = described(at_one_path(reported("dir-made"))).partitions
    assert first.problem == "its log dir dir-a is not in use: dir-made is in its place, /disk"
    assert first.todo == (
        f"mount its disk at /disk if it is not there, then run {RESTART}: the node uses it again"
    )


def test_the_one_that_was_made_below_it_is_not_to_be_put_back_when_the_disk_is_there() -> None:
    why = "another log dir, dir-a, is now at this path, in the place of dir-made"
    offline = replace(MADE, state="offline", why=why)
    view = at_one_path(reported("dir-made", why), made=offline)
    (log_dir,) = describe_log_dirs(view)
    assert log_dir.todo.startswith(
        f"/disk belongs to dir-a: where that is mounted again, run {RESTART} to use it. The "
        "partitions of dir-made open when its folder is at another path"
    )
    assert described(view).partitions[1].todo == log_dir.todo
    assert RESTART in (described(view).partitions[0].todo or "")


def test_when_the_disk_is_used_again_the_partitions_below_it_say_what_they_need() -> None:
    first, second = described(at_one_path(reported("dir-a"))).partitions
    assert "is not in use" not in (first.problem or "")
    assert second.problem == "its log dir dir-made is not in use: dir-a is in its place, /disk"
    assert (second.todo or "").startswith("The partitions of dir-made open when its folder")
