"""What Dask decides: who steals, who leaves, what is done once; and any Dask that a user has."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from cuwheel.clusters import engine, roster
from cuwheel.clusters.task import Task
from cuwheel.network import cluster_access
from cuwheel.proving import on_cluster
from cuwheel.support import codec, process
from tests.fixtures import cache
from tests.integration.build_world import gone
from tests.integration.cluster_world import ROOT, World, begun, new_world, task, wait_for
from tests.unit.changes.slim.packages import FOO, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.clusters.engine import Engine
    from cuwheel.clusters.task import Done

pytest.importorskip("distributed")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with new_world(tmp_path, monkeypatch) as made:
        yield made


def usable(engine: Engine) -> int:
    engine.workers.look()
    return len(engine.workers.usable)


@pytest.mark.slow
def test_a_worker_that_joins_late_steals_what_waits(here: World, tmp_path: Path) -> None:
    """One worker has everything, and is busy; nothing is handed over anew."""
    here.scheduler()
    here.worker("first")

    def join() -> None:
        wait_for(lambda: begun(tmp_path))
        here.worker("late")

    def last(done: Done) -> Iterator[Task]:
        others.append(done)
        if len(others) == 3:
            (tmp_path / "go").touch()
        yield from ()

    others: list[Done] = []
    joining = threading.Thread(target=join)
    joining.start()
    with here.engine() as engine:
        engine.gather()
        waiting = task("wait", "wait", str(tmp_path), seconds=9.0)
        found = {
            each.task.id: each
            for each in engine.run([waiting, *(task(f"echo{n}", seconds=1.0) for n in range(3))], last)
        }
        joining.join()
        stolen = [each for _, each in engine._client.get_events("stealing") if each[0] == "confirm"]
    assert found.pop("wait").worker == "first"
    assert {each.worker for each in found.values()} == {"late"}
    assert len(stolen) >= 3


@pytest.mark.slow
def test_a_worker_that_leaves_hands_over_what_it_does(here: World, tmp_path: Path) -> None:
    """As a service manager ends it: nobody is blamed, and its processes end."""
    here.scheduler()
    here.worker("leaving")

    def leave() -> None:
        wait_for(lambda: begun(tmp_path))
        here.worker("staying")
        wait_for(lambda: "works for" in here.said("staying"))
        here.children["leaving"].send_signal(signal.SIGTERM)
        here.children["leaving"].wait(600)
        (tmp_path / "go").touch()

    leaving = threading.Thread(target=leave)
    leaving.start()
    with here.engine() as engine:
        (done,) = engine.run([task("wait", "wait", str(tmp_path))])
    leaving.join()
    assert (done.worker, done.problem, done.tries) == ("staying", "", ())
    assert here.children["leaving"].returncode == 0
    assert all(gone(int(each.name.split(".")[1])) for each in begun(tmp_path))


@pytest.mark.slow
def test_what_took_longest_before_goes_first(here: World, tmp_path: Path) -> None:
    """And before it what nobody has timed."""
    here.scheduler()
    here.worker("only")
    known = {"short": 1.0, "long": 9.0, "new": None, "middle": 3.0}
    with here.engine() as engine:
        engine.gather()
        engine.run(
            [task(name, "note_times", str(tmp_path / f"{name}.times"), seconds=each) for name, each in known.items()]
        )
    began = {each.stem: float(each.read_text().split()[0]) for each in tmp_path.glob("*.times")}
    assert sorted(began, key=began.__getitem__) == ["new", "long", "middle", "short"]


@pytest.mark.slow
def test_what_is_nobodys_fault_dask_itself_does_again(here: World) -> None:
    """Here a thread that could not be started; the worker is not blamed for it."""
    here.scheduler()
    code = (
        "from cuwheel.support import process\nhonest, calls = process.conversing, []\n"
        "def conversing(*words, **named):\n"
        "    calls.append(words)\n"
        "    if len(calls) < 3: raise RuntimeError('cannot start new thread')\n"
        "    return honest(*words, **named)\n"
        "process.conversing = conversing"
    )
    here.worker("only", code=code)
    with here.engine() as engine:
        engine.gather()
        (done,) = engine.run([task("echo", parameters="x")])
        assert (done.text, done.worker, done.tries) == ("x", "only", ())


@pytest.mark.slow
def test_two_clients_that_want_the_same_have_it_done_once(here: World, tmp_path: Path) -> None:
    here.scheduler()
    for name in ("first", "second"):
        here.worker(name, cores=2)

    def build(name: str) -> Done:
        with engine.open_engine(cluster_access.parse_address(here.address), tmp_path / name, here.certificates) as made:
            wait_for(lambda: usable(made) == 2)
            (done,) = made.run([task("wait", "wait", str(tmp_path))])
            return done

    def wanted() -> int:
        """How many clients wait for it, as the scheduler counts."""
        with here.engine() as made:
            counts = made._client.run_on_scheduler(
                lambda dask_scheduler: [len(each.who_wants or ()) for each in dask_scheduler.tasks.values()]
            )
        return max(counts, default=0)

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(build, name) for name in ("mine", "yours")]
        wait_for(lambda: wanted() == 2)
        (tmp_path / "go").touch()
        mine, yours = (each.result() for each in both)
    assert (mine.problem, yours.problem) == ("", "")
    assert mine.worker == yours.worker
    assert len(begun(tmp_path)) == 1


@pytest.mark.slow
def test_tasks_go_where_their_tag_is_and_have_names_people_know(here: World) -> None:
    here.scheduler()
    here.worker("h100", "--tag", "gpu:9.0")
    here.worker("l40", "--tag", "gpu:8.9")
    with here.engine() as made:
        wait_for(lambda: usable(made) == 2)
        tagged = [task(f"bitsandbytes cu130 sm_{n}-x", tag="gpu:9.0") for n in range(4)]
        assert {each.worker for each in made.run(tagged)} == {"h100"}
        names = made._client.run_on_scheduler(lambda dask_scheduler: sorted(dask_scheduler.task_prefixes))
        assert [each for each in names if each.startswith("bits")] == [f"bitsandbytes cu130 sm_{n}_x" for n in range(4)]
        (nobody,) = made.run([task("jetson", tag="gpu:8.7")])
        assert all(f"{name}: it has no gpu:8.7" in nobody.problem for name in ("h100", "l40"))


def without_cuwheel(folder: Path, *more: str) -> Path:
    """The Python of an environment with the same Dask as here."""
    uv = [process.needed_program("uv", "the test")]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
    needed = [each for each in cache.pins() if each.startswith(("distributed==", "dask==", "cryptography=="))]
    words = ["pip", "install", "--quiet", "--python", str(folder), *needed, "pip", *more]
    subprocess.run([*uv, *words], check=True)
    return folder / "bin" / "python"


@pytest.mark.download
def test_the_pages_are_there_only_where_they_were_asked_for_and_show_names(here: World, tmp_path: Path) -> None:
    def read(place: str) -> str:
        return httpx.get(place, timeout=60).raise_for_status().text

    here.scheduler()
    own = {str(each.readlink()) for each in Path(f"/proc/{here.children['scheduler'].pid}/fd").iterdir()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in own]
    assert ports
    for port in ports:
        with pytest.raises(httpx.HTTPError):
            read(f"http://127.0.0.1:{port}/status")
    here.kill("scheduler")
    python = without_cuwheel(tmp_path / "pages", f"{ROOT}[cluster,dashboard]")
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["-m", "cuwheel", "cluster", "scheduler", "tls://127.0.0.1:0", "--dashboard", place]
    (tmp_path / "scheduler.log").unlink()
    with (tmp_path / "scheduler.log").open("ab") as out:
        here.children["pages"] = subprocess.Popen([python, *words], env=here.environ(), stdout=out, stderr=out)
    wait_for(lambda: "the scheduler listens at" in here.said("scheduler"))
    assert f"Dask's pages are at http://{place}/status, for everybody who reaches that address" in here.said(
        "scheduler"
    )
    here.address = here.said("scheduler").split("listens at ")[1].split()[0]
    here.worker("first", cores=2)
    seen = []

    def look(done: Done) -> Iterator[Task]:
        if done.task.id == "after":
            workers = read(f"http://{place}/info/main/workers.html")
            (page,) = set(re.findall(r"worker/[^\"']+\.html", workers))
            seen.extend([read(f"http://{place}/status"), workers, read(f"http://{place}/info/{page}")])
            (tmp_path / "go").touch()
        yield from ()

    with here.engine() as engine:
        waiting = task("bitsandbytes cu130 sm_90", "wait", str(tmp_path))
        engine.run([waiting, task("after", "after_begun", str(tmp_path))], look)
    status, workers, worker = seen
    assert "Dask" in status
    assert "first" in workers
    assert "bitsandbytes cu130 sm_90" in worker


def dask(here: World, name: str, *words: str) -> None:
    """A part of Dask's own, started by somebody who does not know cuwheel."""
    certificate = str(here.certificates / f"{'scheduler' if name == 'scheduler' else 'worker'}.pem")
    tls = [f"--tls-{part}={certificate}" for part in ("ca-file", "cert", "key")]
    with (here.folder / f"{name}.log").open("ab") as out:
        here.children[name] = subprocess.Popen(
            [sys.executable, "-m", *words, *tls],
            env=here.environ(),
            stdout=out,
            stderr=out,
            cwd=ROOT,
            start_new_session=True,
        )


@pytest.mark.slow
def test_a_dask_that_somebody_else_started_works_too(here: World, tmp_path: Path) -> None:
    """Its workers offer nothing until the plugin has come to them; one joins when everything waits for it."""
    cluster_access.make_certificates(here.certificates)
    port = tmp_path / "scheduler.json"
    dask(here, "scheduler", "distributed.cli.dask_scheduler", "--protocol=tls", "--host=127.0.0.1", "--port=0",
         "--no-dashboard", f"--scheduler-file={port}")  # fmt: skip
    wait_for(port.exists)
    wait_for(lambda: "Scheduler at" in here.said("scheduler"))
    here.address = here.said("scheduler").split("Scheduler at:")[1].split()[0]
    worker = ("distributed.cli.dask_worker", here.address, "--no-nanny", "--no-dashboard", "--nthreads=2")
    dask(here, "first", *worker, "--name=first", f"--local-directory={tmp_path}")
    with here.engine() as made:
        wait_for(lambda: usable(made))
        source = tmp_path / "source.txt"
        source.write_text("sent ")
        done = made.run([task(f"echo{n}", parameters=str(n)) for n in range(3)])
        assert {each.worker for each in done} == {"first"}
        here.kill("first")
        wait_for(lambda: not usable(made))
        later = threading.Timer(1.0, dask, (here, "second", *worker, "--name=second", f"--local-directory={tmp_path}"))
        later.start()
        done = made.run([task(f"more{n}") for n in range(3)])
        later.join()
        assert [each.problem for each in done] == ["", "", ""]
        assert {each.worker for each in done} == {"second"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Mismatched versions found")
def test_a_worker_without_cuwheel_is_sent_it(here: World, tmp_path: Path) -> None:
    """Into a folder of its own; until then it is left alone, and afterwards it works as any other."""
    python = without_cuwheel(tmp_path / "bare")
    uv = process.needed_program("uv", "the test")
    for source in (ROOT, ROOT / "core"):
        words = [uv, "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / "dist"), str(source)]
        subprocess.run(words, check=True)
    (wheel,) = (tmp_path / "dist").glob("cuwheel-*.whl")
    here.scheduler()
    certificate = str(here.certificates / "worker.pem")
    tls = [f"--tls-{part}={certificate}" for part in ("ca-file", "cert", "key")]
    words = ["-m", "distributed.cli.dask_worker", here.address, "--no-nanny", "--no-dashboard", "--nthreads=1", *tls]
    environ = here.environ({"PYTHONPATH": "", "CUWHEEL_CACHE": str(tmp_path / "theirs")})
    with (tmp_path / "bare.log").open("ab") as out:
        here.children["bare"] = subprocess.Popen(
            [python, *words, "--name=bare", f"--local-directory={tmp_path}"],
            env=environ,
            stdout=out,
            stderr=out,
            cwd=tmp_path,
            start_new_session=True,
        )
    wait_for(lambda: "Registered to" in here.said("bare"))
    before = roster.overview(here.address, here.certificates / "client.pem")
    assert "it has no cuwheel" in before.workers[0].problem
    after = roster.overview(here.address, here.certificates / "client.pem", wheel=wheel)
    assert [(each.name, each.problem) for each in after.workers] == [("bare", "")], here.said("bare")
    given = tmp_path / "foo.whl"
    given.write_bytes(make_wheel(tmp_path / "wheels", FOO).read_bytes())
    with here.engine() as made:
        wait_for(lambda: usable(made))
        parameters = codec.encode(on_cluster.SurveyTask(name="foo-1.0+cu130-py3-none-any.whl")).decode()
        inputs = {"foo-1.0+cu130-py3-none-any.whl": made.add_input(given)}
        surveying = Task(id="foo", function="cuwheel.proving.on_cluster:survey", parameters=parameters, inputs=inputs)
        (done,) = made.run([surveying])
    assert (done.worker, done.problem) == ("bare", "")
    assert '"arch":"sm_90"' in done.text


@pytest.mark.slow
def test_nothing_runs_beside_a_task_that_is_to_be_alone(here: World, tmp_path: Path) -> None:
    """On a worker with room for four; and it does not wait for ever."""
    here.scheduler()
    here.worker("first", cores=4)
    tasks = [task(f"task{n}", "note_times", str(tmp_path / f"{n}.times"), alone=n % 2 == 1) for n in range(6)]
    with here.engine() as made:
        made.gather()
        assert [each.problem for each in made.run(tasks)] == [""] * 6
    spans = {int(each.stem): tuple(map(float, each.read_text().split())) for each in tmp_path.glob("*.times")}
    for number in (1, 3, 5):
        began, ended = spans.pop(number)
        assert all(other[1] <= began or other[0] >= ended for other in spans.values())
