"""When the upkeep actors of a node have rounds, and when they are started.

They do nothing by themselves: each round is an instruction, which names the logs that it may touch.
A kind of upkeep runs where a log needs it, and is started again when it is missing.
"""

from collections.abc import Mapping, Set

from raylog.actors.control import LogId
from raylog.actors.node.broker_config import BrokerConfig
from raylog.actors.node.events import UPKEEP_KINDS, UpkeepKind
from raylog.actors.node.instructions import RunUpkeep, StartUpkeep
from raylog.storage.config import LogConfig


class UpkeepSchedule:
    """See the module's head."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._due_ms: dict[UpkeepKind, int] = {}
        self._asked: set[UpkeepKind] = set()
        self._named: dict[UpkeepKind, Set[LogId]] = {}  # by the last round
        self.running: tuple[UpkeepKind, ...] = ()
        self.needed: tuple[UpkeepKind, ...] = ()

    def obey(self, config: BrokerConfig, now_ms: int) -> None:
        """The broker has another config: no round comes later than by it."""
        self._config = config
        for kind, due_ms in self._due_ms.items():
            self._due_ms[kind] = min(due_ms, now_ms + self._interval_ms(kind))

    def _interval_ms(self, kind: UpkeepKind) -> int:
        if kind == "retention":
            return self._config.log_retention_check_interval_ms
        return self._config.log_cleaner_backoff_ms

    def started(self, running: tuple[UpkeepKind, ...], now_ms: int) -> None:
        """A life of the node begins: its first rounds come an interval later."""
        self.running = running
        for kind in UPKEEP_KINDS:
            self._due_ms[kind] = now_ms + self._interval_ms(kind)

    def seen(self, running: tuple[UpkeepKind, ...]) -> None:
        """These run now; who was asked to start and is not among them is asked again."""
        self.running = running
        self._asked.clear()

    def kind_of(self, config: LogConfig) -> UpkeepKind | None:
        """Which upkeep a log of this config needs."""
        if not config.is_compacted:
            return "retention"
        has_cleaner = self._config.log_cleaner_enable and self._config.log_cleaner_threads > 0
        return "compaction" if has_cleaner else None

    def starts(self, needed: Set[UpkeepKind]) -> list[StartUpkeep]:
        """Start what is needed and does not run."""
        self.needed = tuple(kind for kind in UPKEEP_KINDS if kind in needed)
        missing = [
            kind for kind in self.needed if kind not in self.running and kind not in self._asked
        ]
        self._asked.update(missing)
        return [StartUpkeep(kind=kind) for kind in missing]

    def is_due(self, now_ms: int) -> bool:
        return any(self._due_ms.get(kind, now_ms + 1) <= now_ms for kind in self.running)

    def rounds(
        self,
        logs: Mapping[UpkeepKind, Set[LogId]],
        confirmed: Mapping[UpkeepKind, Mapping[LogId, int]],
        now_ms: int,
    ) -> list[RunUpkeep]:
        """The rounds that are due. ``logs``: all that need each kind.

        One without any confirmed log stays due; it is said only where a log is gone, so
        that nobody is told of it any more.
        """
        rounds: list[RunUpkeep] = []
        for kind in self.running:
            if self._due_ms[kind] > now_ms:
                continue
            all_logs, of_kind = logs.get(kind, frozenset()), confirmed.get(kind, {})
            if of_kind:
                self._due_ms[kind] = now_ms + self._interval_ms(kind)
            elif self._named.get(kind, frozenset()) <= all_logs:
                continue
            self._named[kind] = all_logs
            others = frozenset(all_logs - of_kind.keys())
            rounds.append(RunUpkeep(kind=kind, confirmed=of_kind, others=others))
        return rounds
