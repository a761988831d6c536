"""The readers of ELF and PE against pyelftools and pefile, which read everything and take their time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pefile
import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from cuwheel.device_code.survey import survey
from cuwheel_core.facts import versions

if TYPE_CHECKING:
    from cuwheel_core.device_code.libraries import Library

BIN = Path(__file__).parents[1] / "fixtures" / "bin"
ELF = [path for path in sorted(BIN.iterdir()) if path.read_bytes()[:4] == b"\x7fELF" and path.suffix != ".cubin"]
PE = [path for path in sorted(BIN.iterdir()) if path.read_bytes()[:2] == b"MZ"]


def _library(path: Path) -> Library:
    (library,) = survey(path).libraries
    return library


@pytest.mark.parametrize("path", ELF, ids=lambda path: path.name)
def test_dynamic_entries(path: Path) -> None:
    library = _library(path)
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".dynamic")
        tags: list[Any] = list(section.iter_tags()) if isinstance(section, DynamicSection) else []
    assert list(library.needed) == [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
    assert [library.soname] == ([tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"] or [None])
    assert ":".join(library.rpath) == "".join(tag.rpath for tag in tags if tag.entry.d_tag == "DT_RPATH")
    assert ":".join(library.runpath) == "".join(tag.runpath for tag in tags if tag.entry.d_tag == "DT_RUNPATH")


@pytest.mark.parametrize("path", ELF, ids=lambda path: path.name)
def test_symbol_ceilings(path: Path) -> None:
    wanted: dict[str, list[str]] = {"GLIBC": [], "GLIBCXX": [], "CXXABI": []}
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".gnu.version_r")
        if isinstance(section, GNUVerNeedSection):
            for _, names in section.iter_versions():
                for auxiliary in names:
                    prefix, _, version = auxiliary.name.partition("_")
                    if prefix in wanted and version[:1].isdigit():
                        wanted[prefix].append(version)
    library = _library(path)
    ceilings = {name: max(found, key=versions.key, default=None) for name, found in wanted.items()}
    assert ceilings == {"GLIBC": library.glibc, "GLIBCXX": library.glibcxx, "CXXABI": library.cxxabi}


@pytest.mark.parametrize("path", ELF, ids=lambda path: path.name)
def test_device_code_lies_in_its_sections(path: Path) -> None:
    (library,) = survey(path, detail="entries").libraries
    with path.open("rb") as file:
        found = [(each.name, each["sh_offset"], each["sh_size"]) for each in ELFFile(file).iter_sections()]
    for entry in library.entries:
        assert any(
            name == entry.section and start <= entry.offset and entry.offset + entry.bytes <= start + size
            for name, start, size in found
        )


@pytest.mark.parametrize("path", PE, ids=lambda path: path.name)
def test_imports_and_machine(path: Path) -> None:
    library = _library(path)
    file = pefile.PE(path)
    assert list(library.needed) == [each.dll.decode() for each in getattr(file, "DIRECTORY_ENTRY_IMPORT", [])]
    assert file.FILE_HEADER.Machine == 0x8664
    assert library.machine == "x86_64"
    file.close()


def test_there_is_something_to_compare() -> None:
    assert len(ELF) > 20
    assert PE
