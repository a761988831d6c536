"""A cluster whose parts fail: tasks end right, or what is missing is said, and the next run goes on."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cuwheel
from cuwheel.network import cluster_access
from cuwheel_core.errors import UnreadableError
from tests.integration.build_world import gone
from tests.integration.cluster_world import World, begun, new_world, task, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.clusters.engine import Engine
    from cuwheel.clusters.task import Done, Task

pytest.importorskip("distributed")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with new_world(tmp_path, monkeypatch) as made:
        yield made


def listening(pid: int) -> set[str]:
    """Addresses that a process listens at, as the kernel shows them."""
    own = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.add(fields[1].rpartition(":")[0])
    return found


def looked(engine: Engine) -> bool:
    engine.workers.look()
    return True


LOOPBACK = "0100007F"


def test_a_cluster_that_is_stopped_takes_its_workers_with_it(here: World) -> None:
    here.scheduler()
    here.worker("first")
    wait_for(lambda: "works for" in here.said("first"))
    answer = cuwheel.cluster_stop(here.address, certificate=here.certificates)
    assert answer.stopped
    assert here.children["first"].wait(60) == 0


def test_tasks_run_and_a_killed_worker_costs_nothing_but_time(here: World, tmp_path: Path) -> None:
    """Also: nobody listens but on this machine."""
    here.scheduler()
    here.worker("first")
    here.worker("second")
    source = tmp_path / "source.txt"
    source.write_text("sent ")
    with here.engine() as engine:
        inputs = {"source": engine.add_input(source)}
        tasks = [task(f"echo-{number}", parameters=str(number), inputs=inputs) for number in range(3)]
        engine.gather()
        done = engine.run(tasks)
        assert sorted(each.text for each in done) == ["0", "1", "2"]
        assert sorted(each.files["out.txt"].read_text() for each in done) == ["sent 0", "sent 1", "sent 2"]
        wait_for(lambda: looked(engine) and len(engine.workers.usable) == 2)
        for name in ("scheduler", "first", "second"):
            assert listening(here.children[name].pid) == {LOOPBACK}

        def running() -> Any:
            return next(each for each in engine._open if each.task.id == "wait")

        def asked_for(dask_scheduler: Any, worker: str) -> bool:
            return bool(dask_scheduler._broker._topics[worker].subscribers)

        def kill(done: Done) -> Iterator[Task]:
            """The worker that waits, not the one that has answered."""
            if done.task.id == "wait":
                return
            (note,) = begun(tmp_path, "wait")
            # That a worker is lost is told to whoever has asked by then, and the asking is on its way.
            wait_for(lambda: (on := running().on) and engine._client.run_on_scheduler(asked_for, worker=on))
            parent = int(Path(f"/proc/{note.name.split('.')[1]}/stat").read_text().split()[3])
            (victim,) = [name for name, child in here.children.items() if child.pid == parent]
            here.kill(victim)
            (tmp_path / "go").touch()
            yield from ()

        waiting = task("wait", "wait", str(tmp_path))
        wait_for_begun = task("after", "after_begun", str(tmp_path))
        found = {each.task.id: each for each in engine.run([waiting, wait_for_begun], kill)}
    assert found["wait"].problem == ""
    assert "gone" in found["wait"].tries[0]
    (left,) = [int(note.read_text()) for note in begun(tmp_path)][:1]
    assert gone(left)


@pytest.mark.slow
def test_an_interrupt_ends_what_runs_on_the_workers(here: World, tmp_path: Path) -> None:
    here.scheduler()
    here.worker("first", cores=2)

    def interrupt(_: Done) -> Iterator[Task]:
        raise KeyboardInterrupt

    with here.engine() as engine, pytest.raises(KeyboardInterrupt):
        engine.run([task("wait", "wait", str(tmp_path)), task("after", "after_begun", str(tmp_path))], interrupt)
    (note,) = begun(tmp_path)
    assert gone(int(note.name.split(".")[1]))
    assert gone(int(note.read_text()))


@pytest.mark.slow
def test_a_result_with_another_hash_is_not_taken(here: World) -> None:
    here.scheduler()
    here.worker(
        "liar",
        code="from cuwheel.clusters import task\nhonest = task.read_pieces\n"
        "task.read_pieces = lambda path: [honest(path)[0][:-1] + b'!']",
    )
    with here.engine() as engine:
        engine.gather()
        (done,) = engine.run([task("echo", parameters="text")])
        assert "no worker could do echo" in done.problem
        assert "another hash" in done.problem
        assert not done.files
        here.worker("honest")
        (done,) = engine.run([task("echo", parameters="text")])
        assert done.worker == "honest"
        assert engine.workers.refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("from cuwheel import version\nversion.__version__ = '0.0.1'", "it has cuwheel 0.0.1, and this is"),
        ("from cuwheel.clusters import task\ntask.own_code = lambda: 'x'", "with other code"),
    ],
)
def test_a_worker_with_another_cuwheel_is_refused(here: World, code: str, why: str) -> None:
    here.scheduler()
    here.worker("other", code=code)
    here.worker("same")
    with here.engine() as engine:
        wait_for(lambda: looked(engine) and (engine.workers.usable and engine.workers.refused))
        done = engine.run([task(f"echo-{number}") for number in range(4)])
        assert {each.worker for each in done} == {"same"}
        (reason,) = engine.workers.refused.values()
        assert why in reason


@pytest.mark.slow
def test_workers_with_another_c_library_are_not_mixed(here: World) -> None:
    here.scheduler()
    here.worker("old", code="import os\nos.confstr = lambda _: 'glibc 2.17'")
    for name in ("first", "second"):
        here.worker(name)
    with here.engine() as engine:
        wait_for(lambda: looked(engine) and len(engine.workers.usable) == 3)
        done = engine.run([task(f"echo-{number}", alike=True) for number in range(4)])
        assert {each.worker for each in done} <= {"first", "second"}
        alone = engine.run([task(f"any-{number}") for number in range(9)])
        assert not any(each.problem for each in (*done, *alone))


@pytest.mark.slow
def test_workers_that_come_when_a_build_has_begun_take_part_in_it(here: World) -> None:
    """As those of Slurm do, whose jobs wait in a queue."""
    here.scheduler()
    with here.engine() as engine:
        engine.workers.look()
        engine.workers.fix_kind()  # as a build does before its first task
        here.worker("late")
        (done,) = engine.run([task("echo", alike=True)])
        assert (done.worker, done.problem) == ("late", "")


@pytest.mark.slow
def test_a_worker_that_falls_silent_is_not_waited_for(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is stopped: from outside that is a network that has gone."""
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL", "4s")
    here.scheduler()
    here.worker("silent")
    with here.engine() as engine:
        engine.gather()

        def silence(done: Done) -> Iterator[Task]:
            if done.task.id == "first":
                here.kill("silent", signal.SIGSTOP)
                here.worker("other")
                yield task("second")

        _, done = engine.run([task("first")], silence)
        assert done.worker == "other"
        assert done.problem == ""


@pytest.mark.slow
def test_a_worker_without_its_disk_is_passed_over(here: World, tmp_path: Path) -> None:
    here.scheduler()
    lost = tmp_path / "lost"
    here.worker("broken", env={"CUWHEEL_CACHE": str(lost)})
    with here.engine() as engine:
        engine.gather()
        lost.rename(tmp_path / "elsewhere")
        lost.write_text("no folder")
        (done,) = engine.run([task("echo")])
        assert "no worker could do echo" in done.problem
        assert "broken: " in done.problem
        here.worker("whole")
        wait_for(lambda: looked(engine) and len(engine.workers.usable) == 2)
        others = engine.run([task(f"echo-{number}") for number in range(3)])
        assert {each.worker for each in others} == {"whole"}


SMALL_DISK = """
import ctypes, sys
system = ctypes.CDLL(None)
assert system.unshare(0x20000) == 0 or system.unshare(0x10020000) == 0
assert system.mount(None, b"/", None, 0x44000, None) == 0
assert system.mount(b"tmpfs", {place!r}, b"tmpfs", 0, b"size=1m") == 0
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has namespaces")
def test_a_worker_whose_disk_is_full_is_passed_over(here: World, tmp_path: Path) -> None:
    """It has a megabyte, in a namespace of its own; what is sent to it is larger."""
    place = tmp_path / "small"
    place.mkdir()
    code = SMALL_DISK.format(place=bytes(place))
    if subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no namespaces")
    source = tmp_path / "source.bin"
    source.write_bytes(bytes(2 << 20))
    here.scheduler()
    here.worker("full", code=code, env={"CUWHEEL_CACHE": str(place)})
    here.worker("roomy")
    with here.engine() as engine:
        wait_for(lambda: looked(engine) and len(engine.workers.usable) == 2)
        inputs = {"source": engine.add_input(source)}
        done = engine.run([task(f"echo-{number}", inputs=inputs) for number in range(4)])
    assert {(each.worker, each.problem) for each in done} == {("roomy", "")}
    tries = [why for each in done for why in each.tries]
    assert tries
    assert all(why.startswith("full: ") and "No space left on device" in why for why in tries)


@pytest.mark.slow
def test_a_scheduler_that_is_started_again_goes_on(here: World, tmp_path: Path) -> None:
    address = here.scheduler()
    here.worker("first", cores=2)

    def restart(done: Done) -> Iterator[Task]:
        if done.task.id == "after":
            here.kill("scheduler")
            here.scheduler(address)
            (tmp_path / "go").touch()
        yield from ()

    with here.engine() as engine:
        found = engine.run(
            [task("wait", "wait", str(tmp_path)), task("after", "after_begun", str(tmp_path)), task("echo")], restart
        )
    assert [each.problem for each in found] == ["", "", ""]
    assert "waiting for it" in here.said("first")


@pytest.mark.slow
def test_a_task_whose_process_dies_is_tried_elsewhere_and_then_given_up(here: World) -> None:
    here.scheduler()
    for name in ("first", "second"):
        here.worker(name)
    with here.engine() as engine:
        wait_for(lambda: looked(engine) and len(engine.workers.usable) == 2)
        (done,) = engine.run([task("crash", "crash")])
    assert len(done.tries) == 2
    assert "ended without an answer" in done.problem


@pytest.mark.slow
def test_over_a_network_only_those_with_a_certificate_are_heard(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_access.make_certificates(tmp_path / "own")
    cluster_access.make_certificates(tmp_path / "strangers")
    monkeypatch.setenv("CUWHEEL_CLUSTER", str(tmp_path / "own"))
    address = here.scheduler("tls://0.0.0.0:0")
    port = int(address.rpartition(":")[2])
    here.address = f"tls://127.0.0.1:{port}"
    here.worker("first")
    with here.engine() as engine:
        engine.gather()
        (done,) = engine.run([task("echo", parameters="x")])
        assert done.text == "x"
    assert listening(here.children["scheduler"].pid) <= {LOOPBACK, "00000000"}
    with socket.create_connection(("127.0.0.1", port), 5) as plain:  # without TLS nothing is said but goodbye
        plain.settimeout(10)
        plain.sendall(b"\0" * 64)
        with contextlib.suppress(ConnectionResetError):
            assert plain.recv(64)[:1] in (b"", b"\x15")
    monkeypatch.setenv("CUWHEEL_CLUSTER", str(tmp_path / "strangers"))
    with pytest.raises(UnreadableError, match="no scheduler answers"), here.engine():
        pass


@pytest.mark.slow
def test_a_port_that_is_taken_is_said(here: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"insecure+tcp://127.0.0.1:{taken.getsockname()[1]}"
        child = here.start("scheduler", "scheduler", address)
        assert child.wait(600) == UnreadableError.exit_code
    assert f"{address}: Address already in use" in here.said("scheduler")
