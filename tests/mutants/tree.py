"""A throw-away copy of the project, in which errors can be planted."""

import shutil
import subprocess
from pathlib import Path

from tests.harness.paths import ROOT


def copy_tree(target: Path) -> Path:
    """Copy what git knows, as it is in the working tree, and the compiled kernel."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    names = [Path(name) for name in listed.split("\0") if name]
    kernels = [path.relative_to(ROOT) for path in (ROOT / "storage").rglob("*.so")]
    for name in [*names, *kernels]:
        source, copy = ROOT / name, target / name
        if not source.exists() and not source.is_symlink():
            continue  # removed, and not committed yet
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copy, follow_symlinks=False)
    return target
