"""Every fixture is read as the manifest says, which has it from cuobjdump and readelf."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import pytest

from cuwheel.device_code.kernels import kernels
from cuwheel.device_code.survey import survey
from tests.fixtures import manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel_core.device_code.libraries import Library

Row: TypeAlias = "tuple[str, str, int | None, int | None, int | None]"

FIXTURES = manifest.load()
IDS = [fixture.file for fixture in FIXTURES]
every_fixture = pytest.mark.parametrize("fixture", FIXTURES, ids=IDS)


def read(fixture: manifest.Fixture) -> Library:
    (library,) = survey(fixture.path, detail="entries").libraries
    return library


@every_fixture
def test_file_is_the_one_that_the_manifest_describes(fixture: manifest.Fixture) -> None:
    assert hashlib.sha256(fixture.path.read_bytes()).hexdigest() == fixture.sha256


@every_fixture
def test_entries(fixture: manifest.Fixture) -> None:
    expected = Counter[tuple[object, ...]]()
    for row in fixture.entries:
        key = (row.kind, row.arch, row.section, row.linked, row.compression, row.ptx_isa or None)
        expected[key] += row.count
    found = Counter[tuple[object, ...]]()
    for code in read(fixture).device_code:
        key = (code.kind, code.arch, code.section, code.linked, code.compression, code.ptx_isa)
        found[key] += code.count
    assert found == expected


@every_fixture
def test_rows_and_entries_tell_the_same(fixture: manifest.Fixture) -> None:
    library = read(fixture)
    assert sum(code.count for code in library.device_code) == len(library.entries)
    assert sum(part.bytes for part in library.parts) == library.size == fixture.size
    assert sum(code.debug_count for code in library.device_code) == sum(
        row.count for row in fixture.entries if row.debug
    )


@every_fixture
def test_what_kind_of_file_it_is(fixture: manifest.Fixture) -> None:
    library = read(fixture)
    assert library.format == fixture.format
    if fixture.format == "elf":
        assert (library.machine, library.needed) == (fixture.machine, fixture.needed)


@every_fixture
def test_nothing_is_wrong_with_it(fixture: manifest.Fixture) -> None:
    assert [finding for finding in read(fixture).findings if finding.severity == "error"] == []


@every_fixture
def test_every_wrapper_names_a_container(fixture: manifest.Fixture) -> None:
    registration = read(fixture).registration
    named = [each.container for each in registration.wrappers]
    if fixture.format in ("elf", "pe") and fixture.entries and fixture.file != "hidden-130.so":
        assert named
        assert None not in named
        # nvcc links a container of its own, without kernels, into what it links itself: nothing names it.
        assert registration.unnamed == ((0,) if fixture.file == "default-130.so" else ())


@pytest.mark.parametrize("fixture", [each for each in FIXTURES if each.kernels], ids=lambda each: each.file)
def test_kernels(fixture: manifest.Fixture) -> None:
    """cuobjdump also lists device functions that are not kernels: those that we name must be there and agree."""
    listed = Counter[Row]((each.arch, each.name, each.registers, each.shared, each.stack) for each in fixture.kernels)
    found = Counter[Row](rows(fixture))
    assert found - listed == Counter()
    missing = {name for _, name, *_ in (listed - found)}
    assert all("twice" in name for name in missing), missing  # part_b.cu's device function


def rows(fixture: manifest.Fixture) -> Iterator[Row]:
    for code in kernels(fixture.path).code:
        if code.kind == "cubin":
            for each in code.kernels:
                yield code.arch, each.name, each.registers, each.shared_bytes, each.stack_bytes


def test_kernels_of_ptx_are_those_of_the_cubins() -> None:
    code = kernels(manifest.HERE / "bin" / "size-130.so").code
    names = {each.kind: sorted(kernel.name for kernel in each.kernels) for each in code}
    assert names["ptx"] == names["cubin"]
    assert "kernel_whose_name_has_32_bytes__" in names["ptx"]
    readable = [kernel.demangled for each in code for kernel in each.kernels]
    assert any("shapes::fill<float, 256>" in name for name in readable)
