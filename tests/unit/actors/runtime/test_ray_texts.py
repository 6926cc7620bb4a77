"""Ray's paragraphs and tracebacks are one line where a person reads them."""

import pytest
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from raylog.actors.errors import ActorAway
from raylog.actors.runtime.calls import named_error
from raylog.actors.runtime.clusters import TOKEN_HINT, _why_refused
from raylog.actors.runtime.ray_texts import MOST_CHARS, first_sentence, in_one_line, is_of_ray

PARAGRAPH = (
    "\nThe actor died unexpectedly before finishing this task. Causes:\n\tclass_name: Log\n"
    "\tThe worker was killed by SIGKILL. To troubleshoot, look at the logs."
)
TRACEBACK = 'ray::Log.fetch() (pid=7, ip=10.0.0.1)\n  File "x.py", line 1, in f\nValueError: of x'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PARAGRAPH, "The actor died unexpectedly before finishing this task"),
        (
            "It is unavailable: RpcError: RPC Error message: failed; rpc_code: 14",
            "It is unavailable",
        ),
        ("One line.", "One line"),
        ("", ""),
        ("x" * 999, "x" * MOST_CHARS + " ..."),
    ],
)
def test_of_a_message_its_first_sentence_is_kept(text: str, expected: str) -> None:
    assert first_sentence(text) == expected


def test_of_a_remote_traceback_its_last_line_is_kept() -> None:
    error = RayTaskError("f", TRACEBACK, ValueError("of x"))
    assert is_of_ray(error)
    assert in_one_line(error) == "ValueError: of x"
    assert not is_of_ray(ValueError("of x"))


def test_an_actor_that_is_away_is_told_without_the_codes_of_rpcs() -> None:
    raw = ActorUnavailableError("RpcError: RPC Error message: failed to connect; x: 14", b"1" * 16)
    error = named_error(raw, "fetching t-0")
    assert isinstance(error, ActorAway)
    assert "rpc" not in error.why.lower()
    assert isinstance(named_error(RayActorError(), "fetching t-0"), ActorAway)


def test_a_cluster_that_refuses_this_process_is_told_in_our_words() -> None:
    long = "ray client connection timeout. " * 20
    assert _why_refused(ConnectionError(long)) == "it does not let this process join" + TOKEN_HINT
    versions = _why_refused(RuntimeError(f"Version mismatch: The cluster was started with: {long}"))
    assert versions.startswith("it runs another version of Ray or Python than this process")
