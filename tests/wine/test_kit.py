"""A kit made on Linux and run by nothing but Python for Windows, with no GPU and with one that is pretended."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cuwheel.device_code.survey import survey
from cuwheel.proving import kit, proof
from cuwheel.proving.request import PackRequest
from tests.fixtures import manifest, small_wheel
from tests.wine import windows

IMPORT = {"name": "import pkg", "kind": "import", "text": "pkg"}
ON_GPU = {"name": "two", "kind": "python", "text": "import pkg; print(2)", "gpu": True, "expect": ["2"]}
SCRIPT = {"name": "its script", "kind": "command", "text": "pkg-tell 'a b'", "expect": ["told a b"]}
OWN = "import pathlib, sys\ndef tell():\n    print('told', sys.argv[1])\n"


@pytest.fixture
def bare(place: Path) -> Path:
    """Python's embeddable package as it is unpacked, on C: and without any package."""
    folder = place / "python"
    folder.mkdir()
    for each in windows.python().iterdir():
        if each.is_file():
            shutil.copyfile(each, folder / each.name)
    return folder


def packed(folder: Path, *checks: dict[str, Any]) -> Path:
    files: dict[str, str | bytes] = {
        "pkg/__init__.py": OWN,
        "pkg/own.dll": (manifest.HERE / "bin" / "windows-130.dll").read_bytes(),
        "pkg-1.0.dist-info/entry_points.txt": "[console_scripts]\npkg-tell = pkg:tell\n",
    }
    wheel = small_wheel.Wheel(name="pkg", tag="py3-none-win_amd64", files=files).write(folder)
    return Path(
        kit.write_kit(
            PackRequest(wheel, to=folder / "kit.pyz"), [survey(wheel, detail="containers")], lambda _: checks
        ).path
    )


def run(made: Path, python: Path, *options: str, **environ: str) -> tuple[int, str, dict[str, Any]]:
    passed = ["--pass-env", ",".join(environ)] if environ else []
    command = ["wine", str(python / "python.exe"), "kit.pyz", *passed, *options]
    env = {**windows.environment(environ), "PYTHONPATH": ""}
    done = windows.completed(command, timeout=300, env=env, cwd=made.parent)
    path = made.parent / "proof.json"
    said = (done.stdout + done.stderr).decode("utf-8", "replace")
    return done.returncode, said, json.loads(path.read_text()) if path.exists() else {}


def by_name(found: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["outcome"] for wheel in found["wheels"] for each in wheel["checks"]}


def test_without_a_gpu(place: Path, bare: Path) -> None:
    status, said, found = run(packed(place, IMPORT, ON_GPU, SCRIPT), bare)
    assert status == 0, said
    assert by_name(found) == {"import pkg": "passed", "two": "skipped", "its script": "passed"}
    assert said.startswith("Windows 10, x86_64, Python 3.11")
    assert "no GPU that CUDA sees" in said
    assert proof.read_proof(place / "proof.json").machine.os == "Windows"
    assert "drive_c" not in (place / "proof.json").read_text()


def test_with_a_gpu_that_does_as_predicted(place: Path, bare: Path) -> None:
    """The driver is a library beside Python, which the kit takes along; on Windows it is the system's."""
    source = Path(__file__).parents[1] / "integration" / "src" / "fake_cuda.c"
    words = [windows.COMPILER, "-O1", "-shared", "-static", str(source), "-o", str(bare / "nvcuda.dll")]
    subprocess.run(words, check=True, capture_output=True)
    made = packed(place, IMPORT, ON_GPU)
    status, said, found = run(made, bare, FAKE_CUDA_GPUS="9.0", FAKE_CUDA_DRIVER="13000")
    assert status == 0, said
    (wheel,) = found["wheels"]
    assert by_name(found) == {"device code": "passed", "import pkg": "passed", "two": "passed"}
    assert (wheel["prediction"]["outcome"], wheel["agreement"]) == ("native", "agreed")
    assert wheel["probed"]["compared"] == wheel["probed"]["loaded"] == 1
    assert proof.read_proof(place / "proof.json").succeeded


def test_a_wheel_for_linux(place: Path, bare: Path) -> None:
    wheel = small_wheel.Wheel(name="pkg", tag="py3-none-linux_x86_64", files={"pkg/__init__.py": ""}).write(place)
    made = kit.write_kit(
        PackRequest(wheel, to=place / "kit.pyz"), [survey(wheel, detail="containers")], lambda _: (IMPORT,)
    )
    status, said, _ = run(Path(made.path), bare)
    assert status == 1
    assert "it is for linux_x86_64, and this is windows_x86_64" in said
