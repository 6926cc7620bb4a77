"""Which kernel serves: the compiled one, or its twin in Python where there is none.

``ops`` is the module; use it as ``kernel.ops.encode_rows(...)``, so that a test can put the other
one there. ``RAYLOG_PURE_PYTHON=1`` asks for the twin.
"""

import os
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Final

from raylog.storage.records import _kernel_py

if TYPE_CHECKING:
    from raylog.storage.records import _kernel_py as ops
    from raylog.storage.records._kernel_py import Columns, TableEncoder, Text, TextColumn

__all__ = ["KERNEL", "Columns", "TableEncoder", "Text", "TextColumn", "ops"]


def _choose() -> ModuleType:
    if os.environ.get("RAYLOG_PURE_PYTHON") == "1":
        return _kernel_py
    try:
        from raylog.storage.records import _kernel
    except ImportError as error:
        warnings.warn(
            f"raylog's compiled kernel is missing ({error}): records are encoded and decoded in "
            "Python, about 30 times slower. Install a C compiler, and install raylog again; in its "
            "clone, whose folder Python finds before an installed package, with pip install -e .",
            RuntimeWarning,
            stacklevel=2,
        )
        return _kernel_py
    return _kernel


if not TYPE_CHECKING:
    ops = _choose()

KERNEL: Final[str] = ops.KERNEL  # "compiled" or "pure Python"
