"""What a node tells to clients, and what it tells the Controller of its ports."""

import pytest

from raylog.actors.cluster_image import (
    VERSION,
    Endpoint,
    ImageKept,
    ImageUpdate,
    NodeEntry,
    PartitionEntry,
    TopicEntry,
)
from raylog.actors.control import LogId, Report
from raylog.actors.errors import UnsupportedVersion
from raylog.actors.node.addresses import Addresses
from raylog.storage.names import TopicPartition
from tests.harness.node_sockets import FakeSockets

LOG = LogId(partition=TopicPartition("t", 0), topic_id="id-t")
TOPIC = TopicEntry("t", "id-t", (PartitionEntry(0, Endpoint(7, 19_099), "a", 3, True),))
REPORT = Report(node="a", life="1", number=1, controller_epoch=4, dirs=(), logs=())


def update(number: int, base: int = 0, epoch: int = 4, version: int = VERSION) -> ImageUpdate:
    return ImageUpdate(
        controller_epoch=epoch,
        base=base,
        number=number,
        cluster_id="c",
        controller="a",
        nodes=(NodeEntry("a", Endpoint(1, 19_093), "127.0.0.1"),),
        topics=(TOPIC,),
        version=version,
    )


def test_an_update_is_shown_to_clients_and_opens_the_port() -> None:
    sockets = FakeSockets()
    addresses = Addresses("a", sockets)
    addresses.keep_up()
    assert sockets.port == 0, "nobody knows it yet"
    assert addresses.take(update(1)) == ImageKept(controller_epoch=4, number=1)
    assert sockets.shown is not None
    assert sockets.shown.topics == {"id-t": TOPIC}
    assert sockets.port == 19_093
    assert addresses.endpoint_of(LOG) == Endpoint(7, 19_099)


def test_without_listeners_no_port_is_opened_and_no_log_actor_is_told_one() -> None:
    sockets = FakeSockets()
    addresses = Addresses("a", sockets, has_ports=False)
    addresses.take(update(1))
    assert sockets.shown is not None, "processes of the node ask by its name"
    assert (sockets.port, addresses.endpoint_of(LOG)) == (0, None)
    assert sockets.looks, "by its name it listens"


@pytest.mark.parametrize(
    ("late", "why"),
    [
        (update(2, base=1, epoch=3), "of a Controller before"),
        (update(9, epoch=3), "all of a Controller before"),
        (update(2), "of before"),
        (update(2, base=1), "sent twice"),
        (update(4, base=1), "what it goes on from was overtaken"),
        (update(6, base=5), "something between is missing"),
        (update(6, base=5, epoch=5), "a new Controller begins with everything"),
    ],
)
def test_an_update_that_does_not_fit_changes_nothing(late: ImageUpdate, why: str) -> None:
    sockets = FakeSockets()
    addresses = Addresses("a", sockets)
    addresses.take(update(1))
    addresses.take(update(3, base=1))
    before = sockets.shown
    assert addresses.take(late) == ImageKept(controller_epoch=4, number=3), why
    assert sockets.shown is before


def test_a_new_controller_begins_anew() -> None:
    addresses = Addresses("a", None)
    addresses.take(update(5))
    assert addresses.take(update(1, epoch=5)) == ImageKept(controller_epoch=5, number=1)


def test_an_update_of_a_newer_layout_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedVersion):
        Addresses("a", None).take(update(1, version=VERSION + 1))


def test_a_report_says_where_the_manager_listens_as_soon_as_it_does() -> None:
    news: list[str] = []
    addresses = Addresses("a", FakeSockets(takes=40_000), lambda: news.append("listens"))
    addresses.keep_up()
    assert addresses.told_in(REPORT) == REPORT, "nobody knows yet where it is to listen"
    assert news == []
    addresses.take(update(1))
    assert news == ["listens"]
    told = addresses.told_in(REPORT)
    assert (told.host, told.port) == ("127.0.0.1", 40_000)
    addresses.keep_up()
    assert news == ["listens"]


def test_without_sockets_a_report_says_nothing_of_them() -> None:
    addresses = Addresses("a", None)
    addresses.keep_up()
    addresses.take(update(1))
    assert addresses.told_in(REPORT) == REPORT
    addresses.stop()


def test_the_end_closes_the_sockets() -> None:
    sockets = FakeSockets()
    Addresses("a", sockets).stop()
    assert sockets.is_closed
