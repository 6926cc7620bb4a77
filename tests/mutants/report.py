"""What became of the mutants: killed of planted, those that live, and known equivalents."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

# killed: a test failed. timeout: the tests did not end; that counts as killed.
# living: all tests passed. unreached: no test runs the line; that counts as living.
# equivalent: it lives, and equivalents.txt says why nobody can see it.
# suspect: the fast tests passed, the slow ones have not run yet.
Outcome = Literal["killed", "timeout", "living", "unreached", "equivalent", "suspect"]
KILLED = ("killed", "timeout")


class Result(NamedTuple):
    """What became of one mutant."""

    key: str
    place: str  # "storage/log.py:120"
    kind: str
    outcome: Outcome
    by: str  # the test that failed first
    seconds: float


def read_equivalents(text: str) -> dict[str, str]:
    """The reasons by key. An entry is four lines or five; an empty line ends it::

    storage/log.py Log.flush
    - if offset <= self.recovery_point:
    + if offset < self.recovery_point:
    # 2                                     of equal ones, where it is not the first
    = why nobody can see it
    """
    reasons: dict[str, str] = {}
    for entry in text.split("\n\n"):
        lines = [line for line in entry.strip().splitlines() if not line.startswith("##")]
        if not lines:
            continue
        reason = [line for line in lines if line.startswith("= ")]
        if len(reason) != 1 or lines[-1] != reason[0]:
            raise ValueError(f"an entry ends with its reason, '= ...':\n{entry.strip()}")
        reasons["\n".join(lines[:-1])] = reason[0][2:]
    return reasons


def with_equivalents(results: Iterable[Result], reasons: Mapping[str, str]) -> list[Result]:
    """The same; those that live, and for which there is a reason, are equivalent."""
    return [
        result._replace(outcome="equivalent")
        if result.outcome in ("living", "unreached") and result.key in reasons
        else result
        for result in results
    ]


def summary(results: Sequence[Result]) -> list[str]:
    """A table by file, and all that live."""
    files = sorted({result.place.partition(":")[0] for result in results})
    width = max([len(file) for file in files] + [len("all")])
    lines = [f"{'file':{width}} planted  killed  timeout  living  equivalent  killed"]
    for file in [*files, "all"]:
        own = [r for r in results if file in ("all", r.place.partition(":")[0])]
        lines.append(f"{file:{width}} {_row(own)}")
    for result in results:
        if result.outcome in ("living", "unreached"):
            lines += ["", f"{result.outcome}: {result.place} ({result.kind})", result.key]
    return lines


def _row(results: Sequence[Result]) -> str:
    def count(*outcomes: Outcome) -> int:
        return sum(result.outcome in outcomes for result in results)

    killed, timeout = count("killed"), count("timeout")
    living, equivalent = count("living", "unreached"), count("equivalent")
    counted = killed + timeout + living
    share = f"{100 * (killed + timeout) / counted:.1f} %" if counted else "-"
    return f"{len(results):7} {killed:7} {timeout:8} {living:7} {equivalent:11}  {share:>6}"
