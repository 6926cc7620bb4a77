"""Messages are read by a neighbour of another release: fields by their names, or a named error."""

import pickle
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from raylog.errors import NotLeader, RaylogError, UnsupportedMessage
from raylog.storage.errors.base import read_error
from raylog.storage.wire import RELEASE, message, read_message

THEIR_RELEASE = "9.9.0"


@message
@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    node: str
    number: int
    doubts: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    length: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.node))


@message
class Offsets(NamedTuple):
    first: int
    last: int
    epoch: int = -1


class TheirMessage:
    """What a release with other fields in a class, or with another class, writes."""

    def __init__(self, cls: type | str, **fields: Any) -> None:
        kind = cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"
        self._head = (kind, THEIR_RELEASE, tuple(fields))
        self._values = tuple(fields.values())

    def __reduce__(self) -> Any:
        return read_message, (self._head, *self._values)


class TheirError:
    """An error of another release."""

    def __init__(self, kind: str, args: tuple[Any, ...], sentence: str) -> None:
        self._error = (kind, args, sentence)

    def __reduce__(self) -> Any:
        return read_error, self._error


def received(sent: object) -> Any:
    return pickle.loads(pickle.dumps(sent))


@pytest.mark.parametrize(
    "sent",
    [
        Order(node="n1", number=3, doubts=frozenset({"a"}), notes=["b"]),
        Offsets(1, 2, 3),
        [Offsets(1, 2), Order(node="n1", number=3), Offsets(3, 4)],
    ],
)
def test_a_message_of_the_same_release_arrives_as_it_was_sent(sent: object) -> None:
    assert received(sent) == sent


def test_what_is_worked_out_from_fields_does_not_travel_and_is_worked_out_again() -> None:
    assert received(Order(node="n12", number=3)).length == 3


def test_fields_that_the_reader_does_not_know_are_left_out() -> None:
    order = received(TheirMessage(Order, colour="red", number=3, node="n1", doubts=frozenset()))
    assert order == Order(node="n1", number=3)
    assert received(TheirMessage(Offsets, first=1, colour="red", last=2)) == Offsets(1, 2)


def test_fields_that_the_writer_does_not_know_have_their_defaults() -> None:
    assert received(TheirMessage(Order, node="n1", number=3)) == Order(node="n1", number=3)
    assert received(TheirMessage(Offsets, last=2, first=1)) == Offsets(1, 2)


def test_a_default_that_can_be_changed_is_another_one_in_each_message() -> None:
    order = received(TheirMessage(Order, node="n1", number=3))
    order.notes.append("mine")
    assert received(TheirMessage(Order, node="n1", number=3)).notes == []


@pytest.mark.parametrize("sent", [TheirMessage(Order, node="n1"), TheirMessage(Offsets, first=1)])
def test_a_field_without_a_default_that_is_missing_is_refused_by_name(sent: object) -> None:
    with pytest.raises(UnsupportedMessage, match=f"raylog {THEIR_RELEASE}: it lacks '") as caught:
        received(sent)
    assert caught.value.reader == RELEASE


@pytest.mark.parametrize(
    "kind", ["raylog.actors.control.Teleport", "raylog.no_such_module.Order", f"{__name__}.Unheard"]
)
def test_a_class_that_the_reader_does_not_know_is_refused_by_name(kind: str) -> None:
    with pytest.raises(UnsupportedMessage, match=f"{kind} of raylog 9.9.0: it is not known here"):
        received([Offsets(1, 2), TheirMessage(kind, node="n1")])


def test_an_error_of_the_same_release_arrives_as_it_was_raised() -> None:
    error = received(NotLeader("orders-0", "it is starting"))
    assert isinstance(error, NotLeader)
    assert error.args == ("orders-0", "it is starting")


@pytest.mark.parametrize(
    ("kind", "args"),
    [
        ("raylog.actors.errors.NoSuchError", ("x",)),
        ("raylog.no_such_module.NotLeader", ("x",)),
        ("raylog.actors.errors.NotLeader", ("orders-0", "it is starting", "a third field")),
        ("builtins.len", ("not an error",)),
    ],
)
def test_an_error_that_the_reader_does_not_know_says_the_same(
    kind: str, args: tuple[Any, ...]
) -> None:
    error = received(TheirError(kind, args, "the disk is on fire; put it out"))
    assert type(error) is RaylogError
    assert str(error) == "the disk is on fire; put it out"
