"""`cuwheel.json` in a dist-info folder: what a wheel was built from, with what, and which GPUs it serves.

It travels with the wheel and stays when the wheel is installed. Nothing of the building machine is in it, and no time:
the same sources and tools give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.support import codec, files
from cuwheel.support.finding import finding
from cuwheel.version import __version__
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.verdicts.predict import Coverage

if TYPE_CHECKING:
    from cuwheel.wheel.file import WheelFile
    from cuwheel_core.support.finding import Finding

NAME = "cuwheel.json"
SCHEMA: Final = "cuwheel.wheel/1"
_WHAT = "a description of a wheel"
_LIMIT = 1 << 20


class PlannedFor(Struct, frozen=True, kw_only=True):
    """A machine that the plan was made for, the entry of the list that serves it, and what must hold for that."""

    machine: str
    capability: str
    how: str
    by: str
    conditions: tuple[str, ...] = ()


class File(Struct, frozen=True, kw_only=True):
    """Something that went in: its name without a folder, and its content."""

    file: str
    sha256: str


class Tools(Struct, frozen=True, kw_only=True):
    """`nvcc` and `host_compiler` as they call themselves: `13.0.88`, `gcc 12.2.0`.

    `arm64`: which of CUDA's distributions for arm64 it is, that for servers or that for Jetson, where that is known.
    """

    provider: str
    release: str
    nvcc: str
    platform: str
    host_compiler: str | None = None
    arm64: Literal["sbsa", "l4t"] | None = None
    archives: tuple[File, ...] = ()


class MergedPart(Struct, frozen=True, kw_only=True):
    """What was built for one CUDA version, of a wheel that several were merged into."""

    cuda: str
    archs: tuple[str, ...]
    ptx: tuple[str, ...] = ()
    toolchain: Tools | None = None


class BuildRecord(Struct, frozen=True, kw_only=True):
    """What decides, beside sources and tools, whether two builds give code that fits together: hashes, SHA-256.

    `flags`: of every variable, command and option, places on the building machine apart. `installed`: of the names and
    versions of what was installed to build. `listed`: the architectures that it was configured for.
    """

    flags: str
    installed: str
    listed: tuple[str, ...]


class Description(Struct, frozen=True, kw_only=True):
    """`sources`: the SHA-256 of the source tree as it was built. `requires`: what the build was given beside it.

    `merged`: the wheels that it was made of; `cuda` then names all their versions, and each has its own tools.
    """

    schema: Literal["cuwheel.wheel/1"] = SCHEMA
    cuwheel: str = __version__
    cuda: str
    archs: tuple[str, ...]
    ptx: tuple[str, ...] = ()
    coverage: Coverage = Coverage(native=(), jit=(), partial=(), future=False)
    plan: tuple[PlannedFor, ...] = ()
    toolchain: Tools | None = None
    sources: str = ""
    python: str | None = None
    requires: tuple[str, ...] = ()
    merged: tuple[MergedPart, ...] = ()
    build: BuildRecord | None = None


def encoded(described: Description) -> bytes:
    """The description as it stands in the wheel. A file is named without the folder that it lay in."""
    described = replace(
        described,
        toolchain=_plain(described.toolchain),
        merged=tuple(replace(each, toolchain=_plain(each.toolchain)) for each in described.merged),
    )
    return codec.indented(described)


def _plain(tools: Tools | None) -> Tools | None:
    if tools is None:
        return None
    plain = tuple(replace(each, file=each.file.replace("\\", "/").rpartition("/")[2]) for each in tools.archives)
    return replace(tools, archives=plain)


def read_or_finding(read: Callable[[], Description | None]) -> tuple[Description | None, tuple[Finding, ...]]:
    """One that cannot be understood is a finding, and not the end."""
    try:
        return read(), ()
    except CuwheelError as error:
        unreadable = finding("description-unreadable", error.message, fix=error.fixes)
        return None, (unreadable,)


def words(described: Description) -> Iterator[str]:
    """A line or two for people."""
    listed = ", ".join((*described.archs, *described.ptx))
    yield f"built by cuwheel {described.cuwheel} with CUDA {described.cuda} for {listed or 'no architecture'}"
    for part in described.merged:
        listed = ", ".join((*part.archs, *part.ptx))
        yield f"merged: CUDA {part.cuda} for {listed}" + (f", nvcc {part.toolchain.nvcc}" if part.toolchain else "")
    if tools := described.toolchain:
        compiler = f", {tools.host_compiler}" if tools.host_compiler else ""
        sources = f"; sources sha256 {described.sources[:16]}…" if described.sources else ""
        yield f"nvcc {tools.nvcc} ({tools.provider}){compiler}{sources}"


def of_wheel(wheel: WheelFile) -> Description | None:
    """Reads a wheel's description; None where cuwheel did not build it.

    Raises where there is one that cannot be understood.
    """
    name = wheel.info + NAME
    if name not in wheel.members:
        return None
    if (size := wheel.sizes[name]) > _LIMIT:
        raise MalformedError(wheel.path, f"its {NAME} has {size:,} bytes: too large for a description")
    text = wheel.text(name)
    if text is None:
        raise MalformedError(wheel.path, f"its {NAME} cannot be read", hint="download the wheel again")
    return parse(text.encode(), f"{wheel.path}: {NAME}")


def of_folder(info: Path) -> Description | None:
    """The same of a dist-info folder."""
    path = info / NAME
    data = files.read_if_present(path, _LIMIT, "a description")
    return None if data is None else parse(data, str(path))


def parse(data: bytes, name: str) -> Description:
    """What somebody's file says."""
    found = codec.parse(data, dict[str, object], name, _WHAT, schema=SCHEMA)
    problems: list[str] = []
    result = codec.convert_or_list_problems(found, Description, NAME, problems)
    if result is None:
        raise MalformedError(name, f"is not {_WHAT}: {'; '.join(problems[:3])}")
    return result
