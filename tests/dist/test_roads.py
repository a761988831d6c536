"""The main job and a road of each verb, by the wheel alone: no compiler, no uv, no checkout, Python and pip."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.dist.conftest import LIBRARY, MINUTES, Bare
from tests.fixtures.small_wheel import Wheel

if TYPE_CHECKING:
    from pathlib import Path

_ERROR = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
_BUILD = "nvcc -c one.cu\nnvcc -c two.cu\n"
_NVCC = (
    '#!/bin/sh\ncase "$*" in *two*) echo "nvcc fatal   : Unsupported gpu architecture '
    "'compute_120'"
    '" >&2; exit 1;; esac\n'
)


@pytest.fixture
def native(tmp_path: Path) -> Path:
    files: dict[str, str | bytes] = {"subject/__init__.py": "", "subject/native.so": LIBRARY.read_bytes()}
    return Wheel(tag="py3-none-manylinux_2_17_x86_64", files=files).write(tmp_path / "wheels")


def test_the_main_job(bare: Bare, native: Path, tmp_path: Path) -> None:
    """Read it, judge it, cut it, prove it, publish it, find it, install it, and take that back."""
    assert "sm_" in bare.answers("inspect", native, cwd=tmp_path)
    bare.answers("check", native, "--on", "h100", cwd=tmp_path)
    bare.answers("slim", native, "--for", "h100", "-o", tmp_path / "slim", cwd=tmp_path)
    (slimmed,) = (tmp_path / "slim").glob("*.whl")
    assert slimmed.stat().st_size < native.stat().st_size
    bare.answers("verify", native, "--offline", cwd=tmp_path)
    index = tmp_path / "index"
    bare.answers("publish", native, "--to", index, cwd=tmp_path)
    bare.answers("publish", "--check", index, cwd=tmp_path)
    found = json.loads(bare.run("find", "subject", "--index", index, "--on", "h100", "--json", cwd=tmp_path).stdout)
    assert [each["chosen"] for each in found["candidates"]] == [True]
    other = tmp_path / "other"
    subprocess.run([bare.python, "-m", "venv", other], check=True, timeout=MINUTES)
    bare.answers("install", "subject", "--index", index, "--on", "h100", "--env", other, cwd=tmp_path)
    assert list(other.rglob("subject/native.so"))
    bare.answers("install", "--undo", "--env", other, cwd=tmp_path)
    assert not list(other.rglob("subject/native.so"))


def test_something_fails(bare: Bare, tmp_path: Path) -> None:
    (tmp_path / "error.log").write_text(_ERROR)
    assert "no code for this GPU" in bare.answers("explain", "error.log", cwd=tmp_path)
    bare.answers("explain", "error.log", "--on", "h100", "--json", cwd=tmp_path)
    assert bare.run("doctor", "--json", cwd=tmp_path).returncode in {0, 1}  # 1: something is wrong with this machine
    assert "No process of the command called the CUDA driver" in bare.answers("trace", "--", "true", cwd=tmp_path)


def test_a_build_is_recorded_without_a_compiler(bare: Bare, tmp_path: Path) -> None:
    """The library that sees every call ships: none has to be compiled for it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvcc").write_text(_NVCC)
    (tools / "nvcc").chmod(0o755)
    (tmp_path / "build.sh").write_text(_BUILD)
    path = f"{tools}:{bare.path}"
    told = bare.answers("record", "-o", "record", "--", "sh", "build.sh", cwd=tmp_path, status=1, PATH=path)
    assert "compute_120" in told
    report = json.loads((tmp_path / "record" / "record.json").read_text())
    assert report["way"] == "preload", report
    bare.answers("record", "replay", "record:2", "--dry-run", cwd=tmp_path, PATH=path)


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "--for", "h100,l40"),
        ("lookup", "gpu", "h100"),
        ("lookup", "cuda", "13.0"),
        ("toolchain", "list"),
        ("cache",),
        ("inspect", LIBRARY, "--kernels"),
        ("inspect", LIBRARY, "--against", LIBRARY),
    ],
    ids=lambda words: "-".join(str(each).rpartition("/")[2].strip("-") for each in words),
)
def test_answers(bare: Bare, tmp_path: Path, words: tuple[str | Path, ...]) -> None:
    answer = json.loads(bare.run(*words, "--json", cwd=tmp_path).stdout)
    assert answer["schema"].startswith("cuwheel.")


def test_the_rest(bare: Bare, native: Path, tmp_path: Path) -> None:
    """Pages, completion, and a kit."""
    bare.answers("inspect", native, "--html", tmp_path / "page.html", cwd=tmp_path)
    assert (tmp_path / "page.html").read_text().startswith("<!")
    assert "cuwheel" in bare.answers("completion", "bash", cwd=tmp_path)
    bare.answers("verify", native, "--pack", tmp_path / "kit.pyz", cwd=tmp_path)
    assert (tmp_path / "kit.pyz").is_file()


def test_the_core_alone_answers(bare: Bare, core: Path, tmp_path: Path) -> None:
    """It brings its three requirements and nothing else, and knows no cuwheel."""
    python = tmp_path / "alone" / "bin" / "python"
    subprocess.run([bare.python, "-m", "venv", tmp_path / "alone"], check=True, timeout=MINUTES)
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(core)]
    subprocess.run([python, *words], check=True, timeout=MINUTES)
    listed = [str(python), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    found = json.loads(subprocess.run(listed, capture_output=True, check=True, timeout=MINUTES).stdout)
    brought = {each["name"] for each in found} - {"pip", "setuptools"}
    assert brought == {"cuwheel-core", "lz4", "msgspec", "zstandard"}
    asked = [str(python), "-m", "cuwheel_core", str(LIBRARY), "--on", "sm_90", "--json"]
    done = subprocess.run(asked, capture_output=True, check=False, timeout=MINUTES, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_the_laboratory_comes_with_a_wheel_of_its_own(bare: Bare, laboratory: Path, tmp_path: Path) -> None:
    (tmp_path / "measured.py").write_text("def nothing():\n    return 1\n")
    (tmp_path / "TRIALS.toml").write_text("command = 'true'\nrepeats = 2\n")
    missing = bare.answers("lab", "trials", "run", "TRIALS.toml", cwd=tmp_path, status=14)
    assert "pip install 'cuwheel[lab]'" in missing
    assert ", lab" not in bare.answers("--help", cwd=tmp_path)
    site = tmp_path / "site"
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(laboratory)]
    subprocess.run([bare.python, *words], check=True, timeout=MINUTES)
    bare.answers("lab", "trials", "run", "TRIALS.toml", cwd=tmp_path, PYTHONPATH=str(site))
    bare.answers("lab", "bench", "measured.py:nothing", "--seconds", "0.1", cwd=tmp_path, PYTHONPATH=str(site))
    assert ", lab" in bare.answers("--help", cwd=tmp_path, PYTHONPATH=str(site))
    assert "at-once" in bare.answers("completion", "bash", cwd=tmp_path, PYTHONPATH=str(site))


def test_extras_are_asked_for_by_name(bare: Bare, native: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "subject"\nversion = "1.0"\n')
    (tmp_path / "kernel.cu").write_text("__global__ void k() {}\n")
    bare.answers("ci", "github", "--write", cwd=tmp_path)
    for words, extra in (
        (("build", ".", "--for", "h100"), "build"),
        (("repair", native, "-o", "out"), "build"),
        (("ci", "github", "--check"), "ci"),
        (("cluster", "init"), "cluster"),
        (("check", native, "--on", "h100", "--cluster", "local"), "cluster"),
        (("publish", native, "--to", "index", "--attest"), "attest"),
    ):
        told = bare.answers(*words, cwd=tmp_path, status=14, ACTIONS_ID_TOKEN_REQUEST_URL="https://a.example")  # noqa: S106 - an address
        assert f"hint: pip install 'cuwheel[{extra}]'" in told, (words, told)


def test_a_home_that_cannot_be_written(bare: Bare, native: Path, tmp_path: Path) -> None:
    """Such as in a container that runs as nobody: what needs no cache works, the rest says what to do."""
    nowhere = "/proc/nobody"
    (tmp_path / "error.log").write_text(_ERROR)
    for words in (
        ("inspect", native),
        ("check", native, "--on", "h100"),
        ("explain", "error.log"),
        ("plan", "--for", "h100"),
        ("slim", native, "--for", "h100", "-o", tmp_path / "slim"),
        ("publish", native, "--to", tmp_path / "index"),
        ("find", "subject", "--index", tmp_path / "index", "--on", "h100"),
    ):
        bare.answers(*words, cwd=tmp_path, HOME=nowhere)
    for command in (("trace", "--", "true"), ("record", "-o", "record", "--", "true")):
        done = bare.run(*command, cwd=tmp_path, HOME=nowhere)
        assert done.returncode == 0 or "CUWHEEL_CACHE" in done.stderr, (command, done.stderr)


def test_nothing_of_a_checkout_is_needed(bare: Bare) -> None:
    """What was compiled before is in it, made from the sources that are in it."""
    (package,) = bare.folder.glob("lib/python3.*/site-packages/cuwheel")
    prebuilt = sorted(path.name for path in package.rglob("prebuilt/*"))
    assert [each for each in prebuilt if each != "built-from.txt"] == sorted(
        (
            *("trace-x86_64.so", "trace-aarch64.so"),
            *("shim-x86_64", "shim-aarch64", "preload-x86_64.so", "preload-aarch64.so"),
            *("nvcc.exe", "watch.exe"),
        )
    )
    asked = (
        "from cuwheel.tracing import session; from cuwheel.building.recording import shims; "
        "print(len(session.shipped()), bool(shims.shipped_windows_programs()))"
    )
    done = subprocess.run([bare.python, "-c", asked], capture_output=True, text=True, check=True, timeout=MINUTES)
    assert done.stdout.split() == ["2", "True"]
    assert shutil.which("cc", path=bare.path) is None
