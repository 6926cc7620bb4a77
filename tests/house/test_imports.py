"""What a process does not load: each partition is one, and pays for its imports in memory."""

import subprocess
import sys

import grimp
import pytest

HEAVY = ("pyarrow", "pandas", "cramjam", "zstandard", "lz4")
SMALL_PARTITION = """
import sys
from raylog.storage.testing.logs import Disk, batch, of_producer, records_of
import raylog.actors.partition.log_actor
disk = Disk()
log = disk.open(segment_bytes=500)
for n in range(20):
    log.append(of_producer(n))
assert len(records_of(disk.open(is_clean=False, segment_bytes=500))) == 20  # a recovery scans, too
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""
GARBAGE = """
import sys
from raylog.storage.errors import CorruptRecord
from raylog.storage.records.compression import decompress
try:
    decompress({codec}, b"this is no stream")
except CorruptRecord:
    print(sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


def loaded_by(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_a_partition_of_plain_batches_loads_neither_arrow_nor_pandas_nor_a_codec() -> None:
    loaded = loaded_by(SMALL_PARTITION)
    assert "raylog" in loaded
    assert [name for name in HEAVY if f"'{name}'" in loaded] == []


@pytest.mark.parametrize(
    ("codec", "library"), [(1, None), (2, "cramjam"), (3, "lz4"), (4, "zstandard")]
)
def test_what_is_no_stream_loads_no_other_codec_than_its_own(
    codec: int, library: str | None
) -> None:
    loaded = loaded_by(GARBAGE.format(codec=codec))
    assert [name for name in HEAVY if f"'{name}'" in loaded] == ([library] if library else [])


def test_tables_of_records_do_not_load_pandas() -> None:
    program = "import sys, raylog.storage.records.columns; print(sorted(sys.modules))"
    loaded = loaded_by(program)
    assert "'pyarrow'" in loaded
    assert "'pandas'" not in loaded


def circles() -> list[set[str]]:
    """The largest sets of modules that import each other, directly or not; types' imports count."""
    graph = grimp.build_graph("raylog", exclude_type_checking_imports=False)
    every = {module: graph.find_upstream_modules(module) for module in graph.modules}
    found: list[set[str]] = []
    for module, imports in every.items():
        circle = {other for other in imports if module in every[other]} | {module}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def test_modules_import_each_other_in_one_direction() -> None:
    assert circles() == []
