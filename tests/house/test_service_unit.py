"""The unit for systemd in docs/OPERATIONS.md: the command takes its line, and stops in order."""

import re
import shlex
import signal
from configparser import ConfigParser
from pathlib import PurePosixPath

from raylog.actors.runtime.calls import CALL_TIMEOUT_S, OPEN_TIMEOUT_S
from raylog.cluster.cli import broker
from raylog.cluster.controller.stopping import LOOKUP_TIMEOUT_S
from tests.harness.paths import ROOT
from tests.house.test_docs import parse

_UNITS_S = {"s": 1, "min": 60}


def service() -> dict[str, str]:
    """The section [Service] of the unit; the page has one unit."""
    page = (ROOT / "docs" / "OPERATIONS.md").read_text()
    (unit,) = re.findall(r"^```ini\n(.*?^\[Service\].*?)^```", page, re.DOTALL | re.MULTILINE)
    parser = ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd's keys have cases
    parser.read_string(unit)
    return dict(parser["Service"])


def test_the_command_takes_the_line_that_starts_it() -> None:
    program, *arguments = shlex.split(service()["ExecStart"])
    # systemd wants a whole path, and signals the process that it started: no shell around it
    path = PurePosixPath(program)
    assert (path.is_absolute(), path.name) == (True, "raylog")
    parse(arguments)


def test_it_starts_a_ray_of_its_own_so_that_it_stays_in_the_foreground() -> None:
    arguments = shlex.split(service()["ExecStart"])
    assert arguments[1] == "start"
    assert arguments[arguments.index("--address") + 1] == "local"


def test_a_stop_signals_the_command_alone_which_closes_the_logs_in_order() -> None:
    unit = service()
    # The default, control-group, ends Ray under the broker.
    assert unit["KillMode"] == "mixed"
    assert signal.Signals[unit.get("KillSignal", "SIGTERM")] in broker.STOP_SIGNALS


def test_a_stop_may_take_as_long_as_the_command_waits() -> None:
    number, unit = re.fullmatch(r"(\d+)(s|min)", service()["TimeoutStopSec"]).groups()  # type: ignore[union-attr]
    waits_s = LOOKUP_TIMEOUT_S + OPEN_TIMEOUT_S + CALL_TIMEOUT_S
    assert int(number) * _UNITS_S[unit] > waits_s


def test_a_stop_in_order_is_not_started_again() -> None:
    assert service()["Restart"] == "on-failure"
