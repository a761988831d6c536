"""`install` into real environments: what it says is what happens, and what fails leaves no trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from cuwheel import api, venvs
from cuwheel.cli import main
from cuwheel.delivery.environment_copy import FOLDER
from cuwheel.errors import CuwheelError, MalformedError, MissingExtraError, NewerSchemaError, UsageError
from cuwheel.report.answer import SCHEMAS, to_json
from tests.integration.index_server import clean_environment
from tests.integration.install_world import state, versions, wheel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cuwheel.report.install import Install


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    found = clean_environment(monkeypatch, tmp_path)
    found(CUWHEEL_CACHE=tmp_path / "cuwheel-cache")
    return found


@pytest.fixture
def env(tmp_path: Path) -> Path:
    venvs.make(tmp_path / "env", venvs.find_python())
    return tmp_path / "env"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    return tmp_path / "dist"


def _install(wanted: str, env: Path, dist: Path, **fields: Any) -> Install:
    return api.install(wanted, env=env, find_links=[str(dist)], no_index=True, **fields)


def test_a_dry_run_says_what_happens_and_changes_nothing(env: Path, dist: Path) -> None:
    wheel(dist, "needed", "1.0")
    wheel(dist, "subject", "1.0", "import needed", requires="needed>=1")
    before = state(env)
    told = _install("subject", env, dist, dry_run=True)
    assert state(env) == before
    assert [(each.name, each.from_, each.to) for each in told.changes] == [
        ("needed", None, "1.0"),
        ("subject", None, "1.0"),
    ]
    done = _install("subject", env, dist)
    assert done.changes == told.changes
    assert done.succeeded
    assert done.written
    assert [(each.name, each.outcome) for each in done.checks] == [("import subject", "passed")]
    assert versions(env) >= {"needed-1.0", "subject-1.0"}
    schema = json.loads((SCHEMAS / "install-1.json").read_text())
    shown = json.loads(to_json(done))
    jsonschema.validate(shown, schema)
    assert shown["changes"][0] == {"name": "needed", "from": None, "to": "1.0"}
    again = _install("subject", env, dist)
    assert (again.changes, again.written, again.succeeded) == ((), False, True)


def test_undo_puts_it_back(env: Path, dist: Path) -> None:
    wheel(dist, "subject", "1.0")
    _install("subject==1.0", env, dist)
    before = state(env)
    wheel(dist, "subject", "2.0")
    _install("subject", env, dist)
    subprocess.run([env / "bin/python", "-c", "import subject"], check=True)  # which leaves compiled files
    done = api.install_undo(env)
    assert done.succeeded
    assert [(each.name, each.from_, each.to) for each in done.changes] == [("subject", "2.0", "1.0")]
    after = state(env)
    assert {path: after.get(path) for path in before} == before
    assert not [path for path in after.keys() - before.keys() if "__pycache__" not in path]
    with pytest.raises(UsageError, match="no install to undo"):
        api.install_undo(env)


def test_a_failing_import_leaves_the_environment_as_it_was(
    env: Path, dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel(dist, "subject", "1.0")
    wheel(dist, "old", "1.0")
    _install("old", env, dist)
    _install("subject==1.0", env, dist)
    before = state(env)
    wheel(dist, "subject", "2.0", "raise ImportError('libcudart.so.12: cannot open shared object file')")
    words = ["install", "subject", "--env", str(env), "--find-links", str(dist), "--no-index"]
    assert main([*words, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["rolled_back"] is True
    assert "libcudart.so.12" in told["problem"]
    assert "missing-cuda-runtime-lib" in [each["id"] for each in told["causes"]]
    assert state(env) == before
    assert main(words) == 1
    assert "put back as it was" in capsys.readouterr().out


@pytest.mark.parametrize("spelling", ["link", "relative", "dots", "slash", "active"])
def test_an_environment_by_any_of_its_names(
    env: Path, dist: Path, spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a link, relative, active: it is one environment, put back and undone under each of its names."""
    (tmp_path / "link").symlink_to(env)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    names = {"link": tmp_path / "link", "relative": "../env", "dots": f"{env}/../elsewhere/../env", "slash": f"{env}/"}
    words = ["--env", str(names[spelling])] if spelling != "active" else []
    if spelling == "active":
        monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "link"))
    before = state(env)
    wheel(dist, "subject", "1.0", "raise ImportError('no')")
    source = ["--find-links", str(dist), "--no-index", "--quiet"]
    assert main(["install", "subject", *words, *source]) == 1
    assert state(env) == before
    wheel(dist, "subject", "2.0")
    assert main(["install", "subject", *words, *source]) == 0
    assert "subject-2.0" in versions(env)
    assert main(["install", "--undo", "--env", str(env)]) == 0
    assert state(env) == before


def test_an_installed_package_is_replaced_only_if_that_is_allowed(env: Path, dist: Path) -> None:
    wheel(dist, "torch", "2.8.0")
    _install("torch", env, dist)
    wheel(dist, "torch", "2.9.0")
    wheel(dist, "subject", "1.0", requires="torch==2.9.0")
    before = state(env)
    refused = _install("subject", env, dist)
    assert not refused.succeeded
    assert [(each.name, each.from_, each.to) for each in refused.refused] == [("torch", "2.8.0", "2.9.0")]
    assert state(env) == before
    allowed = _install("subject", env, dist, allow=["torch"])
    assert allowed.succeeded
    assert "torch-2.9.0" in versions(env)


def test_nothing_runs(env: Path, dist: Path) -> None:
    wheel(dist, "subject", "1.0", library="plain-130.so")
    before = state(env)
    done = _install("subject", env, dist, on=["gtx 1080 ti"])
    assert not done.succeeded
    assert "no code for" in done.candidates[0].reasons[0]
    assert state(env) == before


def test_a_wheel_that_is_not_what_the_index_says_is_not_installed(env: Path, tmp_path: Path) -> None:
    made = wheel(tmp_path / "files", "subject", "1.0")
    page = tmp_path / "simple" / "subject" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../files/{made.name}#sha256={"ab" * 32}">x</a>')
    before = state(env)
    done = api.install("subject", env=env, indexes=[str(tmp_path / "simple")])
    assert done.rolled_back
    assert "hash" in done.problem.lower()
    assert state(env) == before


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_install_that_is_ended_is_put_back(env: Path, dist: Path, how: int, tmp_path: Path) -> None:
    wheel(dist, "subject", "1.0")
    _install("subject==1.0", env, dist)
    before = state(env)
    mark = tmp_path / "imported"
    wheel(dist, "subject", "2.0", f"import pathlib, time\npathlib.Path({str(mark)!r}).touch()\ntime.sleep(60)")
    words = ["install", "subject", "--env", str(env), "--find-links", str(dist), "--no-index"]
    with subprocess.Popen([sys.executable, "-m", "cuwheel", *words], env=os.environ.copy()) as running:
        deadline = time.monotonic() + 300
        while not mark.exists() and time.monotonic() < deadline and running.poll() is None:
            time.sleep(0.1)
        running.send_signal(how)
        assert running.wait(120) != 0
    assert mark.exists()
    if how == signal.SIGKILL:
        assert "subject-2.0" in versions(env)
        wheel(dist, "other", "1.0")
        assert _install("other", env, dist, dry_run=True).recovered == "subject"
    assert state(env) == before


def test_what_was_changed_since_is_not_undone(env: Path, dist: Path) -> None:
    wheel(dist, "subject", "1.0")
    _install("subject", env, dist)
    (init,) = env.rglob("subject/__init__.py")
    init.unlink()
    init.write_text("mine = True\n")
    with pytest.raises(UsageError, match="was changed since subject was installed"):
        api.install_undo(env)
    assert init.read_text() == "mine = True\n"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda told: told.replace(b"journal/1", b"journal/2"), NewerSchemaError),
        (lambda told: told[:-20], MalformedError),
        (lambda told: told.replace(b'"inode":', b'"inode":1'), MalformedError),
        (lambda told: told.replace(b'"path":"lib/', b'"path":"../lib/'), CuwheelError),
    ],
)
def test_a_journal_is_not_believed_blindly(
    env: Path, dist: Path, change: Callable[[bytes], bytes], error: type[CuwheelError]
) -> None:
    wheel(dist, "subject", "1.0")
    _install("subject", env, dist)
    journal = env / FOLDER / "journal.json"
    journal.write_bytes(change(journal.read_bytes()))
    before = state(env)
    with pytest.raises(error):
        api.install_undo(env)
    assert state(env) == before


@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_requirements_come_from_the_same_index(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """Also where there is no pip at all, as with tools and environments that uv made."""
    made = [wheel(tmp_path / "files", "subject", "1.0", "import needed", requires="needed>=1")]
    made += [wheel(tmp_path / "files", "needed", version) for version in ("1.0", "2.0")]
    for each in made:
        page = tmp_path / "simple" / each.name.partition("-")[0] / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text((page.read_text() if page.exists() else "") + f'<a href="../../files/{each.name}">x</a>')
    if tool == "uv":
        if venvs.uv() is None:
            pytest.skip("uv is not installed here")

        def no_pip(_: Path) -> list[str]:
            raise MissingExtraError(["pip"], "this test", "build")

        monkeypatch.setattr(venvs, "pip_for", no_pip)
        monkeypatch.setattr(venvs, "pip", lambda: None)
    done = api.install("subject", env=env, indexes=[str(tmp_path / "simple")])
    assert done.succeeded
    assert {(each.name, each.to) for each in done.changes} == {("subject", "1.0"), ("needed", "2.0")}
    assert versions(env) >= {"subject-1.0", "needed-2.0"}
