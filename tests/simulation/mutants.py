"""The errors that the simulation must find: each planted alone, and run from seed 0 until it fails.

``./dev simulate --mutants`` prints a table of them with the first seed that fails. An error that no
seed of MOST_SEEDS finds means that the simulation is blind for it. The numbers are those of what
must be impossible; 27 and 28 are of the list of mutants for replication, 29 is of the operation of
nodes, 30 of the copies of the metadata, 31 of upgrades.
"""

from dataclasses import dataclass

NODE, CONTROLLER = "raylog.actors.node", "raylog.cluster.controller"
MOST_SEEDS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """In the source of ``module``, ``new`` takes the place of ``old``, which is there once.

    ``also``: another old and new text each, of a line that hides the error; ``beside``: the same in
    another module, whose name comes first.

    ``seed``: one that found it for what it is, when the table in docs/TESTING.md was made.
    """

    number: int
    seed: int
    what: str
    module: str
    old: str
    new: str
    also: tuple[tuple[str, str], ...] = ()
    beside: tuple[tuple[str, str, str], ...] = ()


MUTANTS = (
    Mutant(
        seed=241,
        number=1,
        what="a right to remove records never ends",
        module=f"{NODE}.confirmed_logs",
        old="CONFIRMED_FOR_MS = 20_000",
        new="CONFIRMED_FOR_MS = 20_000_000",
    ),
    Mutant(
        seed=10,
        number=1,
        what="an alter is answered before the nodes report it",
        module=f"{CONTROLLER}.waiting",
        old="if (behind or is_opening) and view.now_ms - self.since_ms <= PATIENCE_MS:",
        new="if False:",
    ),
    Mutant(
        seed=29,
        number=1,
        what="config versions begin where the metadata says, not at the epoch",
        module=f"{CONTROLLER}.desired",
        old="return max(version + 1, self.controller_epoch << VERSION_SHIFT)",
        new="return version + 1",
    ),
    Mutant(
        seed=0,
        number=1,
        what="a config of the broker is answered before the nodes report it",
        module=f"{CONTROLLER}.waiting",
        old="is_patient = view.now_ms - self.since_ms <= patience_ms",
        new="is_patient = False",
    ),
    Mutant(
        seed=137,
        number=2,
        what="producer ids begin where the metadata says, not at the epoch",
        module=f"{CONTROLLER}.desired",
        old="return max(self.next_producer_id, self.controller_epoch << EPOCH_SHIFT)",
        new="return self.next_producer_id",
    ),
    Mutant(
        seed=0,
        number=2,
        what="an epoch is obeyed that no log dir has",
        module=f"{NODE}.epoch_gate",
        old="if orders.controller_epoch > self._open:",
        new="if False:",
    ),
    Mutant(
        seed=0,
        number=2,
        what="an epoch counts as written where a log dir has failed",
        module=f"{NODE}.machine",
        old="""        if error is None:
            self._gate.read(""",
        new="""        if error is None or not isinstance(error, DiskFull):
            self._gate.read(""",
    ),
    Mutant(
        seed=0,
        number=2,
        what="the name of a new epoch's file is not fsynced",
        module="raylog.storage.files",
        old="""        raise TemporaryFileLost(path + ".tmp") from error
    fs.sync_dir(os.path.dirname(path))
""",
        new="""        raise TemporaryFileLost(path + ".tmp") from error
""",
    ),
    Mutant(
        seed=10,
        number=2,
        what="an epoch that a full disk cannot take counts as written",
        module=f"{NODE}.machine",
        old="""        if error is None:
            self._gate.read(""",
        new="""        if error is None or isinstance(error, DiskFull):
            self._gate.read(""",
    ),
    Mutant(
        seed=23,
        number=2,
        what="a log dir that hangs is used under an epoch that it does not have",
        module=f"{NODE}.dir_epochs",
        old="return self._written.get(directory_id, -1) >= self.obeyed",
        new="return True",
    ),
    Mutant(
        seed=9,
        number=3,
        what="a log dir that has lost its identity gets another one",
        module="raylog.storage.log_dir",
        old="            if use is not None:\n                raise IdentityMissing",
        new="            if False:\n                raise IdentityMissing",
    ),
    Mutant(
        seed=0,
        number=5,
        what="a folder that is missing is a failure of its disk",
        module=f"{NODE}.log_events",
        old="not isinstance(error, StorageError) or not error.is_disk_failure",
        new="not isinstance(error, StorageError)",
    ),
    Mutant(
        seed=8,
        number=6,
        what="a restart by Ray is a fresh start",
        module=f"{CONTROLLER}.plan",
        old="self._report.life != record.life and not self._report.is_restarted",
        new="self._report.life != record.life",
    ),
    Mutant(
        seed=61,
        number=6,
        what="a dir that failed is used again without reading it back",
        module=f"{CONTROLLER}.plan",
        old='case "returning" if is_online and entry.is_read_back and self._is_settled(record):',
        new='case "returning" if is_online:',
    ),
    Mutant(
        seed=12,
        number=7,
        what="a damaged folder is its name only, though its actor lives",
        module=f"{NODE}.log_events",
        old="if log.home == directory_id and log.has_actor:",
        new="if False:",
    ),
    Mutant(
        seed=67,
        number=7,
        what="an identity that was written back is not noticed",
        module=f"{NODE}.log_events",
        old="if unnamed is None or unnamed.is_doing or not",
        new="if True or not",
    ),
    Mutant(
        seed=0,
        number=8,
        what="a failed fsync of the metadata is tried again",
        module=f"{CONTROLLER}.journal",
        old="if isinstance(error, DiskFull | OutOfResources):",
        new="if True:",
    ),
    Mutant(
        seed=0,
        number=9,
        what="upkeep that was started once is not started again",
        module=f"{NODE}.upkeep_schedule",
        old="self._asked.clear()",
        new="pass",
    ),
    Mutant(
        seed=0,
        number=9,
        what="an adopted actor that died is not said to be gone",
        module=f"{NODE}.say_round",
        old="""            self._tell(ActorGone(partition=log.partition))
            return
        try:""",
        new="""            return
        try:""",
        beside=(
            (
                f"{NODE}.log_orders",
                "isinstance(log.want, Serve) and not log.is_ordered:",
                "False:",
            ),
        ),
    ),
    Mutant(
        seed=249,
        number=10,
        what="commands wait for a node that reports and does not obey",
        module=f"{CONTROLLER}.machine",
        old="or (is_late and seen.report is not None)",
        new="",
    ),
    Mutant(
        seed=5,
        number=13,
        what="a node's room is not asked for",
        module=f"{CONTROLLER}.spread",
        old="    if report.room == -1:",
        new="    if True:",
    ),
    Mutant(
        seed=113,
        number=14,
        what="a full disk ends a creation, though another node has room",
        module=f"{CONTROLLER}.waiting",
        old="return homes.take(avoid=(*record.left, record.node)) is not None",
        new="return False",
    ),
    Mutant(
        seed=4,
        number=15,
        what="a node goes on with the broker's old config",
        module=f"{CONTROLLER}.plan",
        old="first = (ObeyConfig(config=broker.config),) if broker is not None and is_old else ()",
        new="first = ()",
    ),
    Mutant(
        seed=1,
        number=16,
        what="a partition counts as removed while its folder is there",
        module=f"{CONTROLLER}.plan",
        old="    return all(entry.log != record.log for entry in seen.report.logs)",
        new="    return True",
        also=(("if _is_reported(record.log, desired, observed, now_ms):", "if False:"),),
    ),
    Mutant(
        seed=6,
        number=16,
        what="an actor that nobody adopted holds its log's removal up",
        module=f"{NODE}.log_events",
        old="if isinstance(error, LogLocked) and not has_actor:",
        new="if False:",
    ),
    Mutant(
        seed=208,
        number=18,
        what="a late report of an earlier life counts",
        module=f"{CONTROLLER}.observed",
        old="is_newest = len(lives.going) == 1",
        new="is_newest = True",
        also=(("if other != life and known.known_since < number:", "if False:"),),
    ),
    Mutant(
        seed=748,
        number=18,
        what="orders that come late are obeyed",
        module=f"{NODE}.epoch_gate",
        old="if orders.number <= self.number:",
        new="if False:",
    ),
    Mutant(
        seed=3,
        number=27,
        what="a LogManager obeys a lower epoch",
        module=f"{NODE}.epoch_gate",
        old="if orders.controller_epoch < self.seen:",
        new="if False:",
    ),
    Mutant(
        seed=0,
        number=28,
        what="a decision is told before it is committed",
        module=f"{CONTROLLER}.machine",
        old="        self._is_turn_of_plan = purpose is not None\n",
        new="        self._is_turn_of_plan = purpose is not None\n"
        "        for record in begun.records:\n"
        "            self._apply(record)\n",
    ),
    Mutant(
        seed=1,
        number=29,
        what="a node that is drained gets new partitions",
        module=f"{CONTROLLER}.spread",
        old='        case "draining":\n',
        new='        case "of nobody":\n',
    ),
    Mutant(
        seed=0,
        number=30,
        what="a record counts before the copies in sync have it",
        module=f"{CONTROLLER}.following",
        old="        end = min(acked, default=self.history.end)\n",
        new="        end = self.history.end\n",
    ),
    Mutant(
        seed=0,
        number=30,
        what="a copy of the metadata answers before its fsync",
        module=f"{NODE}.metadata_copy",
        old="            if batches and not self.has_failed:\n",
        new="            if False:\n",
    ),
    Mutant(
        seed=0,
        number=30,
        what="a promise is not fsynced",
        module=f"{NODE}.metadata_copy",
        old="            write_controller_epoch(self._fs, self.folder, epoch)\n",
        new="            pass\n",
    ),
    Mutant(
        seed=5,
        number=30,
        what="a snapshot is of records that do not count yet",
        module=f"{CONTROLLER}.machine",
        old="is_settled = self._journal.is_free and self.counted == history.end\n",
        new="is_settled = True\n",
    ),
    Mutant(
        seed=0,
        number=30,
        what="the log's beginning is removed up to the newest snapshot",
        module=f"{NODE}.metadata_copy",
        old="        forget_before(log, before.point.end)\n",
        new="        forget_before(log, newest.end)\n",
    ),
    Mutant(
        seed=4,
        number=30,
        what="a snapshot forgets which Kafka ids were given",
        module=f"{CONTROLLER}.snapshots",
        old="        next_kafka_id=desired.next_kafka_id,\n",
        new="        next_kafka_id=0,\n",
    ),
    Mutant(
        seed=1,
        number=31,
        what="the level is raised while a node runs the older release",
        module=f"{CONTROLLER}.upgrade",
        old="if not node.problem and not node.levels.has(level)",
        new="if False",
    ),
    Mutant(
        seed=1,
        number=31,
        what="a node that does not report counts as one that knows the level",
        module=f"{CONTROLLER}.upgrade",
        old="if node.problem and node.node not in without",
        new="if False",
    ),
)
