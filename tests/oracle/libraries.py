"""Library by library: what cuwheel counts in it, and what cuobjdump counts."""

from __future__ import annotations

import re
import struct
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cuwheel.device_code.survey import survey
from cuwheel.support import process
from tests.fixtures import cuobjdump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel_core.device_code.libraries import Library

# kind, architecture, PTX ISA ("" for others), compressed
Key: TypeAlias = "tuple[str, str, str, bool]"
Count: TypeAlias = "Counter[Key]"

_MAGICS = (b"\x7fELF", b"MZ", b"!<arch>\n", struct.pack("<I", 0xBA55ED50))
_CONTAINER = struct.pack("<IHH", 0xBA55ED50, 1, 16)
_PE_SECTION = re.compile(r"^\s*\d+\s+(\.nv_fatb|__nv_rel)\s", re.MULTILINE)


def ours(library: Library) -> Count:
    found: Count = Counter()
    for code in library.device_code:
        found[code.kind, code.arch, code.ptx_isa or "", code.compression != "none"] += code.count
    return found


def theirs(path: Path) -> Count:
    found: Count = Counter()
    for file in _readable(path):
        for entry, count in cuobjdump.list_entries(file).items():
            found[entry.kind, entry.arch, entry.ptx_isa, entry.compressed] += count
    return found


def of_wheel(wheel: Path) -> dict[str, Library]:
    return {library.path: library for library in survey(wheel).libraries}


def members(wheel: Path) -> Iterator[tuple[str, Path]]:
    """Every member that is a binary, unpacked one at a time: the file is gone when the next comes."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as name:
        for info in archive.infolist():
            with archive.open(info) as member:
                if not member.read(8).startswith(_MAGICS):
                    continue
            path = Path(archive.extract(info, name))
            yield info.filename, path
            path.unlink()


def _readable(path: Path) -> list[Path]:
    """The file, or for a PE file, which cuobjdump for Linux does not read, its sections in ELF objects."""
    with path.open("rb") as file:
        if file.read(2) != b"MZ":
            return [path]
    folder = Path(tempfile.mkdtemp(dir=path.parent))
    listing = process.run(["objdump", "-h", path], timeout=300).stdout
    return [_wrapped(path, section, folder) for section in _PE_SECTION.findall(listing)]


def _wrapped(path: Path, section: str, folder: Path) -> Path:
    raw = folder / f"{section.strip('._')}.bin"
    process.run(["objcopy", "-O", "binary", f"--only-section={section}", path, raw], timeout=300)
    return _object_of(raw)


def embedded(path: Path, folder: Path) -> tuple[int, Path]:
    """Every container in a file, wherever it stands, in the section where cuobjdump looks: how many, and the object."""
    data = path.read_bytes()
    raw = folder / "embedded.bin"
    count, at = 0, data.find(_CONTAINER)
    with raw.open("wb") as file:
        while at >= 0:
            end = at + 16 + int.from_bytes(data[at + 8 : at + 16], "little")
            if end <= len(data):
                file.write(data[at:end] + bytes(-(end - at) % 8))
                count += 1
            at = data.find(_CONTAINER, end if end <= len(data) else at + 1)
    return count, _object_of(raw)


def _object_of(raw: Path) -> Path:
    source = raw.with_suffix(".s")
    source.write_text(f'.section .nv_fatbin, "a"\n.balign 8\n.incbin "{raw}"\n')
    process.run(["as", source, "-o", raw.with_suffix(".o")], timeout=300)
    raw.unlink()
    return raw.with_suffix(".o")
