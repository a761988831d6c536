"""`slim` on real environments: installers, uninstallers, full disks, other users, two runs at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.cli import main
from cuwheel.network import venvs
from cuwheel.support import process
from tests.integration.install_world import environment_with_pip
from tests.unit.changes.slim.packages import (
    FOO,
    PER_CUDA,
    contents,
    make_environment,
    make_wheel,
    snapshot,
    wrong_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MINUTE = 60.0


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with pip in it."""
    path = tmp_path_factory.mktemp("bare") / "env"
    environment_with_pip(path)
    return path


def pip(env: Path, *words: str | Path) -> str:
    command = [env / "bin" / "python", "-m", "pip", "--disable-pip-version-check", *words]
    return process.run(command, timeout=10 * MINUTE).stdout


def site_of(env: Path) -> Path:
    return next(env.glob("lib/python3*/site-packages"))


def test_a_slimmed_wheel_installs_and_uninstalls(bare: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {**FOO, "foo-1.0+cu130.data/scripts/foo-run": b"#!python\nprint(1)\n"})
    made = api.slim(wheel, machines=["h100"], output=tmp_path / "out")
    assert made.output
    pip(bare, "install", "--no-index", "--no-deps", made.output)
    assert "Version: 1.0+cu130.slim" in pip(bare, "show", "foo")
    assert wrong_records(site_of(bare)) == []
    assert (bare / "bin" / "foo-run").exists()
    pip(bare, "uninstall", "--yes", "foo")
    assert not (site_of(bare) / "foo").exists()
    assert not list(site_of(bare).glob("foo-*"))


def test_a_slimmed_environment_is_one_that_pip_understands(bare: Path, tmp_path: Path) -> None:
    for wheel in (make_wheel(tmp_path, FOO), make_wheel(tmp_path, PER_CUDA, "bitsandbytes", "0.50.2")):
        pip(bare, "install", "--no-index", "--no-deps", wheel)
    before = snapshot(bare)
    made = api.slim(env=bare, machines=["h100"], cuda="12.8")
    assert made.total.bytes_after < made.total.bytes_before
    assert wrong_records(site_of(bare)) == []
    pip(bare, "check")
    pip(bare, "uninstall", "--yes", "bitsandbytes")
    assert not (site_of(bare) / "bitsandbytes").exists()
    # What pip took away stays away; the rest comes back.
    undone = api.slim_undo(bare)
    assert {each.rule for each in undone.findings} <= {"undone", "changed-since"}
    after = snapshot(bare)
    assert {path: state for path, state in before.items() if "/foo" in path} == {
        path: state for path, state in after.items() if "/foo" in path
    }
    assert not (site_of(bare) / "bitsandbytes").exists()
    pip(bare, "uninstall", "--yes", "foo")


def test_uv_caches_stay_as_they_are(bare: Path, tmp_path: Path) -> None:
    uv = venvs.uv()
    if not uv:
        pytest.skip("there is no uv here")
    cache = tmp_path / "cache"
    wheel = make_wheel(tmp_path, FOO)
    words: list[str | Path] = [
        "--python",
        bare / "bin" / "python",
        "--link-mode",
        "hardlink",
        "--cache-dir",
        cache,
        wheel,
    ]
    process.run([uv, "pip", "install", "--quiet", "--no-deps", "--offline", *words], timeout=MINUTE)
    before = contents(cache)
    installed = site_of(bare) / "foo" / "libfoo.so"
    assert installed.stat().st_nlink > 1
    api.slim(env=bare, machines=["h100"])
    assert contents(cache) == before
    assert installed.stat().st_nlink == 1
    api.slim_undo(bare)
    assert installed.stat().st_nlink > 1
    pip(bare, "uninstall", "--yes", "foo")


@contextlib.contextmanager
def small_disk(size: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        mount = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", name], capture_output=True, check=False
        )
        if mount.returncode:
            pytest.skip("a small file system needs root: mount says " + mount.stderr.decode().strip())
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", name], check=True)


def test_a_disk_that_fills_up(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with small_disk("400k") as disk:
        make_environment(disk / "env")
        before = snapshot(disk)
        free = os.statvfs(disk)
        (disk / "fill").write_bytes(bytes(max(free.f_bavail * free.f_frsize - 60_000, 0)))
        assert main(["slim", "--env", str(disk / "env"), "--for", "h100"]) == 4
        assert "are needed there" in capsys.readouterr().err
        # And where the estimate was wrong:

        monkeypatch.setattr("cuwheel.changes.slim.act.must_have_room", lambda *_: None)
        assert main(["slim", "--env", str(disk / "env"), "--for", "h100"]) == 4
        told = capsys.readouterr().err
        assert "No space left on device" in told
        assert "nothing was changed" in told
        (disk / "fill").unlink()
        assert snapshot(disk) == before
        assert main(["slim", "--env", str(disk / "env"), "--for", "h100", "--quiet"]) == 0


def test_a_wheel_on_a_disk_that_fills_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:

    wheel = make_wheel(tmp_path, FOO)
    monkeypatch.setattr("cuwheel.changes.slim.act.must_have_room", lambda *_: None)
    with small_disk("60k") as disk:
        assert main(["slim", str(wheel), "--for", "h100", "-o", str(disk)]) == 4
        assert "was not written" in capsys.readouterr().err
        assert list(disk.iterdir()) == []


@pytest.mark.parametrize(
    ("how", "message"),
    [("limit", "File too large"), ("shut", "not writable"), ("others", "owned by another user")],
)
def test_where_the_world_says_no(how: str, message: str) -> None:
    if how == "others" and os.geteuid():
        pytest.skip("only root can make files of another user")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        env = Path(name, "env")
        make_environment(env)
        before = contents(env)
        command = [sys.executable, "-m", "tests.integration.slim_confined", how, str(env)]
        done = process.run(command, timeout=MINUTE, check=False, cwd=ROOT)
        assert done.status == 4, done
        assert message in done.stderr
        assert "nothing was changed" in done.stderr
        assert contents(env) == before


def test_a_second_run_at_the_same_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = tmp_path / "env"
    make_environment(env)
    script = (
        "import sys, time\n"
        "from cuwheel import api\n"
        "from cuwheel.changes.binaries import rewrite\n"
        "real = rewrite.slim_library\n"
        "def slow(*args):\n"
        "    sys.stdout.write('at work\\n'); sys.stdout.flush(); time.sleep(60)\n"
        "rewrite.slim_library = slow\n"
        "api.slim(machines=['h100'], env=__import__('pathlib').Path(sys.argv[1]))\n"
    )
    before = contents(env)
    with subprocess.Popen([sys.executable, "-c", script, str(env)], stdout=subprocess.PIPE) as first:
        assert first.stdout
        assert first.stdout.readline() == b"at work\n"
        assert main(["slim", "--env", str(env), "--for", "h100"]) == 4
        assert f"another cuwheel process ({first.pid}) is changing it" in capsys.readouterr().err
        assert main(["slim", "--env", str(env), "--undo"]) == 4
        capsys.readouterr()
        first.send_signal(signal.SIGKILL)
    assert {path: data for path, data in contents(env).items() if ".cuwheel" not in path} == before
    # Its lock died with it.
    assert main(["slim", "--env", str(env), "--for", "h100"]) == 0


def test_interrupted_by_a_person(tmp_path: Path) -> None:
    env = tmp_path / "env"
    make_environment(env)
    before = contents(env)
    script = (
        "import sys, time\n"
        "from cuwheel.cli import main\n"
        "from cuwheel.changes.binaries import rewrite\n"
        "def slow(*args):\n"
        "    sys.stdout.write('at work\\n'); sys.stdout.flush(); time.sleep(1)\n"
        "    raise SystemExit(99)\n"
        "rewrite.slim_library = slow\n"
        "sys.exit(main(['slim', '--for', 'h100', '--env', sys.argv[1]]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(env)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout
        child.stdout.readline()
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        _, told = child.communicate(timeout=MINUTE)
    assert child.returncode == 130, told
    assert contents(env) == before


def test_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, FOO)
    for number in ("1", "2"):
        words: list[str | Path] = [wheel, "--for", "h100", "-o", tmp_path / number]
        command = [sys.executable, "-m", "cuwheel", "slim", *words]
        process.run(command, timeout=MINUTE, env={**os.environ, "PYTHONHASHSEED": number})
    one, two = (next((tmp_path / number).iterdir()) for number in ("1", "2"))
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert archive.testzip() is None
