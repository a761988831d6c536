"""The fixtures, as cuwheel and the real cuobjdump read them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

import pytest

from cuwheel.device_code.survey import survey
from cuwheel.support import process
from cuwheel_core import api
from cuwheel_core.facts.arch import Arch
from tests.fixtures import cuobjdump, make, manifest, recipes, toolkits
from tests.oracle import libraries

if TYPE_CHECKING:
    from pathlib import Path

    from cuwheel_core.device_code.libraries import Library

pytestmark = pytest.mark.usefixtures("_cuobjdump")
Key: TypeAlias = "tuple[str, str, str, bool, bool]"
# cuobjdump for Linux cannot read PE; what hides it does not find; of a bare cubin it prints no header.
READABLE = [each for each in manifest.load() if not each.by_hand and each.format != "pe"]
TOO_LARGE = [recipe for recipe in recipes.load() if not recipe.committed]


def read(path: Path) -> Library:
    (library,) = survey(path).libraries
    return library


def assert_alike(path: Path) -> None:
    listed, found = Counter[Key](), Counter[Key]()
    for entry, count in cuobjdump.entries(path).items():
        listed[entry.kind, entry.arch, entry.ptx_isa, entry.compressed, entry.relocatable] += count
    unlinked = path.suffix in (".o", ".a")  # there -all makes no difference: both sections are always listed
    for code in read(path).device_code:
        relocatable = not code.linked and not unlinked
        found[code.kind, code.arch, code.ptx_isa or "", code.compression != "none", relocatable] += code.count
    assert found == listed


@pytest.mark.parametrize("fixture", READABLE, ids=lambda each: each.file)
def test_entries(fixture: manifest.Fixture) -> None:
    assert_alike(fixture.path)


@pytest.mark.parametrize("fixture", [each for each in READABLE if each.kernels], ids=lambda each: each.file)
def test_manifest_kept_what_cuobjdump_says_of_kernels(fixture: manifest.Fixture) -> None:
    """tests/property compares the manifest with what cuwheel reads."""
    listed = sorted(cuobjdump.kernels(fixture.path).elements())
    kept = [(each.arch, each.name, each.registers, each.stack, each.shared) for each in fixture.kernels]
    assert kept == [(each.arch, each.name, each.registers, each.stack, each.shared) for each in listed]


def test_sections_of_a_dll(tmp_path: Path) -> None:
    """Its sections, put into ELF objects, are what cuobjdump can read."""
    path = tmp_path / "copy.dll"
    path.write_bytes((manifest.HERE / "bin" / "windows-130.dll").read_bytes())
    found = libraries.ours(read(path))
    assert found == libraries.theirs(path)
    assert sum(found.values()) == 3


def test_where_cuobjdump_is_wrong() -> None:
    """`-lelf` calls a family-specific cubin by its number alone; the headers that it prints are right."""
    path = manifest.HERE / "bin" / "family-130.so"
    names = process.run([toolkits.cuobjdump(), "-all", "-lelf", path], timeout=600).stdout
    assert "sm_100f" not in names
    assert names.count(".sm_100.cubin") == 2
    assert Counter(entry.arch for entry in cuobjdump.entries(path) if entry.kind == "cubin") == {
        "sm_100": 1,
        "sm_100f": 1,
        "sm_120f": 1,
    }


@pytest.mark.slow
@pytest.mark.parametrize("recipe", TOO_LARGE, ids=lambda each: each.file)
def test_fixtures_that_are_too_large_to_commit(recipe: recipes.Recipe) -> None:
    assert_alike(make.build(recipe))


@pytest.mark.parametrize("fixture", [each for each in READABLE if each.kernels], ids=lambda each: each.file)
def test_kernels_that_run_natively(fixture: manifest.Fixture) -> None:
    """The matrix has machine code of a GPU's own for exactly the kernels that cuobjdump finds in such code."""
    listed = {(str(Arch.parse(each.arch).capability), each.name) for each in cuobjdump.kernels(fixture.path)}
    found = api.coverage(fixture.path, sorted({device for device, _ in listed}))
    native = {
        (device, row.name)
        for row in found.kernels
        for device, how in zip(found.devices, row.on, strict=True)
        if how == "native"
    }
    names = {row.name for row in found.kernels}  # cuobjdump also lists device functions with a frame of their own
    assert native == {(device, name) for device, name in listed if name in names}
