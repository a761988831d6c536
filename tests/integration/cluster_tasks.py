"""What workers run in tests: imported by name, as cuwheel's own functions are."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from cuwheel.clusters.task import Task


def echo(task: Task, inputs: dict[str, Path], work: Path) -> tuple[str, dict[str, Path]]:
    """Its parameters, and its inputs in one file."""
    made = work / "out.txt"
    made.write_bytes(b"".join(path.read_bytes() for path in inputs.values()) + task.parameters.encode())
    return task.parameters, {"out.txt": made}


def wait(task: Task, _inputs: dict[str, Path], _work: Path) -> tuple[str, dict[str, Path]]:
    """Says in a file who it and its child are, and waits for another file."""
    folder = Path(task.parameters)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    try:
        (folder / f"{task.id}.{os.getpid()}.begun").write_text(str(child.pid))
        while not (folder / "go").exists():
            time.sleep(0.02)
    finally:
        child.kill()
        child.wait()
    return str(os.getppid()), {}


def crash(_task: Task, _inputs: dict[str, Path], _work: Path) -> NoReturn:
    os.abort()


def after_begun(task: Task, _inputs: dict[str, Path], _work: Path) -> tuple[str, dict[str, Path]]:
    """Ends as soon as another has begun to wait."""
    deadline = time.monotonic() + 600
    while not list(Path(task.parameters).glob("*.begun")) and time.monotonic() < deadline:
        time.sleep(0.02)
    return "", {}


def sleep(task: Task, _inputs: dict[str, Path], _work: Path) -> tuple[str, dict[str, Path]]:
    """In place of a compiler: what is measured then is everything else."""
    time.sleep(float(task.parameters))
    return "", {}


def note_times(task: Task, _inputs: dict[str, Path], _work: Path) -> tuple[str, dict[str, Path]]:
    """When it began and ended, in a file."""
    began = time.monotonic()
    time.sleep(0.3)
    Path(task.parameters).write_text(f"{began} {time.monotonic()}")
    return "", {}
