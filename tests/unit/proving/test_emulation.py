"""Wheels of another processor: when an emulator is wanted, what it is given, what is said where there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from cuwheel.device_code.contents import Survey
from cuwheel.errors import UnavailableError
from cuwheel.machine.fleet import Machine
from cuwheel.network.venvs import Python
from cuwheel.proving import emulation, installation
from cuwheel.proving.emulation import Emulator
from cuwheel.support import process
from cuwheel.toolchains import cross
from cuwheel_core.wheel.metadata import Distribution
from tests.fixtures import systems

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Machine(name="this machine", capability=None, os="linux", cpu="x86_64", glibc="2.36", python="3.12.1")
pytestmark = systems.posix("has no qemu for programs of Linux")


def wheel(*tags: str) -> Survey:
    named = Distribution(name="p", version="1", tags=tags, requires=())
    return Survey(target="p.whl", kind="wheel", size=1, libraries=(), findings=(), distribution=named)


@pytest.mark.parametrize(
    ("tags", "cpu"),
    [
        (("py3-none-manylinux_2_24_aarch64",), "aarch64"),
        (("cp312-cp312-manylinux_2_17_aarch64", "cp312-cp312-manylinux2014_aarch64"), "aarch64"),
        (("py3-none-manylinux_2_24_x86_64",), None),
        (("py3-none-any",), None),
        (("py3-none-win_amd64",), None),
        (("py3-none-manylinux_2_24_aarch64", "py3-none-win_amd64"), None),
        (("py3-none-linux_aarch64", "py3-none-linux_x86_64"), None),
    ],
)
def test_which_wheels_want_an_emulator(tags: tuple[str, ...], cpu: str | None) -> None:
    assert emulation.foreign_processor(wheel(*tags), HERE) == cpu


def test_on_its_own_processor_none_is_wanted() -> None:
    assert emulation.foreign_processor(wheel("py3-none-linux_aarch64"), replace(HERE, cpu="aarch64")) is None


class FakeQemu:
    """Answers as a Python of another processor does; `says` by the interpreter's name."""

    def __init__(self, says: dict[str, str]) -> None:
        self.says = says

    def __call__(self, command: Sequence[str], **_: Any) -> process.Completed:
        text = "qemu-aarch64 version 7.2.22 (Debian)\n"
        if "-L" in command:
            text = self.says[Path(command[3]).name]
        return process.Completed(command=tuple(command), status=0, stdout=text, stderr="", seconds=0.0)


@pytest.fixture
def sysroot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("python3.9", "python3.11", "python3-config", "python3.11-config"):
        path = tmp_path / "root" / "usr" / "bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    says = {"python3.9": "aarch64 2.31 3.9.2\n", "python3.11": "aarch64 2.36 3.11.2\n"}
    monkeypatch.setattr(process, "run", FakeQemu(says))
    monkeypatch.setattr(process, "find_program", lambda name: f"/usr/bin/{name}" if name == "qemu-aarch64" else None)
    return tmp_path / "root"


class TestFinding:
    def test_the_newest_python(self, sysroot: Path) -> None:
        found = emulation.find_emulator("aarch64", sysroot)
        assert (found.python.version, found.glibc, found.words) == ("3.11.2", "2.36", "qemu-aarch64 7.2.22")

    def test_the_python_that_was_asked_for(self, sysroot: Path) -> None:
        assert emulation.find_emulator("aarch64", sysroot, "3.9").glibc == "2.31"
        with pytest.raises(UnavailableError, match=r"has no Python 3\.13 for aarch64"):
            emulation.find_emulator("aarch64", sysroot, "3.13")

    def test_a_root_of_another_processor(self, sysroot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        says = dict.fromkeys(("python3.9", "python3.11"), "x86_64 2.36 3.11.2\n")
        monkeypatch.setattr(process, "run", FakeQemu(says))
        with pytest.raises(UnavailableError, match="is for x86_64"):
            emulation.find_emulator("aarch64", sysroot)

    @pytest.mark.parametrize(
        ("tag", "asked", "suite"),
        [
            ("py3-none-manylinux_2_24_aarch64", None, "bookworm"),
            ("cp311-cp311-manylinux_2_24_aarch64", None, "bookworm"),
            ("cp313-cp313-manylinux_2_24_aarch64", None, "trixie"),
            ("cp39-abi3-manylinux_2_17_aarch64", None, "bookworm"),
            ("cp39-cp39-manylinux_2_17_aarch64", None, "bullseye"),
            ("py3-none-manylinux_2_38_aarch64", None, "trixie"),
            ("py3-none-manylinux_2_24_aarch64", "3.9", "bullseye"),
            ("cp312-cp312-manylinux_2_24_aarch64", None, "bookworm"),  # which is then said not to fit
        ],
    )
    def test_without_a_root_debian_s_python_that_the_wheel_takes(
        self, tag: str, asked: str | None, suite: str, sysroot: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        taken = []

        def brought(row: Any, *_: object, **_options: object) -> Path:
            taken.append(row.suite)
            return sysroot

        monkeypatch.setattr(cross, "python_root", brought)
        installation.choose_pythons(wheel(tag), (asked,) if asked else (), HERE)
        assert taken == [suite]

    def test_a_python_that_debian_has_not(self, sysroot: Path) -> None:
        assert sysroot.is_dir()
        (choice,) = installation.choose_pythons(wheel("py3-none-linux_aarch64"), ("3.12",), HERE)
        assert "there is no Python 3.12, only 3.11 (bookworm), 3.13 (trixie), 3.9 (bullseye)" in choice.problem
        assert "--sysroot FOLDER" in choice.problem

    def test_without_qemu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process, "find_program", lambda _: None)
        (choice,) = installation.choose_pythons(wheel("py3-none-linux_aarch64"), (), HERE, None)
        assert choice.python is None
        assert "qemu-aarch64" in choice.problem
        assert "--pack kit.pyz" in choice.problem
        assert choice.outcome == "failed"  # nothing of it was tried, and nothing is claimed

    def test_the_tags_are_held_against_what_the_root_has(self, sysroot: Path) -> None:
        """Its C library decides, not this machine's."""
        (choice,) = installation.choose_pythons(wheel("py3-none-manylinux_2_36_aarch64"), ("3.9",), HERE, sysroot)
        assert choice.python is None
        assert "glibc" in choice.problem
        (choice,) = installation.choose_pythons(wheel("cp39-cp39-manylinux_2_28_aarch64"), (), HERE, sysroot)
        assert choice.emulator
        assert choice.version == "3.9.2"


def test_the_environment_of_an_emulated_python(tmp_path: Path) -> None:
    python = Python(path=str(tmp_path / "a root" / "usr/bin/python3.11"), version="3.11.2", found_via="")
    root = tmp_path / "a root"
    emulator = Emulator(
        cpu="aarch64", program="/usr/bin/qemu-aarch64", version="7.2", sysroot=root, python=python, glibc="2.36"
    )
    place = emulator.make_environment(tmp_path / "env")
    assert os.access(place, os.X_OK)
    assert place.read_text().endswith(f"-L '{root}' -0 {place} '{python.path}' \"$@\"\n")
    assert f"home = {root}/usr/bin\n" in (tmp_path / "env" / "pyvenv.cfg").read_text()
    machine = emulator.machine(replace(HERE, driver="580.0", driver_cuda="13.0", torch="2.8.0"))
    assert (machine.cpu, machine.glibc, machine.driver, machine.torch) == ("aarch64", "2.36", None, "2.8.0")
