"""A coordinator of transactions without sockets, threads and time, for tests.

It carries out what the machine says, at once and in order, and keeps the log as a list. Markers go
nowhere by themselves: ``mark`` is their arrival.
"""

from typing import TypeVar

from raylog.actors.coordinators.log_record import LogRecord
from raylog.actors.coordinators.transactions.config import TransactionConfig
from raylog.actors.coordinators.transactions.machine import (
    AlarmRings,
    Appended,
    AppendFailed,
    Asked,
    Event,
    Loaded,
    Marked,
    TransactionMachine,
)
from raylog.actors.coordinators.transactions.messages import (
    AddPartitionsAnswer,
    AddPartitionsRequest,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    Owner,
    PrepareAnswer,
    PrepareRequest,
    ProducerIdNeeded,
    TransactionAnswer,
    TransactionRequest,
    VerifyAnswer,
    VerifyRequest,
)
from raylog.actors.coordinators.transactions.records import read
from raylog.actors.coordinators.transactions.transaction import Transaction
from raylog.actors.coordinators.transactions.turn import Reply, SendMarkers
from raylog.storage.names import TopicPartition

ID = "tx"
TIMEOUT_MS = 60_000
WALL_MS = 1_700_000_000_000  # between the two clocks
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = TransactionConfig()
Answer = TypeVar("Answer", bound=TransactionAnswer)


class Coordinator:
    """See the module's head. ``now_ms``: moved by ``wait`` alone; ``skew_ms``: of the wall clock.

    ``markers``: those that are on their way, the oldest first.
    """

    def __init__(self, config: TransactionConfig = CONFIG) -> None:
        self.config = config
        self.now_ms, self.skew_ms = 1_000_000, 0
        self.log: list[LogRecord] = []
        self.refusal = 0  # the code by which appends fail; 0: they do not
        self.markers: list[tuple[SendMarkers, TopicPartition]] = []
        self.fresh_id = 999
        self._answers: dict[int, TransactionAnswer] = {}
        self._tokens = 0
        self.restart()

    def restart(self) -> None:
        """The process dies, and another one reads the log."""
        self.machine = TransactionMachine(self.config)
        self.markers.clear()
        for record in self.log:
            self.machine.replay(record.key, record.value)
        self.do(Loaded())

    def compact(self) -> None:
        """Only the last record of each id stays."""
        last = {record.key: record for record in self.log}
        self.log = [record for record in last.values() if record.value is not None]

    def ask(self, request: TransactionRequest, kind: type[Answer]) -> Answer:
        self._tokens += 1
        self.do(Asked(self._tokens, request))
        found = self._answers.pop(self._tokens)
        if isinstance(found, ProducerIdNeeded) and kind is not ProducerIdNeeded:
            assert isinstance(request, InitRequest | EndRequest)
            assert request.fresh_producer_id is None
            self.fresh_id += 1
            return self.ask(request._replace(fresh_producer_id=self.fresh_id), kind)
        assert isinstance(found, kind), found
        return found

    def wait(self, duration_ms: int) -> None:
        """Let time pass; alarms ring when they are due."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.machine.next_alarm_ms) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.do(AlarmRings())
        self.now_ms = end_ms

    def do(self, event: Event) -> None:
        self._do(event)
        self.machine.validate()

    def _do(self, event: Event) -> None:
        wall_ms = WALL_MS + self.now_ms + self.skew_ms
        for instruction in self.machine.handle(event, self.now_ms, wall_ms):
            if isinstance(instruction, Reply):
                assert instruction.token not in self._answers, "one answer for a request"
                self._answers[instruction.token] = instruction.answer
            elif isinstance(instruction, SendMarkers):
                self._check_decided(instruction)
                self.markers += [(instruction, one) for one in instruction.partitions]
            elif self.refusal:
                self._do(AppendFailed(instruction, self.refusal))
            else:
                self.log += instruction.records
                self._do(Appended(instruction))

    def _check_decided(self, markers: SendMarkers) -> None:
        """What is sent is in the log, as the last word about its id."""
        known = self.last(markers.transactional_id)
        assert known is not None
        assert known.state.is_decided
        sent = (markers.producer_id, markers.epoch, markers.is_commit)
        assert sent == (known.producer_id, known.epoch, known.state.is_commit)

    def last(self, transactional_id: str = ID) -> Transaction | None:
        """The last record of an id."""
        found = None
        for record in self.log:
            name, known = read(record.key, record.value)
            if name == transactional_id:
                found = known
        return found

    @property
    def state(self) -> str:
        """Of the id of the tests."""
        known = self.last()
        return "none" if known is None else known.state.name

    # -- what is asked -----------------------------------------------------------------------------

    def init(self, producer_id: int = -1, epoch: int = -1, timeout_ms: int = TIMEOUT_MS) -> Owner:
        """Take the id; it must be given."""
        answer = self.try_init(producer_id, epoch, timeout_ms)
        assert answer.error_code == 0, answer
        return Owner(ID, answer.producer_id, answer.epoch)

    def try_init(
        self, producer_id: int = -1, epoch: int = -1, timeout_ms: int = TIMEOUT_MS
    ) -> InitAnswer:
        return self.ask(InitRequest(Owner(ID, producer_id, epoch), timeout_ms), InitAnswer)

    def add(self, owner: Owner, *partitions: TopicPartition, version: int = 1) -> int:
        request = AddPartitionsRequest(owner, partitions, version)
        return self.ask(request, AddPartitionsAnswer).error_code

    def verify(self, owner: Owner, *partitions: TopicPartition) -> tuple[int, ...]:
        return self.ask(VerifyRequest(owner, partitions), VerifyAnswer).error_codes

    def prepare(self, owner: Owner) -> int:
        return self.ask(PrepareRequest(owner), PrepareAnswer).error_code

    def end(self, owner: Owner, *, is_commit: bool = True, version: int = 1) -> EndAnswer:
        return self.ask(EndRequest(owner, is_commit, version), EndAnswer)

    def commit(self, owner: Owner) -> int:
        return self.end(owner).error_code

    def abort(self, owner: Owner) -> int:
        return self.end(owner, is_commit=False).error_code

    def mark(self, count: int | None = None) -> None:
        """So many markers arrive, or all."""
        for _ in range(len(self.markers) if count is None else count):
            self.do(Marked(*self.markers.pop(0)))
