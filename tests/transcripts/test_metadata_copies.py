"""Copies of the metadata: what counts, who joins, who is dropped, and who may go on alone."""

from dataclasses import replace

from raylog.actors.errors import NotLeader, OlderMetadata
from raylog.actors.metadata_history import ERA_EPOCHS, EpochStart, MetadataHistory
from raylog.cluster.controller.commands import StartNode, StopNode
from raylog.cluster.controller.describe import Snapshot, missing_copies
from raylog.cluster.controller.events import Kept
from raylog.cluster.controller.following import HEARTBEAT_MS, LEAVE_MS, RETRY_MS
from raylog.cluster.controller.observed import SUSPECT_MS
from tests.harness.control_nodes import PerfectNode
from tests.harness.controller_play import Play
from tests.transcripts.controllers import answer_of, create, error_of, node_a, node_b


def node_c() -> PerfectNode:
    return PerfectNode("c", "c1")


def followed(*others: PerfectNode) -> Play:
    """A Controller on node ``a``, and other nodes whose copies are in sync."""
    play = Play(node_a(), *others)
    play.followed = {node.key for node in others}
    play.settle()
    return play


def copies(play: Play) -> dict[str, tuple[int, bool]]:
    """How far each copy is, and whether it is in sync."""
    return {copy.node: (copy.end, copy.is_in_sync) for copy in play.machine.copies}


def copies_of(play: Play) -> list[str]:
    """The nodes whose copies are in sync, as everybody may know it."""
    return list(play.desired.copies)


def has(play: Play, key: str) -> bool:
    """Whether the copy of a node has all that is on the Controller's disk."""
    kept = play.copy_of(key).status()
    return kept.end == len(play.disk)


def grows_silent(play: Play, *keys: str) -> None:
    """Nothing is heard of the copies of these nodes for so long that they are dropped."""
    for key in keys:
        play.followed.discard(key)
    play.settle(SUSPECT_MS + 1_000)


# -- joining ---------------------------------------------------------------------------------------


def test_the_copy_of_a_node_joins_when_it_has_everything() -> None:
    play = Play(node_a(), node_b())
    play.followed = {"b"}
    play.sees()
    play.reports("a")
    assert play.reports("b") == ["append: controller 1"]
    assert "probe b" in play.appended()
    assert play.keeps("b") == [f"push b 0-{len(play.disk)}"]  # it has nothing
    play.until(lambda: "b" in play.desired.copies)
    assert play.desired.copies == ("a", "b")
    assert play.desired.copy_dirs == ("a1", "b1")
    assert has(play, "b")


def test_a_cluster_of_one_node_has_no_record_of_copies() -> None:
    play = followed()
    assert play.desired.copies == ()
    play.create("t")
    assert answer_of(play) == "t"
    assert not play.pushes


def test_a_record_that_lets_a_copy_join_counts_when_the_copy_has_it() -> None:
    play = Play(node_a(), node_b())
    play.settle()
    play.followed = {"b"}
    play.keeps("b")
    lines = play.keeps("b")
    assert lines == ["append: copies at a b"]
    end = len(play.disk)
    assert play.appended() == [f"push b {end}-{end + 1}"]
    assert not copies_of(play), "b may not have it"
    play.keeps("b")
    assert copies_of(play) == ["a", "b"]


# -- what counts -----------------------------------------------------------------------------------


def test_a_creation_goes_on_when_the_copy_in_sync_has_its_records() -> None:
    play = followed(node_b())
    end = len(play.disk)
    assert play.asks(create())[0].startswith("append: topic t v1.0")
    assert play.appended() == [f"push b {end}-{end + 2}"]
    assert play.desired.topic_named("t") is None
    assert not play.mail, "nobody was told"
    told = play.keeps("b")
    assert any(line.startswith("tell") for line in told)
    assert play.desired.topic_named("t") is not None
    play.settle()
    assert answer_of(play) == "t"
    assert has(play, "b")


def test_the_slowest_copy_in_sync_decides() -> None:
    play = followed(node_b(), node_c())
    assert play.desired.copies == ("a", "b", "c")
    play.asks(create())
    end = len(play.disk)
    assert play.appended() == [f"push b {end}-{end + 2}", f"push c {end}-{end + 2}"]
    assert play.keeps("b") == []
    assert play.desired.topic_named("t") is None
    play.keeps("c")
    assert play.desired.topic_named("t") is not None


def test_commands_wait_meanwhile_and_look_ups_do_not() -> None:
    play = followed(node_b())
    play.create("before")
    play.asks(create())
    play.appended()
    play.followed.clear()  # b hangs
    assert play.asks(create("u")) == []
    play.settle(5_000)
    assert play.desired.topic_named("before") is not None
    assert play.desired.topic_named("t") is None
    assert play.answer is None
    play.followed = {"b"}
    play.settle()
    assert answer_of(play) == "u"
    assert {topic.name for topic in play.desired.topics.values()} == {"before", "t", "u"}


def test_a_copy_that_has_not_joined_is_waited_for_by_nobody() -> None:
    play = Play(node_a(), node_b())
    play.settle()
    play.create("t")
    assert answer_of(play) == "t"
    assert copies(play) == {"a": (len(play.disk), True), "b": (0, False)}


# -- leaving ---------------------------------------------------------------------------------------


def test_a_copy_that_is_silent_is_dropped_and_then_the_decision_counts() -> None:
    play = followed(node_b(), node_c())
    play.asks(create())
    play.appended()
    play.keeps("c")
    play.followed.discard("b")
    silent_ms = play.now_ms
    play.until(lambda: play.is_asking)
    assert play.now_ms - silent_ms > SUSPECT_MS
    end = len(play.disk)
    assert play.says_whether(True)[0] == "append: copies at a c"
    assert play.desired.topic_named("t") is None
    assert play.appended() == [f"push c {end}-{end + 1}"]
    assert play.desired.topic_named("t") is None, "c does not know yet that b is not needed"
    play.keeps("c")
    assert play.desired.topic_named("t") is not None
    assert play.desired.copies == ("a", "c")
    play.settle()
    assert answer_of(play) == "t"


def test_the_last_one_goes_on_alone_if_it_is_still_the_controller() -> None:
    play = followed(node_b())
    play.asks(create())
    play.appended()
    play.followed.clear()
    play.until(lambda: play.is_asking)
    assert play.says_whether(None) == []  # Ray does not answer
    assert play.desired.topic_named("t") is None
    play.passes(RETRY_MS)
    assert play.says_whether(True)[0] == "append: copies at a"
    play.settle()
    assert answer_of(play) == "t"
    assert play.desired.copies == ("a",)


def test_one_that_is_the_controller_no_more_decides_nothing() -> None:
    play = followed(node_b())
    play.asks(create())
    play.appended()
    disk = list(play.disk)
    play.followed.clear()
    play.until(lambda: play.is_asking)
    assert play.says_whether(False) == ["answer 1: NotLeader"]
    assert isinstance(play.machine.failure, NotLeader)
    assert "another process is its Controller" in str(play.machine.failure)
    assert play.asks(create("u")) == ["answer 2: NotLeader"]
    play.settle()
    play.followed = {"b"}
    play.settle()
    assert play.disk == disk


def test_nothing_is_asked_while_no_copy_is_lost() -> None:
    play = followed(node_b(), node_c())
    play.settle(120_000)
    assert not play.is_asking
    assert play.desired.copies == ("a", "b", "c")


def test_a_lost_copy_is_dropped_though_nobody_waits_for_it_and_joins_again() -> None:
    play = followed(node_b())
    grows_silent(play, "b")
    assert copies_of(play) == ["a"]
    play.create("t")
    play.followed = {"b"}
    play.settle(5_000)
    assert copies_of(play) == ["a", "b"]
    assert has(play, "b")


def test_a_push_that_fails_is_tried_again_and_counts_as_silence() -> None:
    play = followed(node_b())
    play.asks(create())
    play.appended()
    assert play.push_fails("b") == []
    assert "no answer" in [copy.problem for copy in play.machine.copies]
    assert play.passes(RETRY_MS) == ["probe b"]
    play.settle()
    assert answer_of(play) == "t"
    assert play.desired.copies == ("a", "b")


def test_a_copy_whose_disk_is_gone_holds_up_what_is_new_only_until_it_has_all_again() -> None:
    play = followed(node_b())
    play.create("t")
    del play.copies["b"]
    play.create("u")
    assert answer_of(play) == "u"
    assert has(play, "b")


def test_a_copy_that_begins_in_another_log_dir_of_its_node_takes_the_place_of_the_first() -> None:
    """A node is in sync once: by one copy, and not before the one before is dropped."""
    play = followed(PerfectNode("b", "b1", "b2"))
    before = len(play.disk)
    play.copy_begins("b", "b2")  # the disk of the other one is gone
    play.settle(5_000)
    assert has(play, "b")
    assert len(play.disk) == before, "it joins already"
    play.settle(SUSPECT_MS)
    assert (play.desired.copies, play.desired.copy_dirs) == (("a", "b"), ("a1", "b2"))
    assert has(play, "b")


# -- Controllers that follow each other ------------------------------------------------------------


def test_the_next_controller_counts_on_the_copies_of_the_one_before() -> None:
    play = followed(node_b())
    play.create("t")
    play.begin()
    play.sees()
    play.reports("a")
    assert play.reports("b") == ["append: controller 2"]
    assert "probe b" in play.appended()
    play.keeps("b")
    assert not play.machine.is_in_charge, "b does not have the record"
    play.keeps("b")
    assert play.machine.is_in_charge
    play.settle()
    assert play.desired.copies == ("a", "b")
    assert has(play, "b")


def test_the_next_controller_drops_a_copy_that_never_answers_before_it_is_in_charge() -> None:
    play = followed(node_b())
    play.followed.clear()
    play.begin()
    play.settle(SUSPECT_MS + 3_000)
    assert play.machine.is_in_charge
    assert play.desired.copies == ("a",)
    play.create("t")
    assert answer_of(play) == "t"


def test_a_copy_that_knows_more_than_accepted_older_metadata_is_begun_anew() -> None:
    play = followed(node_b())
    play.create("t")
    kept = len(play.disk)
    play.begin()
    play.settle()
    play.create("of-epoch-2")
    play.loses(len(play.disk) - kept)  # and somebody has said that this counts
    play.begin(accepts_older=True, least_epoch=2)
    play.settle()
    assert play.desired.controller_epoch == ERA_EPOCHS
    assert play.desired.topic_named("of-epoch-2") is None
    assert play.desired.copies == ("a", "b")
    assert play.copy_of("b").status().digest == MetadataHistory(play.disk).digest_at(len(play.disk))


def test_two_that_had_one_epoch_are_left_as_they_are_and_a_person_is_told() -> None:
    one, other = followed(node_b()), followed(node_b())
    one.create("t")
    other.create("u")
    other.copies = one.copies
    before = one.copy_of("b").status()
    other.settle(SUSPECT_MS + 5_000)
    assert one.copy_of("b").status() == before
    (problem,) = [copy.problem for copy in other.machine.copies if copy.node == "b"]
    assert "have gone on apart" in problem
    assert other.desired.copies == ("a",)


# -- a promise to another Controller ---------------------------------------------------------------


def promised(play: Play, epoch: int = 7) -> list[str]:
    """The copy of b has promised to another Controller, and a topic's record waits for it."""
    play.copy_of("b").promise(epoch)
    play.asks(create())
    play.appended()
    return play.keeps("b")


def test_a_controller_that_others_have_tried_to_replace_in_vain_begins_above_their_promises() -> (
    None
):
    """Each try to begin has the copies promise a higher epoch, also if nothing comes of it."""
    play = followed(node_b())
    assert promised(play) == ["am I the Controller?"]
    assert play.says_whether(True) == ["append: controller 8"]
    play.settle()
    assert (answer_of(play), play.machine.doubt) == ("t", None)
    assert play.desired.controller_epoch == 8
    assert has(play, "b")


def test_the_next_controller_begins_above_promises_of_which_its_own_log_dirs_know_nothing() -> None:
    play = followed(node_b())
    play.copy_of("b").promise(7)
    play.begin()
    play.settle()
    assert (play.machine.is_in_charge, play.machine.doubt) == (True, None)
    assert play.desired.controller_epoch == 8
    assert play.desired.copies == ("a", "b")


def test_a_copy_that_is_not_in_sync_joins_whatever_it_has_promised() -> None:
    play = followed(node_b())
    play.followed.clear()
    play.settle(SUSPECT_MS + 5_000)
    assert copies_of(play) == ["a"]
    play.copy_of("b").promise(7)
    play.followed = {"b"}
    play.settle(5_000)
    assert play.desired.controller_epoch == 8
    assert copies_of(play) == ["a", "b"]


def test_a_controller_that_was_replaced_ends_when_a_copy_has_promised_to_the_next_one() -> None:
    play = followed(node_b())
    promised(play)
    play.says_whether(False)
    assert isinstance(play.machine.failure, NotLeader)
    assert isinstance(error_of(play), NotLeader)
    assert play.machine.doubt is None
    assert play.passes(30_000) == []


def test_nothing_is_decided_before_ray_says_that_the_promise_was_in_vain() -> None:
    play = followed(node_b())
    promised(play)
    assert play.says_whether(None) == []
    assert play.asks(create("u")) == []
    assert play.passes(RETRY_MS) == ["am I the Controller?", "push b 8-10"]
    assert play.keeps("b") == []
    assert play.answer is None
    play.settle()
    assert answer_of(play) == "u"


def test_ray_is_asked_again_where_a_copy_promises_more_after_the_question() -> None:
    """The answer says nothing of a Controller that may have begun since."""
    play = followed(node_b())
    promised(play)
    play.copy_of("b").promise(9)
    play.passes()
    play.keeps("b")
    assert play.says_whether(True) == ["am I the Controller?"]
    assert play.says_whether(True) == ["append: controller 10"]


def test_what_ray_says_of_a_promise_lets_no_copy_be_left_out() -> None:
    """Another Controller counts on a copy that was heard just before it began."""
    play = followed(node_b(), node_c())
    play.silent.add("c")
    play.settle(SUSPECT_MS - 4_000)
    play.copy_of("b").promise(7)
    play.passes(HEARTBEAT_MS)
    play.keeps("b")
    assert play.says_whether(True) == ["append: controller 8"]
    play.appended()
    assert "am I the Controller? a copy is left out" in play.passes(LEAVE_MS - 1)


def test_a_copy_that_answers_before_it_is_left_out_is_said_to_be_in_sync_again() -> None:
    """Else it would not be enough for the next Controller, though it has all that counts."""
    play = followed(node_b())
    play.silent.add("b")
    play.until(lambda: play.is_asking)
    assert "b" in play.pushes
    play.keeps("b")
    taken_back = play.says_whether(True)
    assert taken_back == ["am I the Controller? no copy is left out"]
    play.asks(create())
    play.appended()
    play.keeps("b")
    lines = play.says_whether(None)
    assert not any("Controller" in line for line in lines), "Ray does not answer"
    assert "am I the Controller? no copy is left out" in play.passes(RETRY_MS)
    play.says_whether(True)
    play.silent.clear()
    play.settle()
    assert not play.is_asking
    assert play.desired.copies == ("a", "b")


def test_what_was_said_in_vain_of_one_copy_lets_no_other_be_left_out() -> None:
    play = followed(node_b(), node_c())
    play.silent.add("b")
    play.settle(3_000)
    play.silent.add("c")
    play.until(lambda: play.is_asking)
    play.keeps("b")
    assert "am I the Controller? no copy is left out" in play.says_whether(True)
    play.says_whether(True)
    lines: list[str] = []
    while not play.is_asking:
        lines += play.passes()
    assert "am I the Controller? a copy is left out" in lines
    assert not any("append: copies" in line for line in lines)


def test_a_copy_with_a_record_of_a_later_controller_makes_this_one_stop() -> None:
    play, lost = followed(node_b()), followed(node_b())
    lost.begin(least_epoch=6)
    lost.settle()
    play.copies = lost.copies
    play.asks(create())
    play.appended()
    play.keeps("b")
    assert isinstance(play.machine.doubt, OlderMetadata)
    assert isinstance(error_of(play), OlderMetadata)
    assert "epoch 7 is known to the copy of the metadata on node b" in str(error_of(play))


def test_a_node_under_another_key_keeps_its_copy() -> None:
    """A node without a label has another key after each of its starts."""
    play = followed(node_b())
    play.create("t")
    other = PerfectNode("b-again", "b1", "b2")
    del play.nodes["b"]
    play.nodes["b-again"] = other
    play.followed = {"b-again"}
    copy = play.copies["b"]
    play.copies = {"b-again": copy}
    play.begin()
    play.settle(5_000)
    assert play.desired.copies == ("a", "b-again")
    assert play.desired.copy_dirs == ("a1", "b1")


def test_a_controller_that_hung_while_another_copy_was_chosen_acknowledges_nothing() -> None:
    """`raylog metadata restore` writes a Controller's record into it, and no promise."""
    play = followed(node_b())
    play.asks(create())
    play.appended()
    kept = play.copy_of("b").status()
    epochs = (*kept.epochs, EpochStart(9, kept.end))
    chosen = replace(kept, promised=-1, epochs=epochs, end=kept.end + 2, digest=b"of more")
    play.does(Kept(token=play.pushes.pop("b").token, node="b", kept=chosen))
    assert isinstance(error_of(play), OlderMetadata)
    assert "epoch 9 is known to the copy of the metadata on node b" in str(error_of(play))


# -- the end ---------------------------------------------------------------------------------------


def test_an_orderly_stop_is_the_last_record_and_every_copy_has_it() -> None:
    play = followed(node_b())
    play.create("t")
    play.passes(1)
    play.pushes.clear()
    assert play.stops() == ["probe b"]
    assert play.asks(create("u")) == ["answer 2: NotLeader"]
    assert play.keeps("b") == ["append: stopped"]
    play.settle()
    assert play.desired.is_all_stopped
    assert has(play, "b")
    play.begin()
    play.settle()
    assert not play.desired.is_all_stopped
    play.create("u")
    assert answer_of(play) == "u"


def test_a_stop_is_not_written_down_where_a_copy_does_not_answer_any_more() -> None:
    play = followed(node_b())
    play.followed.clear()
    play.stops()
    play.settle(5_000)
    assert not play.has_stopped()
    play.copy_of("b").promise(9)  # to another Controller
    play.followed = {"b"}
    play.passes()
    assert play.keeps("b") == ["am I the Controller?"]
    play.says_whether(False)
    play.settle(5_000)
    assert isinstance(play.machine.failure, NotLeader)
    assert not play.has_stopped()


# -- a node that an operator stops -----------------------------------------------------------------


def test_a_node_that_is_stopped_ends_when_no_record_waits_for_its_copy() -> None:
    play = followed(node_b(), node_c())
    play.asks(StopNode(node="b"))
    play.appended()
    play.keeps("b")
    assert "am I the Controller? a copy is left out" in play.keeps("c")
    assert "b" not in play.mail or not play.mail["b"].orders
    assert "append: copies at a c" in play.says_whether(True)
    assert "tell b: stop" not in play.appended()
    assert "tell b: stop" in play.keeps("c")
    assert copies_of(play) == ["a", "c"]
    assert play.now_ms < SUSPECT_MS
    play.settle()
    assert answer_of(play) == "node b stopped"


def test_a_stopped_node_holds_up_no_decision_and_joins_when_it_is_started() -> None:
    play = followed(node_b())
    play.asks(StopNode(node="b"))
    play.settle()
    before_ms = play.now_ms
    play.asks(create())
    play.until(lambda: play.answer is not None)
    assert play.now_ms - before_ms < SUSPECT_MS
    del play.copies["b"]  # the next LogManager is another life
    play.asks(StartNode(node="b"))
    play.settle()
    assert copies_of(play) == ["a", "b"]


def test_the_next_controller_waits_for_no_copy_of_a_node_that_is_stopped() -> None:
    play = followed(node_b())
    play.asks(StopNode(node="b"))
    play.appended()
    play.keeps("b")  # the Controller is lost before b's copy is left out
    play.nodes["b"].ended = "in order"
    play.begin()
    play.sees()
    play.reports("a")
    play.appended()
    assert "append: copies at a" in play.says_whether(True)
    play.settle()
    assert copies_of(play) == ["a"]
    assert play.now_ms < SUSPECT_MS


def test_the_stop_of_the_controllers_own_node_leaves_its_metadata_in_sync() -> None:
    play = followed(node_b())
    play.asks(StopNode(node="a"))
    play.settle()
    assert answer_of(play) == "node a stopped"
    assert copies_of(play) == ["a", "b"]


def test_nobody_misses_the_copy_of_a_node_that_is_stopped() -> None:
    play = followed(node_b())
    play.asks(StopNode(node="b"))
    play.settle(120_000)
    snapshot = Snapshot(
        desired=play.desired,
        copies=play.machine.copies,
        one_copy_since_ms=play.machine.one_copy_since_ms,
        now_ms=play.now_ms,
    )
    assert snapshot.one_copy_since_ms is not None
    assert missing_copies(snapshot) == ""
    assert play.machine.copies[1].problem == "its node is stopped"
