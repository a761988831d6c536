"""conda and container engines, stood in for by programs that note how they were called and act like the real ones."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.errors import UnavailableError, UsageError
from cuwheel.toolchains import toolchain
from cuwheel_core.errors import MalformedError
from tests.integration import toolchain_site as site

if TYPE_CHECKING:
    from pathlib import Path

# Creates a prefix as conda would: programs, headers, and the notes of what was installed in conda-meta.
CONDA = """\
#!{python}
import json, os, pathlib, sys
log = pathlib.Path({log!r})
with log.open("a") as file:
    file.write(json.dumps(sys.argv) + "\\n")
words = sys.argv[1:]
root = pathlib.Path(words[words.index("--prefix") + 1])
if os.environ.get("FAKE_CONDA_FAILS"):
    root.mkdir(parents=True)
    print("PackagesNotFoundError: cuda-nvcc", file=sys.stderr)
    sys.exit(1)
for name, text in {{
    "bin/nvcc": "echo 'Cuda compilation tools, release 12.2, V12.2.140'",
    "bin/x86_64-conda-linux-gnu-g++": "echo 12.3.0",
}}.items():
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\\n" + text + "\\n")
    path.chmod(0o755)
header = root / "targets/x86_64-linux/include/cuda.h"
header.parent.mkdir(parents=True)
header.write_text("CUresult CUDAAPI cuInit(unsigned int Flags);")
(root / "lib").mkdir()
meta = root / "conda-meta"
meta.mkdir()
note = {{"name": "cuda-nvcc", "version": "12.2.140", "fn": "cuda-nvcc-12.2.140-0.tar.bz2", "size": 55,
        "url": "https://conda.example/nvidia/label/cuda-12.2.2/linux-64/cuda-nvcc-12.2.140-0.tar.bz2",
        "sha256": os.environ.get("FAKE_CONDA_SHA", {sha!r})}}
(meta / "cuda-nvcc.json").write_text(json.dumps(note))
"""
DOCKER = """\
#!{python}
import json, pathlib, sys
with pathlib.Path({log!r}).open("a") as file:
    file.write(json.dumps(sys.argv) + "\\n")
if "nvcc" in " ".join(sys.argv):
    print("Cuda compilation tools, release {minor}, V{minor}.9")
elif "g++" in sys.argv:
    print("11.4.0")
"""
SHA = hashlib.sha256(b"cuda-nvcc").hexdigest()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with the stand-ins, first on PATH; calls are noted in `log`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("CUWHEEL_CACHE", str(tmp_path / "cache"))
    return folder


def stand_in(folder: Path, name: str, text: str, **values: str) -> Path:
    log = folder.parent / "log"
    program = folder / name
    program.write_text(text.format(python=sys.executable, log=str(log), sha=SHA, **values))
    program.chmod(0o755)
    return log


def calls(log: Path) -> list[list[str]]:
    return [json.loads(line)[1:] for line in log.read_text().splitlines()]


@pytest.mark.parametrize("name", ["micromamba", "mamba", "conda"])
def test_conda_as_case_1_did_it(fake: Path, name: str) -> None:
    log = stand_in(fake, name, CONDA)
    answer = api.toolchain("12.2", providers=["conda"])
    (call,) = calls(log)
    root = answer.toolkits[0].root
    assert call == [
        "create", "--yes", "--prefix", root, "--override-channels", "-c", "nvidia/label/cuda-12.2.2", "-c",
        "conda-forge", "cuda-nvcc", "cuda-cudart-dev", "cuda-cccl", "gxx_linux-64=12",
    ]  # fmt: skip
    assert answer.host_compiler
    assert answer.host_compiler.path == f"{root}/bin/x86_64-conda-linux-gnu-g++"
    assert answer.host_compiler.version == "12.3.0"
    settings = {each.name: each.value for each in answer.settings}
    assert settings["NVCC_CCBIN"] == answer.host_compiler.path
    assert settings["LIBRARY_PATH"].endswith("/stubs")
    assert api.toolchain("12.2", providers=["conda"]).toolkits == answer.toolkits
    assert len(calls(log)) == 1


def test_conda_that_fails_leaves_nothing(fake: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(fake, "conda", CONDA)
    monkeypatch.setenv("FAKE_CONDA_FAILS", "1")
    with pytest.raises(Exception, match="PackagesNotFoundError"):
        api.toolchain("12.2", providers=["conda"])
    assert api.toolchain_list().toolkits == ()
    monkeypatch.delenv("FAKE_CONDA_FAILS")
    assert api.toolchain("12.2", providers=["conda"]).toolkits
    api.toolchain_remove("12.2")
    assert list((tmp_path / "cache" / "conda").iterdir()) == []


def test_conda_locked(fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = stand_in(fake, "micromamba", CONDA)
    lock = tmp_path / "cuwheel.lock"
    api.toolchain("12.2", providers=["conda"], lock=lock)
    again = api.toolchain("12.2", locked=lock, cache=tmp_path / "again")
    assert calls(log)[-1][:4] == ["create", "--yes", "--prefix", again.toolkits[0].root]
    assert calls(log)[-1][4] == "--file"
    monkeypatch.setenv("FAKE_CONDA_SHA", "0" * 64)
    with pytest.raises(MalformedError, match="does not match the lock"):
        api.toolchain("12.2", locked=lock, cache=tmp_path / "third")


def test_nvidias_image(fake: Path, tmp_path: Path) -> None:
    log = stand_in(fake, "docker", DOCKER, minor="12.8")
    answer = api.toolchain("12.8", providers=["container"])
    (toolkit,) = answer.toolkits
    image = "nvidia/cuda:12.8.1-devel-ubuntu22.04"
    assert calls(log)[:2] == [["version"], ["pull", image]]
    assert (toolkit.root, toolkit.version) == ("/usr/local/cuda", "12.8.9")
    assert answer.host_compiler
    assert answer.host_compiler.version == "11.4.0"
    words = toolchain.command_where_toolkit_is(
        toolkit, ["make"], folders=[tmp_path], cwd=tmp_path, environ={"MAX_JOBS": "2"}
    )
    assert words[:4] == ("docker", "run", "--rm", "--init")
    assert words[-8:] == (
        "--volume", f"{tmp_path}:{tmp_path}", "--workdir", str(tmp_path), "--env", "MAX_JOBS=2", image, "make",
    )  # fmt: skip


def test_an_image_with_another_version(fake: Path) -> None:
    stand_in(fake, "podman", DOCKER, minor="11.8")
    with pytest.raises(MalformedError, match=r"its nvcc is 11\.8\.9, not 12\.8"):
        api.toolchain("12.8", providers=["container"])
    assert api.toolchain_list().toolkits == ()


def test_an_image_without_a_toolkit_is_shown_one(fake: Path, tmp_path: Path) -> None:
    """manylinux: the toolkit lies in the cache, and the container sees it under the same path."""
    log = stand_in(fake, "podman", DOCKER, minor="12.4")
    site.write_site(tmp_path / "mirror", "12.4.1", site.tiny_parts("12.4.131"))
    image = "images.example/pypa/manylinux_2_28_x86_64"
    answer = api.toolchain("12.4", providers=["container"], image=image, redist_url=str(tmp_path / "mirror"))
    (toolkit,) = answer.toolkits
    assert (toolkit.version, toolkit.root) == ("12.4.131", f"{toolkit.folder}/root")
    assert calls(log)[1] == ["pull", image]
    words = toolchain.command_where_toolkit_is(toolkit, [f"{toolkit.root}/bin/nvcc", "--version"])
    assert words[-4:] == (f"{toolkit.root}:{toolkit.root}:ro", image, f"{toolkit.root}/bin/nvcc", "--version")
    with pytest.raises(UsageError, match="is in a container") as caught:
        api.toolchain_env("12.4")
    assert image in caught.value.hint


@pytest.mark.usefixtures("fake")
def test_neither_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError) as caught:
        api.toolchain("12.8", providers=["conda", "container", "debian"])
    told = caught.value.message
    assert "- conda: no micromamba, mamba or conda was found on PATH" in told
    assert "- container: no docker or podman was found on PATH" in told
    assert "- debian: Debian only has 11.8 (bookworm), 12.4 (trixie)" in told
