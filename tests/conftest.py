"""Markers by folder, `--all`, and the guard that keeps unit tests away from the world."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
from collections import Counter
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

from tests.fixtures import systems

TESTS = Path(__file__).parent
KINDS = ("unit", "property", "oracle", "integration", "browser", "gpu", "wine")
SLOWEST = 100  # as many as `--times` names
ONLY_WITH_ALL = {
    "download": "fetches large packages",
    "slow": "takes long",
    "wine": "runs programs for Windows under Wine",
}


# Shells start background jobs with SIGINT ignored, and `nohup` all with SIGHUP; programs inherit that: tests that send
# these would wait in vain.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if os.name == "posix" and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# How long an example takes says nothing on a machine that does other things too.
hypothesis.settings.register_profile("cuwheel", deadline=None)
hypothesis.settings.load_profile("cuwheel")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also large downloads, many packages and fuzzing")
    parser.addoption("--times", action="store_true", help="print the time of each folder and the slowest tests")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """A test's time is that of its fixtures too, wherever in the run they were made for it."""
    if not config.getoption("--times"):
        return
    tests: Counter[str] = Counter()
    for each in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(each, pytest.TestReport):
            tests[each.nodeid] += each.duration
    folders: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for name, seconds in tests.items():
        folder = name.partition("::")[0].rpartition("/")[0]
        folders[folder] += seconds
        counts[folder] += 1
    terminalreporter.section("time of each folder")
    for folder, seconds in folders.most_common():
        terminalreporter.line(f"| {folder} | {counts[folder]:,} cases | {seconds:,.1f} s |")
    terminalreporter.section(f"the {SLOWEST} slowest of {len(tests):,} tests")
    for name, seconds in tests.most_common(SLOWEST):
        terminalreporter.line(f"{seconds:7.2f} s  {name}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        kind = item.path.relative_to(TESTS).parts[0]
        if kind in KINDS:
            item.add_marker(kind)
        for marker, why in ONLY_WITH_ALL.items():
            if item.get_closest_marker(marker) and not config.getoption("--all"):
                item.add_marker(pytest.mark.skip(reason=f"{why}: ./run test --all"))


@pytest.fixture(autouse=True)
def _nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line stays listening to `log`, and then nothing of it reaches `caplog`."""
    monkeypatch.setattr("cuwheel.log._threshold", None)


@pytest.fixture(autouse=True)
def _what_the_system_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    systems.skipped_in_tests(monkeypatch)


@pytest.fixture(autouse=True)
def _unit_tests_stay_inside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.node.get_closest_marker("unit"):
        return

    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        pytest.fail("a unit test started a program or used the network")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
