"""Paths that are given to commands. Without Ray."""

import typer


def path_given(value: str) -> str:
    """A path that is given, as a callback of its argument. Raises BadParameter for an empty one."""
    if not value:
        raise typer.BadParameter("a path is empty; is a variable of your shell not set?")
    return value
