"""Recovery in health: progress while it runs, asides until somebody decides, repairs as notes."""

import re
import shlex

import pytest

from raylog.actors.messages import (
    AsideFile,
    OpeningReport,
    Recovering,
)
from raylog.actors.partition.opening import report_of
from raylog.cluster.controller.describe import BEING_OPENED, PartitionDescription, TopicDescription
from raylog.cluster.health.facts import ERROR, INFO, WARNING, Facts, Finding
from raylog.cluster.health.findings import findings, notes
from raylog.cluster.health.recovery import in_words
from raylog.storage.report import Mended, Progress
from tests.harness.paths import ROOT
from tests.harness.statuses import serving_status

HALF = Recovering("t-0", Progress(3_200_000_000, 10_000_000_000, 3, 12))
NAME = "00000000000000000042.log.aside-0"
SET_ASIDE = Mended(
    kind="set_aside",
    file="00000000000000000042.log",
    size_bytes=1234,
    first_offset=42,
    end_offset=50,
    why="offsets are missing before it",
    kept_as=NAME,
)
ZEROS = Mended("cut", "00000000000000000042.log", 17, -1, -1, "zero bytes")
REBUILT = Mended("rebuilt", "00000000000000000042.index", 80, -1, -1, "it was missing")
DAMAGED = Mended("damaged", "00000000000000000042.log", 0, -1, -1, "the CRC is wrong")
GAP = Mended("gap", "00000000000000000042.log", 0, 50, 52, "a batch was taken out of the file")
LOST = Mended("lost", "00000000000000000042.log", 0, 10, 12, "accepted")


def described(problem: str | None) -> TopicDescription:
    return TopicDescription(
        "t", "id", {}, (PartitionDescription(0, "dir-a", "node-1", "/t-0", problem),)
    )


def serving(*mended: Mended, asides: tuple[AsideFile, ...] = ()) -> Facts:
    return Facts(topics=[described(None)], partitions=[serving_status(*mended, asides=asides)])


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (HALF.progress, "3.2 of 10.0 GB, segment 4 of 12"),
        (Progress(0, 999, 0, 1), "0 of 999 bytes, segment 1 of 1"),
        (Progress(1_500_000, 1_500_000, 2, 2), "1.5 of 1.5 MB, segment 2 of 2"),
    ],
)
def test_progress_is_told_in_one_unit(progress: Progress, words: str) -> None:
    assert in_words(progress) == words


def test_a_partition_that_recovers_is_told_once_with_its_progress() -> None:
    facts = Facts(topics=[described(BEING_OPENED)], recovering=[HALF])
    finding = only(findings(facts))
    assert (finding.severity, finding.subject) == (WARNING, "t-0")
    assert finding.what == "recovering: 3.2 of 10.0 GB, segment 4 of 12"


def test_one_that_the_controller_believes_to_serve_is_not_silent_while_it_recovers() -> None:
    facts = Facts(topics=[described(None)], silent_partitions={"t-0": "late"}, recovering=[HALF])
    assert only(findings(facts)).what.startswith("recovering: ")


def test_an_old_word_on_progress_hides_no_problem_and_is_not_told_of_one_that_serves() -> None:
    failed = Facts(topics=[described("its disk failed")], recovering=[HALF])
    assert ERROR in [finding.severity for finding in findings(failed)]
    served = Facts(topics=[described(None)], partitions=[serving_status()], recovering=[HALF])
    assert findings(served) == []


def test_what_was_set_aside_is_a_warning_that_names_file_offsets_reason_and_commands() -> None:
    finding = only(findings(serving(SET_ASIDE, asides=(AsideFile(NAME, 1234, 42, 50),))))
    assert (finding.severity, finding.subject) == (WARNING, "t-0")
    for part in (NAME, "1234 bytes", "offsets 42 to 49", "offsets are missing before it"):
        assert part in finding.what
    assert "`raylog log aside list /disk/t-0`" in finding.todo
    assert f"`raylog log aside restore /disk/t-0 {NAME}`" in finding.todo
    assert f"`raylog log aside drop /disk/t-0 {NAME}`" in finding.todo


def test_a_tail_with_good_batches_is_not_said_to_have_none() -> None:
    cut = Mended("cut", "00000000000000000042.log", 500, 42, 50, "no good batch", NAME)
    finding = only(findings(serving(cut, asides=(AsideFile(NAME, 500, 44, 50),))))
    shown = f"{NAME} (500 bytes, offsets 44 to 49): it begins with bytes that are no good batch"
    assert finding.what.endswith(shown)


def test_a_segment_that_cannot_be_read_is_a_warning_that_names_file_and_reason() -> None:
    finding = only(findings(serving(DAMAGED)))
    assert (finding.severity, finding.subject) == (WARNING, "t-0")
    assert finding.what.endswith("00000000000000000042.log: the CRC is wrong")
    assert "restore the file from a copy" in finding.todo


def test_an_aside_of_an_earlier_opening_stays_a_warning() -> None:
    finding = only(findings(serving(asides=(AsideFile(NAME, 1234),))))
    assert finding.severity == WARNING
    assert f"{NAME} (1234 bytes)" in finding.what


def test_an_aside_that_was_restored_misses_nothing_and_only_its_rest_is_told() -> None:
    restored = AsideFile(NAME, 1234, 42, 50, is_in_log=True)
    finding = only(findings(serving(asides=(restored,))))
    assert finding.what == (
        "files that recovery took out of the log are still kept: "
        f"{NAME} (1234 bytes; its good batches are in the log again)"
    )
    assert "restore" not in finding.todo
    other = AsideFile(NAME.replace("42", "57"), 10, 57, 58)
    finding = only(findings(serving(asides=(restored, other))))
    assert "may hold records" in finding.what
    assert f"restore /disk/t-0 {other.name}`" in finding.todo


def test_commands_take_a_folder_with_any_name() -> None:
    folder = "/my disk/it's/t-0"
    status = serving_status(asides=[AsideFile(NAME, 1, 42, 43)], folder=folder)
    todo = only(findings(Facts(topics=[described(None)], partitions=[status]))).todo
    commands = [shlex.split(text) for text in re.findall("`([^`]*)`", todo)]
    assert [words[:4] for words in commands] == [
        ["raylog", "log", "aside", name] for name in ("list", "restore", "drop")
    ]
    assert {words[4] for words in commands} == {folder}


def test_an_unfinished_write_that_was_kept_is_a_note() -> None:
    facts = serving(asides=(AsideFile(NAME, 17, is_unfinished=True),))
    assert findings(facts) == []
    note = only(notes(facts))
    assert note.severity == INFO
    assert note.what.startswith("1 files with the beginning of a batch, 17 bytes")


def test_many_asides_are_one_finding_of_a_readable_length() -> None:
    asides = tuple(AsideFile(f"{n:020}.log.aside-0", 5) for n in range(40))
    finding = only(findings(serving(asides=asides)))
    assert finding.what.endswith("; and 35 more")


def test_an_accepted_loss_is_a_warning_with_its_offsets() -> None:
    finding = only(findings(serving(LOST)))
    assert finding.severity == WARNING
    assert "offsets 10 to 11" in finding.what


def test_zeros_at_the_end_and_rebuilt_indexes_are_notes_and_no_problem() -> None:
    facts = serving(ZEROS, REBUILT, REBUILT)
    assert findings(facts) == []
    cut, rebuilt = notes(facts)
    assert {cut.severity, rebuilt.severity} == {INFO}
    assert cut.what.startswith("cut when the log was opened: 1 files, 17 bytes")
    assert rebuilt.what.startswith("rebuilt when the log was opened: 2 files, 160 bytes")


def test_what_was_kept_is_no_note_besides() -> None:
    kept = ZEROS._replace(kept_as=NAME, size_bytes=500)
    assert notes(serving(kept, SET_ASIDE)) == []
    (note,) = notes(serving(kept, ZEROS))
    assert "1 files, 17 bytes" in note.what


def test_operations_quotes_every_finding_of_a_recovery() -> None:
    page = (ROOT / "docs" / "OPERATIONS.md").read_text()
    recovery = page.partition("\n## Recovery\n")[2].partition("\n**How long it takes")[0]
    tables = [line for line in recovery.splitlines() if line.startswith("| ")]
    quoted = {words for line in tables for words in re.findall('"([^"]*)"', line)}
    removed = REBUILT._replace(kind="removed")
    restored = AsideFile(NAME, 1234, 42, 50, is_in_log=True)
    unfinished = AsideFile(NAME, 17, is_unfinished=True)
    shown = [
        finding.what
        for facts in (
            serving(
                SET_ASIDE, LOST, DAMAGED, REBUILT, removed, asides=(AsideFile(NAME, 1234, 42, 50),)
            ),
            serving(asides=(restored, unfinished)),
            Facts(recovering=[HALF]),
        )
        for finding in (*findings(facts), *notes(facts))
    ]
    assert len(quoted) == 8
    assert [words for words in quoted if not any(words in what for what in shown)] == []
    assert all(any(words in what for words in quoted) for what in shown)


def test_a_broker_that_mended_nothing_has_no_notes() -> None:
    assert notes(serving()) == []
    assert OpeningReport() == report_of((), ())


def test_offsets_that_are_missing_for_no_known_reason_are_a_warning() -> None:
    finding = only(findings(serving(GAP)))
    assert (finding.severity, finding.subject) == (WARNING, "t-0")
    assert "offsets 50 to 51 (00000000000000000042.log: a batch was taken out" in finding.what
    assert "restore the file" in finding.todo
    assert notes(serving(GAP)) == []
