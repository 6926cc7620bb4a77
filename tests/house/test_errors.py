"""Every error class survives pickling, has Kafka's code and name, says something, and is in
``raylog.errors``."""

import builtins
import pickle
import re
import shlex
import subprocess
import sys
from importlib import import_module

import pytest

from raylog import errors
from raylog.errors import LogShorterThanFlushed, RaylogError, UnknownTopicOrPartition
from tests.harness.paths import ROOT

# Every module of raylog that defines an error class.
MODULES = sorted(
    f"raylog.{path.relative_to(ROOT).with_suffix('')}".replace("/", ".")
    for folder in ("storage", "actors", "cluster")
    for path in (ROOT / folder).rglob("*.py")
    if re.search(r"^class \w+\((\w*Error|InvalidConfig)\):", path.read_text(), re.MULTILINE)
)
for module in MODULES:
    import_module(module)


# Kafka's table: code, name, and whether its clients send the request again (an exception that is a
# RetriableException). From org.apache.kafka.common.protocol.Errors; those that raylog has.
KAFKA = {
    -1: ("UNKNOWN_SERVER_ERROR", False),
    1: ("OFFSET_OUT_OF_RANGE", False),
    2: ("CORRUPT_MESSAGE", True),
    3: ("UNKNOWN_TOPIC_OR_PARTITION", True),
    6: ("NOT_LEADER_OR_FOLLOWER", True),
    7: ("REQUEST_TIMED_OUT", True),
    8: ("BROKER_NOT_AVAILABLE", False),
    10: ("MESSAGE_TOO_LARGE", False),
    12: ("OFFSET_METADATA_TOO_LARGE", False),
    13: ("NETWORK_EXCEPTION", True),
    15: ("COORDINATOR_NOT_AVAILABLE", True),
    17: ("INVALID_TOPIC_EXCEPTION", False),
    18: ("RECORD_LIST_TOO_LARGE", False),
    19: ("NOT_ENOUGH_REPLICAS", True),
    22: ("ILLEGAL_GENERATION", False),
    23: ("INCONSISTENT_GROUP_PROTOCOL", False),
    24: ("INVALID_GROUP_ID", False),
    25: ("UNKNOWN_MEMBER_ID", False),
    26: ("INVALID_SESSION_TIMEOUT", False),
    27: ("REBALANCE_IN_PROGRESS", False),
    31: ("CLUSTER_AUTHORIZATION_FAILED", False),
    32: ("INVALID_TIMESTAMP", False),
    33: ("UNSUPPORTED_SASL_MECHANISM", False),
    34: ("ILLEGAL_SASL_STATE", False),
    35: ("UNSUPPORTED_VERSION", False),
    36: ("TOPIC_ALREADY_EXISTS", False),
    37: ("INVALID_PARTITIONS", False),
    40: ("INVALID_CONFIG", False),
    41: ("NOT_CONTROLLER", True),
    42: ("INVALID_REQUEST", False),
    44: ("POLICY_VIOLATION", False),
    45: ("OUT_OF_ORDER_SEQUENCE_NUMBER", False),
    47: ("INVALID_PRODUCER_EPOCH", False),
    48: ("INVALID_TXN_STATE", False),
    49: ("INVALID_PRODUCER_ID_MAPPING", False),
    50: ("INVALID_TRANSACTION_TIMEOUT", False),
    51: ("CONCURRENT_TRANSACTIONS", True),
    52: ("TRANSACTION_COORDINATOR_FENCED", False),
    56: ("KAFKA_STORAGE_ERROR", True),
    57: ("LOG_DIR_NOT_FOUND", False),
    58: ("SASL_AUTHENTICATION_FAILED", False),
    60: ("REASSIGNMENT_IN_PROGRESS", False),
    68: ("NON_EMPTY_GROUP", False),
    69: ("GROUP_ID_NOT_FOUND", False),
    74: ("FENCED_LEADER_EPOCH", True),
    75: ("UNKNOWN_LEADER_EPOCH", True),
    76: ("UNSUPPORTED_COMPRESSION_TYPE", False),
    81: ("GROUP_MAX_SIZE_REACHED", False),
    82: ("FENCED_INSTANCE_ID", False),
    86: ("GROUP_SUBSCRIBED_TO_TOPIC", False),
    87: ("INVALID_RECORD", False),
    90: ("PRODUCER_FENCED", False),
    88: ("UNSTABLE_OFFSET_COMMIT", True),
    89: ("THROTTLING_QUOTA_EXCEEDED", True),
    96: ("FEATURE_UPDATE_FAILED", False),
    100: ("UNKNOWN_TOPIC_ID", True),
    104: ("INCONSISTENT_CLUSTER_ID", False),
    105: ("TRANSACTIONAL_ID_NOT_FOUND", False),
    120: ("TRANSACTION_ABORTABLE", False),
}


def every_class(root: type[RaylogError] = RaylogError) -> list[type[RaylogError]]:
    """All error classes of raylog."""
    found = [root]
    for kind in root.__subclasses__():
        found += every_class(kind)
    return sorted(
        {kind for kind in found if kind.__module__.startswith("raylog.")},
        key=lambda kind: kind.__name__,
    )


def test_raylog_errors_exports_every_class() -> None:
    assert len(every_class()) > 50
    assert errors.__all__ == [kind.__name__ for kind in every_class()]
    assert [getattr(errors, name) for name in errors.__all__] == every_class()


def test_importing_raylog_errors_loads_neither_ray_nor_arrow_nor_spark() -> None:
    program = "import sys, raylog.errors; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    heavy = {"ray", "pyarrow", "pyspark", "raydp", "yaml", "typer"}
    assert "raylog.errors" in loaded
    assert heavy & set(loaded) == set()


def test_a_name_that_is_no_error_is_not_in_raylog_errors() -> None:
    with pytest.raises(AttributeError, match="NoSuchError"):
        _ = errors.NoSuchError


@pytest.mark.parametrize("kind", every_class())
def test_an_error_survives_pickling_with_its_fields_and_its_sentence(
    kind: type[RaylogError],
) -> None:
    values = [f"<{name}>" for name in kind.fields]
    error = kind(*values)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is getattr(errors, kind.__name__)
    assert again.args == tuple(values)
    assert [getattr(again, name) for name in kind.fields] == values
    assert str(again) == str(error)
    assert all(value in str(error) for value in values), "a field that the sentence does not tell"


@pytest.mark.parametrize("kind", every_class())
def test_a_code_has_the_name_and_is_retried_as_in_kafkas_table(kind: type[RaylogError]) -> None:
    assert (kind.error_name, kind.retriable) == KAFKA[kind.code]


def test_every_error_that_is_raised_is_in_raylog_errors() -> None:
    """But Python's own, and three that the kernel's twin, the schemas and the sockets keep."""
    own = {kind.__name__ for kind in every_class()} | {"Malformed", "Refusal", "LastAnswer"}
    others: dict[str, str] = {}
    for folder in ("storage", "actors", "cluster"):
        for path in set((ROOT / folder).rglob("*.py")) - set((ROOT / "storage/testing").iterdir()):
            for name in re.findall(r"^ +raise ([A-Z]\w+)\(", path.read_text(), re.MULTILINE):
                if name not in own and not hasattr(builtins, name):
                    others.setdefault(name, str(path.relative_to(ROOT)))
    assert others == {}


@pytest.mark.parametrize("kind", [kind for kind in every_class() if kind is not RaylogError])
def test_every_field_has_a_type(kind: type[RaylogError]) -> None:
    typed = {name for base in kind.__mro__ for name in getattr(base, "__annotations__", ())}
    assert set(kind.fields) <= typed


@pytest.mark.parametrize("kind", every_class())
def test_what_happened_and_what_to_do_are_the_sentence(kind: type[RaylogError]) -> None:
    error = kind(*(f"<{name}; a value>" for name in kind.fields))
    assert error.problem
    if kind.__str__ is RaylogError.__str__:  # else the class has no template
        assert "; ".join(filter(None, (error.problem, error.advice))) == str(error)


@pytest.mark.parametrize("kind", every_class())
def test_an_error_made_with_the_wrong_number_of_arguments_is_our_mistake(
    kind: type[RaylogError],
) -> None:
    with pytest.raises(TypeError, match=kind.__name__):
        kind(*["x"] * (len(kind.fields) + 1))


def test_a_path_in_a_command_is_quoted() -> None:
    path = "/my disk/it's/t-0"
    (command,) = re.findall("`(raylog log [^`]*)`", LogShorterThanFlushed(path, 10, 12).advice)
    assert shlex.split(command)[-1] == path


@pytest.mark.parametrize("kind", every_class())
def test_no_advice_tells_to_delete_a_topic(kind: type[RaylogError]) -> None:
    """Its records, and those of its other partitions, may be the only copy."""
    sentence = str(kind(*(f"<{name}>" for name in kind.fields)))
    assert not re.search("delete (the |a )?topic|delete it first|remove one of", sentence)


def test_a_partition_that_a_topic_does_not_have_is_no_topic_to_create() -> None:
    why = "the topic has 2 partitions"
    assert "create" not in str(UnknownTopicOrPartition("t", 7, why))
    assert "create the topic" in str(UnknownTopicOrPartition("t", None, "it does not exist"))
