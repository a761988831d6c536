"""`install` into real environments: what it says is what happens, and what fails leaves no trace."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.errors import MissingExtraError, NewerSchemaError, UsageError
from cuwheel.network import venvs
from cuwheel.report.answer import SCHEMAS
from cuwheel.support.answer import to_json
from cuwheel.wheel import journal, journal_file, record
from cuwheel.wheel.journal_file import FileState, Header, Pinned, Root, Step, Writer
from cuwheel_core.errors import CuwheelError, MalformedError, UnreadableError
from tests.integration.index_server import clean_environment
from tests.integration.install_world import lost, state, versions, wheel
from tests.unit.changes.slim.packages import contents

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cuwheel.delivery.install_answer import Install


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
    assert shown["changes"][0] == {"name": "needed", "from": None, "to": "1.0", "index": str(dist)}
    again = _install("subject", env, dist)
    assert (again.changes, again.written, again.succeeded) == ((), False, True)


def test_the_command_that_is_shown_puts_it_back(env: Path, dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Wherever it is typed: nobody may have activated the environment that was named."""
    before = state(env)
    wheel(dist, "subject", "1.0")
    assert main(["install", "subject", "--env", str(env), "--find-links", str(dist), "--no-index"]) == 0
    (shown,) = re.findall("to put it back: cuwheel (.+)", " ".join(capsys.readouterr().out.split("\n")))
    assert main(shlex.split(shown)) == 0
    assert state(env) == before


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
    assert "put back as it was" in " ".join(capsys.readouterr().out.split())  # the path before it may be long


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


def test_what_a_new_environment_has_by_itself_is_renewed_unless_something_needs_it(env: Path, dist: Path) -> None:
    wheel(dist, "setuptools", "99.0")
    wheel(dist, "subject", "1.0", requires="setuptools>=99")
    wheel(dist, "other", "1.0", requires="setuptools")
    wheel(dist, "setuptools", "1.0")
    _install("setuptools==1.0", env, dist)
    _install("other", env, dist)
    assert [each.name for each in _install("subject", env, dist).refused] == ["setuptools"]
    api.install_undo(env)
    done = _install("subject", env, dist)
    assert done.succeeded
    assert ("setuptools", "1.0", "99.0") in [(each.name, each.from_, each.to) for each in done.changes]


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
    wheel(dist, "subject", "2.0", f"import pathlib, time\npathlib.Path({str(mark)!r}).touch()\ntime.sleep(3600)")
    words = ["install", "subject", "--env", str(env), "--find-links", str(dist), "--no-index"]
    with subprocess.Popen([sys.executable, "-m", "cuwheel", *words], env=os.environ.copy()) as running:
        deadline = time.monotonic() + 300
        while not mark.exists() and time.monotonic() < deadline and running.poll() is None:
            time.sleep(0.1)
        running.send_signal(how)
        assert running.wait(600) != 0
    assert mark.exists()
    if how == signal.SIGKILL:
        assert "subject-2.0" in versions(env)
        assert not lost(env, before), "each file is where it was, or kept"
        wheel(dist, "other", "1.0")
        between = state(env)
        with pytest.raises(UnreadableError, match="an install of subject was interrupted") as raised:
            _install("other", env, dist, dry_run=True)
        assert "cuwheel install --undo" in raised.value.hint
        assert state(env) == between, "a dry run changes nothing"
        assert api.install_undo(env).name == "subject"
    assert state(env) == before
    assert api.install_undo(env).name == "subject", "the install before it can still be undone"
    assert "subject-1.0" not in versions(env)


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
        (lambda told: told.replace(b"cuwheel.journal/3", b"cuwheel.journal/4"), NewerSchemaError),
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
    (kept,) = env.glob(".cuwheel/install/*/journal.jsonl")
    kept.write_bytes(change(kept.read_bytes()))
    before = state(env)
    with pytest.raises(error) as raised:
        api.install_undo(env)
    assert "remove" not in raised.value.hint, "an undo needs it"
    assert state(env) == before
    assert kept.exists()


@pytest.mark.parametrize("dry_run", ["dry", ""])
@pytest.mark.parametrize("state_of_it", ["installing", "undoing", "done"])
@pytest.mark.parametrize("way", ["own link", "link that is there", "setting"])
def test_a_hostile_journal_reaches_nothing(
    env: Path, dist: Path, way: str, state_of_it: str, dry_run: str, tmp_path: Path
) -> None:
    """It knows its folder, so it could be a real one: it makes a link and writes through it, or sets a variable."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / ".profile").write_text("# >>> cuwheel pins >>>\nBNB_CUDA_VERSION=122\n# <<< cuwheel pins <<<\n")
    wheel(dist, "subject", "1.0")
    run = env / ".cuwheel" / "install" / f"0001-{'ab' * 8}"
    (run / "originals").mkdir(parents=True)
    (run / "originals" / "2").write_text("evil\n")
    there = FileState(size=5, mtime_ns=(run / "originals" / "2").stat().st_mtime_ns, inode=0, mode=0o644)
    link = FileState(size=5, mtime_ns=1, inode=1, mode=0o777, kind="link", target=str(victim))
    pinned = Pinned(kind="env-file", path=str(victim / ".profile"), before={"LD_PRELOAD": "/tmp/evil.so"})
    steps = [Step(number=1, action="keep", path="way", before=link)] if way == "own link" else []
    if way == "link that is there":
        (env / "way").symlink_to(victim)
    steps += [Step(number=2, action="keep", path="way/.profile", before=there)] if way != "setting" else []
    writer = Writer(run)
    pins = (pinned,) if way == "setting" else ()
    writer.start(Header(tool="stranger", targets=("subject",), root=Root.of(env.resolve()), pinned=pins))
    writer.steps(steps)
    writer.state(state_of_it)  # type: ignore[arg-type]
    before, mine = state(env), state(victim)
    for undo in (False, True):
        with pytest.raises(MalformedError) as raised:
            _ = api.install_undo(env) if undo else _install("subject", env, dist, dry_run=bool(dry_run))
        assert "nothing was changed" in str(raised.value) or "out of its folder" in str(raised.value)
        assert (state(env), state(victim)) == (before, mine)


@pytest.mark.parametrize(
    "place", ["slim/0001/journal.jsonl", "install/0002/journal.jsonl", "slim/0001/originals/1", "x"]
)
def test_no_wheel_brings_files_into_the_journal(env: Path, dist: Path, place: str) -> None:
    """Nor over one that `slim` left, which can still be undone."""
    (env / "data").write_bytes(b"as it was")
    with journal_file.locked(env.resolve()), journal.begin(env.resolve(), Header(tool="tests", targets=())) as slimmed:
        staged = slimmed.stage()
        staged.write_bytes(b"cut")
        slimmed.replace(env / "data", staged, record.digest_of_bytes(b"cut"))
        slimmed.apply()
    wheel(dist, "subject", "1.0", members={f"subject-1.0.data/data/.cuwheel/{place}": b"evil"})
    before, own = state(env), contents(env / ".cuwheel")
    done = _install("subject", env, dist)
    assert done.rolled_back
    assert "that folder is cuwheel's own" in done.problem
    assert (state(env), contents(env / ".cuwheel")) == (before, own)
    api.slim_undo(env)
    assert (env / "data").read_bytes() == b"as it was"


OTHERS = {
    "subject-1.0.data/data/pyvenv.cfg": "is the environment's own",
    "subject-1.0.data/data/bin/activate": "is the environment's own",
    "subject-1.0.data/scripts/activate": "is the environment's own",
    "subject-1.0.data/data/bin/python3": "python3",  # uv refuses it itself, pip does not
    "subject-1.0.data/data/lib64/PYTHON/site-packages/other/__init__.py": "is of other",
    "subject-1.0.data/purelib/other/__init__.py": "is of other",
    "subject-1.0.data/platlib/other/data/more.txt": "is of other",
    "subject-1.0.data/data/bin/other-tool": "is of other",
    "subject-1.0.data/scripts/other-tool": "is of other",
    "subject-1.0.data/purelib/other-1.0.dist-info/METADATA": "is of other",
    "other/__init__.py": "is of other",
}


@pytest.mark.parametrize("member", OTHERS)
def test_no_wheel_writes_over_what_is_not_its_own(env: Path, dist: Path, member: str) -> None:
    wheel(dist, "other", "1.0")
    _install("other", env, dist)
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    wheel(dist, "subject", "1.0", members={member.replace("PYTHON", python): b"#!python\nevil = 1\n"})
    before = state(env)
    done = _install("subject", env, dist)
    assert done.rolled_back
    assert OTHERS[member] in done.problem
    assert state(env) == before


def test_what_may_change_and_what_is_the_same_may_be_written_over(env: Path, dist: Path) -> None:
    """Packages share a folder, in which each brings the same file; and one may be meant to change another."""
    wheel(dist, "other", "1.0", members={"shared/__init__.py": b"", "tests/__init__.py": b"a"})
    _install("other", env, dist)
    members = {"shared/__init__.py": b"", "tests/__init__.py": b"b", "other/data/more.txt": b"changed"}
    wheel(dist, "subject", "1.0", members=members)
    assert "--allow other" in _install("subject", env, dist).problem
    assert _install("subject", env, dist, allow=["other"]).written


def test_a_newer_release_writes_over_its_own_files(env: Path, dist: Path) -> None:
    for version in ("1.0", "2.0"):
        script = {f"subject-{version}.data/scripts/tool": f"#!python\nprint({version})\n".encode()}
        wheel(dist, "subject", version, members=script)
        assert _install(f"subject=={version}", env, dist).written


def test_two_wheels_of_one_install_do_not_write_one_file(env: Path, dist: Path) -> None:
    for name, requires in (("needed", ""), ("subject", "needed")):
        members = {f"{name}-1.0.data/data/share/one.txt": name.encode()}
        wheel(dist, name, "1.0", requires=requires, members=members)
    before = state(env)
    done = _install("subject", env, dist)
    assert done.rolled_back
    assert "share/one.txt" in done.problem
    assert state(env) == before


def test_files_that_an_import_changes_in_place_come_back(env: Path, dist: Path) -> None:
    wheel(dist, "other", "1.0")
    _install("other", env, dist)
    (mode,) = env.rglob("other/data/more.txt")
    mode.chmod(0o640)
    before = state(env)
    writes = "import other, pathlib, os\np = pathlib.Path(other.__file__).parent / 'data' / 'more.txt'\n"
    writes += "f = open(p, 'r+'); f.write('X' * 30); f.close(); os.chmod(p, 0o600)\n"
    wheel(dist, "subject", "1.0", writes + "raise ImportError('no')")
    assert _install("subject", env, dist).rolled_back
    after = state(env)
    changed = [path for path in before if (before[path][:3]) != after[path][:3]]  # all but the inode
    assert (changed, after.keys()) == ([], before.keys())
    wheel(dist, "subject", "2.0", writes)
    assert _install("subject", env, dist).written
    assert mode.read_text() == "X" * 30
    api.install_undo(env)
    assert (mode.read_text(), mode.stat().st_mode & 0o777) == ("1.0", 0o640)


def test_names_that_are_no_text(env: Path, dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes that are no UTF-8, backslashes and ends of lines: in files, folders and the targets of links."""
    odd = os.fsdecode(b"caf\xe9 \\xe9 \n")
    folder = env / "lib" / odd
    folder.mkdir()
    (folder / odd).write_text("mine")
    (env / odd).symlink_to(odd)
    before = state(env)
    wheel(dist, "subject", "1.0", f"import shutil\nshutil.rmtree({str(folder)!r})\nraise ImportError('no')")
    words = ["install", "subject", "--env", str(env), "--find-links", str(dist), "--no-index"]
    assert main(words) == 1, capsys.readouterr()
    assert state(env) == before
    rest = f"import os, shutil\nshutil.rmtree({str(folder)!r})\nos.unlink({str(env / odd)!r})"
    wheel(dist, "subject", "2.0", rest)
    assert main([*words, "--json"]) == 0, capsys.readouterr()
    assert not folder.exists()
    assert main(["install", "--undo", "--env", str(env), "--json"]) == 0, capsys.readouterr()
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


def test_no_build_tool_is_started(
    env: Path, dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Callable[..., None]
) -> None:
    """What runs here depends on the GPU, the driver, the system and Python; on no compiler."""
    wheel(dist, "subject", "1.0")
    programs, started = tmp_path / "toolkit/bin", tmp_path / "started"
    programs.mkdir(parents=True)
    for name in ("nvcc", "cmake", "ninja", "g++", "gcc"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} >> {started}\necho release 13.0, V13.0.88\n")
        (programs / name).chmod(0o755)
    (programs / "nvcc.profile").touch()
    (tmp_path / "toolkit/version.json").write_text('{"cuda": {"version": "13.0.2"}}')
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    given(CUDA_HOME=tmp_path / "toolkit")
    told = _install("subject", env, dist, dry_run=True)
    assert told.succeeded
    assert "13.0.2" in told.machines[0].toolkits
    assert not started.exists(), started.read_text()


def test_an_import_that_removes_the_journal_is_not_called_restored(env: Path, dist: Path) -> None:
    """Nothing could be put back, and who reads the error knows what is still there."""
    wheel(dist, "subject", "1.0", "import shutil, sys; shutil.rmtree(sys.prefix + '/.cuwheel'); raise ValueError")
    with pytest.raises(CuwheelError) as caught:
        _install("subject", env, dist)
    assert "nothing could be put back" in caught.value.message
    assert "subject" in caught.value.hint
    assert "subject-1.0" in versions(env)


def test_it_loads_only_what_an_install_needs(env: Path, dist: Path) -> None:
    wheel(dist, "subject", "1.0")
    words = ["install", "subject", "--env", str(env), "--find-links", str(dist), "--no-index", "--on", "h100", "--json"]
    script = "import sys; from cuwheel.cli import main; code = main(sys.argv[1:]); print(*sys.modules); sys.exit(code)"
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    rooms = {each.split(".")[1] for each in done.stdout.splitlines()[-1].split() if each.startswith("cuwheel.")}
    assert "delivery" in rooms
    assert not rooms & {"toolchains", "building", "clusters", "changes", "tracing", "diagnosis"}
