"""Markers by folder, `--all`, and the guard that keeps unit tests away from the world."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest

from tests.fixtures import systems

TESTS = Path(__file__).parent
KINDS = ("unit", "property", "oracle", "integration", "browser", "gpu", "wine")
ONLY_WITH_ALL = {
    "download": "fetches large packages",
    "slow": "takes long",
    "wine": "runs programs for Windows under Wine",
}


# Shells start background jobs with SIGINT ignored, and programs inherit that: tests that send it would wait in vain.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# How long an example takes says nothing on a machine that does other things too.
hypothesis.settings.register_profile("cuwheel", deadline=None)
hypothesis.settings.load_profile("cuwheel")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also large downloads, many packages and fuzzing")


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
