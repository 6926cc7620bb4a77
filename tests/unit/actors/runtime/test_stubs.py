"""Each stub method calls the actor's method of its name, with its arguments in the order of that
signature. No Ray: a handle that records."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.node.log_manager import LogManagerImpl
from raylog.actors.partition.log_actor import LogActorImpl
from raylog.actors.runtime.calls import Call
from raylog.actors.runtime.stubs import (
    CompactionActorStub,
    LogActorStub,
    LogManagerStub,
    ReportsStub,
    RetentionActorStub,
)
from raylog.actors.upkeep.compaction_actor import CompactionActorImpl
from raylog.actors.upkeep.retention_actor import RetentionActorImpl
from raylog.cluster.controller.controller_actor import ControllerImpl
from raylog.cluster.controller.stub import ControllerStub
from raylog.storage.names import TopicPartition

PARTITION = TopicPartition("orders", 3)

MAKE: dict[type, Callable[[Any], Any]] = {
    LogActorStub: lambda handle: LogActorStub(handle, PARTITION),
    LogManagerStub: lambda handle: LogManagerStub(handle, "node"),
    CompactionActorStub: lambda handle: CompactionActorStub(handle, "Compaction:node"),
    RetentionActorStub: lambda handle: RetentionActorStub(handle, "Retention:node"),
    ControllerStub: ControllerStub,
    ReportsStub: ReportsStub,
}
IMPLEMENTATIONS: dict[type, type] = {
    LogActorStub: LogActorImpl,
    LogManagerStub: LogManagerImpl,
    CompactionActorStub: CompactionActorImpl,
    RetentionActorStub: RetentionActorImpl,
    ControllerStub: ControllerImpl,
    ReportsStub: ControllerImpl,
}
# What a stub does not send as it is -> the parameters of the actor's method.
SENT_AS: dict[tuple[type, str, str], dict[str, Any]] = {
    (ControllerStub, "explain", "partition"): PARTITION._asdict(),
}
# The Controller's names of parameters, where they are not the stub's.
IN_CONTROLLER = {"topic": "name", "partition": "number"}


class Handle:
    """An actor's. It records each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> str:
            self.calls.append((name, arguments))
            return f"the reference of {name}"

        return SimpleNamespace(remote=remote)


def methods() -> list[tuple[type, str]]:
    return [
        (stub, name)
        for stub in MAKE
        for name, _ in inspect.getmembers(stub, inspect.isfunction)
        if not name.startswith("_")
    ]


def argument_for(parameter: str) -> Any:
    """A value that no other parameter has."""
    if parameter == "partition":
        return PARTITION
    return object()


def sent_as(stub: type, name: str, key: str, value: Any) -> dict[str, Any]:
    """The parameters of the actor's method that a stub's argument becomes."""
    if (stub, name, key) in SENT_AS:
        return SENT_AS[stub, name, key]
    return {IN_CONTROLLER.get(key, key) if stub is ControllerStub else key: value}


@pytest.mark.parametrize(("stub", "name"), methods())
def test_each_stub_method_calls_the_method_of_its_name_with_its_arguments_in_that_order(
    stub: type, name: str
) -> None:
    handle = Handle()
    method = getattr(MAKE[stub](handle), name)
    arguments = {key: argument_for(key) for key in inspect.signature(method).parameters}
    call = method(**arguments)
    assert isinstance(call, Call)
    assert call.reference == f"the reference of {name}"

    [(called, sent)] = handle.calls
    assert called == name
    signature = inspect.signature(getattr(IMPLEMENTATIONS[stub], name))
    received = signature.bind(None, *sent).arguments
    received.pop("self")
    expected: dict[str, Any] = {}
    for key, value in arguments.items():
        expected |= sent_as(stub, name, key, value)
    assert received.keys() == expected.keys()
    for key, value in expected.items():
        assert received[key] is value, f"{name}: {key}"


def test_every_stub_has_methods() -> None:
    assert {stub for stub, _ in methods()} == set(MAKE)
