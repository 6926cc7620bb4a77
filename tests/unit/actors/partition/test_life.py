"""The life of a LogActor, as transcripts: what happened, and what is to be done."""

import random
from itertools import pairwise
from typing import get_args

import pytest

from raylog.actors.control import LogId
from raylog.actors.errors import LabelShared, NotLeader
from raylog.actors.node_messages import LogOrder
from raylog.actors.partition.life import (
    ASK_TIMEOUT_MS,
    FIRST_DELAY_MS,
    KEPT_MS,
    LONGEST_DELAY_MS,
    TRANSITIONS,
    AskConfig,
    Closed,
    Created,
    DiskFailed,
    Distrusted,
    EndForGood,
    EndProcess,
    Event,
    Heard,
    Instruction,
    Learned,
    Life,
    LookAfter,
    Misplaced,
    Note,
    NotHeard,
    NotLearned,
    Opened,
    OpenLog,
    Refused,
    Report,
    Restarted,
    State,
    Stuck,
    Tick,
)
from raylog.storage.config import LogConfig
from raylog.storage.errors import LogMissing, StorageError
from raylog.storage.names import TopicPartition


def order_of(retention_ms: int, config_version: int) -> LogOrder:
    return LogOrder(
        log=LogId(partition=TopicPartition("orders", 0), topic_id="id"),
        directory_id="dir",
        config=LogConfig(retention_ms=retention_ms),
        config_version=config_version,
        controller_epoch=3,
    )


FIRST, ALTERED = order_of(3_600_000, 1), order_of(-1, 2)
MISSING = LogMissing("/logs/orders-0", "the folder does not exist")
SHARED = LabelShared("node", "raylog/log-node", "a")
BROKEN_DISK = StorageError("/logs/orders-0", "Input/output error")
SILENT = "no answer within 1000 ms"


def play(*events: Event, life: Life | None = None, now_ms: int = 0) -> list[list[Instruction]]:
    """What a life instructs after each of these events."""
    life = life or Life()
    instructions = []
    for event in events:
        instructions.append(life.handle(event, now_ms))
        life.validate()
    return instructions


def lived(*events: Event) -> Life:
    life = Life()
    play(*events, life=life)
    return life


def test_a_first_start_opens_its_log_with_the_config_that_it_brings() -> None:
    assert play(Created(), Opened(), Tick()) == [
        [OpenLog(None)],
        [],
        [LookAfter()],
    ]


def test_a_restart_opens_its_log_with_the_config_that_its_log_manager_knows() -> None:
    assert play(Restarted(), Learned(ALTERED), Opened(), Tick()) == [
        [AskConfig(ASK_TIMEOUT_MS)],
        [OpenLog(ALTERED)],
        [],
        [LookAfter()],
    ]


def test_a_restart_whose_log_manager_hangs_serves_nothing_until_it_has_learned_its_config() -> None:
    """Number 1 of what must be impossible: the config of the first start may be an old one."""
    life = Life()
    assert play(Restarted(), NotLearned(SILENT), life=life) == [
        [AskConfig(ASK_TIMEOUT_MS)],
        [Note("config-unknown", {"why": SILENT})],
    ]
    assert life.state == "learning"
    assert "waits for its LogManager" in life.why_not_serving
    assert SILENT in life.why_not_serving
    for hour in range(1, 100):
        now_ms = hour * 3_600_000
        assert life.handle(Tick(), now_ms) == [AskConfig(ASK_TIMEOUT_MS)]
        assert life.handle(NotLearned(SILENT), now_ms) == [], "it is told once"
    assert life.handle(Learned(ALTERED), now_ms) == [OpenLog(ALTERED)]
    assert play(Opened(), Tick(), life=life) == [[], [LookAfter()]]


def test_a_silent_log_manager_is_asked_more_and_more_rarely() -> None:
    life, asked_ms = lived(Restarted(), NotLearned(SILENT)), [0]
    for now_ms in range(0, 60_000, 100):
        if life.handle(Tick(), now_ms):
            asked_ms.append(now_ms)
            assert life.handle(Tick(), now_ms) == [], "one question at a time"
            life.handle(NotLearned(SILENT), now_ms)
    gaps_ms = [after - before for before, after in pairwise(asked_ms)]
    assert gaps_ms[:4] == [FIRST_DELAY_MS, 2000, 4000, LONGEST_DELAY_MS]
    assert set(gaps_ms[3:]) == {LONGEST_DELAY_MS}


def test_another_reason_not_to_know_the_config_is_told() -> None:
    life = lived(Restarted(), NotLearned(SILENT))
    assert life.handle(NotLearned("it was not told yet"), 0) == [
        Note("config-unknown", {"why": "it was not told yet"})
    ]


def test_a_log_manager_that_speaks_first_is_not_waited_for() -> None:
    life = lived(Restarted(), NotLearned(SILENT))
    assert life.handle(Learned(ALTERED), 10) == [OpenLog(ALTERED)]
    assert "is being opened" in life.why_not_serving
    late: list[Event] = [Learned(FIRST), NotLearned(SILENT), Tick()]
    assert play(*late, life=life) == [[], [], []], "the log is opened once, with one config"


@pytest.mark.parametrize("begin", [[Created()], [Restarted(), Learned(ALTERED)]])
def test_what_keeps_the_log_from_being_opened_is_kept_a_while_and_then_the_actor_ends(
    begin: list[Event],
) -> None:
    life = lived(*begin)
    transcript: list[tuple[int, Event, list[Instruction]]] = [
        (1000, Refused(MISSING), [Note("log-refused", {"why": MISSING})]),
        (2000, Tick(), []),
        (3000, Learned(ALTERED), []),
        (999 + KEPT_MS, Tick(), []),
        (1000 + KEPT_MS, Tick(), [EndForGood(MISSING)]),
        (2000 + KEPT_MS, Tick(), [EndForGood(MISSING)]),
    ]
    for now_ms, event, instructions in transcript:
        assert life.handle(event, now_ms) == instructions, event
        assert (life.state, life.problem) == ("ended", MISSING)
        life.validate()
    assert "does not exist" in life.why_not_serving


@pytest.mark.parametrize("begin", [[Restarted()], [Restarted(), Learned(ALTERED)]])
def test_an_actor_on_a_wrong_node_ends_for_good_at_once(begin: list[Event]) -> None:
    life = lived(*begin)
    assert play(Misplaced(SHARED), Tick(), Opened(), life=life) == [
        [Note("log-refused", {"why": SHARED}), EndForGood(SHARED)],
        [EndForGood(SHARED)],
        [],
    ]


def test_a_disk_that_fails_while_the_log_is_opened_is_reported_until_it_was_heard() -> None:
    life = lived(Created())
    transcript: list[tuple[Event, list[Instruction]]] = [
        (
            Refused(BROKEN_DISK),
            [Note("log-refused", {"why": BROKEN_DISK}), Report(BROKEN_DISK, is_loud=True)],
        ),
        (NotHeard(), []),
        (Tick(), [Report(BROKEN_DISK, is_loud=False)]),
        (Heard(), []),
        (Tick(), []),
    ]
    for event, instructions in transcript:
        assert life.handle(event, 0) == instructions, event
        life.validate()
    assert life.handle(Tick(), KEPT_MS) == [EndForGood(BROKEN_DISK)]


def test_a_disks_failure_is_reported_until_it_was_heard_and_told_once() -> None:
    life = lived(Created(), Opened())
    transcript: list[tuple[Event, list[Instruction]]] = [
        (DiskFailed(BROKEN_DISK), [Report(BROKEN_DISK, is_loud=True)]),
        (NotHeard(), []),
        (Tick(), [Report(BROKEN_DISK, is_loud=False)]),
        (NotHeard(), []),
        (Tick(), [Report(BROKEN_DISK, is_loud=False)]),
        (Heard(), []),
        (Tick(), [LookAfter()]),
        (DiskFailed(BROKEN_DISK), []),
        (Tick(), [LookAfter()]),
    ]
    for event, instructions in transcript:
        assert life.handle(event, 0) == instructions, event
        life.validate()
    assert life.state == "offline"


@pytest.mark.parametrize(
    "events",
    [
        [],
        [Restarted()],
        [Created()],
        [Created(), Opened()],
        [Created(), Opened(), DiskFailed(BROKEN_DISK)],
    ],
)
def test_an_error_that_is_not_raylogs_ends_the_process(events: list[Event]) -> None:
    life = lived(*events)
    assert life.handle(Distrusted(), 0) == [EndProcess(is_error=True)]
    assert life.handle(Tick(), 0) == []


def test_a_log_that_opening_again_would_mend_ends_its_process() -> None:
    assert play(Created(), Opened(), Stuck())[2] == [EndProcess(is_error=False)]


def test_after_an_orderly_end_nothing_is_looked_after() -> None:
    assert play(Created(), Opened(), Closed(), Tick())[2:] == [[], []]


def test_the_table_names_every_state_and_leads_into_none_that_it_does_not_have() -> None:
    states = set(get_args(State))
    assert {before for before, _ in TRANSITIONS} == states
    assert set(TRANSITIONS.values()) == states - {"new"}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_no_log_is_opened_twice_nor_before_its_config_is_learned(
    seed: int,
) -> None:
    chance, life = random.Random(seed), Life()
    begin: Event = Restarted() if chance.random() < 0.5 else Created()
    choices: list[Event] = [
        *(Learned(ALTERED), NotLearned(SILENT), Opened(), Refused(MISSING)),
        *(DiskFailed(BROKEN_DISK), Stuck(), Heard(), NotHeard(), Closed(), Tick(), Tick()),
    ]
    opened, learned, now_ms = 0, isinstance(begin, Created), 0
    for event in [begin, *chance.choices(choices, k=300)]:
        now_ms += chance.randrange(3000)
        learned |= isinstance(event, Learned)
        instructions = life.handle(event, now_ms)
        life.validate()
        opened += sum(isinstance(one, OpenLog) for one in instructions)
        assert learned or not opened
        assert opened <= 1


def test_why_not_serving_is_what_a_client_may_retry() -> None:
    error = NotLeader("orders-0", lived(Restarted()).why_not_serving)
    assert error.retriable
    assert "present config" in str(error)
