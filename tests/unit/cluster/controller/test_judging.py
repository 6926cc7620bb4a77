"""What users ask: which records follow, or which error by name."""

from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.control import DirReport
from raylog.actors.errors import (
    InvalidRequest,
    MoveRunning,
    NoLogDirs,
    NotLeader,
    TooManyPartitions,
    TopicBusy,
    TopicCollides,
    TopicExists,
    UnknownLogDir,
    UnknownTopicOrPartition,
)
from raylog.actors.node.broker_config import BrokerConfig
from raylog.cluster.controller.commands import (
    AddPartitions,
    AllocateProducerId,
    AlterTopic,
    CancelMove,
    Command,
    CreateTopic,
    DeleteTopic,
    LogDirOnline,
    MovePartition,
)
from raylog.cluster.controller.desired import EPOCH_SHIFT, Desired
from raylog.cluster.controller.judging import MAX_PARTITIONS, Judging
from raylog.cluster.controller.observed import SUSPECT_MS, Observed
from raylog.cluster.controller.producer_ids import PRODUCER_ID_BLOCK
from raylog.cluster.controller.records import (
    ControllerRecord,
    DirRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    TopicRecord,
    TopicRemovedRecord,
)
from raylog.cluster.controller.spread import MIN_USABLE_BYTES, Homes
from raylog.storage.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    LogDirOffline,
    RaylogError,
    UnknownConfigKey,
)
from tests.harness.control_nodes import PerfectNode, entry, log_id, obeying, version_of

EPOCH = 3
TOPIC = TopicRecord(name="t", topic_id="id-t", config={"retention.ms": 5}, version=2)
LOG = log_id("t", 0)
ONLINE = PartitionRecord(log=LOG, state="online", node="a", directory="a1", kafka_id=0)
DIRS = [
    DirRecord(directory_id=name, node=name[0], path=f"/{name}", state="online")
    for name in ("a1", "a2", "b1")
]


class Given:
    """A cluster of the nodes a and b with the topic t, and what a command gives there."""

    def __init__(self, *records: Record) -> None:
        self.desired = Desired()
        for record in (ControllerRecord(epoch=EPOCH, node="a"), *DIRS, TOPIC, ONLINE, *records):
            self.desired.apply(record)
        self.desired.validate()
        self.nodes = [PerfectNode("a", "a1", "a2"), PerfectNode("b", "b1")]
        self.now_ms = 0

    def records(self, command: Command) -> tuple[Record, ...]:
        observed: dict[str, Observed] = {
            node.key: obeying(node.report(), EPOCH) for node in self.nodes
        }
        commands = Judging(self.desired, observed, self.now_ms, BrokerConfig(num_partitions=2))
        return commands.records(command)

    def homes(self, count: int) -> list[str]:
        """The nodes of so many new partitions."""
        records = self.records(create(partitions=count))
        return [record.node for record in records if isinstance(record, PartitionRecord)]


def create(name: str = "u", **more: Any) -> CreateTopic:
    return CreateTopic(name=name, topic_id="id-u", **more)


# -- creating --------------------------------------------------------------------------------------


def test_a_topic_has_the_brokers_number_of_partitions_unless_it_is_said() -> None:
    given = Given()
    topic = TopicRecord(
        name="u", topic_id="id-u", config={"retention.ms": 9}, version=version_of(EPOCH)
    )
    made = [
        PartitionRecord(
            log=log_id("u", number),
            state="creating",
            node=node,
            kafka_id=1 + number,
        )
        for number, node in enumerate("ba")
    ]
    assert given.records(create(config={"retention.ms": "9"})) == (topic, *made)
    assert len(given.records(create(partitions=7))) == 8


def test_new_partitions_go_where_the_fewest_are() -> None:
    assert Given().homes(4) == ["b", "a", "b", "a"]
    more = [replace(ONLINE, log=log_id("t", n), kafka_id=n, directory="a2") for n in (1, 2)]
    assert Given(*more).homes(4) == ["b", "b", "b", "a"]
    making = [replace(ONLINE, log=log_id("t", 1), kafka_id=1, directory=None, state="creating")]
    assert Given(*making).homes(2) == ["b", "b"]


@pytest.mark.parametrize("why", ["offline", "recorded offline", "full", "draining"])
def test_a_node_whose_disk_cannot_have_it_is_not_chosen(why: str) -> None:
    recorded = {
        "recorded offline": replace(DIRS[2], state="offline", life="x"),
        "draining": replace(DIRS[2], state="draining"),
    }
    given = Given(recorded.get(why, DIRS[2]))
    directory = given.nodes[1].dirs["b1"]
    if why == "offline":
        given.nodes[1].dirs["b1"] = replace(directory, state="offline", why="EIO")
    if why == "full":
        given.nodes[1].dirs["b1"] = replace(directory, usable_bytes=MIN_USABLE_BYTES - 1)
    assert given.homes(2) == ["a", "a"]


@pytest.mark.parametrize("seen", ["silent", "of an older epoch", "not heard yet"])
def test_a_node_that_does_not_answer_is_not_chosen(seen: str) -> None:
    given = Given()
    now_ms = SUSPECT_MS + 1
    told = given.nodes[1].report()
    others = {
        "silent": obeying(told, EPOCH, 0),
        "of an older epoch": obeying(told, EPOCH - 1, now_ms),
        "not heard yet": Observed(heard_ms=now_ms),
    }
    observed = {"a": obeying(given.nodes[0].report(), EPOCH, now_ms), "b": others[seen]}
    commands = Judging(given.desired, observed, now_ms, BrokerConfig())
    records = commands.records(create(partitions=2))
    partitions = [record for record in records if isinstance(record, PartitionRecord)]
    assert [partition.node for partition in partitions] == ["a", "a"]


def test_where_no_node_can_have_it_each_nodes_reason_is_told() -> None:
    given = Given()
    given.nodes[0].dirs = {}
    given.nodes[1].fails("b1", "EIO")
    with pytest.raises(NoLogDirs) as raised:
        given.homes(1)
    assert "node a: it has no log dir that is online" in str(raised.value)
    assert "node b: /b1 is offline (EIO)" in str(raised.value)
    given.nodes = []
    with pytest.raises(NoLogDirs):
        given.homes(1)


def test_a_node_without_a_label_is_told_by_the_beginning_of_its_id() -> None:
    homes = Homes(Desired(), {"0123456789abcd" * 4: Observed(heard_ms=0)}, now_ms=0)
    assert homes.problems == ["node 01234567: its LogManager has not reported yet"]


def test_a_node_gets_no_new_partition_while_its_log_dirs_take_no_orders() -> None:
    given = Given()
    given.nodes = given.nodes[:1]
    dirs = given.nodes[0].dirs
    given.nodes[0].dirs = {key: replace(dirs[key], why="it may hang") for key in dirs}
    with pytest.raises(NoLogDirs, match=r"is suspect \(it may hang\)"):
        given.homes(1)


def test_the_room_of_a_node_counts_what_it_has_yet_to_make() -> None:
    making = replace(ONLINE, log=log_id("t", 1), kafka_id=1, directory=None, state="creating")
    given = Given(making)
    given.nodes[0].room = 3
    given.nodes[1].room = 1
    assert sorted(given.homes(3)) == ["a", "a", "b"]
    with pytest.raises(TooManyPartitions) as raised:
        given.homes(4)
    assert (raised.value.topic, raised.value.partitions, raised.value.most) == ("u", 4, 3)
    assert "each is a process" in raised.value.problem
    assert "ask for at most 3" in str(raised.value)
    given.nodes[0].logs[making.log, "a1"] = entry(making.log, "a1", "found")
    assert len(given.homes(4)) == 4
    given.nodes[1].room = -1
    assert len(given.homes(30)) == 30


def test_a_user_is_told_what_can_be_asked_for() -> None:
    nothing = TooManyPartitions("u", 4, 0, "node a: 0")
    assert "at most" not in str(nothing)
    assert "add a node" in str(nothing)
    too_many = str(InvalidPartitions(10_001, 1, 10_000))
    assert "from 1 to 10000: a topic can have no more" in too_many


OWN = TopicRecord(name="__cluster_metadata", topic_id="id-m", config={})


OWN_PARTITION = replace(ONLINE, log=log_id(OWN.name, 0, OWN.topic_id), directory="a2", kafka_id=9)


def test_the_name_of_the_metadata_is_its_own() -> None:
    """A partition of it would take the folder of the metadata."""
    for validate_only in (False, True):
        with pytest.raises(InvalidTopic, match="is the metadata's own; use another one"):
            Given().records(create(name=OWN.name, validate_only=validate_only))
    assert Given().records(create(name="__cluster_metadata_2"))


@pytest.mark.parametrize(
    "command",
    [
        create(name=OWN.name),
        CreateTopic(name=OWN.name, topic_id=OWN.topic_id),
        AddPartitions(name=OWN.name, total=2),
        AddPartitions(name=OWN.name, total=1, is_repeated=True),
        MovePartition(name=OWN.name, number=0, log_dir="/a1"),
    ],
)
def test_a_topic_that_has_it_from_before_is_neither_made_extended_nor_moved(
    command: Command,
) -> None:
    """It can be removed."""
    given = Given(OWN, OWN_PARTITION)
    with pytest.raises(InvalidTopic, match="is the metadata's own"):
        given.records(command)
    gone = given.records(DeleteTopic(name=OWN.name))
    assert gone[-1] == TopicRemovedRecord(topic_id=OWN.topic_id)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (create(name="a b"), InvalidTopic),
        (create(name="t"), TopicExists),
        (create(partitions=0), InvalidPartitions),
        (create(partitions=MAX_PARTITIONS + 1), InvalidPartitions),
        (create(partitions=True), InvalidPartitions),
        (create(config={"no.such": 1}), InvalidConfig),
        (create(config={"segment.bytes": -1}), InvalidConfig),
        (AddPartitions(name="no", total=2), UnknownTopicOrPartition),
        (AddPartitions(name="t", total=1), InvalidPartitions),
        (AlterTopic(name="no"), UnknownTopicOrPartition),
        (AlterTopic(name="t", changes={"no.such": 1}), InvalidConfig),
        (AlterTopic(name="t", delete=("no.such",)), UnknownConfigKey),
        (DeleteTopic(name="no"), UnknownTopicOrPartition),
        (MovePartition(name="t", number=1, log_dir="/a2"), UnknownTopicOrPartition),
        (MovePartition(name="t", number=0, log_dir="/b1"), InvalidRequest),
        (CancelMove(name="no", number=0), UnknownTopicOrPartition),
        (LogDirOnline(log_dir="/no"), UnknownLogDir),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type) else value.__name__,
)
def test_what_cannot_be_is_refused_by_name(command: Command, error: type[RaylogError]) -> None:
    with pytest.raises(error):
        Given().records(command)


def test_names_that_differ_in_dot_and_underscore_only_are_one() -> None:
    given = Given(TopicRecord(name="a.b", topic_id="id-x", config={}))
    with pytest.raises(TopicCollides, match=r"a\.b") as refused:
        given.records(create(name="a_b"))
    assert refused.value.error_name == "INVALID_TOPIC_EXCEPTION"


def test_partitions_are_added_behind_those_that_are_there() -> None:
    (record,) = Given().records(AddPartitions(name="t", total=2))
    assert isinstance(record, PartitionRecord)
    assert (record.log, record.state, record.kafka_id) == (log_id("t", 1), "creating", 1)


def test_no_partition_is_added_while_one_of_the_same_number_is_being_removed() -> None:
    given = Given(replace(ONLINE, log=log_id("t", 1), kafka_id=1, state="removing"))
    with pytest.raises(TopicBusy):
        given.records(AddPartitions(name="t", total=2))


# -- altering, deleting ----------------------------------------------------------------------------


def test_a_config_is_altered_in_a_new_version() -> None:
    command = AlterTopic(name="t", changes={"segment.bytes": 1 << 20}, delete=("retention.ms",))
    altered = replace(TOPIC, config={"segment.bytes": 1 << 20}, version=version_of(EPOCH))
    assert Given().records(command) == (altered,)
    again = replace(altered, version=version_of(EPOCH, 1))
    assert Given(altered).records(command) == (again,)


def test_a_topic_is_deleted_with_all_of_its_partitions_in_one_append() -> None:
    gone = replace(ONLINE, log=log_id("t", 1), kafka_id=1, state="removing")
    assert Given(gone).records(DeleteTopic(name="t")) == (
        replace(ONLINE, state="removing"),
        TopicRemovedRecord(topic_id="id-t"),
    )


# -- moves, log dirs -------------------------------------------------------------------------------


@pytest.mark.parametrize("log_dir", ["/a2", "/a2/", "a2"])
def test_a_partition_is_moved_to_a_path_or_an_id(log_dir: str) -> None:
    moving = replace(ONLINE, state="moving", target="a2")
    assert Given().records(MovePartition(name="t", number=0, log_dir=log_dir)) == (moving,)


def test_a_partition_that_is_there_or_on_its_way_there_is_not_moved_again() -> None:
    assert Given().records(MovePartition(name="t", number=0, log_dir="/a1")) == ()
    given = Given(replace(ONLINE, state="moving", target="a2"))
    assert given.records(MovePartition(name="t", number=0, log_dir="/a2")) == ()
    with pytest.raises(MoveRunning, match="/a2"):
        given.records(MovePartition(name="t", number=0, log_dir="/a1"))


def test_a_partition_whose_node_is_away_or_that_is_being_made_is_not_moved() -> None:
    given = Given()
    del given.nodes[0]
    with pytest.raises(NotLeader):
        given.records(MovePartition(name="t", number=0, log_dir="/a2"))
    with pytest.raises(NotLeader):
        Given(replace(ONLINE, state="creating")).records(
            MovePartition(name="t", number=0, log_dir="/a2")
        )


def test_a_move_to_a_dir_that_is_not_online_is_refused_with_those_that_are() -> None:
    given = Given(replace(DIRS[1], state="offline", why="EIO", life="x"))
    with pytest.raises(InvalidRequest, match=r"usable: /a1 \(a1\)"):
        given.records(MovePartition(name="t", number=0, log_dir="/a2"))


def test_a_move_is_cancelled_where_there_is_one() -> None:
    given = Given(replace(ONLINE, state="moving", target="a2"))
    assert given.records(CancelMove(name="t", number=0)) == (ONLINE,)
    assert Given().records(CancelMove(name="t", number=0)) == ()


def test_a_log_dir_is_used_again_when_it_was_offline() -> None:
    offline = replace(DIRS[0], state="offline", why="EIO", life="x")
    returning = replace(offline, state="returning")
    assert Given(offline).records(LogDirOnline(log_dir="/a1")) == (returning,)
    assert Given().records(LogDirOnline(log_dir="/a1")) == ()


def test_a_log_dir_that_its_node_has_started_without_is_not_told_to_be_online() -> None:
    given = Given()
    unread = DirReport(directory_id=None, path="/a1", state="offline", why="unreadable")
    given.nodes[0].dirs["a1"] = unread
    with pytest.raises(LogDirOffline, match=r"unreadable; .* start the broker"):
        given.records(LogDirOnline(log_dir="/a1"))
    assert given.records(LogDirOnline(log_dir="/a2")) == ()


def test_a_path_that_two_nodes_have_is_not_guessed() -> None:
    same = replace(DIRS[2], path="/a1")
    with pytest.raises(InvalidRequest, match="a1 of node a, b1 of node b"):
        Given(same).records(LogDirOnline(log_dir="/a1"))
    assert Given(same).records(LogDirOnline(log_dir="/a1", node="b")) == ()
    assert Given(same).records(LogDirOnline(log_dir="b1")) == ()


def test_of_two_log_dirs_at_one_path_of_a_node_the_one_that_it_has_found_is_used() -> None:
    """A disk was not mounted, and the empty folder below it became a log dir."""
    disk = replace(DIRS[0], state="offline", why="EIO", life="x")
    given = Given(disk, replace(DIRS[0], directory_id="made"))
    (returning,) = given.records(LogDirOnline(log_dir="/a1"))
    assert returning == replace(disk, state="returning")


def test_where_a_node_has_used_one_of_them_since_it_began_it_is_to_begin_again() -> None:
    given = Given(replace(DIRS[0], directory_id="made"))
    restart = "`raylog node stop a` and `raylog node start a` use what is there"
    with pytest.raises(InvalidRequest, match=restart):
        given.records(LogDirOnline(log_dir="/a1"))
    assert given.records(LogDirOnline(log_dir="/a1", node="a")) == ()


# -- producer ids ----------------------------------------------------------------------------------


def test_producer_ids_begin_at_the_epoch_and_go_on_within_it() -> None:
    first = EPOCH << EPOCH_SHIFT
    record = ProducerIdsRecord(epoch=EPOCH, next_id=first + PRODUCER_ID_BLOCK)
    assert Given().records(AllocateProducerId()) == (record,)
    older = ProducerIdsRecord(epoch=2, next_id=(2 << EPOCH_SHIFT) + 7)
    assert Given(older).records(AllocateProducerId()) == (record,)
    second = replace(record, next_id=first + 2 * PRODUCER_ID_BLOCK)
    assert Given(record).records(AllocateProducerId()) == (second,)
