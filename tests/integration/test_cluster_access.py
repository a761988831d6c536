"""Who gets into a cluster: nobody without its certificates, and a worker's are not a client's."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cuwheel.clusters import service
from cuwheel.network import cluster_access
from tests.integration.cluster_world import World, new_world, task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("distributed")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with new_world(tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def stranger() -> Iterator[pwd.struct_passwd]:
    """A user of this machine, made for the test."""
    if os.geteuid() != 0:
        pytest.skip("only root can make another user to try it")
    if not shutil.which("useradd") or not shutil.which("userdel"):
        pytest.skip("this machine has no useradd")
    name = f"cuwheel{os.getpid()}"
    subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/false", name], check=True)
    try:
        yield pwd.getpwnam(name)
    finally:
        subprocess.run(["userdel", name], check=True)


# Started as root, which may read Python wherever it lies; then it is somebody else, with what that user can have.
STRANGER = """
import asyncio, os, sys, tempfile
from pathlib import Path
from distributed import Client, Worker
from cuwheel.clusters import service
from cuwheel.network import cluster_access
service.configure_dask()
user, port, folder = sys.argv[1:]
os.setgroups([]), os.setgid(int(user)), os.setuid(int(user))
os.environ["HOME"] = tempfile.mkdtemp()
for name in ("authority-key.pem", "client.pem", "scheduler.pem", "worker.pem"):
    try:
        open(os.path.join(folder, name), "rb")
        print("read", name)
    except PermissionError:
        print("refused to read", name)
own = Path(tempfile.mkdtemp())
cluster_access.make_certificates(own / "own")

async def work(address, security):
    closed = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    async with Worker(address, security=security, death_timeout=5, **closed) as made:
        return made.address

for scheme, role in (("tcp", None), ("tls", "own")):
    address = f"{scheme}://127.0.0.1:{port}"
    security = service.tls_security("client", own / "own") if role else None
    try:
        client = Client(address, security=security, timeout=5, set_as_default=False)
        print("ran as", client.run_on_scheduler(os.getuid))
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        print("refused a client over", scheme)
    try:
        print("works at", asyncio.run(asyncio.wait_for(work(address, security), 20)))
    except (OSError, TimeoutError, asyncio.TimeoutError, ValueError, RuntimeError) as error:
        print("refused a worker over", scheme)
"""
REFUSED = [
    *(f"refused to read {name}" for name in ("authority-key.pem", "client.pem", "scheduler.pem", "worker.pem")),
    *(f"refused a {part} over {scheme}" for scheme in ("tcp", "tls") for part in ("client", "worker")),
]


def tries(user: pwd.struct_passwd, port: str, folder: Path) -> list[str]:
    words = [sys.executable, "-c", STRANGER, str(user.pw_uid), port, str(folder)]
    told = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, cwd="/")
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


@pytest.mark.slow
def test_another_user_of_this_machine_gets_nothing_from_a_local_cluster(
    here: World,
    stranger: pwd.struct_passwd,
) -> None:
    with service.open_connection(cluster_access.parse_address("local:1")) as made:
        client = made.client()
        client.wait_for_workers(1)
        assert made.security.tls_client_key.startswith("-----BEGIN")  # in memory: there is no file to read
        told = tries(stranger, made.address.rpartition(":")[2], here.folder)
        assert [each for each in told if "read" not in each] == REFUSED[4:]
        assert client.run_on_scheduler(os.getuid) == 0  # who has the certificate can
        assert len(client.scheduler_info()["workers"]) == 1
        client.close()


@pytest.mark.slow
def test_another_user_of_this_machine_gets_nothing_from_a_cluster_with_certificates(
    here: World, stranger: pwd.struct_passwd
) -> None:
    address = here.scheduler()
    here.worker("first")
    assert tries(stranger, address.rpartition(":")[2], here.certificates) == REFUSED
    with here.engine() as engine:
        assert [each.problem for each in engine.run([task("echo")])] == [""]
        assert len(engine.workers.usable) == 1


@pytest.mark.slow
def test_the_certificate_of_a_worker_is_not_that_of_a_client(here: World) -> None:
    """Neither at the scheduler nor at another worker; as a worker it is heard."""
    from distributed import Client
    from distributed.comm.core import connect
    from distributed.core import rpc
    from distributed.utils import LoopRunner

    here.scheduler()
    here.worker("first")
    theirs = service.tls_security("worker", here.certificates / "worker.pem")
    with here.engine() as engine:
        engine.gather()
        (worker,) = engine.workers.usable
        with pytest.raises((OSError, TimeoutError)):
            Client(here.address, security=theirs, timeout=5, set_as_default=False)
        runner = LoopRunner()
        runner.start()

        async def ask(address: str, operation: str, **words: object) -> object:
            async with rpc(address, connection_args=theirs.get_connection_args("worker")) as there:
                return await getattr(there, operation)(**words)

        async def smuggle() -> bytes:
            """A worker's own stream, with a client's word in it."""
            comm = await connect(here.address, **theirs.get_connection_args("worker"))
            await comm.write({"op": "register-client", "client": "x", "reply": False, "versions": {}})
            return bytes(await comm.read())

        from distributed.protocol.pickle import dumps

        for address, operation in ((here.address, "run_function"), (here.address, "broadcast"), (worker, "run")):
            with pytest.raises(OSError, match=r"."):
                runner.run_sync(ask, address, operation, function=dumps(os.getpid), args=dumps(()), msg={"op": "ping"})
        with pytest.raises(OSError, match=r"."):
            runner.run_sync(smuggle)
        assert runner.run_sync(ask, here.address, "who_has", keys=[]) is not None
        runner.stop()
        assert [each.problem for each in engine.run([task("echo")])] == [""]
