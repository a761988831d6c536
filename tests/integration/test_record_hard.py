"""Recording where it is hard: many at once, a disk that is full, threads with the smallest stacks; killed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cuwheel.building.recording import reader, session
from tests.fixtures import compiled
from tests.integration.recording import WAYS, Bench, bench

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = Path(__file__).parent / "src"
MUCH = 1 << 20


@pytest.fixture(params=WAYS)
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    made = bench(tmp_path, request.param)
    made.tool("gcc")
    return made


@pytest.mark.slow
def test_ten_records_at_once(tmp_path: Path) -> None:
    """Each runs its command, and has a folder of its own. Several that find nothing compiled: test_interrupted.py."""
    compiled.our_own(tmp_path / "cache")
    tools = bench(tmp_path / "bench", "preload")
    tools.tool("gcc")
    script = "echo ran >> ran.txt; gcc out:x >/dev/null; exit 3"
    words = [sys.executable, "-m", "cuwheel", "record", "--", "/bin/sh", "-c", script]
    environ = {**os.environ, "PATH": f"{tools.tools}:{os.environ['PATH']}", "CUWHEEL_CACHE": str(tmp_path / "cache")}
    place = tmp_path / "place"
    place.mkdir()
    running = [
        subprocess.Popen(words, cwd=place, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(10)
    ]
    assert [child.wait(300) for child in running] == [3] * 10
    assert (place / "ran.txt").read_text() == "ran\n" * 10
    folders = sorted(place.glob("cuwheel-record*"))
    assert len(folders) == 10
    assert [len(reader.read_record(folder).calls) for folder in folders] == [1] * 10


def test_files_may_not_grow(at: Bench) -> None:
    """As on a full disk: what goes to the null device is never refused, and the build does not notice."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    def run(command: Sequence[str | bytes], environ: dict[str, str]) -> int:
        done = subprocess.run(command, env=environ, cwd=at.folder, preexec_fn=limited, check=False, timeout=600)
        return done.returncode

    text = f"#!/bin/sh\nhead -c {MUCH} /dev/zero || exit 9\nhead -c {MUCH} /dev/zero >&2 || exit 8\nexit 5\n"
    at.tool("gcc", text)
    for redirection in (">/dev/null 2>&1", ">/dev/null 2>/dev/null", ">&-  2>/dev/null"):
        record = at.run(["/bin/sh", "-c", f"gcc {redirection}; exit $?"], popen=run)
        assert record.status == 5


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare to mount a small disk")
@pytest.mark.parametrize("way", ["preload", "path"])
def test_a_disk_that_is_full(tmp_path: Path, way: str) -> None:
    made = bench(tmp_path / "bench", way)
    made.tool("gcc", f"#!/bin/sh\nhead -c {MUCH} /dev/zero || exit 9\nexit 5\n")
    small = tmp_path / "small"
    small.mkdir()
    script = (
        f'mount -t tmpfs -o size=128k none "{small}" || exit 77\n'
        f'cd "{small}"; "{sys.executable}" -m cuwheel record --way {way} -- '
        f"/bin/sh -c 'gcc >/dev/null; one=$?; cat /dev/zero >fill; gcc >/dev/null; exit $((one * 10 + $?))'\n"
    )
    environ = {**os.environ, "PATH": f"{made.tools}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode in (1, 77) and ("mount" in done.stderr or "unshare" in done.stderr):
        pytest.skip("this system mounts nothing for its users")
    assert done.returncode == 55, done.stderr


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare to mount a small disk")
def test_no_room_for_its_orders(tmp_path: Path) -> None:
    """Nothing is run then, and no record stays that says nothing."""
    made, small = bench(tmp_path / "bench", "preload"), tmp_path / "small"
    small.mkdir()
    script = (
        f'mount -t tmpfs -o size=4k none "{small}" || exit 77\n'
        f'TMPDIR="{small}" "{sys.executable}" -m cuwheel record -o rec -- touch ran\n'
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script],
        env={**os.environ, "LARGE": "x" * 8000},
        cwd=made.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode in (1, 77) and ("mount" in done.stderr or "unshare" in done.stderr):
        pytest.skip("this system mounts nothing for its users")
    assert done.returncode == 4, done.stderr
    assert f"{small}/cuwheel-record-" in done.stderr
    assert "No space left on device" in done.stderr
    assert not {"rec", "ran"} & {each.name for each in made.folder.iterdir()}


def test_what_a_tool_leaves_behind_can_go_on_writing(at: Bench) -> None:
    """To the null device, for ever: nothing of ours may end it."""
    mark = at.folder / "mark"
    at.tool("gcc", f"#!/bin/sh\n(sleep 1; echo more; echo more && sleep 0.2 && echo on > '{mark}') &\nexit 0\n")
    at.sh("gcc >/dev/null 2>&1")
    deadline = time.monotonic() + 600
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert mark.exists()


@pytest.mark.slow
def test_threads_with_small_stacks_and_many_variables(tmp_path: Path) -> None:
    made = bench(tmp_path, "preload")
    tool = made.tool("gcc", "#!/bin/sh\nexit 7\n")
    program = tmp_path / "small_stacks"
    subprocess.run(["/usr/bin/gcc", "-O0", "-pthread", SOURCES / "small_stacks.c", "-o", program], check=True)
    alone = subprocess.run([program, tool], env=made.environ, check=False, capture_output=True)
    assert alone.stdout == b"0\n"
    record = made.run([str(program), str(tool)])
    assert (record.status, made.stdout) == (0, b"0\n")
    states = [call.state for call in record.calls]
    # Four rounds of four threads: four calls that run. Beside them those that could not be started.
    assert states.count("failed") == 4 * 4 * 4
    assert len(set(states)) == 2


def test_a_killed_record_holds_no_secrets(at: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """In arguments and the caller's own at once; in what was printed when the next session sweeps up."""
    secret, word = "plain-word-99", "hunter2hunter2"
    monkeypatch.setenv("TMPDIR", str(at.folder))
    monkeypatch.setattr("tempfile.tempdir", str(at.folder))
    at.environ |= {"PGPASSWORD": secret}
    call = (
        f"gcc -DX={secret} -DSSHPASS={word} --password '{word}' out:{secret} out:PGPASSWORD={word} >/dev/null; sleep 60"
    )
    kept = {}

    def run(command: Sequence[str | bytes], environ: dict[str, str]) -> int:
        with subprocess.Popen([*command], env=environ, cwd=at.folder, start_new_session=True) as child:
            assert at.session
            calls = at.session.folder / "calls.jsonl"
            deadline = time.monotonic() + 600
            while '"event": "end"' not in (text := calls.read_text()) and '"event":"end"' not in text:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            os.killpg(child.pid, signal.SIGKILL)
            kept["calls"] = text
            kept["folder"] = str(at.session.folder)
            # What a kill would leave: the record and the orders, and a lock that nobody holds.
            for name in ("record-killed", "cuwheel-record-killed"):
                source = at.session.folder if name == "record-killed" else Path(environ["CUWHEEL_RECORD"])
                shutil.copytree(source, at.folder / name)
            (at.folder / "cuwheel-record-killed.lock").touch()
        return -9

    at.run(["/bin/sh", "-c", call], popen=run)
    assert secret not in kept["calls"]
    assert word not in kept["calls"]
    dead = at.folder / "record-killed"
    raw = b"".join(path.read_bytes() for path in (dead / "output").iterdir())
    assert secret.encode() in raw
    config = at.folder / "cuwheel-record-killed" / "config"
    config.write_bytes(config.read_bytes().replace(kept["folder"].encode(), str(dead).encode()))
    with session.session_folder():
        pass
    assert not config.exists()
    for path in dead.rglob("*"):
        text = path.read_bytes() if path.is_file() else b""
        assert secret.encode() not in text
        assert word.encode() not in text
