"""The LogActor carries out what its life's machine instructs. Without Ray."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.cluster_image import Endpoint
from raylog.actors.control import LogId
from raylog.actors.errors import (
    ConfigUnconfirmed,
    LabelShared,
    LogRefused,
    NotLeader,
    UnsupportedVersion,
)
from raylog.actors.messages import PartitionOffsets
from raylog.actors.node_messages import VERSION, LogOrder
from raylog.actors.partition.life import KEPT_MS
from raylog.actors.partition.partition import Partition
from raylog.actors.partition.spec import LogSpec
from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull, LogClosed, LogMissing, RaylogError, StorageError
from raylog.storage.testing.logs import FOLDER, PARTITION, Disk, batch
from tests.harness.log_alone import LOG, SPEC, FakeLogActor, order_of, right_of

ALTERED = order_of(2)
MISSING = LogMissing(FOLDER, "the folder does not exist")
BROKEN = StorageError(FOLDER, "Input/output error")
SHARED = LabelShared("here", "raylog/log-node", "a")


@pytest.fixture
def first(disk: Disk) -> FakeLogActor:
    return FakeLogActor(disk)


@pytest.fixture
def restarted(disk: Disk) -> FakeLogActor:
    return FakeLogActor(disk, is_restart=True)


# -- a first start ---------------------------------------------------------------------------------


def test_a_first_start_says_at_once_that_it_opens_its_log_and_serves_when_it_is_open(
    first: FakeLogActor,
) -> None:
    says = first.impl.says()
    assert (says.state, says.config, says.config_version) == ("opening", SPEC.config, 1)
    assert (says.log, says.directory_id, says.folder) == (LOG, "dir", FOLDER)
    assert (says.node_id, says.controller_epoch, says.offsets) == ("here", 3, None)
    with pytest.raises(NotLeader, match="is being opened"):
        first.impl.append(batch())
    first.run()
    assert first.impl.append(batch()).base_offset == 0
    says = first.impl.says()
    assert (says.state, says.config, says.config_version) == ("serving", SPEC.config, 1)
    assert (says.leader_epoch, says.problem) == (0, None)
    assert says.offsets == PartitionOffsets(0, 0, 1, 1)


def test_what_keeps_the_log_from_being_opened_is_said_for_a_while_before_the_actor_ends(
    first: FakeLogActor,
) -> None:
    first.problem = MISSING
    first.run()
    assert (first.impl.says().state, first.impl.says().problem) == ("ended", MISSING)
    with pytest.raises(NotLeader, match="does not exist"):
        first.impl.fetch(0)
    first.tick(KEPT_MS - 1)
    assert first.process.ended_for_good == 0
    first.tick(1)
    first.tick(1)
    assert first.process.ended_for_good == 2, "until it has ended"
    assert first.manager.reports == [], "no disk has failed"


def test_a_mistake_of_ours_while_the_log_is_opened_is_a_refusal_and_no_loop_of_processes(
    first: FakeLogActor, caplog: pytest.LogCaptureFixture
) -> None:
    first.problem = KeyError("of its own")
    first.run()
    says = first.impl.says()
    assert isinstance(says.problem, LogRefused)
    assert "KeyError" in str(says.problem)
    assert (says.state, first.process.ended) == ("ended", 0)


def test_a_disk_that_fails_while_the_log_is_opened_is_reported_until_it_was_heard(
    first: FakeLogActor,
) -> None:
    first.problem, first.manager.hears = BROKEN, False
    first.run()
    first.tick(1)
    first.manager.hears = True
    first.tick(1)
    first.tick(1)
    assert first.manager.reports == [(BROKEN, True), (BROKEN, False), (BROKEN, False)]


# -- a restart by Ray ------------------------------------------------------------------------------


def test_a_restart_serves_with_the_config_that_it_has_learned(restarted: FakeLogActor) -> None:
    assert (restarted.impl.says().state, restarted.manager.asked) == ("learning", 0)
    restarted.manager.answer = ALTERED
    restarted.run()
    [spec] = restarted.opened
    assert (spec.config, spec.config_version) == (ALTERED.config, 2)
    says = restarted.impl.says()
    assert (says.state, says.config, says.config_version) == ("serving", ALTERED.config, 2)
    assert restarted.impl.append(batch()).base_offset == 0


def test_while_its_log_manager_hangs_every_request_is_refused_and_may_be_retried(
    restarted: FakeLogActor,
) -> None:
    impl = restarted.run().impl
    refused: list[Callable[[], object]] = [
        lambda: impl.append(batch()),
        lambda: impl.fetch(0),
        lambda: impl.offsets(),
        lambda: impl.status(),
        lambda: impl.reconfigure(ALTERED),
        lambda: impl.delete_old_segments(right_of(2)),
        lambda: impl.delete_records(0),
        lambda: impl.close(),
    ]
    for call in refused:
        with pytest.raises(NotLeader, match=r"waits for its LogManager .*present config.*hangs"):
            call()
    assert impl.says().config is None
    assert (restarted.opened, restarted.manager.asked) == ([], 1)
    restarted.tick()
    assert (restarted.opened, restarted.manager.asked) == ([], 2)
    restarted.manager.answer = ALTERED
    restarted.tick()
    assert impl.append(batch()).base_offset == 0


def test_a_log_manager_that_opens_it_need_not_be_asked(restarted: FakeLogActor) -> None:
    says = restarted.impl.learn(ALTERED)
    assert (says.state, says.config_version) == ("opening", 2), "before it has even asked"
    restarted.run()
    assert restarted.impl.learn(order_of(1)).config_version == 2, "it learns once"
    assert [spec.config_version for spec in restarted.opened] == [2]


def test_an_answer_that_is_not_for_this_log_is_not_learned(restarted: FakeLogActor) -> None:
    wrong = [
        order_of(2, directory_id="another"),
        order_of(2, log=LogId(partition=PARTITION, topic_id="another")),
        order_of(2, controller_epoch=2),
        order_of(2, version=VERSION + 1),
    ]
    for answer in wrong:
        restarted.manager.answer = answer
        restarted.run()
        restarted.tick()
        assert (restarted.impl.says().state, restarted.opened) == ("learning", [])


def test_an_actor_that_ray_has_put_on_a_wrong_node_ends_and_touches_nothing(
    restarted: FakeLogActor,
) -> None:
    restarted.manager.answer, restarted.process.places = ALTERED, [SHARED]
    restarted.run()
    assert (restarted.opened, restarted.process.ended_for_good) == ([], 1)
    assert restarted.impl.says().problem == SHARED


def test_an_actor_that_is_told_to_open_looks_first_whether_the_node_is_its_own(
    restarted: FakeLogActor, caplog: pytest.LogCaptureFixture
) -> None:
    restarted.process.waiting.clear()  # its question is under way
    restarted.process.places = [RuntimeError("the GCS does not answer"), SHARED]
    restarted.impl.learn(ALTERED)
    restarted.run()
    assert (len(restarted.slept), restarted.opened) == (1, [])
    assert restarted.process.ended_for_good == 1


def test_while_nobody_knows_which_nodes_are_up_it_goes_on_asking(restarted: FakeLogActor) -> None:
    restarted.manager.answer = ALTERED
    restarted.process.places = [RuntimeError("the GCS does not answer")]
    restarted.run()
    with pytest.raises(NotLeader, match="GCS"):
        restarted.impl.fetch(0)
    restarted.tick()
    assert restarted.impl.says().state == "serving"


def test_without_a_log_manager_a_restart_serves_with_the_config_that_it_brings(disk: Disk) -> None:
    alone = FakeLogActor(disk, is_restart=True, spec=replace(SPEC, node="")).run()
    assert (alone.impl.says().state, alone.manager.asked) == ("serving", 0)


# -- orders ----------------------------------------------------------------------------------------


def test_an_order_changes_the_config_unless_it_is_older(first: FakeLogActor) -> None:
    impl = first.run().impl
    assert impl.reconfigure(order_of(2)).config == LogConfig(retention_ms=-1)
    older = order_of(1, config=LogConfig(retention_ms=5), controller_epoch=4)
    says = impl.reconfigure(older)
    assert (says.config_version, says.config) == (2, LogConfig(retention_ms=-1))
    assert says.controller_epoch == 4, "it has seen it"


def test_an_order_of_the_same_version_changes_the_config(first: FakeLogActor) -> None:
    """The broker has other defaults: the topic's config, and its version, are as before."""
    impl = first.run().impl
    impl.reconfigure(order_of(2))
    says = impl.reconfigure(order_of(2, config=LogConfig(retention_ms=5)))
    assert (says.config_version, says.config) == (2, LogConfig(retention_ms=5))


def test_an_order_of_an_older_controller_is_ignored(first: FakeLogActor) -> None:
    impl = first.run().impl
    impl.reconfigure(order_of(2, controller_epoch=5))
    says = impl.reconfigure(order_of(3, controller_epoch=4))
    assert (says.config_version, says.controller_epoch) == (2, 5)


@pytest.mark.parametrize(
    ("order", "error", "why"),
    [
        (order_of(2, directory_id="another"), NotLeader, "log dir dir, not another"),
        (order_of(2, log=LogId(partition=PARTITION, topic_id="x")), NotLeader, "not .* of topic x"),
        (order_of(2, version=VERSION + 1), UnsupportedVersion, f"not {VERSION + 1}"),
    ],
)
def test_an_order_for_another_log_or_of_a_layout_that_it_does_not_know_is_refused(
    first: FakeLogActor, order: LogOrder, error: type[RaylogError], why: str
) -> None:
    impl = first.run().impl
    calls: list[Callable[[LogOrder], object]] = [impl.learn, impl.reconfigure]
    for call in calls:
        with pytest.raises(error, match=why):
            call(order)
    assert impl.says().config_version == 1


# -- records are removed ---------------------------------------------------------------------------


def test_records_are_deleted_with_the_right_of_the_log_manager(first: FakeLogActor) -> None:
    impl = first.run().impl
    impl.append(batch())
    impl.append(batch())
    first.manager.rights = [right_of(1)]
    assert impl.delete_records(1) == 1
    assert impl.delete_records(-1) == 2
    assert first.manager.starts == [1, 2], "they are on the disk when that is answered"


def test_a_deletion_that_is_not_on_the_disk_is_not_answered(first: FakeLogActor) -> None:
    impl = first.run().impl
    impl.append(batch())
    first.manager.rights, first.manager.is_away = [right_of(1)], True
    with pytest.raises(NotLeader, match="not running"):
        impl.delete_records(-1)
    first.manager.is_away = False
    assert impl.delete_records(-1) == 1
    assert first.manager.starts == [1]


def test_without_a_log_manager_nobody_else_has_a_config(disk: Disk) -> None:
    impl = FakeLogActor(disk, spec=replace(SPEC, node="")).run().impl
    impl.append(batch())
    assert impl.delete_records(-1) == 1


def test_the_upkeep_actors_right_is_compared_with_what_the_log_obeys(first: FakeLogActor) -> None:
    impl = first.run().impl
    right = right_of(1, until_ms=5)
    assert impl.delete_old_segments(right).segments == 0
    for wrong in (right_of(2), replace(right, log=replace(LOG, topic_id="another"))):
        with pytest.raises(ConfigUnconfirmed):
            impl.delete_old_segments(wrong)
    view = impl.cleaning_view(right)
    first.clock.advance(5)
    with pytest.raises(ConfigUnconfirmed):
        impl.cleaning_view(right)
    compacts = order_of(3, config=LogConfig(cleanup_policy="compact"))
    assert impl.reconfigure(compacts).config_version == 3
    with pytest.raises(RaylogError, match="config has changed"):
        impl.replace_segments([], view.round_id, right)


# -- ends ------------------------------------------------------------------------------------------


def test_after_an_orderly_end_it_serves_nothing_and_looks_after_nothing(
    first: FakeLogActor,
) -> None:
    impl = first.run().impl
    impl.append(batch())
    assert impl.close() == impl.close() == PartitionOffsets(0, 1, 1, 1)
    says = impl.says()
    assert (says.state, says.problem, says.offsets) == ("ended", None, PartitionOffsets(0, 1, 1, 1))
    first.tick(KEPT_MS)
    assert (first.process.ended, first.process.ended_for_good) == (0, 0)
    with pytest.raises(LogClosed):
        impl.append(batch())
    first.disk.fs.lock(FOLDER)


def serving_with(error: Callable[[str], StorageError]) -> FakeLogActor:
    """An actor whose partition has met this error in an fsync."""
    disk = Disk()

    def failed(spec: LogSpec) -> Partition:
        partition = Partition(disk.open(), disk.clock, spec.config_version)
        partition.append(batch())
        with disk.fs.failing(error, "flush"), pytest.raises(StorageError):
            partition.flush()
        return partition

    return FakeLogActor(disk, open_partition=failed).run()


def test_a_disks_failure_is_said_and_is_reported_until_it_is_heard() -> None:
    actor = serving_with(lambda path: StorageError(path, "Input/output error"))
    actor.manager.hears = False
    actor.tick()
    actor.tick()
    actor.manager.hears = True
    actor.tick()
    actor.tick()
    assert [is_loud for _, is_loud in actor.manager.reports] == [True, False, False]
    says = actor.impl.says()
    assert (says.state, str(says.problem)) == ("offline", str(actor.manager.reports[0][0]))


def test_a_partition_that_is_offline_for_no_disks_fault_ends_its_process() -> None:
    actor = serving_with(DiskFull)
    actor.tick()
    assert (actor.process.ended, actor.manager.reports) == (1, [])


def test_an_error_that_is_not_raylogs_ends_the_process(first: FakeLogActor) -> None:
    impl = first.run().impl
    broken: Any = None
    first.own.partition.log.append_checked = broken  # type: ignore[method-assign]
    with pytest.raises(TypeError):
        impl.append(batch())
    assert first.process.ended == 1


def test_its_word_is_given_while_appends_and_an_fsync_wait_for_the_disk(
    first: FakeLogActor,
) -> None:
    """A look at what it serves takes none of the locks that work holds."""
    impl = first.run().impl
    locks = first.own.partition.log.locks
    with locks.end, locks.flush, locks.old:
        assert impl.says().state == "serving"


def test_an_error_of_rays_own_is_no_end_of_the_questions(restarted: FakeLogActor) -> None:
    restarted.manager.answer = RuntimeError("the GCS does not answer")
    restarted.run()
    assert restarted.impl.says().state == "learning"
    restarted.manager.answer = ALTERED
    restarted.tick()
    assert restarted.impl.says().state == "serving"


def test_ray_is_asked_once_whether_the_node_is_its_own(restarted: FakeLogActor) -> None:
    restarted.run()
    restarted.process.places = [RuntimeError("the GCS does not answer")]
    restarted.manager.answer = ALTERED
    restarted.tick()
    assert restarted.impl.says().state == "serving"


# -- its sockets -----------------------------------------------------------------------------------


def test_it_listens_where_it_was_told_as_soon_as_its_log_is_open(disk: Disk) -> None:
    actor = FakeLogActor(disk, spec=replace(SPEC, endpoint=Endpoint(7, 19_099)))
    assert actor.impl.says().port == 0
    actor.run()
    assert actor.sockets.partition is not None
    assert actor.impl.says().port == 19_099


def test_it_asks_where_to_listen_until_its_manager_knows(first: FakeLogActor) -> None:
    first.run()
    first.tick()
    assert first.impl.says().port == 0
    assert first.manager.said == []
    first.manager.known_endpoint = Endpoint(7, 19_099)
    first.tick()
    assert first.impl.says().port == 19_099
    first.tick()
    assert first.manager.said == [first.impl.says()], "its manager need not ask"


def test_it_asks_where_to_listen_as_soon_as_it_serves(first: FakeLogActor) -> None:
    first.manager.known_endpoint = Endpoint(7, 19_099)
    first.run()
    assert [(says.state, says.port) for says in first.manager.said] == [("serving", 19_099)]


def test_it_asks_less_and_less_often_where_nobody_knows(
    first: FakeLogActor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without ``listeners`` that stays so, and each question is a call to its LogManager."""
    asked: list[int] = []
    monkeypatch.setattr(first.manager, "endpoint", lambda: asked.append(1))
    first.run()
    for _ in range(60):
        first.tick(1_000)
    assert len(asked) == 6, "at 0, 1, 3, 7, 15 and 31 s"
    for _ in range(60):
        first.tick(60_000)
    assert len(asked) == 6 + 60, "once a minute"


def test_its_sockets_are_counted_with_its_other_metrics(first: FakeLogActor) -> None:
    first.run()
    first.tick()
    assert first.sockets.exports == 1


def test_a_log_that_could_not_be_opened_does_not_listen(first: FakeLogActor) -> None:
    first.problem, first.manager.known_endpoint = MISSING, Endpoint(7, 19_099)
    first.run()
    assert first.sockets.partition is None
    assert first.impl.says().port == 0


def test_a_log_that_is_closed_takes_leave_of_its_clients(first: FakeLogActor) -> None:
    first.run().impl.close()
    assert first.sockets.is_closed


def test_an_error_of_a_socket_that_is_not_raylogs_ends_the_process(first: FakeLogActor) -> None:
    first.run()
    first.sockets.fail(ValueError("whatever it is"))
    assert first.process.ended
