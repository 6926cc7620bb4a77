"""The loop of a client's program in Python: a deed a line in, what became of it a line out.

The lines are described in ``tests/clients/program.py``. A deed is a method of the client's class;
one that it does not have is answered with ``lacks``.
"""

import base64
import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

STREAM_BATCH = 50


class Lacks(Exception):
    """The client cannot do it, and why."""


def serve(client: Any, name_of: Callable[[BaseException], str]) -> None:
    """Do what the lines of standard input say, until its end."""
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"done": do(client, request)}
        except Lacks as error:
            answer = {"lacks": str(error)}
        except Exception as error:
            answer = {"failed": name_of(error), "words": str(error)}
        write(answer)


def do(client: Any, request: dict[str, Any]) -> Any:
    deed = request.pop("do")
    method = getattr(client, deed, None)
    if method is None:
        raise Lacks(f"it has no {deed}")
    return method(**request)


def write(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def encoded(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def progress(number: int) -> None:
    write({"progress": number})


def numbers_until(path: str) -> Iterator[range]:
    """The numbers that a stream sends, batch by batch, until that file is there."""
    first = 0
    while not os.path.exists(path):
        yield range(first, first + STREAM_BATCH)
        first += STREAM_BATCH
        progress(first)
