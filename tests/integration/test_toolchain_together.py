"""Several processes at the same lock and the same downloads; and passwords, which are in nothing that is kept."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cuwheel import api
from cuwheel.toolchains import lock
from cuwheel.toolchains.archives import Supply, obtain_archives
from cuwheel.toolchains.store import Store
from cuwheel.toolchains.toolchain import Archive
from tests.integration import index_server, toolchain_site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSIONS = tuple(f"12.{minor}" for minor in range(10))


def _add(path: Path, cuda: str, start: float) -> None:
    archive = Archive(kind="tar", name="nvcc", version=cuda, file=f"nvcc-{cuda}.tar.xz", sha256="a" * 64)
    entry = lock.Locked(
        cuda=cuda, release=f"{cuda}.0", provider="redist", platform="linux-x86_64", identity="", components=("nvcc",),
        archive=(archive,),
    )  # fmt: skip
    time.sleep(max(start - time.time(), 0))
    for _ in range(5):
        lock.update(path, replace(entry, identity=entry.recipe().identity))


@pytest.mark.slow
def test_locking_at_the_same_time_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cuwheel.lock"
    context = multiprocessing.get_context("spawn")
    start = time.time() + 3
    workers = [context.Process(target=_add, args=(path, cuda, start)) for cuda in VERSIONS]
    for each in workers:
        each.start()
    for each in workers:
        each.join(600)
    assert [each.exitcode for each in workers] == [0] * len(workers)
    assert [each.cuda for each in lock.read_lock(path).toolchain] == list(VERSIONS)
    assert [each.name for each in tmp_path.iterdir()] == ["cuwheel.lock"]


def test_downloads_are_not_removed_under_an_install(tmp_path: Path) -> None:
    """Who removes them waits until the last archive was used."""
    store = Store(tmp_path / "store")
    body = b"an archive"
    archives = [
        Archive(kind="tar", name=name, version="1", file=name, sha256=hashlib.sha256(body).hexdigest(), url="")
        for name in ("one", "two")
    ]
    for each in archives:
        kept = store.downloads / each.sha256[:16] / each.file
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(body)
    using = obtain_archives(archives, Supply(store=store, offline=True))
    first = next(using)
    freed: list[int] = []
    remover = threading.Thread(target=lambda: freed.append(store.remove_downloads()))
    remover.start()
    remover.join(0.5)
    assert remover.is_alive()
    assert first.read_bytes() == body
    assert [path.read_bytes() for path in using] == [body]
    remover.join(600)
    assert freed == [2 * len(body)]
    assert not store.downloads.exists()


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """NVIDIA's archives behind a login."""
    folder = tmp_path / "mirror"
    toolchain_site.write_site(folder, "13.0.2", toolchain_site.tiny_parts("13.0.88"))
    files = {
        f"/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    with index_server.serving(index_server.Behaviour(files=files, login="anna:p4ss")) as url:
        yield url.replace("://", "://anna:p4ss@") + "/"


def test_a_password_is_in_no_file_and_no_answer(mirror: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = [
        sys.executable,
        "-m",
        "cuwheel",
        "toolchain",
        "install",
        "13.0.2",
        "--provider",
        f"redist={mirror}",
    ]
    options = ["--lock", "--json", "-v", "--host-compiler", "none"]
    environ = {**os.environ, "CUWHEEL_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([*command, *options], env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["toolkits"]
    assert "p4ss" not in done.stdout + done.stderr
    for path in tmp_path.rglob("*"):
        if path.is_file() and not path.is_symlink() and "mirror" not in path.parts:
            assert b"p4ss" not in path.read_bytes(), path
    found = lock.read_lock(tmp_path / "cuwheel.lock").toolchain[0].archive
    assert all("://" in each.url and "@" not in each.url for each in found)
    with pytest.raises(Exception, match="is not in the cache"):
        api.toolchain("13.0.2", locked=tmp_path / "cuwheel.lock", offline=True, cache=tmp_path / "other")
