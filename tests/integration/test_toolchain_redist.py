"""NVIDIA's archives from a server on loopback: interrupted, resumed, killed, damaged, at once, without a network."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cuwheel import api
from cuwheel.errors import NetworkError, UnavailableError, UsageError
from cuwheel.toolchains.request import ToolchainRequest
from cuwheel_core.errors import MalformedError, UnreadableError
from tests.integration import toolchain_site as site

if TYPE_CHECKING:
    from collections.abc import Iterator

PADDING = 600_000
CUT = 300_000


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mirror")
    site.write_site(folder, "13.0.2", site.tiny_parts("13.0.88", PADDING))
    site.write_site(folder / "older", "13.0.1", {})
    shutil.copyfile(folder / "older" / "redistrib_13.0.1.json", folder / "redistrib_13.0.1.json")
    return folder


@pytest.fixture
def behaviour() -> site.Behaviour:
    return site.Behaviour()


@pytest.fixture
def server(mirror: Path, behaviour: site.Behaviour) -> Iterator[str]:
    with site.serving(mirror, behaviour) as url:
        yield url


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def install(place: str | Path, **options: Any) -> Path:
    answer = api.toolchain("13.0", providers=["redist"], redist_url=str(place), **options)
    return Path(answer.toolkits[0].root)


def command(url: str, *options: str) -> list[str]:
    words = ["toolchain", "install", "13.0", "--provider", f"redist={url}", *options]
    return [sys.executable, "-m", "cuwheel", *words]


def complete(cache: Path) -> list[str]:
    return [path.parent.name for path in cache.glob("toolchains/*/cuwheel-toolchain.json")]


def strangers(cache: Path) -> list[str]:
    """What is in the store and is no complete toolkit."""
    return sorted({path.name for path in (cache / "toolchains").glob("*")} - set(complete(cache)))


@pytest.mark.usefixtures("cache")
def test_the_newest_patch_release_becomes_one_toolkit(server: str) -> None:
    root = install(server)
    assert (root / "bin" / "nvcc").stat().st_mode & 0o111
    assert (root / "lib64" / "libcudart.so").resolve() == root / "lib" / "libcudart.so.13"
    assert (root / "lib64" / "stubs" / "libcuda.so").is_file()
    (found,) = api.toolchain_list().toolkits
    assert (found.release, found.version, found.provider) == ("13.0.2", "13.0.88", "redist")
    assert {each.name for each in found.archives} == {"cuda_nvcc", "cuda_cudart"}


@pytest.mark.usefixtures("cache")
def test_a_folder_is_as_good_as_a_server(mirror: Path) -> None:
    assert install(mirror).is_dir()
    assert install(mirror.as_uri()).is_dir()
    assert len(api.toolchain_list().toolkits) == 1  # the same archives: the same toolkit, from wherever


def test_a_broken_download_is_continued(server: str, behaviour: site.Behaviour, cache: Path) -> None:
    behaviour.cut = CUT
    assert install(server).is_dir()
    assert strangers(cache) == []
    ranges = [wanted for path, wanted in behaviour.asked if "cuda_nvcc" in path]
    assert ranges == ["", f"bytes={CUT}-"]


def test_killed_in_the_middle(server: str, behaviour: site.Behaviour, cache: Path) -> None:
    behaviour.cut, behaviour.stall = CUT, 20.0
    with subprocess.Popen(command(server), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        assert behaviour.reached.wait(600)
        child.send_signal(signal.SIGKILL)
    assert complete(cache) == []
    assert api.toolchain_list().toolkits == ()
    with pytest.raises(UnavailableError, match="is not installed"):
        api.toolchain_env("13.0")
    assert install(server).is_dir()
    assert strangers(cache) == []  # what the dead one had begun is gone


def test_killed_while_unpacking(mirror: Path, cache: Path) -> None:
    """At the worst moment: all files are there, and nothing says that they are complete."""
    code = (
        "import os, signal\nfrom cuwheel.toolchains import workplace\n"
        "workplace.nvcc_version = lambda _nvcc: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from cuwheel.cli import main\n"
        f"main(['toolchain', 'install', '13.0', '--provider', {f'redist={mirror}'!r}])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, timeout=600)
    assert done.returncode == -signal.SIGKILL
    assert complete(cache) == []
    assert len(strangers(cache)) == 1
    assert api.toolchain_list().toolkits == ()
    install(mirror)
    assert strangers(cache) == []


def test_two_at_once_make_one(server: str, behaviour: site.Behaviour, cache: Path) -> None:
    behaviour.cut, behaviour.stall = CUT, 1.0  # the first of them is cut off, too: the second takes over
    children = [
        subprocess.Popen(command(server, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = [child.communicate(timeout=600) for child in children]
    roots = {json.loads(out)["toolkits"][0]["root"] for out, _ in told if out}
    assert len(roots) == 1, told
    assert [child.returncode for child in children].count(0) >= 2
    assert len(complete(cache)) == 1
    assert strangers(cache) == []
    assert len([path for path in behaviour.archives() if "cuda_cudart" in path]) == 1  # downloaded once
    assert any("waiting" in err for _, err in told)


def test_a_wrong_hash_is_never_unpacked(mirror: Path, tmp_path: Path, cache: Path) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(mirror, bad)
    archive = next(bad.glob("cuda_nvcc/*/*.tar.xz"))
    archive.write_bytes(archive.read_bytes()[:-1] + b"!")
    with pytest.raises(MalformedError, match="sha256 is"):
        install(bad)
    with site.serving(bad, site.Behaviour()) as url, pytest.raises(NetworkError, match="sha256 is"):
        install(url)
    assert complete(cache) == []
    assert not list((cache / "downloads").rglob("*nvcc*.part"))  # nothing wrong to continue from


def test_a_full_disk_is_said_and_leaves_nothing(mirror: Path, cache: Path) -> None:
    """Stood in for by a limit on the size of files, which needs no root."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (PADDING // 2, PADDING // 2))

    done = subprocess.run(
        command(str(mirror)), check=False, capture_output=True, text=True, timeout=600, preexec_fn=limit
    )
    assert done.returncode == UnreadableError.exit_code, done.stderr
    assert "File too large" in done.stderr
    assert "hint: free some space, or move the cache" in done.stderr
    assert complete(cache) == []
    assert strangers(cache) == []
    assert install(mirror).is_dir()


def test_offline(server: str, behaviour: site.Behaviour, mirror: Path, tmp_path: Path) -> None:
    cache = tmp_path / "other"
    with pytest.raises(UnavailableError, match="--offline forbids"):
        install(server, offline=True, cache=cache)
    assert behaviour.asked == []
    root = install(mirror, offline=True, cache=cache)
    assert install(server, offline=True, cache=cache) == root  # it is there: nothing to ask
    assert behaviour.asked == []


@pytest.mark.usefixtures("cache")
def test_carried_in_a_folder(server: str, behaviour: site.Behaviour, tmp_path: Path) -> None:
    kit = tmp_path / "kit"
    answer = api.toolchain_fetch(ToolchainRequest("13.0", providers=["redist"], redist_url=server), to=kit)
    assert sorted(answer.fetched) == sorted(path.name for path in kit.iterdir() if path.name != "cuwheel.lock")
    asked = len(behaviour.asked)
    elsewhere = tmp_path / "elsewhere"
    made = api.toolchain("13.0", fetched=str(kit), offline=True, cache=elsewhere)
    assert len(behaviour.asked) == asked
    assert Path(made.toolkits[0].root).is_relative_to(elsewhere)
    with site.serving(kit, site.Behaviour()) as url:
        again = api.toolchain("13.0", fetched=url, cache=tmp_path / "third")
    assert again.toolkits[0].identity == made.toolkits[0].identity
    with pytest.raises(UsageError, match=r"has no CUDA 12\.4"):
        api.toolchain("12.4", fetched=str(kit))


@pytest.mark.usefixtures("cache")
def test_locked(server: str, tmp_path: Path) -> None:
    lock = tmp_path / "project" / "cuwheel.lock"
    made = api.toolchain("13.0", providers=["redist"], redist_url=server, lock=lock)
    again = api.toolchain("13.0", locked=lock, cache=tmp_path / "again")
    assert again.toolkits[0].identity == made.toolkits[0].identity
    text = lock.read_text()
    assert str(tmp_path) not in text
    lock.write_text(text.replace("13.0.2", "13.0.9"))
    with pytest.raises(MalformedError, match="was edited"):
        api.toolchain("13.0", locked=lock)
    lock.write_text(text)
    with pytest.raises(UsageError, match="has no cublas"):
        api.toolchain("13.0", components=["cublas"], locked=lock)


@pytest.mark.usefixtures("cache")
def test_what_is_not_there(server: str, mirror: Path, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="the manifest has no libcublas, which is part of cublas"):
        install(server, components=["cublas"])
    with pytest.raises(UnavailableError, match=r"redistrib_12\.2\.2\.json"):
        api.toolchain("12.2", providers=["redist"], redist_url=server)
    with pytest.raises(UnavailableError, match=r"redistrib_13\.0\.9\.json"):
        api.toolchain("13.0.9", providers=["redist"], redist_url=str(mirror))
    nobody = "http://127.0.0.1:9/"
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:9"):
        install(nobody, cache=tmp_path / "none")


@pytest.mark.usefixtures("cache")
def test_removed(mirror: Path) -> None:
    root = install(mirror)
    answer = api.toolchain_remove("13.0")
    assert answer.freed
    assert not root.exists()
    assert api.toolchain_list().toolkits == ()
    assert os.listdir(root.parents[1]) == []  # noqa: PTH208 - a count of names
