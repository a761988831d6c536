"""The wheel on a machine like a user's: Debian's testing with its own Python and nothing else, in a chroot."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from cuwheel.delivery.workflows import problems
from tests.dist.conftest import LIBRARY, MINUTES, ROOT
from tests.fixtures import cache
from tests.fixtures.small_wheel import Wheel

if TYPE_CHECKING:
    from pathlib import Path

_SUITE, _PYTHON = "testing", "3.14"
# What the wheel's own tests ask in each Python, here by the words of a shell: no compiler, no uv.
_ROADS = """
set -eu
export HOME=/job PATH=/env/bin:/usr/bin:/bin LANG=C.UTF-8
cd /job
bash smoke.sh libplain.so
! command -v cc
cuwheel publish *.whl --to index
cuwheel publish --check index
cuwheel find subject --index index --on h100
python3 -m venv other
cuwheel install subject --index index --on h100 --env other
test -e other/lib/python*/site-packages/subject/native.so
cuwheel install --undo --env other
! test -e other/lib/python*/site-packages/subject/native.so
printf '#!/bin/sh\\nexit 0\\n' > nvcc && chmod +x nvcc
PATH=/job:$PATH cuwheel record -o recorded --json -- sh -c 'nvcc -c a.cu; nvcc -c b.cu' > record.json
grep -q '"way": *"preload"' record.json recorded/record.json
"""


@pytest.fixture(scope="module")
def debian() -> Path:
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("needs root and debootstrap: apt install debootstrap")
    asked = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True, check=True
    )
    sites = asked.stdout.split()
    if not sites:
        pytest.skip("apt knows no packages: apt-get update")
    mirror = max(sites, key=sites.count)

    def make(folder: Path) -> None:
        words = ["debootstrap", "--variant=minbase", "--include=python3,python3-venv", _SUITE, str(folder), mirror]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=2 * MINUTES)
        if done.returncode:
            raise cache.UnavailableError(f"debootstrap failed: {done.stdout[-500:]}")

    return cache.made(f"debian-{_SUITE}-{_PYTHON}", make)


@pytest.fixture
def work(core: Path, wheel: Path, debian: Path, tmp_path: Path) -> Path:
    """/job of that machine: a wheel with device code, a library; /wheels: cuwheel and all that it needs."""
    for name in ("env", "job", "wheels"):
        shutil.rmtree(debian / name, ignore_errors=True)
    words = ["download", "--quiet", "--python-version", _PYTHON, "--only-binary", ":all:", "-d", str(debian / "wheels")]
    subprocess.run([*cache.pip(), *words, str(core), str(wheel)], check=True, timeout=MINUTES)
    folder = debian / "job"
    folder.mkdir()
    shutil.copy(LIBRARY, folder / "libplain.so")
    shutil.copy(ROOT / "release" / "smoke.sh", folder / "smoke.sh")
    files: dict[str, str | bytes] = {"subject/__init__.py": "", "subject/native.so": LIBRARY.read_bytes()}
    shutil.copy(Wheel(tag="py3-none-manylinux_2_17_x86_64", files=files).write(tmp_path), folder)
    return folder


def _inside(debian: Path, *words: str, status: int = 0, **environ: str) -> str:
    given = [f"{name}={value}" for name, value in {"PATH": "/usr/bin:/bin", **environ}.items()]
    command = ["chroot", str(debian), "/usr/bin/env", "-i", "-C", "/job", *given, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MINUTES)
    assert done.returncode == status, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout + done.stderr


def test_nothing_but_python_is_needed(debian: Path, work: Path) -> None:
    _inside(
        debian, "bash", "-c", "python3 -m venv /env && /env/bin/pip install --no-index --find-links /wheels cuwheel"
    )
    _inside(debian, "bash", "-c", _ROADS)
    assert f" {_PYTHON}." in _inside(debian, "/env/bin/python", "--version")
    assert (work / "index").is_dir()


def test_the_action_in_a_container_job(debian: Path, work: Path) -> None:
    """As root in an image, whose own Python belongs to the system: it says so, and takes the environment of the job."""
    action = problems.load_yaml((ROOT / "action.yml").read_text(), "action.yml")
    apart, gate, install, pick_up = (each["run"] for each in action["runs"]["steps"][:4])
    (work / "runner").mkdir()
    common = {"RUNNER_TEMP": "/job/runner", "HOME": "/job/home", "GITHUB_OUTPUT": "/job/output"}
    common |= {"GITHUB_STEP_SUMMARY": "/job/summary.md", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}

    def step(script: str, environ: dict[str, str], status: int = 0) -> tuple[str, dict[str, str]]:
        (work / "output").write_text("")
        words = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
        told = _inside(debian, *words, status=status, **common, **environ)
        return told, dict(line.split("=", 1) for line in (work / "output").read_text().splitlines())

    _, outputs = step(apart, {"USE": "gate", "CUWHEEL": "cuwheel"})
    given = {"CUWHEEL": outputs["program"], "MACHINES": "h100", "REPORT": "report", "MAX_SIZE": "1MB", "ARCHS": ""}
    step(gate, {"WHEELS": "*.whl", **given})
    assert "✅ native" in (work / "summary.md").read_text()
    _inside(
        debian,
        "bash",
        "-c",
        "runner/cuwheel/bin/cuwheel publish *.whl --to index && python3 -m venv env && python3 -m venv other",
    )
    wanted = {"CUWHEEL": outputs["program"], "NAME": "subject", "INDEX": "/job/index", "MACHINES": "h100"}
    _, outputs = step(apart, {"USE": "install", "CUWHEEL": "cuwheel"})
    told, _ = step(install, {"ENVIRONMENT": outputs["environment"], **wanted}, 4)
    assert "/usr: is managed by the system" in told
    _, outputs = step(apart, {"USE": "install", "CUWHEEL": "cuwheel", "VIRTUAL_ENV": "/job/env"})
    step(install, {"ENVIRONMENT": outputs["environment"], **wanted})
    assert list(work.glob("env/lib/python*/site-packages/subject/native.so"))
    _, outputs = step(apart, {"USE": "pick-up-or-build", "CUWHEEL": "cuwheel", "VIRTUAL_ENV": "/job/other"})
    given = {"ENVIRONMENT": outputs["environment"], "SOURCE": "none", "OUTPUT": "none"}  # building needs a compiler
    assert step(pick_up, {**given, **wanted})[1]["built"] == "false"
    assert list(work.glob("other/lib/python*/site-packages/subject/native.so"))
