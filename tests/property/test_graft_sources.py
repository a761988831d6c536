"""Generated sources, compiled by nvcc: whatever is grafted is what a combined build of the base's source gives."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cuwheel
from cuwheel_core.device_code.library import read_library
from cuwheel_core.support.buffer import FileBuffer
from tests.fixtures import cache, grafts
from tests.fixtures.grafts import LIST, Recipe

KERNEL = """\
{space}{{ __global__ void scale(float *x, {kind} f) {{ x[threadIdx.x] *= f * {factor}; }} }}
extern "C" int run_scale(float *x) {{ scale<<<1, 32>>>(x, 2); return 0; }}
"""
SOURCES = st.fixed_dictionaries(
    {
        "space": st.sampled_from(["namespace ", "namespace named "]),
        "kind": st.sampled_from(["float", "double", "int"]),
        "factor": st.sampled_from(["2.0f", "3.0f"]),
    }
)
BUILDS = st.fixed_dictionaries(
    {"fast": st.booleans(), "rdc": st.booleans(), "folder": st.sampled_from(["work", "elsewhere"])}
)


def compiled(folder: Path, name: str, archs: tuple[str, ...], source: dict[str, str], build: dict[str, object]) -> Path:
    text = KERNEL.format(**source) if source["space"] != "namespace named " else _named(source)
    flags = (*(["-use_fast_math"] if build["fast"] else []), *(["-rdc=true"] if build["rdc"] else []), *LIST)
    recipe = Recipe(*archs, flags=flags, files=("kernel.cu",), folder=str(build["folder"]))
    return grafts.compile_library(recipe, folder / f"{name}.so", {"kernel.cu": text})


def _named(source: dict[str, str]) -> str:
    return KERNEL.format(**source).replace("scale<<<", "named::scale<<<")


def codes(path: Path) -> list[tuple[int | None, str, int | None]]:
    """Container, architecture, size; of the first no size, where a device linker also wrote of its own call."""
    buffer = FileBuffer(path)
    try:
        return [
            (each.container, str(each.arch), each.real_bytes if each.container else None)
            for each in read_library(buffer, detail="entries").entries
        ]
    finally:
        buffer.close()


@pytest.mark.slow
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(ours=SOURCES, theirs=SOURCES, build=BUILDS, other=BUILDS, same=st.booleans())
def test_nothing_is_accepted_that_a_combined_build_would_not_give(
    ours: dict[str, str], theirs: dict[str, str], build: dict[str, object], other: dict[str, object], *, same: bool
) -> None:
    if same:
        theirs, other = ours, build
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            base = compiled(folder, "base", ("80",), ours, build)
            donor = compiled(folder, "donor", ("80", "90"), theirs, other)
        except cache.UnavailableError as error:
            pytest.skip(str(error))
        made = cuwheel.graft(base, [donor], output=folder / "made.so")
        if same:
            assert made.written, made.findings
        if made.written:
            whole = compiled(folder, "whole", ("80", "90"), ours, build)
            again = cuwheel.graft(base, [whole], output=folder / "again.so")
            assert again.written
            assert (folder / "made.so").read_bytes() == (folder / "again.so").read_bytes()
            assert codes(folder / "made.so") == codes(whole)
