"""A compiler cache for a job: tried with the job's nvcc before anything relies on it."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from cuwheel.building.recording import cache_server
from cuwheel.building.values import Cached
from cuwheel.errors import CuwheelError
from cuwheel.support import process
from cuwheel.toolchains import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.building.values import Job

_TRIAL_S = 300.0
_TRIAL = "__global__ void trial(int *to) { *to = 1; }\n"


class Server(Struct, frozen=True, kw_only=True):
    """`launcher` goes before nvcc; `environ` leads its client to this server. Both empty, with a reason, for none."""

    launcher: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    problem: str = ""
    behind: cache_server.Server | None = None

    def counted(self) -> Cached:
        """What it did so far."""
        hits, misses = (self.behind.counted() if self.behind else None) or (0, 0)
        return Cached(hits=hits, misses=misses, problem=self.problem)


@contextlib.contextmanager
def server(job: Job, folder: Path) -> Iterator[Server]:
    """`folder`: where results are kept, for all jobs. A cache that does not work must not stop the build."""
    if job.toolchain.prefix:
        yield Server(problem="the compiler cache does not work inside a container")
        return
    with contextlib.ExitStack() as stack:
        try:
            log = job.folder / "logs" / "sccache.txt"
            made = stack.enter_context(cache_server.serving(folder, log, job.environ))
            problem = _trial(job, made)
        except CuwheelError as error:
            problem = f"{error.message}: {error.hint}" if error.hint else error.message
        yield (
            Server(problem=problem) if problem else Server(launcher=(made.client,), environ=made.environ, behind=made)
        )


def _trial(job: Job, made: cache_server.Server) -> str:
    """Whether it takes this nvcc: asked with a kernel of one line, for a version of either may be new to the other."""
    nvcc = settings.nvcc(job.toolchain.toolkit)
    with tempfile.TemporaryDirectory(dir=job.folder / "tmp") as place:
        Path(place, "trial.cu").write_text(_TRIAL, encoding="utf-8")
        words = [made.client, nvcc, "-c", "trial.cu", "-o", "trial.o"]
        done = process.run(words, timeout=_TRIAL_S, check=False, env={**job.environ, **made.environ}, cwd=Path(place))
        if done.status or not Path(place, "trial.o").exists():
            output = (done.stderr or done.stdout).strip().splitlines()
            return f"sccache does not accept this nvcc: {output[-1] if output else f'status {done.status}'}"
    if not sum(made.counted() or ()):
        return "sccache does not know this nvcc and does not cache it"
    made.forget()
    return ""
