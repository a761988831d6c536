"""Kernels × GPUs of a target: the core's matrix, with names that people read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.device_code import source
from cuwheel.device_code.demangle import demangled
from cuwheel.device_code.survey import is_library
from cuwheel.support import log
from cuwheel_core.device_code import items
from cuwheel_core.errors import CuwheelError
from cuwheel_core.facts import gpus
from cuwheel_core.verdicts.choice import How, loadable_code
from cuwheel_core.verdicts.coverage import LibraryRow, matrix_of
from cuwheel_core.verdicts.device import Device

if TYPE_CHECKING:
    from cuwheel_core.device_code.items import Item
    from cuwheel_core.device_code.libraries import Library
    from cuwheel_core.support.buffer import Buffer
    from cuwheel_core.support.finding import Finding
    from cuwheel_core.wheel.metadata import Distribution


class CoveredKernel(Struct, frozen=True, kw_only=True):
    """A kernel of a library, and for each GPU of the matrix, in their order, how it runs there; `none`: no code."""

    library: str
    name: str
    demangled: str  # the name itself where it could not be read
    on: tuple[How, ...]


class KernelMatrix(Struct, frozen=True, kw_only=True):
    """Kernels × GPUs. `unread`: pieces of LTO-IR, whose kernels nobody but NVIDIA's linker can name."""

    devices: tuple[str, ...]
    libraries: tuple[LibraryRow, ...]
    kernels: tuple[CoveredKernel, ...]
    unread: int


def devices_of(libraries: Iterable[Library]) -> dict[str, Device]:
    """A GPU of each known capability that some of the code was made for."""
    codes = (loadable_code(row) for library in libraries for row in library.device_code)
    wanted = {gpus.current_capability(code.arch.capability) for code in codes if code}
    known = [each for each in gpus.current_capabilities() if each in wanted]
    return {str(each): Device(capability=each, tegra=gpus.is_tegra(each)) for each in known}


def kernel_matrix(
    target: str | Path, devices: Mapping[str, Device], findings: list[Finding], *, env: Path | None = None
) -> KernelMatrix:
    """The matrix of all libraries of `target`; a library that cannot be read is one of the `findings`."""
    with closing(source.find_source(target, env=env)) as where:
        wanted = where.items if where.kind == "file" else [each for each in where.items if is_library(each, findings)]
        with log.progress("reading kernels", sum(item.size for item in wanted)) as progress:
            opened = _opened(wanted, where.distribution, progress.advance, findings)
            found = matrix_of(opened, devices, findings)
    readable = demangled({each.name for each in found.kernels})
    return KernelMatrix(
        devices=found.devices,
        libraries=found.libraries,
        kernels=tuple(
            CoveredKernel(
                library=each.library, name=each.name, demangled=readable.get(each.name, each.name), on=each.on
            )
            for each in found.kernels
        ),
        unread=found.unread,
    )


def _opened(
    wanted: Sequence[Item], about: Distribution | None, advance: Callable[[int], None], findings: list[Finding]
) -> Iterator[tuple[Buffer, Distribution | None]]:
    for item in wanted:
        try:
            buffer = item.open(advance)
        except CuwheelError as error:
            findings.append(items.unread(item.path, error))
            continue
        with closing(buffer):
            yield buffer, about
