"""Damaged binaries are left as they are, with a finding: no crash, no endless loop, nothing half-written."""

from __future__ import annotations

import contextlib
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel.changes.binaries import rewrite
from cuwheel.changes.binaries.rewrite import slim_library
from cuwheel_core.device_code import elf
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.support.buffer import MemoryBuffer
from tests.fixtures import manifest
from tests.property.test_fixture_mutations import PATCHES, Patch, mutated
from tests.unit.changes.binaries import engine

DATA = {
    fixture.file: fixture.path.read_bytes()
    for fixture in manifest.load()
    if fixture.format in ("elf", "pe") and not fixture.file.endswith(".o") and fixture.size < 40_000
}


@settings(max_examples=400, deadline=None, derandomize=True)
@given(file=st.sampled_from(list(DATA)), patches=PATCHES, cut=st.just(1.0) | st.floats(0.5, 1), aligned=st.booleans())
def test_only_our_errors_and_no_temporary_files(file: str, patches: list[Patch], cut: float, aligned: bool) -> None:  # noqa: FBT001
    data = mutated(DATA[file], patches, cut, aligned)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        source.write_bytes(data)
        with contextlib.suppress(CuwheelError):
            plan = engine.plan(source, "9.0", recompress=True)
            result = slim_library(source, target, plan)
            assert target.exists() == result.written
        assert source.read_bytes() == data
        assert set(Path(folder).iterdir()) <= {source, target}


@settings(max_examples=300, deadline=None, derandomize=True)
@given(file=st.sampled_from(list(DATA)), patches=PATCHES, aligned=st.booleans())
def test_a_plan_for_the_sound_file_never_ruins_another(file: str, patches: list[Patch], aligned: bool) -> None:  # noqa: FBT001
    """The file changed after it was read: refused, or rewritten soundly."""
    plan = engine.plan(manifest.HERE / "bin" / file, "9.0")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        source.write_bytes(mutated(DATA[file], patches, 1.0, aligned))
        with contextlib.suppress(CuwheelError):
            if slim_library(source, target, plan).written:
                engine.read(target)


def test_a_file_of_which_nothing_is_loaded() -> None:
    """Its program headers are all of other types."""
    data = bytearray(DATA["many-130.so"])
    (count,) = struct.unpack_from("<H", data, 0x38)
    for at in range(64, 64 + count * 56, 56):
        data[at : at + 4] = struct.pack("<I", 4)
    with pytest.raises(MalformedError, match="not linked yet"):
        rewrite.draft_slimmed(
            MemoryBuffer("none", bytes(data)), engine.plan(manifest.HERE / "bin" / "many-130.so", "9.0"), {}
        )


def test_program_headers_that_claim_the_world() -> None:
    """Cuts are made of what sections and segments say: absurd ones must not loop or allocate."""
    data = bytearray(DATA["many-130.so"])
    for at in range(64, 64 + 6 * 56, 56):
        data[at + 32 : at + 40] = b"\xff" * 7 + b"\x0f"
    with contextlib.suppress(CuwheelError):
        rewrite.draft_slimmed(
            MemoryBuffer("huge", bytes(data)), engine.plan(manifest.HERE / "bin" / "many-130.so", "9.0"), {}
        )
    assert elf.read_elf(MemoryBuffer("huge", bytes(data))).segments
