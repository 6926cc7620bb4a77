"""The two kernels, asked the same."""

from collections.abc import Callable
from typing import Any, Final

from raylog.storage.errors import RaylogError
from raylog.storage.records import _kernel_py, kernel

KERNELS: Final = (kernel.ops, _kernel_py)


class Disagreement(Exception):
    """The kernels gave different answers."""


def with_kernel(ops: Any, ask: Callable[[], Any]) -> Any:
    """The answer under one kernel; of errors only that there was one: they may see another fault
    first."""
    before, kernel.ops = kernel.ops, ops
    try:
        return ask()
    except RaylogError:
        return "an error"
    finally:
        kernel.ops = before


def agreed(ask: Callable[[], Any]) -> Any:
    """The answer that both kernels give."""
    first, second = (with_kernel(ops, ask) for ops in KERNELS)
    if first != second:
        raise Disagreement(f"{first!r} is not {second!r}")
    return first
