"""Commands in sentences for people: what is printed can be pasted into a shell."""

import shlex


def command(*arguments: str) -> str:
    """A command of raylog, with every path quoted where a shell needs it."""
    return shlex.join(["raylog", *arguments])
