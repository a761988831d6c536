"""The wheel on a machine like a user's: Debian's testing with its own Python and nothing else, in a chroot."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.dist.conftest import LIBRARY, MINUTES, ROOT
from tests.fixtures import cache
from tests.fixtures.small_wheel import Wheel

if TYPE_CHECKING:
    from pathlib import Path

_SUITE, _PYTHON = "testing", "3.14"
# What the wheel's own tests ask in each Python, here by the words of a shell: no compiler, no uv.
_ROADS = """
set -eu
export HOME=/work PATH=/env/bin:/usr/bin:/bin LANG=C.UTF-8
cd /work
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
PATH=/work:$PATH cuwheel record -o recorded --json -- sh -c 'nvcc -c a.cu; nvcc -c b.cu' > record.json
grep -q '"way": *"preload"' record.json recorded/record.json
"""


@pytest.fixture(scope="module")
def debian() -> Path:
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("needs root and debootstrap: apt install debootstrap")
    asked = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True, check=True)
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


def test_nothing_but_python_is_needed(wheel: Path, debian: Path, tmp_path: Path) -> None:
    for name in ("env", "work", "wheels"):
        shutil.rmtree(debian / name, ignore_errors=True)
    words = ["download", "--quiet", "--python-version", _PYTHON, "--only-binary", ":all:", "-d", str(debian / "wheels")]
    subprocess.run([*cache.pip(), *words, str(wheel)], check=True, timeout=MINUTES)
    work = debian / "work"
    work.mkdir()
    shutil.copy(LIBRARY, work / "libplain.so")
    shutil.copy(ROOT / "release" / "smoke.sh", work / "smoke.sh")
    files: dict[str, str | bytes] = {"subject/__init__.py": "", "subject/native.so": LIBRARY.read_bytes()}
    shutil.copy(Wheel(tag="py3-none-manylinux_2_17_x86_64", files=files).write(tmp_path), work)
    for script in (
        "python3 -m venv /env && /env/bin/pip install --quiet --no-index --find-links /wheels cuwheel",
        _ROADS,
    ):
        command = ["chroot", str(debian), "/usr/bin/env", "-i", "PATH=/usr/bin:/bin", "bash", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MINUTES)
        assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    shown = subprocess.run(["chroot", str(debian), "/env/bin/python", "--version"], capture_output=True, text=True, check=True)
    assert f" {_PYTHON}." in shown.stdout
