"""`cuwheel verify` as people call it; with `--all`, on packages of the index."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.report.answer import SCHEMAS
from tests.fixtures import cache
from tests.fixtures.small_wheel import PYTHON, Wheel, library

if TYPE_CHECKING:
    from cuwheel.proving.outcomes import Result

CONFIG = """
[project]
name = "subject"
[[tool.cuwheel.verify.check]]
name = "answers"
python = "import subject; print(subject.answer())"
number = 42
[[tool.cuwheel.verify.check]]
name = "answers on a GPU"
python = "import subject; print(subject.answer())"
number = 43
gpu = true
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, with its configuration and the wheel that it built."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    (tmp_path / "pyproject.toml").write_text(CONFIG)
    native = library(tmp_path / "made", "libanswer.so").read_bytes()
    opened = (
        "import ctypes, pathlib\n"
        "def answer(): return ctypes.CDLL(str(pathlib.Path(__file__).with_name('libanswer.so'))).answer()\n"
    )
    files: dict[str, str | bytes] = {"subject/__init__.py": opened, "subject/libanswer.so": native}
    return Wheel(tag="py3-none-linux_x86_64", files=files).write(tmp_path / "dist")


def test_in_the_folder_of_its_project(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["verify", str(project), "--offline", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert status == 0
    jsonschema.validate(told, json.loads((SCHEMAS / "verify-1.json").read_text()))
    assert told["configuration"].endswith("pyproject.toml")
    (tried,) = told["wheels"][0]["installations"]
    assert {each["name"]: each["outcome"] for each in tried["checks"]} == {
        "import subject": "passed",
        "libraries load": "passed",
        "answers": "passed",
        "answers on a GPU": "skipped",
    }


def test_a_failure_is_a_status(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("pyproject.toml").read_text()
    Path("pyproject.toml").write_text(text.replace("number = 42", "number = 41"))
    assert main(["verify", str(project), "--offline", "--check", "answers"]) == 1
    out = capsys.readouterr().out
    assert "printed 42, expected 41" in out
    assert ": not verified: 1 failed\n" in out
    assert main(["verify", "--offline"]) == 2
    assert main(["verify", str(project), "--python", "-1"]) == 2


def test_a_kit_goes_and_its_proof_comes_back(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(project), "--pack", "kit.pyz"]) == 0
    assert "python3 kit.pyz" in capsys.readouterr().out
    done = subprocess.run([sys.executable, "-I", "kit.pyz"], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert main(["verify", "--read", "proof.json", str(project), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    jsonschema.validate(told, json.loads((SCHEMAS / "proof-1.json").read_text()))
    outcomes = {each["name"]: each["outcome"] for each in told["wheels"][0]["checks"]}
    assert outcomes["answers"] == "passed"
    # The proof of one wheel is not that of another, whatever its name.
    other = Wheel(tag="py3-none-linux_x86_64").write(project.parent)
    assert main(["verify", "--read", "proof.json", str(other)]) == 1


def test_requirements_of_a_kit_come_from_a_folder(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needed = Wheel(name="needed").write(project.parent / "links")
    wheel = Wheel(requires=["needed"]).write(project.parent / "needy")
    words = ["verify", str(wheel), "--pack", "kit.pyz", "--required", "kit", "--offline"]
    assert main(words) == 7
    assert "hint: leave out --required kit" in capsys.readouterr().err
    assert not Path("kit.pyz").exists()
    assert main([*words, "--find-links", str(needed.parent)]) == 0
    with zipfile.ZipFile("kit.pyz") as archive:
        assert any(each.endswith(needed.name) for each in archive.namelist())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--pack", "kit.pyz", "--dry-run"], "--dry-run cannot be used with --pack"),
        (["--pack", "kit.pyz", "--with", "numpy"], "--with needs a kit that includes requirements"),
        (["--read", "proof.json", "--stub", "--check", "x"], "--check and --stub cannot be used with --read"),
        (["--required", "kit"], "--required needs --pack KIT"),
    ],
)
def test_options_that_would_be_left_out(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert main(["verify", str(project), *words]) == 2
    assert problem in capsys.readouterr().err
    assert not Path("kit.pyz").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """Neither the environment is left nor what the check started."""
    mark = tmp_path / "mark"
    text = f"import os, pathlib, time\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\ntime.sleep(3600)\n"
    wheel = Wheel(files={"subject/__init__.py": text}).write(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = [sys.executable, "-m", "cuwheel", "verify", str(wheel), "--offline"]
    environ = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(words, env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        deadline = time.monotonic() + 600
        while not mark.exists() or not mark.read_text():
            assert child.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        child.send_signal(number)
        assert child.wait(600) == 130
        assert child.stderr
        assert child.stderr.read().endswith("interrupted\n")
    assert not Path("/proc", mark.read_text(), "exe").exists()
    assert list(scratch.iterdir()) == []


def test_dry_run_and_static(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(project), "--dry-run"]) == 0
    assert "nothing was installed or run" in capsys.readouterr().out
    assert main(["verify", str(project), "--static"]) == 0
    assert capsys.readouterr().out.partition("\n")[0].endswith(": right as a file; nothing was installed")


def _from_index(requirement: str) -> Path:
    try:
        return cache.made(f"verify/{requirement}", lambda target: cache.pip_download(target, requirement))
    except cache.UnavailableError as error:
        pytest.skip(str(error))


def _outcomes(results: tuple[Result, ...]) -> dict[str, Any]:
    return {each.name: each.outcome for each in results}


@pytest.mark.download
@pytest.mark.skipif(PYTHON != "cp311", reason="jaxmg is fetched for the Python that runs the tests")
def test_jaxmg_from_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 5's package, where there is no GPU: sound as a file, and importable with the jax that it requires."""
    monkeypatch.chdir(tmp_path)
    answer = api.verify("jaxmg==1.1.1", timeout=300)
    (wheel,) = answer.wheels
    assert answer.succeeded
    assert wheel.findings == ()
    (tried,) = wheel.installations
    assert _outcomes(tried.checks) == {
        "import jaxmg": "passed",
        "jaxmg's backend": "passed",
        "libraries load": "skipped",
    }
    assert "jaxmg==1.1.1" in tried.packages


@pytest.mark.download
@pytest.mark.skipif(PYTHON != "cp311", reason="jaxmg is fetched for the Python that runs the tests")
def test_jaxmg_with_the_libraries_of_cuda_against_a_stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The import test where there is no GPU that case 5 misses: its backend is loaded with all that it needs."""
    monkeypatch.chdir(tmp_path)
    answer = api.verify("jaxmg==1.1.1", requires=["jaxmg[cuda12]"], stub=True, timeout=300)
    (tried,) = answer.wheels[0].installations
    assert answer.succeeded, tried
    assert tried.stub
    assert _outcomes(tried.checks)["libraries load"] == "passed"
    assert not [each for each in tried.findings if each.rule == "library-does-not-load"]
    assert any(each.startswith("nvidia-cusolvermp-cu12==") for each in tried.packages)


@pytest.mark.download
def test_bitsandbytes_from_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Case 1's list: nvcc where there is one, `python -m bitsandbytes`, and which library it loads."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BNB_CUDA_VERSION", raising=False)
    torch = next(_from_index("torch==2.13.0").glob("torch-*.whl"))
    answer = api.verify("bitsandbytes==0.50.2", requires=[str(torch)], timeout=300)
    (wheel,) = answer.wheels
    (tried,) = wheel.installations
    outcomes = _outcomes(tried.checks)
    assert answer.succeeded, outcomes
    # Its libraries for Intel's GPUs want a newer glibc and libstdc++ than its tag promises.
    assert {(each.rule, each.severity) for each in wheel.findings} == {
        ("tag-glibc", "warning"),
        ("tag-libstdcxx", "warning"),
    }
    assert outcomes["python -m bitsandbytes"] == outcomes["which library bitsandbytes loads"] == "passed"
    assert outcomes["bitsandbytes says SUCCESS"] == "skipped"
    loaded = next(each for each in tried.checks if each.name == "which library bitsandbytes loads")
    assert "libbitsandbytes_cpu.so" in loaded.output
    # A CUDA that it has no library for shows from the file alone.
    wrong = api.verify("bitsandbytes==0.50.2", static=True, cuda="10.2")
    assert "no-library-for-cuda" in {each.rule for each in wrong.wheels[0].findings}
    monkeypatch.setenv("BNB_CUDA_VERSION", "122")
    pinned = api.verify("bitsandbytes==0.50.2", requires=[str(torch)], checks=["import *"], timeout=300)
    assert not pinned.succeeded
    assert [each.rule for each in pinned.wheels[0].installations[0].findings if each.severity == "error"] == [
        "no-library-to-load"
    ]
    assert os.environ["BNB_CUDA_VERSION"] == "122"
