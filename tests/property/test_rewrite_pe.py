"""Windows binaries of every make, with any subset kept, and damaged ones: sound as before, or left as they are."""

from __future__ import annotations

import contextlib
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel.changes.binaries import pe_references
from cuwheel.changes.binaries.rewrite import slim_library
from cuwheel_core.device_code import pe
from cuwheel_core.errors import CuwheelError
from cuwheel_core.support.buffer import MemoryBuffer
from tests.fixtures import manifest, windows
from tests.fixtures.damage import pe as damage
from tests.fixtures.windows import Dll
from tests.fuzz import binaries
from tests.property.test_fixture_mutations import PATCHES, Patch, mutated
from tests.unit.changes.binaries import engine

HIDDEN = engine.container(engine.entry("sm_80", engine.noise(3, 30_000)))
SECONDS, MEMORY = 5.0, 64 << 20  # of one case; of all of them
BETWEEN = b"between".ljust(40_000, b".")


def dll(large: int, hidden: int, **rest: Any) -> Dll:
    """`hidden`: how many containers nobody registers, far from one another."""
    return Dll(containers=windows.containers(large), hidden=BETWEEN.join([HIDDEN] * hidden), **rest)


DLLS = st.builds(
    dll,
    large=st.sampled_from([2_000, 20_000]),
    hidden=st.sampled_from([0, 1, 2]),
    unnamed=st.sampled_from([(), (0,), (2,), (3,)]),
    padding=st.sampled_from([0, 8]),
    checksum=st.booleans(),
    signature=st.sampled_from([b"", bytes(64)]),
    overlay=st.sampled_from([b"", b"an archive"]),
    symbols=st.booleans(),
    debug=st.booleans(),
    behind_table=st.sampled_from([b"", b"bound imports"]),
    headers_size=st.sampled_from([1024, 4096]),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(wish=DLLS, mask=st.integers(0, 2**16 - 1))
def test_any_subset_of_any_make(wish: Dll, mask: int) -> None:
    before = wish.build()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source.dll"), Path(folder, "target.dll")
        source.write_bytes(before)
        plan = engine.plan(source, "9.0", drop_signature=True)
        named = {n for n in range(len(wish.containers)) if n not in wish.unnamed}
        keep = {each.index for each in plan.entries if mask >> each.index & 1 or each.entry.container not in named}
        plan = engine.keeping(engine.read(source), lambda each: each.index in keep, drop_signature=True)
        if not slim_library(source, target, plan).written:
            assert not plan.changes
            return
        after = target.read_bytes()
        assert list(pe_references.broken_rules(pe.read_pe(MemoryBuffer("new", after)))) == []
        assert windows.host_differences(before, after) == []
        assert len(after) <= len(before)
        assert after.rstrip(b"\0").endswith(wish.overlay)  # what is before a signature is padded
        assert not wish.checksum or windows.stored_checksum(after) == windows.checksum(after)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(wish=DLLS, gpu=st.sampled_from(["8.0", "9.0", "10.0"]))
def test_what_the_library_finds_by_itself(wish: Dll, gpu: str) -> None:
    """Emptied where no GPU asked for could load it, else as it was; slimmed twice, nothing more goes."""
    before = wish.build()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source.dll"), Path(folder, "target.dll")
        source.write_bytes(before)
        assert slim_library(source, target, engine.plan(source, gpu, drop_signature=True)).written
        after = target.read_bytes()
        data = next(row for row in windows.rows(before) if row[0] == ".data")
        emptied = ((data[2] + 64, data[2] + 64 + len(wish.hidden)),) if gpu != "8.0" else ()
        assert windows.host_differences(before, after, also=emptied) == []
        repeated = engine.plan(target, gpu)
        assert all(each.keep for each in repeated.entries)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(wish=DLLS, seed=st.integers(0, 2**32), patches=PATCHES, cut=st.just(1.0) | st.floats(0.5, 1))
def test_damaged_ones_are_refused_or_sound(wish: Dll, seed: int, patches: list[Patch], cut: float) -> None:
    data = mutated(binaries.mutate(wish.build(), seed), patches, cut, aligned=True)
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source.dll"), Path(folder, "target.dll")
        source.write_bytes(data)
        with contextlib.suppress(CuwheelError):
            if slim_library(source, target, engine.plan(source, "9.0", drop_signature=True)).written:
                assert list(pe_references.broken_rules(pe.read_pe(MemoryBuffer("new", target.read_bytes())))) == []
        assert source.read_bytes() == data
        assert set(Path(folder).iterdir()) <= {source, target}


@pytest.mark.slow
@pytest.mark.parametrize("make", ["of the linker", "by hand"])
def test_malformed_ones_are_refused_or_sound(make: str, tmp_path: Path) -> None:
    """Read for itself, and with a plan that was made for the sound one: soon, and in little memory."""
    whole = Dll(containers=windows.containers(2_000), hidden=HIDDEN, debug=True, symbols=True, checksum=True).build()
    data = whole if make == "by hand" else (manifest.HERE / "bin" / "windows-130.dll").read_bytes()
    source, target = tmp_path / "source.dll", tmp_path / "target.dll"
    source.write_bytes(data)
    planned = engine.plan(source, "9.0")
    tracemalloc.start()
    for name, damaged in damage.cases(data):
        source.write_bytes(damaged)
        began = time.process_time()
        for plan in (None, planned):
            target.unlink(missing_ok=True)
            with contextlib.suppress(CuwheelError):
                result = slim_library(source, target, plan or engine.plan(source, "9.0"))
                assert target.exists() == result.written, name
                if result.written:
                    assert (
                        list(pe_references.broken_rules(pe.read_pe(MemoryBuffer("new", target.read_bytes())))) == []
                    ), name
        assert time.process_time() - began < SECONDS, name
        assert set(tmp_path.iterdir()) <= {source, target}, name
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < MEMORY
