"""Fat binaries that tests/gpu puts together hold what was meant: as cuwheel reads them, and as cuobjdump does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuwheel_core.device_code import fatbin, library
from cuwheel_core.device_code.libraries import Compression
from cuwheel_core.support.buffer import MemoryBuffer
from tests.fixtures import cache, cuobjdump, manifest
from tests.gpu import assemble

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel_core.device_code.libraries import Library

BARE = next(fixture for fixture in manifest.load() if fixture.file == "bare-130.fatbin")


def read(data: bytes) -> Library:
    return library.read_library(MemoryBuffer("assembled", data), detail="entries")


ORIGINAL = read(BARE.path.read_bytes())
# Of a real compiler: machine code (plain and `a`) and PTX. LTO-IR is scrambled (flag 0x10000): not to be packed anew.
KEPT = [index for index, entry in enumerate(ORIGINAL.entries) if entry.kind != "lto-ir"]
ALL = assemble.entries(BARE.path.read_bytes())
ENTRIES = tuple(ALL[index] for index in KEPT)
PACKINGS: tuple[Compression, ...] = ("none", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Wanted:
    entry: int
    packing: Compression
    isa: str | None


WANTED = st.builds(
    Wanted,
    st.sampled_from(KEPT),
    st.sampled_from(PACKINGS),
    st.none() | st.sampled_from(["8.4", "9.1", "10.0"]),
)


def make(wanted: Wanted) -> assemble.Entry:
    entry = ALL[wanted.entry].packed(wanted.packing)
    is_ptx = ORIGINAL.entries[wanted.entry].kind == "ptx"
    return entry.with_isa(wanted.isa) if wanted.isa and is_ptx else entry


def test_a_container_is_written_as_the_compiler_wrote_it() -> None:
    assert assemble.container(ALL) == BARE.path.read_bytes()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(WANTED, max_size=8))
def test_what_was_put_together_is_read_back(wanted: list[Wanted]) -> None:
    data = assemble.container([make(each) for each in wanted])
    found = read(data)
    changed = any(each.isa and ORIGINAL.entries[each.entry].kind == "ptx" for each in wanted)
    assert {each.rule for each in found.findings} == ({"ptx-version-differs"} if changed else set())
    assert len(found.entries) == len(wanted)
    for entry, want in zip(found.entries, wanted, strict=True):
        original = ORIGINAL.entries[want.entry]
        assert (entry.kind, entry.arch, entry.compression) == (original.kind, original.arch, want.packing)
        assert entry.ptx_isa == original.ptx_isa  # the text's, whatever the header says
        assert code(data, found, entry.offset) == code(BARE.path.read_bytes(), ORIGINAL, original.offset)


def code(data: bytes, found: Library, offset: int) -> bytes:
    entry = next(each for each in found.entries if each.offset == offset)
    stored = entry.compressed_bytes or entry.bytes
    place = offset + entry.header_size
    unpacked = fatbin.read_payload(MemoryBuffer("", data), place, stored, entry.real_bytes, entry.compression)
    return unpacked.rstrip(b"\0")  # raw code is padded


def test_a_transplant_changes_nothing_else() -> None:
    fixture = next(each for each in manifest.load() if each.file == "plain-130.so")
    data = fixture.path.read_bytes()
    (place,) = library.read_library(MemoryBuffer("plain", data), detail="containers").containers
    site = assemble.Site(offset=place.offset, size=place.size)
    changed = assemble.transplant(data, [(site, ENTRIES[:1])])
    found = library.read_library(MemoryBuffer("changed", changed), detail="entries")
    assert len(changed) == len(data)
    assert not found.findings
    assert [entry.arch for entry in found.entries] == [ORIGINAL.entries[0].arch]
    assert found.registration.wrappers[0].container == 0
    with pytest.raises(ValueError, match="do not fit"):
        assemble.transplant(data, [(site, ENTRIES * 20)])


@pytest.mark.parametrize("packing", PACKINGS)
def test_cuobjdump_agrees(tmp_path: Path, packing: Compression) -> None:
    """On everything together, in the other order."""
    path = tmp_path / "assembled.fatbin"
    path.write_bytes(assemble.container([entry.packed(packing) for entry in reversed(ENTRIES)]))
    found = read(path.read_bytes())
    try:
        listed = cuobjdump.list_entries(path)
    except cache.UnavailableError as error:
        pytest.skip(str(error))
    assert Counter((each.kind, each.arch, each.ptx_isa, each.compressed) for each in listed.elements()) == Counter(
        (each.kind, each.arch, each.ptx_isa or "", each.compression != "none") for each in found.entries
    )
