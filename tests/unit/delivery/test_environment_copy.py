"""An environment that an installer changes, killed at every call that changes the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from cuwheel.delivery import applying
from cuwheel.delivery.environment_changes import EnvironmentCopy, Place
from cuwheel.delivery.install_answer import initial_answer
from cuwheel.errors import UsageError
from cuwheel.network import venvs
from cuwheel.wheel import journal_file
from cuwheel_core.errors import UnreadableError
from tests.integration.install_world import lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cuwheel.delivery.install_answer import Install

SITE = "lib/python3.12/site-packages"
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.utime")
# A name that is no text; Windows has none.
ODD = "café" if sys.platform == "win32" else os.fsdecode(b"caf\xe9")
_left: list[int] = []  # calls until the end; empty where nobody is to die


class Killed(BaseException):
    pass


def _hook(event: str, args: tuple[Any, ...]) -> None:
    """From its last moment on, a killed process changes nothing, whatever its handlers try."""
    if _left and (event in _CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT)):
        _left[0] -= 1
        if _left[0] < 0:
            raise Killed


@contextlib.contextmanager
def killed_after(calls: int) -> Iterator[list[bool]]:
    """Tells afterwards whether it came to that."""
    if not getattr(_hook, "added", False):
        sys.addaudithook(_hook)
        _hook.added = True  # type: ignore[attr-defined]
    died = [False]
    _left[:] = [calls]
    try:
        yield died
    except Killed:
        pass
    finally:
        died[0] = _left[0] < 0
        _left.clear()


def state(env: Path) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(each for each in env.rglob("*") if journal_file.FOLDER not in each.relative_to(env).parts):
        status = path.lstat()
        told = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        times = status.st_mtime_ns if not path.is_symlink() else 0
        found[str(path.relative_to(env))] = (status.st_mode, told, times)
    return found


def environment(folder: Path) -> Path:
    site = folder / SITE
    for name in ("kept", "gone", "turned", ODD):
        (site / name).mkdir(parents=True)
        (site / name / "file.py").write_text(name, encoding="utf-8", errors="surrogateescape")
    (site / "link").symlink_to("kept")
    (folder / "pyvenv.cfg").write_text("version = 3.12.0\n")
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            os.utime(path, ns=(10**18, 10**18))
    return folder.resolve()


def install(env: Path) -> None:
    """What an installer, and an import, may do to files, folders and links."""
    site = env / SITE
    with (site / "kept" / "file.py").open("r+") as file:
        file.write("changed in place")
    (site / "kept" / "file.py").chmod(0o600)
    (site / ODD / "file.py").unlink()
    (site / ODD / "file.py").write_text("new")
    shutil.rmtree(site / "gone")
    shutil.rmtree(site / "turned")
    (site / "turned").symlink_to("/")
    (site / "link").unlink()
    (site / "link").mkdir()
    (site / "link" / "file.py").write_text("made")
    (site / "made" / "deep").mkdir(parents=True)
    (site / "made" / "deep" / "file.py").write_text("made")


def _back(env: Path) -> None:
    copy = EnvironmentCopy(env)
    copy.begin("foo")
    with unhurt():
        install(env)
    copy.restore()


def _done(env: Path) -> None:
    copy = EnvironmentCopy(env)
    copy.begin("foo")
    with unhurt():
        install(env)
    copy.finish()


def _undone(env: Path) -> None:
    with unhurt():
        _done(env)
    EnvironmentCopy(env).undo()


@contextlib.contextmanager
def unhurt() -> Iterator[None]:
    """What is no part of the trial. Who is dead already does not come here."""
    held = list(_left)
    _left.clear()
    yield
    _left[:] = held


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Nothing can be written: the system says so."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_on_a_full_disk_all_is_put_back(tmp_path: Path) -> None:
    """And where that is killed, by the next run."""
    calls, died = 0, [True]
    while died[0]:
        env = environment(tmp_path / str(calls))
        before = state(env)
        copy = EnvironmentCopy(env)
        copy.begin("foo")
        install(env)
        with full_disk(), killed_after(calls) as died:
            assert copy.restore() == ()
        if died[0]:
            EnvironmentCopy(env).recover()
        assert state(env) == before, f"killed after {calls} calls"
        calls += 1
    assert calls > 10


@pytest.mark.parametrize("act", [_back, _done, _undone])
def test_killed_at_any_call_nothing_is_lost(act: Callable[[Path], None], tmp_path: Path) -> None:
    after = environment(tmp_path / "after")
    install(after)
    changed = {path: told[:2] for path, told in state(after).items()}
    calls, died = 0, [True]
    while died[0]:
        env = environment(tmp_path / str(calls))
        before = state(env)
        with killed_after(calls) as died:
            act(env)
        where = f"{act.__name__}, killed after {calls} calls"
        between = state(env)
        for path in before.keys() | between.keys() | changed.keys():
            now = between.get(path, (None, None))[:2]
            known = [told.get(path, (None, None))[:2] for told in (before, changed)]
            assert now[1] in [each[1] for each in known], f"{where}: {path} is neither as before nor as after"
        assert not lost(env, before), where
        with killed_after(calls // 2):  # and the next run is killed as well
            EnvironmentCopy(env).recover()
        assert not lost(env, before), where
        EnvironmentCopy(env).recover()
        if act is _done and state(env) != before:
            assert {path: told[:2] for path, told in state(env).items()} == changed, where
        with contextlib.suppress(UsageError):
            EnvironmentCopy(env).undo()
        assert state(env) == before, where
        assert not list(env.glob(f"{journal_file.FOLDER}/install/*/journal.jsonl")), where
        calls += 1
    assert calls > 20, "calls that change the disk are seen"


def refuse(*_args: object, **_options: object) -> NoReturn:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.mark.skipif(sys.platform == "win32", reason="other calls there")
def test_put_back_where_no_rights_can_be_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On FAT and some network drives, where all files have the rights that the drive was mounted with."""
    env = environment(tmp_path / "env")
    before = state(env)
    for name in ("chmod", "fchmod", "link"):
        monkeypatch.setattr(os, name, refuse)
    copy = EnvironmentCopy(env)
    copy.begin("foo")
    (env / SITE / "kept" / "file.py").unlink()
    (env / SITE / "kept" / "file.py").write_text("new")
    shutil.rmtree(env / SITE / "gone")
    (env / SITE / "made").mkdir()
    assert copy.restore() == ()
    assert state(env) == before
    assert not (env / journal_file.FOLDER / "install").exists()


@pytest.mark.parametrize("ends", ["refused", "raised"])
def test_what_cannot_be_put_back_is_told_as_it_is(ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next run goes on with it."""
    env = environment(tmp_path / "env")
    before = state(env)
    copy = EnvironmentCopy(env)
    place = Place(prefix=env, interpreter=env / "bin" / "python", copy=copy)
    monkeypatch.setattr(venvs, "conflicts", lambda _: ())

    def work() -> Install:
        install(env)
        monkeypatch.setattr(os, "replace", refuse)
        if ends == "raised":
            raise UsageError("no")
        return initial_answer("foo", env, problem="it cannot be imported")

    with pytest.raises(UnreadableError, match="Operation not permitted"):
        applying.restored_on_failure(place, "foo", work)
    monkeypatch.undo()
    EnvironmentCopy(env).recover()
    assert state(env) == before
