"""The options of the ``raylog`` data source: parsed, checked, and refused by name.

They are those of Spark's Kafka source, with its names and meanings (Spark, "Structured Streaming +
Kafka Integration Guide"). Spark hands them over with lower-cased keys; errors use the names as
documented.

Which bound wins, for the start as for the end, as in Spark:

    startingTimestamp  >  startingOffsetsByTimestamp  >  startingOffsets  >  the default
    (one time for all)    (a time a partition)           (earliest, latest, JSON)

Pure: nothing here knows a broker. ``resolve.py`` turns a Selection and a Bound into partitions and
offsets.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from raylog.cluster.spark.errors import InvalidSparkOption

TopicPartition = tuple[str, int]
Mode = Literal["batch", "stream"]

# Bytes of one Arrow batch: Spark loads one at a time outside of its heap, and an executor of 512 MB
# must hold it. (A record may be more.)
BATCH_BYTES_MAX = 16 << 20

NO_KAFKA_CLIENT = (
    "raylog uses no Kafka client; remove the option (raylog.spark.session() knows the broker's "
    "address)"
)

# Spark's; how long a stream waits for minOffsetsPerTrigger.
MAX_TRIGGER_DELAY_MS = 15 * 60_000
_MILLISECONDS = {
    "us": 0.001,
    "ms": 1,
    "": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}

EARLIEST = -2  # what an offset in JSON can say instead of a number, as Kafka's ListOffsets
LATEST = -1

NAMES = (
    "address",
    "namespace",
    "subscribe",
    "assign",
    "subscribePattern",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerBatch",
    "failOnDataLoss",
    "includeHeaders",
    "isolationLevel",
)
# What users of Spark's Kafka connector give to its consumer.
_CONNECTORS_ISOLATION = "kafka.isolation.level"
_BY_LOWER = {name.lower(): name for name in NAMES}
# Kafka's numbers, as in client/connection.py: its import would slow each of Spark's processes.
_ISOLATIONS = {"read_uncommitted": 0, "read_committed": 1}
_SELECTIONS = ("subscribe", "assign", "subscribePattern")
_ENDINGS = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")


@dataclass(frozen=True)
class Selection:
    """Which partitions to read: exactly one of the three is set."""

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    pattern: str | None = None


@dataclass(frozen=True)
class Bound:
    """Where to start or to end: the same for every partition, or one value for each.

    ``kind`` says what the values are: offsets (EARLIEST and LATEST among them) or times in ms.
    ``option`` is the name of the option that said so, for errors.
    """

    kind: Literal["offset", "timestamp"]
    everywhere: int | None
    each: tuple[tuple[TopicPartition, int], ...] = ()
    option: str = ""


@dataclass(frozen=True)
class Options:
    """All options of one read, valid together."""

    selection: Selection
    starting: Bound
    ending: Bound
    latest_if_no_match: bool = False
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_batch: int = BATCH_BYTES_MAX
    fail_on_data_loss: bool = True
    include_headers: bool = False
    isolation: int = 0  # Kafka's number of it
    address: str | None = None
    namespace: str | None = None


def parse(given: Mapping[str, str], mode: Mode) -> Options:
    """Options of a batch or stream read. Raises InvalidSparkOption on the first that is wrong."""
    options = known(given)
    _refuse_for_mode(options, mode)
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise InvalidSparkOption(
            "startingOffsetsByTimestampStrategy", strategy, "use error or latest"
        )
    starting = _bound(options, "starting", EARLIEST if mode == "batch" else LATEST)
    ending = _bound(options, "ending", LATEST)
    if mode == "batch":
        _refuse_start_at_the_end(starting, options)
        _refuse_start_after_end(starting, ending)
    least = _positive(options, "minOffsetsPerTrigger")
    most = _positive(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        why = f"more than maxOffsetsPerTrigger={most}; make it smaller"
        raise InvalidSparkOption("minOffsetsPerTrigger", least, why)
    return Options(
        selection=_selection(options),
        starting=starting,
        ending=ending,
        latest_if_no_match=strategy == "latest",
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_milliseconds(options, "maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
        min_partitions=_positive(options, "minPartitions"),
        max_records_per_partition=_positive(options, "maxRecordsPerPartition"),
        max_bytes_per_batch=_positive(options, "maxBytesPerBatch") or BATCH_BYTES_MAX,
        fail_on_data_loss=boolean(options, "failOnDataLoss", True),
        include_headers=wants_headers(options),
        isolation=_isolation(options),
        address=options.get("address"),
        namespace=options.get("namespace"),
    )


def known(given: Mapping[str, str]) -> dict[str, str]:
    """The options under their documented names, and ``kafka.isolation.level`` under its own.

    An unknown option is refused, with the nearest known name.
    """
    options = {}
    for key, value in given.items():
        if key.lower() == _CONNECTORS_ISOLATION:
            options[_CONNECTORS_ISOLATION] = str(value).strip()
            continue
        name = _BY_LOWER.get(key.lower())
        if name is None:
            raise InvalidSparkOption(key, value, _what_instead(key.lower()))
        options[name] = str(value).strip()
    return options


def wants_headers(options: Mapping[str, str]) -> bool:
    """Whether the schema has the column ``headers`` (of options under their documented names)."""
    return boolean(options, "includeHeaders", False)


def _what_instead(key: str) -> str:
    if key == "path":
        return "a log has no path; call load() without one, and name topics with option subscribe"
    if key.startswith("kafka."):
        return NO_KAFKA_CLIENT
    if key == "pushfilters":
        return (
            "Spark would apply the filter of one query to others over the same load(), too; bound "
            "the read with startingOffsets, startingTimestamp or assign instead"
        )
    near = get_close_matches(key, _BY_LOWER, n=1, cutoff=0.75)
    hint = f"did you mean {_BY_LOWER[near[0]]}?" if near else f"the options are {', '.join(NAMES)}"
    return f"unknown option; {hint}"


def _refuse_for_mode(options: Mapping[str, str], mode: Mode) -> None:
    if mode == "stream":
        for name in _ENDINGS:
            if name in options:
                raise InvalidSparkOption(
                    name,
                    options[name],
                    "a stream does not support it; remove the option, or use spark.read",
                )
        return
    for name, value, other in (
        ("startingOffsets", "latest", "earliest"),
        ("endingOffsets", "earliest", "latest"),
    ):
        if options.get(name, "").lower() == value:
            raise InvalidSparkOption(
                name, value, f"the query would read nothing; use {other}, or JSON with offsets"
            )


def _refuse_start_at_the_end(starting: Bound, options: Mapping[str, str]) -> None:
    for (topic, partition), offset in starting.each:
        if starting.kind == "offset" and offset == LATEST:
            why = (
                f"{topic}-{partition} would start at its end (-1), and a batch would read nothing "
                "of it; use -2 (earliest) or an offset, or leave the partition out with assign"
            )
            raise InvalidSparkOption(starting.option, options[starting.option], why)


def _refuse_start_after_end(starting: Bound, ending: Bound) -> None:
    """Refuse a start that is greater than the end of the same kind."""
    if starting.kind != ending.kind:
        return
    start, end = starting.everywhere, ending.everywhere
    if start is not None and end is not None and start > end >= 0:  # negative: earliest or latest
        raise start_after_end(starting, "the query", start, end)
    ends = dict(ending.each)
    for tp, start_of_one in starting.each:
        if start_of_one > ends.get(tp, LATEST) >= 0:
            raise start_after_end(starting, f"{tp[0]}-{tp[1]}", start_of_one, ends[tp])


def start_after_end(starting: Bound, what: str, start: int, end: int) -> InvalidSparkOption:
    """The error for a query, or a partition of it, that would end before it starts."""
    why = f"{what} would start at {start} and end at {end}; start earlier or end later"
    return InvalidSparkOption(starting.option, start, why)


def _selection(options: Mapping[str, str]) -> Selection:
    given = [name for name in _SELECTIONS if name in options]
    if len(given) != 1:
        raise InvalidSparkOption(
            " and ".join(given or _SELECTIONS),
            ", ".join(options[name] for name in given),
            "set exactly one of subscribe, assign and subscribePattern",
        )
    name, value = given[0], options[given[0]]
    if name == "subscribe":
        return Selection(topics=_topics(value))
    if name == "assign":
        return Selection(partitions=_assigned(value))
    try:
        re.compile(value)
    except re.error as why:
        raise InvalidSparkOption(name, value, f"not a regular expression: {why}") from why
    return Selection(pattern=value)


def _topics(value: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
    if not topics:
        raise InvalidSparkOption(
            "subscribe", value, "name at least one topic; separate several topics by commas"
        )
    return topics


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    example = 'give JSON like {"topic": [0, 1]}'
    assigned = []
    for topic, partitions in _json_object("assign", value, example).items():
        if not isinstance(partitions, list) or not all(_is_int(p) and p >= 0 for p in partitions):
            raise InvalidSparkOption("assign", value, example)
        assigned += [(topic, partition) for partition in partitions]
    if not assigned:
        raise InvalidSparkOption("assign", value, f"no partition is named; {example}")
    return tuple(sorted(set(assigned)))


def _bound(options: Mapping[str, str], side: str, default: int) -> Bound:
    name = f"{side}Timestamp"
    if name in options:
        return Bound(kind="timestamp", everywhere=_timestamp(name, options[name]), option=name)
    name = f"{side}OffsetsByTimestamp"
    if name in options:
        return Bound(
            kind="timestamp",
            everywhere=None,
            each=_each(name, options[name], minimum=0),
            option=name,
        )
    name = f"{side}Offsets"
    words = {"earliest": EARLIEST, "latest": LATEST}
    value = options.get(name)
    if value is None:
        return Bound(kind="offset", everywhere=default, option=name)
    if value.lower() in words:
        return Bound(kind="offset", everywhere=words[value.lower()], option=name)
    each = _each(name, value, minimum=EARLIEST)
    if side == "ending" and any(offset == EARLIEST for _, offset in each):
        raise InvalidSparkOption(
            name, value, "an end of -2 (earliest) reads nothing; use -1 (latest) or an offset"
        )
    return Bound(kind="offset", everywhere=None, each=each, option=name)


def _timestamp(name: str, value: str) -> int:
    if not value.isdecimal():
        raise InvalidSparkOption(name, value, "give milliseconds since 1970 (UTC), 0 or more")
    return int(value)


def _each(name: str, value: str, minimum: int) -> tuple[tuple[TopicPartition, int], ...]:
    what = "offsets, -2 for earliest, -1 for latest" if minimum < 0 else "times in ms"
    example = f'give JSON like {{"topic": {{"0": 23, "1": 42}}}} with {what}'
    if not value.startswith("{") and name.endswith("Offsets"):
        example = f"use earliest, latest, or {example}"
    numbers = {}
    for topic, partitions in _json_object(name, value, example).items():
        if not isinstance(partitions, dict):
            raise InvalidSparkOption(name, value, example)
        for partition, number in partitions.items():
            if not partition.isdecimal() or not _is_int(number) or number < minimum:
                raise InvalidSparkOption(name, value, example)
            numbers[topic, int(partition)] = number
    return tuple(sorted(numbers.items()))


def _json_object(name: str, value: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(value)
    except ValueError as why:
        raise InvalidSparkOption(name, value, f"not JSON ({why}); {example}") from why
    if not isinstance(parsed, dict):
        raise InvalidSparkOption(name, value, example)
    return parsed


def _isolation(options: Mapping[str, str]) -> int:
    """Of the two spellings, which must not say different things."""
    levels = {}
    for name in ("isolationLevel", _CONNECTORS_ISOLATION):
        level = options.get(name, "read_uncommitted").lower()
        if level not in _ISOLATIONS:
            raise InvalidSparkOption(name, options[name], f"use {' or '.join(_ISOLATIONS)}")
        if name in options:
            levels[name] = level
    if len(set(levels.values())) > 1:
        why = f"isolationLevel={levels['isolationLevel']} says something else; remove one of them"
        raise InvalidSparkOption(_CONNECTORS_ISOLATION, levels[_CONNECTORS_ISOLATION], why)
    return _ISOLATIONS[next(iter(levels.values()), "read_uncommitted")]


def _positive(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    value = options[name]
    if not value.isdecimal() or int(value) == 0:
        raise InvalidSparkOption(
            name, value, "give an integer of 1 or more, or remove the option for no limit"
        )
    return int(value)


def _milliseconds(options: Mapping[str, str], name: str, default: int) -> int:
    """A time as Spark writes it: a number, and a unit or none for ms."""
    if name not in options:
        return default
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", options[name].lower())
    if found is None or found[2] not in _MILLISECONDS:
        why = "give a time like 30s, 15m or 1h (us, ms, s, m, h, d)"
        raise InvalidSparkOption(name, options[name], why)
    return int(int(found[1]) * _MILLISECONDS[found[2]])


def boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    """The option's value; the default where it is not given."""
    value = options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise InvalidSparkOption(name, value, "use true or false")
    return value == "true"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
