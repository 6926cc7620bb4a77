"""Maps of segments: which file a location means."""

from pathlib import Path

from raylog.cluster.client import fetch
from raylog.cluster.client.fetch import SegmentMaps
from raylog.storage.readable import Slice


def test_files_of_two_disks_may_have_one_inode_number(tmp_path: Path) -> None:
    """Stand-in for two disks: the map is asked with one inode for two paths, and must not mix
    them."""
    maps = SegmentMaps()
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode() * 100)
    first = Slice(str(tmp_path / "a"), (tmp_path / "a").stat().st_ino, 0, 100)
    view = maps.view(first)
    assert view is not None
    assert bytes(view) == b"a" * 100
    assert maps.view(Slice(str(tmp_path / "b"), first.inode, 0, 100)) is None, (
        "another file: ask for bytes"
    )


def test_a_file_that_is_gone_or_foreign_or_short_is_no_map(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 10)
    inode = path.stat().st_ino
    assert SegmentMaps().view(Slice(str(path), inode + 1, 0, 10)) is None
    assert SegmentMaps().view(Slice(str(path), inode, 0, 11)) is None
    assert SegmentMaps().view(Slice(str(tmp_path), tmp_path.stat().st_ino, 0, 1)) is None
    assert fetch._map(Slice(str(tmp_path / "none"), inode, 0, 1)) is None
