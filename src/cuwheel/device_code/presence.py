"""Which installed distributions hold device code: asked of the section tables alone, so that it costs little."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cuwheel.device_code import elf, pe
from cuwheel.device_code.sections import FATBIN_SECTIONS
from cuwheel.errors import CuwheelError
from cuwheel.support.buffer import FileBuffer
from cuwheel.wheel.metadata import distributions, installed_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_BINARIES = (".so", ".pyd", ".dll")


class WithDeviceCode(NamedTuple):
    """`size`: bytes of its libraries."""

    name: str
    folder: Path
    size: int


def distributions_with_device_code(site_packages: Iterable[Path]) -> Iterator[WithDeviceCode]:
    """The first of a name hides later ones, as it does for an import."""
    seen: set[str] = set()
    for folder in site_packages:
        for name, _, info in distributions(folder):
            if name not in seen:
                binaries = list(_binaries(info))
                if any(map(has_device_code, binaries)):
                    yield WithDeviceCode(name, folder, sum(each.stat().st_size for each in binaries if each.is_file()))
            seen.add(name)


def _binaries(info: Path) -> Iterator[Path]:
    for path in installed_files(info):
        name = path.rpartition("/")[2]
        if name.endswith(_BINARIES) or ".so." in name:
            yield info.parent / path


def has_device_code(path: Path) -> bool:
    """Whether a library has a section for it. False for what cannot be read."""
    try:
        buffer = FileBuffer(path, str(path))
    except CuwheelError:
        return False
    try:
        start = buffer.read(0, min(buffer.size, 4))
        sections = elf.read_elf(buffer).sections() if start == elf.MAGIC else pe.read(buffer).sections
    except CuwheelError:
        return False
    finally:
        buffer.close()
    return any(section.name in FATBIN_SECTIONS for section in sections)
