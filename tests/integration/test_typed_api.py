"""The Python API as its users' type checkers see it, from the sources and from the installed wheel."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cuwheel

_USER = Path(__file__).with_name("typed_user.py")
_ROOT = Path(__file__).parents[2]
_SCRIPT = _ROOT / "examples" / "release.py"
_TIMEOUT_S = 300
# One mistake in each line.
_MISTAKES = """\
cuwheel.inspect(3)
cuwheel.kernels("torch.whl", 3)
cuwheel.compare("a.whl")
cuwheel.doctor(machine="h100")
cuwheel.gpus(90)
cuwheel.toolkits(compiles=90)
cuwheel.check("a.whl", on=90)
cuwheel.plan("h100", cuda=13.0)
cuwheel.explain()
cuwheel.record(["make"], quiet="yes")
cuwheel.replay("record", timeout="long")
cuwheel.trace(3)
cuwheel.repair("a.whl", exclude=3)
cuwheel.slim("a.whl", machnes=["h100"])
cuwheel.graft("a.whl", doners=["b.whl"])
cuwheel.toolchain("13.0", provider="index")
cuwheel.build(".", jobs="two")
cuwheel.verify("a.whl", timeout="long")
cuwheel.publish("a.whl", to=3)
cuwheel.find("torch", budget="2GB")
cuwheel.install("torch", allow=3)
cuwheel.catalogue(["torch"], to=3)
cuwheel.cluster(3)
cuwheel.cache(most="5GB")
cuwheel.ci("jenkins")
cuwheel.inspect("a.whl").no_such_field
cuwheel.inspekt("a.whl")
cuwheel.build(".", settings={"merg": True})
cuwheel.build(".", settings={"merge": "yes"})
cuwheel.build(".", settings={"plan": {"nativ": True}})
cuwheel.explain("build.log", gpu="h100")
cuwheel.slim_undo(3)
cuwheel.slim_commit()
cuwheel.verify_fleet("a.whl")
cuwheel.verify_pack("a.whl")
cuwheel.verify_read(3)
cuwheel.read_list(90)
cuwheel.plan_sizes("a.whl")
cuwheel.causes("all")
cuwheel.build_editable(3)
cuwheel.install_undo(3)
cuwheel.publish_check(3)
cuwheel.publish_upload("a.whl")
cuwheel.catalogue_list(machines=["h100"])
cuwheel.ci_check("github")
cuwheel.ci_matrix(3)
cuwheel.ci_watch("torch")
cuwheel.replay_print(3)
cuwheel.replay_list()
cuwheel.replay_diff("record:3", most="20")
cuwheel.read_trace(3)
cuwheel.save_trace(3)
cuwheel.cluster_init(3)
cuwheel.cluster_scheduler()
cuwheel.cluster_worker("tls://build01:8786", wish=None)
cuwheel.cluster_send("tls://build01:8786", 3)
cuwheel.cluster_stop(3)
cuwheel.toolchain_env(version=3)
cuwheel.toolchain_fetch("13.0")
cuwheel.toolchain_list("13.0")
cuwheel.toolchain_remove(every="yes")
cuwheel.toolchain_verify(version=3)
"""


def _run(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)


def checked_by_mypy(file: Path, python: str | Path, cwd: Path) -> set[int]:
    """The lines that it objects to. Started outside of the repository: its configuration is none of a user's."""
    options = (
        "--strict",
        "--no-error-summary",
        "--show-absolute-path",
        "--python-executable",
        python,
        "--cache-dir",
        cwd.parent / "mypy",  # what it knows of cuwheel serves the next test too
    )
    done = _run(sys.executable, "-m", "mypy", *options, file, cwd=cwd)
    lines = done.stdout.splitlines()
    outside = [each for each in lines if ": error:" in each and not each.startswith(str(file))]
    assert not outside, outside
    assert not done.stderr, done.stderr
    return {int(each[1]) for line in lines if (each := re.match(rf"{re.escape(str(file))}:(\d+): error:", line))}


def _pyright(file: Path, python: str | Path, cwd: Path) -> set[int]:
    if _run(sys.executable, "-m", "pyright", "--version", cwd=cwd).returncode:
        pytest.skip("pyright cannot be had: its package fetches it from npm when it is first used")
    done = _run(sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", python, file, cwd=cwd)
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] == 1, done.stdout
    return {each["range"]["start"]["line"] + 1 for each in told["generalDiagnostics"] if each["severity"] == "error"}


_CHECKERS = {"mypy": checked_by_mypy, "pyright": _pyright}


@pytest.mark.parametrize("text", [_USER.read_text(), _MISTAKES], ids=["user", "mistakes"])
def test_every_verb_is_called(text: str) -> None:
    called = {ast.unparse(each.func) for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call)}
    assert {f"cuwheel.{each}" for each in cuwheel.__all__ if inspect.isfunction(getattr(cuwheel, each))} <= called


# With mypy `./run lint` checks it, and the next test but one.
@pytest.mark.slow
@pytest.mark.parametrize("checker", ["pyright", "mypy"])
def test_a_users_program_types(checker: str, tmp_path: Path) -> None:
    assert _CHECKERS[checker](_USER, sys.executable, tmp_path) == set()


@pytest.mark.parametrize("checker", ["pyright", pytest.param("mypy", marks=pytest.mark.slow)])
def test_a_mistake_in_a_call_is_found(checker: str, tmp_path: Path) -> None:
    file = tmp_path / "mistaken.py"
    file.write_text(f"import cuwheel\n{_MISTAKES}")
    count = len(_MISTAKES.splitlines())
    assert _CHECKERS[checker](file, sys.executable, tmp_path) == set(range(2, count + 2))


@pytest.mark.parametrize("checker", ["mypy", pytest.param("pyright", marks=pytest.mark.slow)])
@pytest.mark.parametrize("file", [_USER, _SCRIPT], ids=["user", "example"])
def test_the_installed_wheel_types(checker: str, file: Path, tmp_path: Path, installed: Path) -> None:
    """Without `py.typed` in the wheel, mypy would call every import of it untyped."""
    assert _CHECKERS[checker](file, installed, tmp_path) == set()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, own_wheels: tuple[Path, Path]) -> Path:
    """An interpreter whose environment has cuwheel's wheel, and what the values of its answers are made of."""
    folder = tmp_path_factory.mktemp("installed")
    python = folder / "env" / "bin" / "python"
    for words in (
        ("venv", "--python", sys.executable, folder / "env"),
        ("pip", "install", "--python", python, *own_wheels),
    ):
        done = _run(Path(sys.executable).parent / "uv", *words, cwd=folder)
        assert done.returncode == 0, done.stderr
    return python
