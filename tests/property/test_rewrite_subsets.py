"""Any subset of the entries of real binaries: what is read back is what was kept, byte for byte."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel.changes.binaries.rewrite import slim_library
from tests.fixtures import manifest
from tests.unit.changes.binaries import engine

FIXTURES = {
    fixture.file: engine.read(fixture.path)
    for fixture in manifest.load()
    if fixture.format in ("elf", "pe") and not fixture.file.endswith(".o")
}
# A container that no wrapper names is left as it is, and a plan that would change it is refused.
CHANGEABLE = [
    name
    for name, found in FIXTURES.items()
    if found.registration.wrappers and found.entries and not found.registration.unnamed
]


@settings(max_examples=250, deadline=None, derandomize=True)
@given(file=st.sampled_from(CHANGEABLE), mask=st.integers(0, 2**24 - 1))
def test_what_is_read_back_is_what_was_kept(file: str, mask: int) -> None:
    found = FIXTURES[file]
    plan = engine.keeping(found, lambda each: bool(mask >> each.index & 1))
    source = manifest.HERE / "bin" / file
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder, "first"), Path(folder, "second")
        result = slim_library(source, first, plan)
        assert result.written == plan.changes
        if not result.written:
            return
        before = engine.contents(source)
        kept = [
            [data for data, each in zip(inside, of(plan, index), strict=True) if each.keep]
            for index, inside in enumerate(before)
        ]
        assert engine.contents(first) == kept
        assert result.change.bytes_after == first.stat().st_size <= source.stat().st_size
        slim_library(source, second, plan)
        assert second.read_bytes() == first.read_bytes()
        again = engine.keeping(engine.read(first), lambda _: True)
        assert not slim_library(first, second, again).written


def of(plan: engine.LibraryPlan, container: int) -> list[engine.EntryDecision]:
    return [each for each in plan.entries if each.entry.container == container]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    file=st.sampled_from(CHANGEABLE),
    gpus=st.sets(st.sampled_from(["7.5", "8.0", "8.6", "8.7", "9.0", "10.0", "10.3", "12.0"]), min_size=1, max_size=3),
    future=st.booleans(),
    recompress=st.booleans(),
)
def test_slimming_twice_for_the_same_machines_changes_nothing_more(
    file: str,
    gpus: set[str],
    future: bool,  # noqa: FBT001 - hypothesis passes it
    recompress: bool,  # noqa: FBT001
) -> None:
    source = manifest.HERE / "bin" / file
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder, "first")
        plan = engine.plan(source, *sorted(gpus), future=future, recompress=recompress)
        if slim_library(source, first, plan).written:
            again = engine.plan(first, *sorted(gpus), future=future, recompress=recompress)
            assert all(each.keep for each in again.entries)
            repeated = slim_library(first, Path(folder, "second"), again)
            assert not repeated.change.dropped
            assert not repeated.change.recompressed
