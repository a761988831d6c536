"""Clusters on loopback: a scheduler and workers as processes of their own, which tests kill, stop and cheat."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.clusters import engine
from cuwheel.clusters.task import Task
from cuwheel.network import cluster_access

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pytest

    from cuwheel.clusters.engine import Engine

START_S = 600.0
ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class World:
    """`cache`: of this side; each worker may have its own."""

    folder: Path
    address: str = ""
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def environ(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        # Workers run no module of the folder that they are started in: the tests' own tasks are found by name.
        own = {
            "CUWHEEL_CACHE": str(self.cache),
            cluster_access.FOLDER: str(self.certificates),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        return {**os.environ, **own, **(more or {})}

    @property
    def certificates(self) -> Path:
        return (
            cluster_access.certificate_folder() if cluster_access.FOLDER in os.environ else self.folder / "certificates"
        )

    def start(
        self, name: str, *words: str, env: Mapping[str, str] | None = None, code: str = ""
    ) -> subprocess.Popen[bytes]:
        """`code`: Python that is run before, to make it another than it is."""
        program = f"{code}\nimport sys\nfrom cuwheel.cli import main\nsys.exit(main(sys.argv[1:]))"
        out = (self.folder / f"{name}.log").open("ab")
        with out:
            child = subprocess.Popen(
                [sys.executable, "-c", program, "cluster", *words],
                env=self.environ(env),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                start_new_session=True,
            )
        self.children[name] = child
        return child

    def scheduler(self, address: str = "tls://127.0.0.1:0", *more: str) -> str:
        if not self.certificates.exists():
            cluster_access.make_certificates(self.certificates)
        (self.folder / "scheduler.log").unlink(missing_ok=True)  # of one before it
        child = self.start("scheduler", "scheduler", address, *more)
        listens = "the scheduler listens at "
        wait_for(lambda: listens in self.said("scheduler") or child.poll() is not None)
        _, found, told = self.said("scheduler").partition(listens)
        if not found:
            raise RuntimeError(f"the scheduler ended with status {child.returncode}: {self.said('scheduler')}")
        self.address = told.split()[0]
        return self.address

    def worker(
        self, name: str, *more: str, cores: int = 1, env: Mapping[str, str] | None = None, code: str = ""
    ) -> None:
        words = ("worker", self.address, "--name", name, "--cores", str(cores), *more)
        self.start(name, *words, env=env, code=code)

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        self.children[name].send_signal(number)
        if number == signal.SIGKILL:
            self.children[name].wait(600)

    @contextlib.contextmanager
    def engine(self) -> Iterator[Engine]:
        with engine.open_engine(
            cluster_access.parse_address(self.address), self.cache / "cluster", self.certificates
        ) as made:
            yield made

    def end(self) -> None:
        for child in self.children.values():
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(signal.SIGCONT)
                child.kill()
            child.wait(600)


@contextlib.contextmanager
def new_world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("CUWHEEL_CACHE", str(folder / "cache"))
    made = World(folder=folder)
    try:
        yield made
    finally:
        made.end()


def begun(folder: Path, name: str = "") -> list[Path]:
    """What tasks leave behind when they begin."""
    return sorted(folder.glob(f"{name}*.begun"))


def wait_for(seen: Callable[[], object], patience: float = START_S) -> None:
    deadline = time.monotonic() + patience
    while not seen():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.05)


def task(name: str, function: str = "echo", parameters: str = "", **options: object) -> Task:
    return Task(id=name, function=f"tests.integration.cluster_tasks:{function}", parameters=parameters, **options)  # type: ignore[arg-type]
