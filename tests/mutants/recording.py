"""A plugin of pytest: which test runs which lines, and how long it takes.

``python -m pytest -p tests.mutants.recording`` with two environment variables:
``RAYLOG_MUTANTS_FILES``, the files to look at, and ``RAYLOG_MUTANTS_MAP``, where to write::

    {"tests/unit/...::test_x": {"seconds": 0.02, "lines": {"storage/log.py": [101, 102]}}}

Lines that only a process started by a test runs, or a thread with a tracer of its own, are not
seen. ``run.py`` runs such tests for every mutant that others let live. A test that fails is left
out: it would kill every mutant.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

FILES, MAP = "RAYLOG_MUTANTS_FILES", "RAYLOG_MUTANTS_MAP"


class Recorder:
    def __init__(self, files: list[str], target: Path) -> None:
        self._files, self._target = files, target
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage = coverage.Coverage(
            data_file=None, include=[f"*/{file}" for file in files], config_file=False
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        if sys.gettrace() is None:  # a test took the tracer away: without it no line has a test
            self._coverage.stop()
            self._coverage.start()
        self._coverage.switch_context(item.nodeid)
        answer = yield
        self._coverage.switch_context("")
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        known = self._seconds.get(report.nodeid, 0.0)
        if report.outcome != "skipped":
            self._seconds[report.nodeid] = known + report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        tests: dict[str, Any] = {
            test: {"seconds": seconds, "lines": {}}
            for test, seconds in self._seconds.items()
            if test not in self._failed
        }
        for measured in data.measured_files():
            file = next(file for file in self._files if measured.endswith("/" + file))
            for line, contexts in data.contexts_by_lineno(measured).items():
                for test in contexts:
                    if test in tests:
                        tests[test]["lines"].setdefault(file, []).append(line)
        self._target.write_text(json.dumps(tests))


def pytest_configure(config: pytest.Config) -> None:
    files = os.environ[FILES].split()
    config.pluginmanager.register(Recorder(files, Path(os.environ[MAP])))
