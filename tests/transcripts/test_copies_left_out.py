"""A note of Ray's head lets a copy be left out only if no record of copies came since."""

from raylog.cluster.controller.commands import StopNode
from tests.harness.controller_play import Play
from tests.transcripts.controllers import node_a, node_b
from tests.transcripts.test_metadata_copies import copies_of, followed, has, node_c


def test_a_note_from_before_a_record_of_copies_lets_nobody_be_left_out_after_it() -> None:
    play = Play(node_a(), node_b(), node_c())
    play.followed = {"b"}
    play.settle()
    assert copies_of(play) == ["a", "b"]
    play.silent.add("b")
    play.until(
        lambda: play.is_asking
    )  # "a copy is left out"; Ray's head notes the end, and is slow
    play.silent.clear()
    play.followed = {"b", "c"}
    play.keeps("b")
    for _ in range(20):  # c joins meanwhile: a record of copies, which b has
        if play.appending is not None:
            play.appended()
        elif set(play.pushes) & play.followed:
            play.keeps(min(set(play.pushes) & play.followed))
        elif set(play.mail):
            play.obeys(min(play.mail))
        elif copies_of(play) == ["a", "b", "c"]:
            break
        else:
            play.passes(100)
    assert copies_of(play) == ["a", "b", "c"], copies_of(play)
    assert play.is_asking
    assert has(play, "b")
    play.asks(StopNode(node="b"))
    play.appended()
    play.keeps("b")
    play.keeps("c")
    lines = play.says_whether(True)  # the answer to the old question
    assert not any(line.startswith("append: copies at a c") for line in lines), (
        "b is left out, and Ray's head does not know it: its copy alone counts as complete"
    )


def test_each_copy_that_leaves_is_another_question() -> None:
    """The note for b is not above the record of copies that c has."""
    play = followed(node_b(), node_c())
    play.silent.add("b")
    play.until(lambda: play.is_asking)
    assert play.says_whether(True)[0] == "append: copies at a c"
    play.appended()
    play.keeps("c")
    assert copies_of(play) == ["a", "c"]
    play.asks(StopNode(node="c"))
    play.appended()
    lines = play.keeps("c")
    assert not any(line.startswith("append: copies") for line in lines), lines
    assert "am I the Controller? a copy is left out" in lines
