"""When a node is told that all is as it shall be, and when a failed log is tried again."""

from dataclasses import replace

from raylog.actors.control import LogReport, Order, Orders, Remove, Report, Serve, SetAside
from raylog.actors.node.confirmed_logs import CONFIRMED_FOR_MS
from raylog.cluster.controller.telling import CONFIRM_MS, Telling
from raylog.cluster.controller.waiting import PATIENCE_MS
from raylog.storage.config import LogConfig
from raylog.storage.errors import DiskFull
from tests.harness.control_nodes import entry, log_id

LOG = log_id("t", 0)
SERVING = entry(LOG, "a1", config_version=1)
SERVE = Serve(log=LOG, directory_id="a1", config=LogConfig(), config_version=2)
EPOCH = 1


def report(number: int, *logs: LogReport, orders: int = -1) -> Report:
    return Report(
        node="a", life="1", number=number, controller_epoch=EPOCH, dirs=(), logs=logs, orders=orders
    )


class Talk:
    """A Controller's messages to one node, which hears each of them."""

    def __init__(self) -> None:
        self.telling = Telling()
        self.now_ms = 0
        self.number, self.obeyed = 0, -1

    def hears(self, *logs: LogReport) -> None:
        self.number += 1
        self.reported = report(self.number, *logs, orders=self.obeyed)
        self.telling.heard(self.reported, self.now_ms)

    def says(
        self, *orders: Order, doubts: bool = False, withheld: bool = False, confirms: bool = True
    ) -> Orders | None:
        """The message that is due now; ``doubts``, ``withheld``: of LOG."""
        message = self.telling.orders(
            self.reported,
            orders,
            EPOCH,
            self.now_ms,
            doubts=frozenset({LOG} if doubts else ()),
            withheld=frozenset({LOG} if withheld else ()),
            confirms=confirms,
        )
        self.telling.validate()
        if message is not None:
            self.obeyed = message.number
        return message


def begun(*logs: LogReport) -> Talk:
    """Everything that is served is confirmed."""
    talk = Talk()
    talk.hears(*logs)
    assert talk.says() is not None
    talk.hears(*logs)
    assert talk.says() is None
    return talk


def test_what_a_node_serves_is_confirmed_again_every_five_seconds() -> None:
    talk = begun(SERVING)
    talk.now_ms = CONFIRM_MS - 1
    assert talk.says() is None
    talk.now_ms = CONFIRM_MS
    assert talk.says() is not None
    assert 3 * CONFIRM_MS < CONFIRMED_FOR_MS, "a message may be lost, and the next one"


def test_an_alter_waits_longer_than_what_was_confirmed_before_it_holds() -> None:
    assert PATIENCE_MS > CONFIRMED_FOR_MS


def test_a_log_that_was_never_confirmed_is_confirmed_at_once() -> None:
    talk = begun()
    talk.hears(SERVING)
    message = talk.says()
    assert message is not None
    assert (message.report, message.orders, message.doubts) == (3, (), frozenset())
    assert talk.says() is None


def test_a_log_that_was_started_again_is_confirmed_at_once() -> None:
    talk = begun(SERVING)
    talk.hears(replace(SERVING, leader_epoch=7))
    assert talk.says() is not None
    talk.hears()
    talk.hears(replace(SERVING, leader_epoch=7))
    assert talk.says() is not None
    assert talk.says() is None


def test_a_log_that_was_in_doubt_is_confirmed_as_soon_as_it_is_not() -> None:
    talk = begun(SERVING)
    talk.now_ms = CONFIRM_MS
    message = talk.says(doubts=True)
    assert message is not None
    assert message.doubts == {LOG}
    assert talk.says(doubts=True) is None
    message = talk.says()
    assert message is not None
    assert message.doubts == frozenset()
    assert talk.says() is None


def test_what_a_record_is_written_about_is_confirmed_when_it_is_written() -> None:
    talk = begun()
    talk.hears(SERVING)
    assert talk.says(withheld=True) is None
    assert talk.says() is not None


def test_a_message_that_confirms_nothing_is_followed_by_one_that_does() -> None:
    talk = Talk()
    talk.hears(SERVING)
    message = talk.says(confirms=False)
    assert message is not None
    assert message.report == -1
    talk.hears(SERVING)
    assert talk.says(confirms=False) is None
    assert talk.says() is not None


def test_a_log_that_is_ordered_otherwise_is_confirmed_when_it_is_so() -> None:
    talk = begun(SERVING)
    assert talk.says(SERVE) is not None
    assert talk.says(SERVE) is None
    talk.hears(replace(SERVING, config_version=2))
    assert talk.says() is not None


def test_a_failed_log_is_tried_less_and_less_often_also_while_it_is_being_tried() -> None:
    problem = DiskFull("/a1")
    failed = entry(LOG, "a1", "failed", problem=problem)
    opening = entry(LOG, "a1", "opening", problem=problem)
    talk = begun()
    talk.hears(failed)
    tries = []
    while talk.now_ms < 60_000:
        message = talk.says(SERVE)
        if message is not None and message.orders:
            tries.append(talk.now_ms)
            talk.hears(opening)
            talk.says()
            talk.hears(failed)
        talk.now_ms += 1_000
    assert tries == [1_000, 3_000, 7_000, 15_000, 31_000]


def test_what_was_not_tried_yet_does_not_wait_for_what_failed() -> None:
    """A partition that cannot be opened is deleted at once, or opened with a config that helps."""
    failed = entry(LOG, "a1", "failed", problem=DiskFull("/a1"))
    other = replace(SERVE, config_version=3)
    for wanted in (Remove(log=LOG), other):
        talk = begun()
        talk.hears(failed)
        while talk.now_ms < 40_000:  # the next try is due at 63 s
            talk.says(SERVE)
            talk.now_ms += 1_000
        message = talk.says(wanted)
        assert message is not None
        assert message.orders == (wanted,)
        tries = []
        while talk.now_ms < 50_000:
            talk.now_ms += 1_000
            message = talk.says(wanted)
            if message is not None and message.orders:
                tries.append(talk.now_ms)
        assert tries == [41_000, 43_000, 47_000], "that one has delays of its own"


def test_two_folders_of_a_log_that_failed_are_tried_less_and_less_often() -> None:
    failed = [entry(LOG, dir_id, "failed", problem=DiskFull("/a1")) for dir_id in ("a1", "a2")]
    asides = [
        SetAside(partition=LOG.partition, topic_id=LOG.topic_id, directory_id=one.directory_id)
        for one in failed
    ]
    talk = begun()
    talk.hears(*failed)
    tries = 0
    while talk.now_ms < 60_000:
        message = talk.says(*asides)
        if message is not None and message.orders:
            tries += 1
            talk.hears(*failed)
        talk.now_ms += 100
    assert tries <= 12
