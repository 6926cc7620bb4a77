"""The orderly end of a broker: its Controller, every LogManager, then what is left of actors."""

import logging
import time

from raylog.actors.errors import NotLeader, RequestTimedOut
from raylog.actors.events import warn
from raylog.actors.runtime.calls import CALL_TIMEOUT_S, OPEN_TIMEOUT_S, Call, answered, gather
from raylog.actors.runtime.handles import kill
from raylog.actors.runtime.names import CONTROLLER, log_manager_name
from raylog.actors.runtime.stubs import find_log_manager
from raylog.cluster.controller.stub import ControllerStub, find_controller
from raylog.cluster.running import running_parts

logger = logging.getLogger(__name__)

# How long a Controller that is being started again is waited for.
LOOKUP_TIMEOUT_S = 30.0
RETRY_INTERVAL_S = 0.1
# How long a Controller that stops the broker may leave questions unanswered, and how often it is
# asked.
PATIENCE_S = 60.0
LISTEN_INTERVAL_S = 10.0
# Ray kills a process that stands still some 5 s after it was told to end an actor.
KILLED_WITHIN_S = 10.0


class _Silent(Exception):
    """The Controller answers nothing. Its argument: how that shows."""


def stop_controller(namespace: str) -> bool:
    """Have the Controller stop the broker, and end it; without one, stop the nodes from here.

    Returns whether all logs were closed in order. Ray has forgotten the Controller then, so that
    the next start finds none. One that hangs, or that Ray does not reach, is ended first, so that
    it does not go on with its work when it wakes. What it has answered is on its disk and in the
    copies of the metadata; only the last record is missing, which says that nothing followed.
    """
    is_clean = _shut_down(namespace)
    kill(CONTROLLER, namespace)
    deadline = time.monotonic() + CALL_TIMEOUT_S
    while find_controller(namespace) is not None and time.monotonic() < deadline:
        time.sleep(RETRY_INTERVAL_S)
    return is_clean


def _shut_down(namespace: str) -> bool:
    deadline = time.monotonic() + LOOKUP_TIMEOUT_S
    while True:
        try:
            controller = find_controller(namespace)
            if controller is None:
                break
            return _answer(controller, controller.shutdown())
        except _Silent as silent:
            _end_silent(namespace, str(silent))
            break
        except NotLeader as error:
            if time.monotonic() > deadline:
                _end_silent(namespace, f"cannot be reached ({error.why})")
                break
            time.sleep(RETRY_INTERVAL_S)
    return stop_nodes(namespace)


def _end_silent(namespace: str, how: str) -> None:
    """End the process of a Controller that hangs, and tell what is done without it."""
    logger.warning(
        "the Controller %s: its process is ended, and the nodes are stopped without it. The "
        "metadata has every change that was acknowledged, but not the mark of an orderly end: have "
        "all nodes running before the next `raylog start`",
        how,
    )
    kill(CONTROLLER, namespace)
    time.sleep(KILLED_WITHIN_S)


def _answer(controller: ControllerStub, ending: Call[bool]) -> bool:
    """What the Controller says of the end. RequestTimedOut where it takes too long.

    It may take long, so it is asked in between whether it is there. Raises _Silent where it is not.
    """
    began_s = time.monotonic()
    questions: list[Call[str]] = []  # that are not answered
    silent_since_s: float | None = None  # the oldest question since the last answer
    while True:
        if answered([ending], LISTEN_INTERVAL_S):
            return ending.get()
        now_s = time.monotonic()
        left = [question for question in questions if not question.is_answered()]
        if len(left) < len(questions):
            silent_since_s = None
        questions = left
        if silent_since_s is not None and now_s - silent_since_s >= PATIENCE_S:
            raise _Silent(f"has not answered for {PATIENCE_S:.0f} s")
        if now_s - began_s >= OPEN_TIMEOUT_S:
            raise RequestTimedOut("stopping the broker", round(OPEN_TIMEOUT_S * 1000))
        if silent_since_s is None:
            silent_since_s = now_s
        question = controller.cluster_id()
        question.ignore()  # what it is answered
        questions.append(question)


def stop_nodes(namespace: str, timeout_s: float = OPEN_TIMEOUT_S) -> bool:
    """Stop every LogManager in order, then end what is left; returns whether all was in order.

    Left are actors of nodes that are away, and those of a LogManager that died while it stopped.
    ``timeout_s``: for all of them together.
    """
    nodes = running_parts(namespace).log_managers
    # All of them are found before any is stopped: a look-up that fails leaves nothing half done.
    managers = {node: find_log_manager(node, namespace) for node in nodes}
    calls = {node: manager.shutdown() for node, manager in managers.items() if manager is not None}
    gathered = gather(calls, timeout_s)
    ends: dict[str, bool | Exception] = {**gathered.answers, **gathered.errors}
    not_in_order = {node: end for node, end in ends.items() if end is not True}
    for node, end in not_in_order.items():
        warn(logger, "node-not-stopped-in-order", node=log_manager_name(node), why=end)
    for name in running_parts(namespace).others:
        kill(name, namespace)
    return not not_in_order
