"""The guard as a package calls it, with drivers that are none."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cuwheel.changes.stamp import guard
from cuwheel.changes.stamp.guard import Guard, Run
from tests.integration import pretend

if TYPE_CHECKING:
    from pathlib import Path

# sm_89, and sm_90 with PTX of CUDA 13.0.
WISH = Guard(
    package="foo",
    message="Install foo-cu12 instead.",
    wheel="foo 1.0",
    built_for="GPUs of compute capability 8.9, 9.0 (CUDA 12.4)",
    runs=(
        Run(first=89, last=89, driver=12000),
        Run(first=90, last=99, driver=12000),
        Run(first=100, last=119, driver=13000),
    ),
)
PROGRAM = "import foo; print('imported')"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "foo"
    folder.mkdir()
    (folder / "__init__.py").write_text(f"{guard.CALL}\ncheck()\n")
    (folder / guard.FILE).write_text(guard.guard_source(WISH))
    return tmp_path


def imported(place: Path, environ: dict[str, str], program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "default", "-c", program]
    return subprocess.run(words, env=environ, cwd=place, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("nvml", [True, False])
@pytest.mark.parametrize("gpus", ["8.9", "9.0", "9.0,8.9", "9.5", "10.0"])
def test_served_gpus_are_let_through(package: Path, gpus: str, nvml: bool) -> None:  # noqa: FBT001 - a parameter
    done = imported(package, pretend.environ(gpus, nvml=nvml))
    assert (done.returncode, done.stdout, done.stderr) == (0, "imported\n", "")


@pytest.mark.parametrize("nvml", [True, False])
def test_others_fail_at_import_and_say_why(package: Path, nvml: bool) -> None:  # noqa: FBT001 - a parameter
    done = imported(package, pretend.environ("12.0", nvml=nvml))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: foo 1.0 was built for GPUs of compute capability 8.9, 9.0 (CUDA 12.4). This GPU, Pretend GPU 0, "
        "is 12.0, for which it has no code. Install foo-cu12 instead."
    )


@pytest.mark.parametrize(("gpus", "driver", "needed"), [("9.0", 11080, "12.0"), ("10.0", 12090, "13.0")])
def test_drivers_that_are_too_old_are_named(package: Path, gpus: str, driver: int, needed: str) -> None:
    done = imported(package, pretend.environ(gpus, driver=driver))
    assert done.returncode == 1
    has = f"{driver // 1000}.{driver % 1000 // 10}"
    assert (
        f"The driver is of CUDA {has}; for this GPU, Pretend GPU 0, it must be of {needed} or later: update it."
        in done.stderr
    )


def test_minor_versions_are_compatible(package: Path) -> None:
    assert imported(package, pretend.environ("9.0", driver=12000)).returncode == 0


def test_only_visible_gpus_count(package: Path) -> None:
    environ = pretend.environ("12.0,9.0")
    assert imported(package, {**environ, "CUDA_VISIBLE_DEVICES": "1"}).stdout == "imported\n"
    hidden = imported(package, {**environ, "CUDA_VISIBLE_DEVICES": "0"})
    assert "is 12.0, for which it has no code" in hidden.stderr
    assert imported(package, {**environ, "CUDA_VISIBLE_DEVICES": ""}).stdout == "imported\n"


def test_one_of_two_is_a_warning(package: Path) -> None:
    done = imported(package, pretend.environ("12.0,9.0"))
    assert done.stdout == "imported\n"
    assert done.stderr.startswith("<string>:1: RuntimeWarning: foo 1.0 was built for"), "whoever imports it is told"


@pytest.mark.parametrize("value", ["0", "off", "False"])
def test_it_can_be_switched_off(package: Path, value: str) -> None:
    assert imported(package, pretend.environ("12.0", CUWHEEL_GUARD=value)).stdout == "imported\n"


def test_silent_without_a_driver_or_a_gpu(package: Path, tmp_path: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    done = imported(package, plain)
    assert (done.stdout, done.stderr) == ("imported\n", "")
    done = imported(package, pretend.environ(""))
    assert (done.stdout, done.stderr) == ("imported\n", "")
    (tmp_path / "libcuda.so.1").write_bytes(b"no library")
    done = imported(package, {**plain, "LD_LIBRARY_PATH": str(tmp_path)})
    assert (done.stdout, done.stderr) == ("imported\n", "")


@pytest.mark.parametrize("call", ["init", "count", "handle", "capability", "driver"])
def test_nvml_that_fails_leaves_it_to_the_driver(package: Path, call: str) -> None:
    done = imported(package, pretend.environ("12.0", FAKE_NVML_FAILS=call))
    assert "has no code" in done.stderr
    assert imported(package, pretend.environ("9.0", FAKE_NVML_FAILS=call)).stdout == "imported\n"


def test_no_context_and_no_cuda_where_all_is_well(package: Path, tmp_path: Path) -> None:
    """cuInit in a parent keeps its forks from using CUDA: it is called only where NVML leaves a doubt."""
    log = tmp_path / "log"
    assert imported(package, pretend.environ("9.0", FAKE_CUDA_LOG=str(log))).returncode == 0
    assert not log.exists()
    assert imported(package, pretend.environ("12.0", FAKE_CUDA_LOG=str(log))).returncode == 1
    assert log.read_text() == "cuInit\n"


def test_it_costs_next_to_nothing(package: Path) -> None:
    program = (
        "import time, ctypes, warnings; t = time.process_time(); import foo; t = time.process_time() - t; "
        "print('imported' if t < 0.1 else t)"
    )
    assert imported(package, pretend.environ("9.0"), program).stdout == "imported\n"
