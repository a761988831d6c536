"""Wheels of either system slimmed, split and put together on either: every file in them comes out the same."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from cuwheel import api
from tests.fixtures import manifest, small_wheel
from tests.wine import windows

LIBRARIES = {"py3-none-win_amd64": "windows-130.dll", "py3-none-manylinux_2_34_x86_64": "many-130.so"}


def members(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(params=LIBRARIES)
def wheel(request: pytest.FixtureRequest, place: Path) -> Path:
    library = LIBRARIES[request.param]
    files: dict[str, str | bytes] = {f"pkg/{library}": (manifest.HERE / "bin" / library).read_bytes()}
    return small_wheel.Wheel(name="pkg", tag=request.param, files=files).write(place)


def on_c(path: Path) -> str:
    return "C:\\" + "\\".join(path.relative_to(windows.prefix() / "drive_c").parts)


def test_a_wheel_is_slimmed_alike(wheel: Path, place: Path) -> None:
    here = api.slim(wheel, machines=["h100"], recompress=True, output=place / "here")
    assert here.written, here.findings
    done = windows.cuwheel("slim", on_c(wheel), "--for", "h100", "--recompress", "-o", "there", "--json", cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    there = json.loads(done.stdout)
    assert (there["written"], there["total"]["bytes_after"]) == (True, here.total.bytes_after)
    (made,) = (place / "there").glob("*.whl")
    assert made.name == Path(here.output or "").name
    assert members(made) == members(Path(here.output or ""))


def test_a_wheel_is_split_and_put_together_alike(wheel: Path, place: Path) -> None:
    here = api.graft(wheel, split=True, output=place / "here")
    assert here.written, here.findings
    done = windows.cuwheel("graft", "--split", on_c(wheel), "-o", "there", cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = [place / "there" / Path(each).name for each in here.outputs]
    assert [members(each) for each in parts] == [members(Path(each)) for each in here.outputs]
    done = windows.cuwheel("graft", *map(on_c, parts), "-o", "whole", cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *others = here.outputs
    (whole,) = api.graft(first, others, output=place / "here").outputs
    assert members(place / "whole" / wheel.name) == members(Path(whole))
