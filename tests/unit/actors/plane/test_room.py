from raylog.actors.plane.room import Room
from raylog.storage.testing.waiting import wait_for
from tests.unit.actors.plane.peers import beside


def test_who_fits_enters_at_once() -> None:
    room = Room(10)
    assert room.enter(4)
    assert room.enter(6)
    assert room.used_bytes == 10


def test_who_does_not_fit_waits_until_room_is_given_back() -> None:
    room = Room(10)
    room.enter(7)
    with beside(lambda: room.enter(4)):
        wait_for(lambda: room.waiting == 1)
        assert room.used_bytes == 7
        room.leave(1)
    assert room.used_bytes == 10


def test_more_than_all_room_enters_alone() -> None:
    room = Room(10)
    room.enter(1)
    with beside(lambda: room.enter(50)):
        wait_for(lambda: room.waiting == 1)
        room.leave(1)
    assert room.used_bytes == 50


def test_a_large_request_is_not_overtaken_by_small_ones() -> None:
    room = Room(10)
    room.enter(7)
    entered: list[int] = []

    def enter(size_bytes: int) -> None:
        room.enter(size_bytes)
        entered.append(size_bytes)

    with beside(lambda: enter(9)):
        wait_for(lambda: room.waiting == 1)
        with beside(lambda: enter(2)):  # would fit at once
            wait_for(lambda: room.waiting == 2)
            assert entered == []
            room.leave(7)
            wait_for(lambda: entered == [9])
            room.leave(9)
    assert entered == [9, 2]


def test_nobody_enters_once_it_is_closed() -> None:
    room = Room(10)
    room.enter(10)
    answers: list[bool] = []
    with beside(lambda: answers.append(room.enter(1))):
        wait_for(lambda: room.waiting == 1)
        room.close()
    assert answers == [False]
    room.leave(10)
    assert not room.enter(1)
    assert (room.used_bytes, room.waiting) == (0, 0)
