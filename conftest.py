"""Markers by folder, `--all`, and the guard that keeps unit tests away from the world."""

from __future__ import annotations

import itertools
import math
import os
import signal
import socket
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import hypothesis
import pytest
from hypothesis.database import DirectoryBasedExampleDatabase, InMemoryExampleDatabase
from tests.fixtures import systems

if TYPE_CHECKING:
    from collections.abc import Generator

ROOT = Path(__file__).parent
KINDS = ("lint", "unit", "property", "oracle", "integration", "browser", "gpu", "wine", "dist")
PROCESSOR = pytest.StashKey[float]()  # what it had done when the last report was made
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


# As `./run` does, where pytest is started by itself: every Python that a test starts would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# How long an example takes says nothing on a machine that does other things too; and a checkout may be another user's.
hypothesis.settings.register_profile(
    "cuwheel",
    deadline=None,
    database=DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples")
    if os.access(ROOT, os.W_OK)
    else InMemoryExampleDatabase(),
)
hypothesis.settings.load_profile("cuwheel")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also large downloads, many packages and fuzzing")
    parser.addoption("--times", action="store_true", help="print the time of each folder and the slowest tests")


def _processor_s() -> float:
    """Of this process, and of those that it started and that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Every report takes along what the processor did since the last one, from the workers too."""
    report = yield
    now = _processor_s()
    report.processor_s = now - item.config.stash.get(PROCESSOR, now)  # type: ignore[attr-defined]
    item.config.stash[PROCESSOR] = now
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Times on the clock, and on the processor: on a busy machine only the latter can be compared.

    A test's time is that of the fixtures too that were made for it first.
    """
    if not config.getoption("--times"):
        return
    clock: dict[str, float] = defaultdict(float)
    processor: dict[str, float] = defaultdict(float)
    tests: Counter[str] = Counter()
    for each in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(each, pytest.TestReport):
            folder = each.nodeid.partition("::")[0].rpartition("/")[0]
            tests[folder] += each.when == "setup"
            for name in (each.nodeid, folder):
                clock[name] += each.duration
                processor[name] += getattr(each, "processor_s", 0.0)
    terminalreporter.section("time of each folder")
    terminalreporter.line("| folder | tests | processor s | clock s |")
    terminalreporter.line("|---|--:|--:|--:|")
    for folder in sorted(tests, key=processor.__getitem__, reverse=True):
        row = f"{tests[folder]:,} | {processor[folder]:,.1f} | {clock[folder]:,.1f}"
        terminalreporter.line(f"| `{folder}` | {row} |")
    terminalreporter.section(f"the {SLOWEST} slowest tests: seconds of the clock, of the processor")
    for name in sorted(clock.keys() - tests.keys(), key=clock.__getitem__, reverse=True)[:SLOWEST]:
        terminalreporter.line(f"{clock[name]:8.2f} {processor[name]:8.2f}  {name}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share = 3 if config.getoption("--all") else 0.5  # of the examples that a test names: half fits into five minutes
    for test in {getattr(item, "obj", None) for item in items}:
        if asked := getattr(test, "_hypothesis_internal_use_settings", None):
            vars(test)["_hypothesis_internal_use_settings"] = hypothesis.settings(
                asked, max_examples=math.ceil(share * asked.max_examples)
            )
    for item in items:
        kind = item.path.relative_to(ROOT).as_posix().rpartition("tests/")[2].partition("/")[0]
        if kind in KINDS:
            item.add_marker(kind)
        for marker, why in ONLY_WITH_ALL.items():
            if item.get_closest_marker(marker) and not config.getoption("--all"):
                item.add_marker(pytest.mark.skip(reason=f"{why}: ./run test --all"))


@pytest.fixture(autouse=True)
def _nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line stays listening to `log`, and then nothing of it reaches `caplog`."""
    monkeypatch.setattr("cuwheel.support.log._threshold", None)


@pytest.fixture
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For values that name new files: whoever runs the tests may not write where they are started."""
    monkeypatch.chdir(tmp_path)


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
