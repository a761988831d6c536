"""Whose choice of torch runs: pip's, that of uv's --torch-backend=auto, and cuwheel's, on ten simulated machines.

pip takes the newest release, whatever the machine. uv goes by the driver: UV_CUDA_DRIVER_VERSION tells it one, and its
log says which indexes it asks, the preferred one first. Those are not read here: a build of theirs is stood for by the
newest release on the public index for the same CUDA, or the nearest older one of its major, which PyTorch builds from
the same lists. What each has code for is in the catalogue: no wheel is read.

    .venv/bin/python benchmarks/installers.py     the table of docs/why/find-on-the-index.md; a minute, from the index
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from cuwheel.delivery import best_candidate, choosing
from cuwheel.delivery.request import FindRequest
from cuwheel.machine.fleet import Refinement
from cuwheel.network import venvs
from cuwheel.wheel import requirements
from cuwheel_core.facts import versions
from cuwheel_core.wheel.tags import normalised

if TYPE_CHECKING:
    from cuwheel.delivery.judging import Ruling

MACHINES = (
    ("GTX 1080 Ti", "580.65.06"),
    ("P100", "535.54.03"),
    ("V100", "580.65.06"),
    ("T4", "535.54.03"),
    ("A100", "525.60.13"),
    ("RTX 3090", "550.54.14"),
    ("L40S", "560.28.03"),
    ("H100", "580.65.06"),
    ("B200", "570.26"),
    ("RTX 5090", "570.26"),
)
_BACKEND = re.compile(r"/whl/cu(\d{2})(\d)/torch/")
_LINUX = re.compile(r"linux.*x86_64")
_RUNS = ("native", "compatible", "jit", "partial")


def main() -> int:
    print("| machine | driver | pip | uv `--torch-backend=auto` | cuwheel |\n|---|---|---|---|---|")
    right = [0, 0, 0]
    for gpu, driver in MACHINES:
        refine = Refinement(driver=driver, os="linux", cpu="x86_64", glibc="2.36", python="3.12")
        with best_candidate.search_for(FindRequest("torch", on=[gpu], refine=refine, budget=1), None) as search:
            found = best_candidate.find(search, Requirement("torch"))
        wheels = [each for each in found.rulings if _is_candidate(each)]
        newest = max(wheels, key=lambda each: each.candidate.version)
        backend = _uv_backend(driver)
        chosen = (newest, _of_cuda(wheels, backend) if backend else None, found.taken)
        right = [count + _runs(each) for count, each in zip(right, chosen, strict=True)]
        cells = [_cell(each) for each in chosen]
        cells[1] = f"cu{backend.replace('.', '')}: {cells[1]}" if backend else "the CPU's"
        print(f"| {gpu} | {driver} | {' | '.join(cells)} |", flush=True)
    print(f"| runs | | {right[0]} of {len(MACHINES)} | {right[1]} | {right[2]} |")
    return 0


def _is_candidate(ruling: Ruling) -> bool:
    """Wheels for this system and Python."""
    wheel = ruling.candidate.wheel
    return bool(wheel and "cp312-cp312" in str(wheel) and any(_LINUX.search(each) for each in wheel.platforms))


def _cuda(ruling: Ruling) -> str | None:
    exact: dict[str, str] = {}
    for each in filter(None, map(requirements.parse, ruling.requires)):
        exact |= {normalised(each.name): spec.version for spec in each.specifier if spec.operator == "=="}
    return choosing.torch_cuda(str(ruling.candidate.version), exact)


def _of_cuda(wheels: list[Ruling], wanted: str) -> Ruling | None:
    known = [(cuda, each) for each in wheels if (cuda := _cuda(each))]
    usable = [
        (versions.key(cuda), each.candidate.version, each)
        for cuda, each in known
        if versions.major(cuda) == versions.major(wanted) and versions.at_least(wanted, cuda)
    ]
    return max(usable, key=lambda each: each[:2])[2] if usable else None


def _uv_backend(driver: str) -> str | None:
    with tempfile.TemporaryDirectory() as cache:
        words = [
            venvs.uv() or "uv",
            "-v",
            "pip",
            "install",
            "--dry-run",
            "--torch-backend=auto",
            "--reinstall",
        ]
        environ = {
            **os.environ,
            "UV_CUDA_DRIVER_VERSION": driver,
            "UV_CACHE_DIR": cache,
            "UV_HTTP_RETRIES": "0",
        }
        with subprocess.Popen(
            [*words, "--python", sys.executable, "torch"],
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as asked:
            lines = asked.stderr or ()
            match = next((found for line in lines if (found := _BACKEND.search(line))), None)
            asked.kill()  # it would go on asking
    return f"{match[1]}.{match[2]}" if match else None


def _runs(ruling: Ruling | None) -> int:
    return int(ruling is not None and ruling.outcome in _RUNS)


def _cell(ruling: Ruling | None) -> str:
    if ruling is None:
        return "nothing"
    if ruling.outcome == "fails":
        error = f" {ruling.predicted_error.code}" if ruling.predicted_error else ""
        return f"{ruling.candidate.version} fails{error}"
    return f"{ruling.candidate.version} {ruling.outcome}"


if __name__ == "__main__":
    sys.exit(main())
