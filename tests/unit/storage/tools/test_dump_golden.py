"""Our dumps are those of Kafka's own tool, to the character, over every file that a Kafka wrote."""

import pytest

from raylog.storage.files import ReadOnlyFileSystem
from raylog.storage.tools.dump import decoders
from raylog.storage.tools.dump.logs import LogOptions
from raylog.storage.tools.dump.tool import DumpOptions, dump_files
from tests.harness.paths import GOLDEN

PARSERS = {
    "data": decoders.plain(decoders.DECODERS["string"], decoders.DECODERS["string"]),
    "offsets": decoders.offsets,
    "txnlog": decoders.transactions,
    "cluster": decoders.cluster_metadata,
}
DUMPS = sorted(
    path.name for path in (GOLDEN / "dumps").glob("*.txt") if not path.name.endswith(".err.txt")
)


def dumped(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str, bool]:
    """What we print of the files of a golden dump, on both outputs."""
    folder, kind, _ = name.rsplit(".", 2)
    monkeypatch.chdir(GOLDEN / folder)
    expected = (GOLDEN / "dumps" / name).read_text()
    files = [
        line.removeprefix("Dumping ")
        for line in expected.splitlines()
        if line.startswith("Dumping ")
    ]
    out: list[str] = []
    err: list[str] = []
    is_whole = dump_files(
        ReadOnlyFileSystem(),
        files,
        DumpOptions(LogOptions(is_deep=True, parser=PARSERS[kind])),
        out.append,
        err.append,
        folder,
    )
    return "".join(f"{line}\n" for line in out), "".join(f"{line}\n" for line in err), is_whole


@pytest.mark.parametrize("name", DUMPS)
def test_a_dump_is_the_one_of_kafkas_tool(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out, _, is_whole = dumped(name, monkeypatch)
    assert out == (GOLDEN / "dumps" / name).read_text()
    assert is_whole


@pytest.mark.parametrize(
    "folder", ["kafka-3.9-kraft-clean", "kafka-3.9-zk-v0-ibp0.9", "kafka-3.9-zk-v1-ibp0.10.2"]
)
def test_what_does_not_agree_is_told_as_by_kafkas_tool(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, err, _ = dumped(f"{folder}.data.txt", monkeypatch)
    assert by_file(err) == by_file((GOLDEN / "dumps" / f"{folder}.err.txt").read_text())


def by_file(text: str) -> list[str]:
    """The findings of each file: Kafka tells the files in the order of a hash of their absolute
    paths."""
    return sorted(
        text.replace("\nMis", "\n\nMis").replace("\nFound", "\n\nFound").strip().split("\n\n")
    )


def test_every_kind_of_golden_dump_is_there() -> None:
    assert len(DUMPS) == 8
