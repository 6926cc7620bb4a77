"""Asks a broker's actors what ``health.py`` judges, all at once and for a limited time: what hangs
does not hang us.

Actors are found by their names and asked directly, not through the Controller or their LogManagers:
one that is stuck must not hide the others.
"""

import time
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

import ray

from raylog.actors.runtime.calls import wait_for
from raylog.actors.runtime.handles import find, running
from raylog.actors.runtime.names import COMPACTION, CONTROLLER, RETENTION
from raylog.cluster.health.findings import Facts
from raylog.storage.errors import RaylogError

# Of each of the two rounds of questions. An actor that is well answers in milliseconds.
ROUND_TIMEOUT_S = 3.0
LOG, MANAGER = "Log:", "LogManager:"

Key = TypeVar("Key", bound=Hashable)


def gather(namespace: str, timeout_s: float = ROUND_TIMEOUT_S) -> Facts:
    """What is to be seen of a broker within about twice ``timeout_s``."""
    handles = {
        name: handle for name in running(namespace) if (handle := find(name, namespace)) is not None
    }
    calls = {
        (name, question): getattr(handle, question).remote()
        for name, handle in handles.items()
        for question in _questions(name)
    }
    answers, silent = _answers(calls, timeout_s)
    topics: dict[str, Any] = {}
    if (CONTROLLER, "list_topics") in answers:
        describe = handles[CONTROLLER].describe_topic
        names = answers[CONTROLLER, "list_topics"]
        topics, _ = _answers({name: describe.remote(name) for name in names}, timeout_s)
    settings = {entry.name: entry.value for entry in answers.get((CONTROLLER, "broker_config"), ())}
    return Facts(
        cluster_id=answers.get((CONTROLLER, "cluster_id"), ""),
        controller_problem=_controller_problem(handles, silent),
        nodes=answers.get((CONTROLLER, "nodes"), {}),
        topics=list(topics.values()),
        log_dirs=_joined(answers, MANAGER, "log_dirs"),
        silent_nodes=_of_kind(MANAGER, silent),
        partitions=list(_of_kind(LOG, answers).values()),
        silent_partitions=_of_kind(LOG, silent),
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


def _questions(name: str) -> tuple[str, ...]:
    """What the actor of this name is asked: its methods without arguments."""
    if name == CONTROLLER:
        return "cluster_id", "nodes", "list_topics", "broker_config"
    if name.startswith(COMPACTION):
        return "status", "retention"
    if name.startswith(MANAGER):
        return ("log_dirs",)
    return ("status",) if name.startswith((LOG, RETENTION)) else ()


def _controller_problem(
    handles: Mapping[str, Any], silent: Mapping[tuple[str, str], str]
) -> str | None:
    if CONTROLLER not in handles:
        return "there is none"
    return next((why for (name, _), why in silent.items() if name == CONTROLLER), None)


def _of_kind(prefix: str, answers: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    """Of these actors alone, by the rest of their name."""
    return {
        name.removeprefix(prefix): answer
        for (name, _), answer in answers.items()
        if name.startswith(prefix)
    }


def _joined(answers: Mapping[tuple[str, str], Any], prefix: str, question: str) -> list[Any]:
    """The answers, lists, of one kind of actor on all nodes."""
    return [
        entry
        for (name, asked), answer in answers.items()
        if name.startswith(prefix) and asked == question
        for entry in answer
    ]


def _answers(calls: Mapping[Key, Any], timeout_s: float) -> tuple[dict[Key, Any], dict[Key, str]]:
    """The answers that come in time, and of the other calls why there is none."""
    if not calls:
        return {}, {}
    ready, _ = ray.wait(list(calls.values()), num_returns=len(calls), timeout=timeout_s)
    in_time = set(ready)
    answers: dict[Key, Any] = {}
    problems: dict[Key, str] = {}
    for key, reference in calls.items():
        if reference not in in_time:
            problems[key] = f"not within {timeout_s:g} s"
            continue
        try:
            answers[key] = wait_for(reference, "it")
        except RaylogError as error:
            problems[key] = str(getattr(error, "why", error))
        except Exception as error:  # Ray may fail in its own ways; what the others said counts
            problems[key] = " ".join(str(error).split())
    return answers, problems
