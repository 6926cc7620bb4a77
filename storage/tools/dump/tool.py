"""The whole of kafka-dump-log: files in, Kafka's lines out. What each file is, its suffix tells.

::

    .log  .checkpoint     batches, records          logs.py, decoders.py
    .index  .timeindex    entries, held against     indexes.py
                          the .log of that name
    .txnindex  .snapshot  entries                   indexes.py

A file that cannot be read, or is damaged so that nothing behind can be told, is named on standard
error, and the files after it are dumped all the same (Kafka's tool ends with a stack trace).
Source: ``DumpLogSegments`` of Kafka.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from raylog.storage.errors import FileNotReadable, RaylogError, StorageError, UnknownLogFile
from raylog.storage.files import File, FileSystem
from raylog.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
    segment_file,
)
from raylog.storage.tools.dump.findings import Findings
from raylog.storage.tools.dump.indexes import (
    check_offset_index,
    check_time_index,
    dump_offset_index,
    dump_snapshot,
    dump_time_index,
    dump_transaction_index,
    offset_entries,
    time_entries,
)
from raylog.storage.tools.dump.logs import LogOptions, dump_log, is_snapshot

# Kafka's default: how far from an index's entry its batch may reach
MAX_MESSAGE_BYTES = 5 * 1024 * 1024


class DumpOptions(NamedTuple):
    """What is asked of the tool beside its files."""

    log: LogOptions = LogOptions()
    verify_only: bool = False  # indexes are held against their logs, their entries not printed
    sanity_only: bool = False  # indexes are checked as at a broker's start, and no more
    max_message_bytes: int = MAX_MESSAGE_BYTES


def dump_files(
    fs: FileSystem,
    paths: Sequence[str],
    options: DumpOptions,
    out: Callable[[str], object],
    err: Callable[[str], object],
    folder: str = "",
) -> bool:
    """Give every line to ``out`` or ``err``, without its end.

    Returns whether every file could be shown.

    ``folder``: where relative paths begin; findings name files by absolute path.
    """
    findings, is_whole = Findings(), True
    for path in paths:
        out(f"Dumping {path}")
        try:
            for line in _dump(fs, path, options, findings, os.path.join(folder, path)):
                out(line)
        except UnknownLogFile as error:
            err(str(error))
            is_whole = False
        except RaylogError as error:
            err(f"error: {path}: {error}" if path not in str(error) else f"error: {error}")
            is_whole = False
    for line in findings.lines():
        err(line)
    return is_whole


def _dump(
    fs: FileSystem, path: str, options: DumpOptions, findings: Findings, shown_path: str
) -> Iterator[str]:
    name = os.path.basename(path)
    suffix = os.path.splitext(name)[1]
    if is_snapshot(name):
        return dump_log(path, _opened(fs, path), options.log, findings, shown_path)
    base_offset = offset_of(name)
    if base_offset is None or suffix not in _DUMPS:
        raise UnknownLogFile(path)
    return _DUMPS[suffix](
        _File(fs=fs, path=path, base_offset=base_offset, shown_path=shown_path), options, findings
    )


class _File(NamedTuple):
    """A file of a segment, and its neighbours."""

    fs: FileSystem
    path: str
    base_offset: int
    shown_path: str

    def content(self) -> bytes:
        return _content(self.fs, self.path)

    def neighbour(self, suffix: str) -> str:
        return os.path.join(os.path.dirname(self.path), segment_file(self.base_offset, suffix))

    def log(self) -> File:
        return _opened(self.fs, self.neighbour(LOG_SUFFIX))


def _content(fs: FileSystem, path: str) -> bytes:
    file = _opened(fs, path)
    return file.read(file.size, 0)


def _opened(fs: FileSystem, path: str) -> File:
    """A file that is read as far as needed. Raises FileNotReadable.

    It is not mapped: reading a map of what is cut meanwhile would end the process.
    """
    try:
        if fs.is_dir(path):
            raise FileNotReadable(path, "this is a folder")
        return fs.open(path)
    except StorageError as error:
        said = str(error).removeprefix(f"{error.path}: ")
        what, _, _ = said.partition(";")  # without the advice for a broker
        raise FileNotReadable(path, what) from error


def _log(file: _File, options: DumpOptions, findings: Findings) -> Iterator[str]:
    opened = _opened(file.fs, file.path)
    return dump_log(file.path, opened, options.log, findings, file.shown_path)


def _offset_index(file: _File, options: DumpOptions, findings: Findings) -> Iterator[str]:
    content, log = file.content(), file.log()
    entries = offset_entries(content, file.base_offset)
    if not entries:
        yield f"{file.path} is empty."
        return
    if options.sanity_only:
        check_offset_index(content, file.base_offset)
        yield f"{file.path} passed sanity check."
        return
    lines = dump_offset_index(
        entries, log, file.base_offset, options.max_message_bytes, findings, file.shown_path
    )
    yield from _unless(options.verify_only, lines)


def _time_index(file: _File, options: DumpOptions, findings: Findings) -> Iterator[str]:
    content, log = file.content(), file.log()
    if options.sanity_only:
        check_time_index(content, file.base_offset)
        yield f"{file.path} passed sanity check."
        return
    index = file.neighbour(INDEX_SUFFIX)
    offsets = (
        offset_entries(_content(file.fs, index), file.base_offset) if file.fs.exists(index) else []
    )
    entries = time_entries(content, file.base_offset)
    lines = dump_time_index(entries, offsets, log, file.base_offset, findings, file.shown_path)
    yield from _unless(options.verify_only, lines)


def _unless(is_quiet: bool, lines: Iterator[str]) -> Iterator[str]:
    """The lines, or their checks alone."""
    for line in lines:
        if not is_quiet:
            yield line


def _transaction_index(file: _File, options: DumpOptions, findings: Findings) -> Iterator[str]:
    return dump_transaction_index(file.content(), file.base_offset)


def _snapshot(file: _File, options: DumpOptions, findings: Findings) -> Iterator[str]:
    return dump_snapshot(file.path, file.content())


_DUMPS: dict[str, Callable[[_File, DumpOptions, Findings], Iterator[str]]] = {
    LOG_SUFFIX: _log,
    INDEX_SUFFIX: _offset_index,
    TIME_INDEX_SUFFIX: _time_index,
    TXN_INDEX_SUFFIX: _transaction_index,
    SNAPSHOT_SUFFIX: _snapshot,
}
