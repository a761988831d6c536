"""What nvcc is told so that code fits a build elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuwheel.building import jobs

FOLDER = Path("/cache/builds/1/src")


@pytest.mark.skipif(os.name == "nt", reason="cl has no such option")
def test_paths_in_code_are_those_of_the_other_folder() -> None:
    assert jobs.as_if_at(FOLDER, "/src") == ("-Xcompiler", f"-fmacro-prefix-map={FOLDER}=/src")


@pytest.mark.parametrize("other", [None, "", "/a,b", "/a b", "/$(touch x)", "/a;b", "/`x`", "/a'b", '/a"b', "/ü"])
def test_what_a_shell_or_nvcc_would_take_apart_is_left_alone(other: str | None) -> None:
    assert jobs.as_if_at(FOLDER, other) == ()
    if other:
        assert jobs.as_if_at(Path(f"/cache{other}"), "/src") == ()
