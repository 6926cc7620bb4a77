"""Ray's messages in one sentence: they are paragraphs for Ray's developers, or whole tracebacks.

What was cut is in the error's ``__cause__``, and in the logs of Ray and of the actors.
"""

from typing import Final

# A sentence that is longer is a list of addresses, or of codes of RPC errors.
MOST_CHARS: Final = 200


def first_sentence(text: str) -> str:
    """The beginning of a message, on one line, without its full stop."""
    sentence, _, _ = " ".join(text.split()).partition(". ")
    sentence, _, _ = sentence.partition(": RpcError")
    if len(sentence) > MOST_CHARS:
        return sentence[:MOST_CHARS].rstrip() + " ..."
    return sentence.rstrip(".")


def is_of_ray(error: BaseException) -> bool:
    """Whether Ray's classes made it: it has no name of raylog's."""
    return any(kind.__module__.partition(".")[0] == "ray" for kind in type(error).__mro__)


def in_one_line(error: BaseException) -> str:
    """What an error says that has no name of raylog's: of a remote traceback its last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    is_traceback = len(lines) > 1 and "ray::" in lines[0]
    return first_sentence(lines[-1] if is_traceback else " ".join(lines))
