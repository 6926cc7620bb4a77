"""Asks a broker's actors what ``findings.py`` judges, all at once and for a limited time.

Actors are found by their names and asked directly, not through the Controller or their LogManagers:
one that is stuck must not hide the others.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from raylog.actors.errors import ActorAway
from raylog.actors.messages import ActorProcess
from raylog.actors.runtime.calls import Call, answered, gather
from raylog.actors.runtime.handles import find, running
from raylog.actors.runtime.names import COMPACTION, CONTROLLER, LOG, LOG_MANAGER, RETENTION
from raylog.actors.runtime.ray_private import process_of
from raylog.actors.runtime.stubs import (
    CompactionActorStub,
    LogActorStub,
    LogManagerStub,
    RetentionActorStub,
)
from raylog.cluster.controller.log_dir_states import merged_log_dirs
from raylog.cluster.controller.spread import short_key
from raylog.cluster.controller.stub import ControllerStub
from raylog.cluster.health.facts import Facts
from raylog.storage.errors import RaylogError
from raylog.storage.names import parse_folder

# Of each of the two rounds of questions. An actor that is well answers in milliseconds.
ROUND_TIMEOUT_S = 3.0
# Who is silent for so long is told.
TOLD_AFTER_S = 2.0

Key = TypeVar("Key", bound=Hashable)
Question = tuple[str, str]  # an actor's name, and the method that it is asked


def ignore(_: object) -> None:
    """Where nobody is told."""


def gather_facts(
    namespace: str,
    timeout_s: float = ROUND_TIMEOUT_S,
    tell: Callable[[list[str]], object] = ignore,
) -> Facts:
    """What can be seen of a broker within about twice ``timeout_s``.

    ``tell``: told, after two seconds of silence, who has not answered yet.
    """
    handles: dict[str, Any] = {}
    for name in running(namespace):
        handle = find(name, namespace)
        if handle is not None:
            handles[name] = handle
    calls = {
        (name, question): call
        for name, handle in handles.items()
        for question, call in _questions(name, handle).items()
    }
    answers, silent, lost = _answers(calls, timeout_s, lambda silent: tell(_in_words(silent)))
    topics: dict[str, Any] = {}
    if (CONTROLLER, "list_topics") in answers:
        controller = ControllerStub(handles[CONTROLLER])
        names = answers[CONTROLLER, "list_topics"]
        asked = {name: controller.describe_topic(name) for name in names}
        topics = _answers(asked, timeout_s, ignore).answers
    settings = {entry.name: entry.value for entry in answers.get((CONTROLLER, "broker_config"), ())}
    return Facts(
        cluster_id=answers.get((CONTROLLER, "cluster_id"), ""),
        controller_problem=_controller_problem(handles, silent),
        problems=answers.get((CONTROLLER, "problems"), {}),
        nodes=answers.get((CONTROLLER, "nodes"), {}),
        node_list=answers.get((CONTROLLER, "describe_nodes"), ()),
        topic_names=answers.get((CONTROLLER, "list_topics")),
        topics=list(topics.values()),
        log_dirs=merged_log_dirs(
            _joined(answers, LOG_MANAGER, "log_dirs"), answers.get((CONTROLLER, "log_dirs"), ())
        ),
        silent_nodes=_of_kind(LOG_MANAGER, silent),
        partitions=list(_of_kind(LOG, answers).values()),
        silent_partitions=_of_kind(LOG, silent),
        hanging={name for name, _ in lost} - {name for name, _ in calls.keys() - lost},
        processes=_processes(handles, {name for name, _ in silent}),
        recovering=_joined(answers, LOG_MANAGER, "recoveries"),
        compaction=_joined(answers, COMPACTION, "status"),
        retention=[
            *_joined(answers, RETENTION, "status"),
            *_joined(answers, COMPACTION, "retention"),
        ],
        silent_upkeep={
            name: why
            for (name, _), why in silent.items()
            if name.startswith((COMPACTION, RETENTION))
        },
        retention_interval_ms=settings.get("log.retention.check.interval.ms", 0),
        now_ms=int(time.time() * 1000),
    )


def _in_words(questions: Iterable[Question]) -> list[str]:
    """The actors that are asked, for people."""
    words = {name: _for_people(name) for name, _ in questions}
    return sorted(words.values())


def _for_people(name: str) -> str:
    if name == CONTROLLER:
        return "the Controller"
    if name.startswith(LOG):
        return name.removeprefix(LOG)
    kind, _, node = name.partition(":")
    return f"the {kind} actor of node {short_key(node)}"


def _questions(name: str, handle: Any) -> dict[str, Call[Any]]:
    """What the actor of this name is asked, by the names of its methods."""
    if name == CONTROLLER:
        controller = ControllerStub(handle)
        return {
            "cluster_id": controller.cluster_id(),
            "nodes": controller.nodes(),
            "describe_nodes": controller.describe_nodes(),
            "log_dirs": controller.log_dirs(),
            "problems": controller.problems(),
            "list_topics": controller.list_topics(),
            "broker_config": controller.broker_config(),
        }
    if name.startswith(COMPACTION):
        compaction = CompactionActorStub(handle, name)
        return {"status": compaction.status(), "retention": compaction.retention()}
    if name.startswith(RETENTION):
        return {"status": RetentionActorStub(handle, name).status()}
    if name.startswith(LOG_MANAGER):
        log_manager = LogManagerStub(handle, name.removeprefix(LOG_MANAGER))
        return {"log_dirs": log_manager.log_dirs(), "recoveries": log_manager.recoveries()}
    partition = parse_folder(name.removeprefix(LOG)) if name.startswith(LOG) else None
    return {} if partition is None else {"status": LogActorStub(handle, partition).status()}


def _controller_problem(handles: Mapping[str, Any], silent: Mapping[Question, str]) -> str | None:
    if CONTROLLER not in handles:
        return "it is not running"
    return next((why for (name, _), why in silent.items() if name == CONTROLLER), None)


def _of_kind(prefix: str, answers: Mapping[Question, Any]) -> dict[str, Any]:
    """Of these actors alone, by the rest of their name."""
    return {
        name.removeprefix(prefix): answer
        for (name, _), answer in answers.items()
        if name.startswith(prefix)
    }


def _processes(handles: Mapping[str, Any], names: Iterable[str]) -> dict[str, ActorProcess]:
    """Where these actors are, as far as Ray knows."""
    processes = {name: process_of(handles[name]) for name in names}
    return {name: process for name, process in processes.items() if process is not None}


def _joined(answers: Mapping[Question, Any], prefix: str, method: str) -> list[Any]:
    """The answers, lists, of one kind of actor on all nodes."""
    return [
        entry
        for (name, asked), answer in answers.items()
        if name.startswith(prefix) and asked == method
        for entry in answer
    ]


class _Answers(NamedTuple, Generic[Key]):
    """The answers that came in time, and of the other calls why there is none.

    ``lost``: the calls that the actor has not answered, not even with an error.
    """

    answers: dict[Key, Any]
    problems: dict[Key, str]
    lost: set[Key]


def _answers(
    calls: Mapping[Key, Call[Any]], timeout_s: float, tell: Callable[[list[Key]], object]
) -> _Answers[Key]:
    """``tell``: told who is silent, as of ``gather_facts``."""
    told_after_s = min(TOLD_AFTER_S, timeout_s)
    there = set(answered(list(calls.values()), told_after_s, wanted=len(calls)))
    silent = [key for key, call in calls.items() if call not in there]
    if silent:
        tell(silent)
    gathered = gather(calls, timeout_s - told_after_s if silent else timeout_s)
    problems = {key: _problem(error) for key, error in gathered.errors.items()}
    for key in gathered.unanswered:
        problems[key] = f"no answer within {timeout_s:g} s"
    away = {key for key, error in gathered.errors.items() if isinstance(error, ActorAway)}
    return _Answers(gathered.answers, problems, away | gathered.unanswered)


def _problem(error: Exception) -> str:
    if isinstance(error, RaylogError):
        return str(getattr(error, "why", error))
    return " ".join(str(error).split())  # Ray may fail in its own ways
