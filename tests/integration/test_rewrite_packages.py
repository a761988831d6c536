"""Published libraries, slimmed: tools have nothing to say of them that they did not of the originals."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from cuwheel.changes.binaries.rewrite import slim_library
from tests.fixtures import toolkits
from tests.oracle import packages
from tests.unit.changes.binaries import engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.oracle.packages import Published

LINUX = [each for each in packages.published() if each.platform.startswith("manylinux")]
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_LOAD = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
# Where patchelf moved .dynsym to the end of a file, GNU's strip gives sections other numbers and symbols the old ones.
# Loaders do not read these.
_RENUMBERED = "st_value out of bounds"


@pytest.mark.download
@pytest.mark.parametrize("package", LINUX, ids=str)
def test_published_libraries(tmp_path: Path, package: Published) -> None:
    written = 0
    with zipfile.ZipFile(packages.wheel(package)) as archive:
        for member in archive.namelist():
            if ".so" not in member:
                continue
            source = tmp_path / "source" / member.rsplit("/", 1)[-1]
            source.parent.mkdir(exist_ok=True)
            with archive.open(member) as data, source.open("wb") as file:
                shutil.copyfileobj(data, file, 1 << 20)
            if source.read_bytes()[:4] == b"\x7fELF":
                written += slimmed(source, tmp_path / "slim" / source.name)
            source.unlink()
    assert written or package.name == "faiss-gpu-cu12"  # which has nothing for 9.0


def slimmed(source: Path, target: Path) -> bool:
    target.parent.mkdir(exist_ok=True)
    plan = engine.plan(source, "9.0", "8.9", recompress=source.stat().st_size < 100e6)
    result = slim_library(source, target, plan)
    if not result.written:
        return False
    assert result.change.bytes_after <= result.change.bytes_before
    assert complaints(target) <= complaints(source)
    assert printed(target) == printed(source)
    loaded, machine = loads(source), engine.read(source).machine
    assert loads(target) or not loaded
    for tool in ("patchelf", "strip"):  # one after the other, on both: patchelf's own work is complained of too
        changed(tool, source, machine)
        changed(tool, target, machine)
        new = complaints(target) - complaints(source)
        assert not {each for each in new if tool != "strip" or not each.endswith(_RENUMBERED)}, tool
        assert len(engine.read(target).entries) == sum(each.keep for each in plan.entries), tool
        assert loads(target) or not loaded, tool
    target.unlink()
    return True


def complaints(path: Path) -> set[str]:
    """What readelf and eu-elflint say, numbers aside: they differ where offsets do."""
    said = subprocess.run(["readelf", "-lSdsrnW", path], capture_output=True, text=True, check=False).stderr
    if shutil.which("eu-elflint"):
        said += subprocess.run(["eu-elflint", "--gnu-ld", path], capture_output=True, text=True, check=False).stdout
    return {_NUMBERS.sub("#", line) for line in said.splitlines() if line != "No errors"}


def printed(path: Path) -> list[tuple[int, str]]:
    """What patchelf reads of it, by each of its options."""
    options = ("soname", "needed", "rpath", "interpreter", "execstack") if shutil.which("patchelf") else ()
    words: Iterator[list[str | Path]] = (["patchelf", f"--print-{each}", path] for each in options)
    done = (subprocess.run(each, capture_output=True, text=True, check=False) for each in words)
    return [(each.returncode, each.stdout) for each in done]


def loads(path: Path) -> bool:
    """Where what it needs is here at all."""
    return subprocess.run([sys.executable, "-c", _LOAD, path], capture_output=True, check=False).returncode == 0


def changed(tool: str, path: Path, machine: str) -> None:
    if tool == "patchelf":
        if shutil.which(tool) is None:
            pytest.skip("no patchelf")
        command: list[str | Path] = [tool, "--set-rpath", "/a/path/longer/than/any/before/it:$ORIGIN/and/more", path]
    else:
        command = [tool, path]
    environment = dict(os.environ)
    if machine == "aarch64" and tool == "strip":
        cross = toolkits.cross_binutils()
        command[0] = cross / "aarch64-linux-gnu-strip"
        environment["LD_LIBRARY_PATH"] = str(cross.parent / "lib" / "x86_64-linux-gnu")
    subprocess.run(command, check=True, capture_output=True, env=environment)
