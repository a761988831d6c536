"""Wheels of several CUDA versions as one: all libraries, and a refusal of everything else that differs."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import pytest

from cuwheel.changes.stamp import guard, stamp
from cuwheel.device_code import description
from cuwheel.device_code.description import Description, Tools
from cuwheel.device_code.survey import survey
from cuwheel_core.errors import MalformedError
from tests.unit.changes.slim.packages import fixture, make_wheel, wrong_members

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

COMMON = {"bitsandbytes/__init__.py": b"", "bitsandbytes/data.txt": b"the same"}
LIBRARIES = {"12.4": "names-124.so", "13.0": "names-130.so"}


def library(cuda: str) -> str:
    return f"bitsandbytes/libbitsandbytes_cuda{cuda.replace('.', '')}.so"


def built(
    folder: Path, cuda: str, files: Mapping[str, bytes] | None = None, *, platform: str = "any", **changes: str
) -> Path:
    """As `cuwheel build` leaves it: described, with a guard, and a tag."""
    whole = {**COMMON, library(cuda): fixture(LIBRARIES[cuda]), **(files or {})}
    made = make_wheel(folder / f"raw-{cuda}", whole, "bitsandbytes", changes.get("version", "0.50"))
    tools = Tools(provider="index", release=cuda, nvcc=f"{cuda}.1", platform="linux-x86_64")
    wish = stamp.StampOptions(
        description=Description(cuda=cuda, archs=("sm_90",), toolchain=tools),
        guard=guard.guard_for(survey(made, detail="containers"), "bitsandbytes", message="Get another."),
    )
    stamped = stamp.stamp(made, folder / cuda, wish)
    return stamped.rename(stamped.with_name(stamped.name.replace("-any.whl", f"-{platform}.whl")))


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_all_libraries_are_in_one_wheel(tmp_path: Path) -> None:
    parts = [built(tmp_path, cuda) for cuda in LIBRARIES]
    made = stamp.merge_wheels(parts, tmp_path / "out")
    assert made.name == "bitsandbytes-0.50-py3-none-any.whl"
    files = contents(made)
    for cuda, name in LIBRARIES.items():
        assert files[library(cuda)] == fixture(name)
    assert files["bitsandbytes/data.txt"] == b"the same"
    assert wrong_members(made) == []
    told = survey(made).description
    assert told
    assert told.cuda == "12.4, 13.0"
    assert [(each.cuda, each.toolchain.nvcc if each.toolchain else "") for each in told.merged] == [
        ("12.4", "12.4.1"),
        ("13.0", "13.0.1"),
    ]
    assert "merged: CUDA 13.0 for sm_90, nvcc 13.0.1" in list(description.words(told))


def test_the_guard_is_that_of_the_whole(tmp_path: Path) -> None:
    parts = [built(tmp_path, cuda) for cuda in LIBRARIES]
    made = stamp.merge_wheels(parts, tmp_path / "out")
    name = f"bitsandbytes/{guard.FILE}"
    text = contents(made)[name].decode()
    whole = guard.guard_for(survey(made, detail="containers"), "bitsandbytes", message="Get another.")
    assert text == guard.guard_source(whole)
    assert "Get another." in text


def test_what_is_not_the_same_is_named(tmp_path: Path) -> None:
    one = built(tmp_path, "12.4", {"bitsandbytes/_C.so": b"one", "bitsandbytes/cuda.py": b"12"})
    two = built(tmp_path, "13.0", {"bitsandbytes/_C.so": b"two", "bitsandbytes/cuda.py": b"13"})
    with pytest.raises(MalformedError) as caught:
        stamp.merge_wheels([one, two], tmp_path / "out")
    for name in ("_C.so", "cuda.py"):
        words = f"bitsandbytes/{name} is in the wheel for CUDA 12.4 and in the wheel for CUDA 13.0, and not the same"
        assert words in caught.value.message
    assert "--set naming=local" in caught.value.hint
    assert not list((tmp_path / "out").glob("*"))


def test_three_are_compared_with_each_other(tmp_path: Path) -> None:
    one = built(tmp_path / "a", "12.4")
    two = built(tmp_path / "b", "13.0", {"bitsandbytes/extra.so": b"two"})
    three = built(tmp_path / "c", "13.0", {"bitsandbytes/extra.so": b"three"})
    with pytest.raises(MalformedError, match=r"extra\.so"):
        stamp.merge_wheels([one, two, three], tmp_path / "out")


def test_other_versions_and_platforms_are_refused(tmp_path: Path) -> None:
    one = built(tmp_path, "12.4", platform="linux_x86_64")
    with pytest.raises(MalformedError, match=r"the version is 0\.50 in the wheel for CUDA 12\.4, 0\.51 in"):
        stamp.merge_wheels([one, built(tmp_path / "b", "13.0", version="0.51")], tmp_path / "out")
    with pytest.raises(MalformedError, match="the platform is linux_x86_64"):
        stamp.merge_wheels([one, built(tmp_path / "c", "13.0", platform="linux_aarch64")], tmp_path / "out")


@pytest.mark.parametrize(
    ("one", "two", "kept"),
    [
        ("manylinux_2_17_x86_64", "manylinux_2_34_x86_64", "manylinux_2_34_x86_64"),
        ("manylinux_2_34_x86_64", "manylinux2014_x86_64.manylinux_2_17_x86_64", "manylinux_2_34_x86_64"),
        ("linux_x86_64", "manylinux_2_34_x86_64", "linux_x86_64"),
    ],
)
def test_the_tag_is_the_one_that_promises_less(tmp_path: Path, one: str, two: str, kept: str) -> None:
    parts = [built(tmp_path, "12.4", platform=one), built(tmp_path, "13.0", platform=two)]
    assert stamp.merge_wheels(parts, tmp_path / "out").name == f"bitsandbytes-0.50-py3-none-{kept}.whl"


def test_a_wheel_of_somebody_else_is_none_of_ours(tmp_path: Path) -> None:
    foreign = make_wheel(tmp_path, COMMON, "bitsandbytes", "0.50")
    with pytest.raises(MalformedError, match="was not built by cuwheel"):
        stamp.merge_wheels([built(tmp_path, "12.4"), foreign], tmp_path / "out")
