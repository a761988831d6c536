"""`name==version` through the user's own pip or uv, from an index on loopback."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from typing import TYPE_CHECKING

import pytest

from cuwheel import api
from cuwheel.device_code.target import is_pinned, wheel_of
from cuwheel.network import venvs
from cuwheel.support import process
from cuwheel_core.errors import UnknownNameError
from tests.fixtures import servers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = (
    *("demo_cuda-1.0-py3-none-any.whl", "demo_cuda-1.0-py3-none-win_amd64.whl"),
    *(f"demo_cuda-1.0-cp{each}-none-{platform}.whl" for each in (310, 312) for platform in ("any", "win_amd64")),
)


def _wheel(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("demo_cuda/__init__.py", path.name)
        archive.writestr("demo_cuda-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo-cuda\nVersion: 1.0\n")
        archive.writestr("demo_cuda-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("demo_cuda-1.0.dist-info/RECORD", "")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An index with one project; pip and uv are told of it by their own variables, and of nothing else."""
    folder = tmp_path / "www" / "simple" / "demo-cuda"
    folder.mkdir(parents=True)
    links = []
    for name in NAMES:
        _wheel(folder / name)
        digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        links.append(f'<a href="{name}#sha256={digest}">{name}</a>')
    (folder / "index.html").write_text("\n".join(links))
    with servers.files_of(tmp_path / "www") as address:
        url = f"{address}/simple"
        for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
            monkeypatch.delenv(name)
        for name, value in {
            "PIP_INDEX_URL": url,
            "PIP_CONFIG_FILE": os.devnull,
            "UV_DEFAULT_INDEX": url,
            "UV_NO_CONFIG": "1",
            "UV_CACHE_DIR": str(tmp_path / "uv"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        }.items():
            monkeypatch.setenv(name, value)
        yield url


@pytest.mark.usefixtures("served", "tool")
def test_it_is_downloaded_once_and_checked() -> None:
    wheel = wheel_of("demo-cuda==1.0")
    assert wheel.name == NAMES[0]
    assert zipfile.ZipFile(wheel).read("demo_cuda/__init__.py").decode() == NAMES[0]
    changed = wheel.stat().st_mtime_ns
    assert wheel_of("demo-cuda==1.0") == wheel
    assert wheel.stat().st_mtime_ns == changed


@pytest.mark.usefixtures("served", "tool")
@pytest.mark.parametrize(
    ("python", "platform"), [(None, "win_amd64"), ("3.10", None), ("3.12", "win_amd64"), ("3.13", None)]
)
def test_another_python_or_platform(python: str | None, platform: str | None) -> None:
    own = f"cp{python.replace('.', '')}" if python in ("3.10", "3.12") else "py3"
    found = wheel_of("demo-cuda==1.0", python=python, platform=platform)
    assert found.name == f"demo_cuda-1.0-{own}-none-{platform or 'any'}.whl"


@pytest.mark.usefixtures("served", "tool")
def test_each_python_is_tried_with_its_own_wheel() -> None:
    found = api.verify("demo-cuda==1.0", python=["3.10", "3.12"], static=True)
    assert [each.file for each in found.wheels] == [f"demo_cuda-1.0-cp{each}-none-any.whl" for each in (310, 312)]


@pytest.mark.usefixtures("served", "tool")
def test_what_is_not_there_is_said_with_a_hint() -> None:
    with pytest.raises(UnknownNameError, match=r"demo-cuda==9\.9") as caught:
        wheel_of("demo-cuda==9.9")
    assert "pip download" in caught.value.hint


def test_a_pip_that_ran_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes long to start. One that was not there may be installed meanwhile."""
    asked: list[list[str]] = []
    said = ["", "", "pip 26.3 from /nowhere/pip (python 3.11)"]

    def run(command: list[str], **_: object) -> process.Completed:
        asked.append(command)
        told = said.pop(0)
        return process.Completed(command=tuple(command), status=0 if told else 1, stdout=told, stderr="", seconds=0.0)

    monkeypatch.setattr(venvs, "_own_pip", {})
    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert venvs.pip() is None
    assert venvs.pip() == venvs.pip() != []
    assert len(asked) == 3  # twice in vain


@pytest.mark.parametrize(
    ("text", "pinned"),
    [("torch==2.11.0", True), ("a.b-c_d==1!2.0+cu130", True), ("torch", False), ("torch>=2", False), ("-r==1", False),
     ("x==--index-url", True), ("a ==1", False), ("../x==1", False)],
)  # fmt: skip
def test_what_counts_as_pinned(text: str, pinned: bool) -> None:  # noqa: FBT001
    assert is_pinned(text) is pinned
