"""What Ray's head remembers of the Controllers."""

import msgpack
import pytest

from raylog.cluster.controller.witness import (
    Mark,
    Witness,
    is_last,
    is_left_out,
    is_settled,
    of_cluster,
)
from tests.harness.notes import FakeNotes


def test_a_life_leaves_its_mark_and_says_when_it_leaves_a_copy_out() -> None:
    notes = FakeNotes()
    first = Witness(notes, "ns", "1")
    first.begin(4, -1, lambda: True)
    assert first.marks() == [Mark(epoch=4)]
    first.ask(120)
    assert first.marks() == [Mark(epoch=4, asked_at=120)]
    assert Witness(notes, "other", "1").marks() == []


def test_the_next_life_settles_what_was_before_and_a_question_of_a_lost_one_is_seen_again() -> None:
    notes = FakeNotes()
    first, second = Witness(notes, "ns", "1"), Witness(notes, "ns", "2")
    first.begin(4, -1, lambda: True)
    first.ask(120)
    second.begin(5, -1, lambda: True)
    assert second.marks() == [Mark(epoch=5)]
    second.ask(130)
    first.ask(125)  # it hung, and does not know that it was replaced
    assert sorted(mark.asked_at for mark in second.marks()) == [125, 130]


def test_the_mark_of_a_beginning_says_who_was_left_out_by_the_lives_before() -> None:
    """The next life may be lost with its log before it has written anything."""
    notes = FakeNotes()
    first = Witness(notes, "ns", "1")
    first.begin(4, 117, lambda: True)
    first.ask(120)  # the record of that is number 121
    second = Witness(notes, "ns", "2")
    second.begin(4, 121, lambda: True)
    assert is_left_out(second.marks(), 117), "it may lack what the first life did without it"
    assert not is_settled(second.marks(), 4, 117)
    assert is_settled(second.marks(), 4, 121)


def test_who_begins_another_cluster_obeys_and_settles_nothing_of_the_one_before() -> None:
    notes = FakeNotes()
    old, new = Witness(notes, "ns", "1", "old"), Witness(notes, "ns", "2", "new")
    old.begin(9, 5, lambda: True)
    old.ask(500)
    assert of_cluster(new.marks(), "new") == []
    new.begin(1, -1, lambda: True)
    assert of_cluster(new.marks(), "new") == [Mark(epoch=1, cluster_id="new")]
    assert of_cluster(new.marks(), "old") == [Mark(epoch=9, asked_at=500, cluster_id="old")]


def test_the_mark_of_an_older_raylog_may_be_of_any_cluster() -> None:
    notes = FakeNotes()
    own = Witness(notes, "ns", "2", "new")
    mark = {"v": 1, "epoch": 9, "asked_at": 500}
    notes.keep("raylog:ns:controller:1", bytes(msgpack.packb(mark)))
    assert of_cluster(own.marks(), "new") == [Mark(epoch=9, asked_at=500)]
    own.begin(9, 501, lambda: True)
    assert own.marks() == [Mark(epoch=9, asked_at=501, cluster_id="new")]


def test_a_process_that_ray_has_replaced_leaves_no_mark_and_forgets_none() -> None:
    """It stood still between its look at the metadata and the opening of its log."""
    notes = FakeNotes()
    replaced, successor = Witness(notes, "ns", "1"), Witness(notes, "ns", "2")
    assert successor.begin(5, -1, lambda: True)
    successor.ask(41)
    assert not replaced.begin(5, -1, lambda: False)
    assert successor.marks() == [Mark(epoch=5, asked_at=41)]


def test_a_process_that_is_replaced_after_ray_was_asked_forgets_no_mark_of_its_successor() -> None:
    notes = FakeNotes()
    Witness(notes, "ns", "0").begin(4, -1, lambda: True)
    replaced, successor = Witness(notes, "ns", "1"), Witness(notes, "ns", "2")

    def stands_still() -> bool:
        """Ray has said yes; then its successor begins, and leaves a copy out."""
        successor.begin(5, -1, lambda: True)
        successor.ask(41)
        return True

    replaced.begin(5, -1, stands_still)
    assert Mark(epoch=5, asked_at=41) in successor.marks()
    assert Mark(epoch=4) not in successor.marks()


def test_a_life_that_ray_does_not_answer_forgets_nothing_and_may_ask_later() -> None:
    notes = FakeNotes()
    Witness(notes, "ns", "0").begin(4, -1, lambda: True)
    own = Witness(notes, "ns", "1")

    def is_away() -> bool:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        own.begin(5, -1, is_away)
    assert own.marks() == [Mark(epoch=4)]
    own.ask(41)
    assert Mark(epoch=5, asked_at=41) in own.marks()


def test_a_copy_lacks_nothing_if_it_has_the_record_of_each_that_was_left_out() -> None:
    asked = [Mark(epoch=4, asked_at=120), Mark(epoch=5, asked_at=130)]
    assert is_settled(asked, 6, 130)
    assert not is_settled(asked, 6, 129)
    assert is_settled([Mark(epoch=4)], 4, -1), "nobody was left out"


def test_without_a_mark_of_this_ray_nobody_knows() -> None:
    assert not is_settled([], 6, 130)
    assert not is_settled([Mark(epoch=7)], 6, 130), "the copy is older than this Ray"


def test_a_life_is_the_last_one_if_ray_knows_and_none_began_over_what_it_wrote() -> None:
    assert is_last([Mark(epoch=4)], 5)
    assert not is_last([Mark(epoch=4), Mark(epoch=5)], 5)
    assert not is_last([], 5)
