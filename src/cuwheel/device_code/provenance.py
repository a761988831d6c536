"""Who made a library and what it was made for: CUDA runtime, toolkits, host compiler, platform."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cuwheel.device_code import cubin, dynamic, fatbin, limits
from cuwheel.device_code.elf import SHT_NOBITS
from cuwheel.device_code.fatbin import Walk
from cuwheel.device_code.libraries import Cudart, Platform
from cuwheel.errors import MalformedError
from cuwheel.facts import toolkits as toolkit_table
from cuwheel.facts import versions
from cuwheel.support.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cuwheel.device_code.elf import Elf
    from cuwheel.device_code.fatbin import RawEntry
    from cuwheel.device_code.libraries import DeviceCode
    from cuwheel.support.buffer import Buffer

# libcudart.so.12, libcudart.so.10.1, libcudart-8774224f.so.9.0, cudart64_12.dll, cudart64_110.dll, cudart64_90.dll
_CUDART = re.compile(
    r"(?:lib)?cudart(?P<windows>64_)?(?:-[0-9a-f]+)?(?:\.so)?\.?(?P<version>\d{1,3}(?:\.\d{1,3})?)?", re.ASCII
)
_FIRST_WITHOUT_POINT = 40  # Windows: cudart64_40_17.dll is of CUDA 4.0; what is less is a major
_REGISTER = "__cudaRegisterFatBinary"
_COMMENT_LIMIT = 1 << 24  # linkers merge equal texts; where one did not, there is one for each object
_MOST_COMPILERS = 100
_PLATFORMS = (
    ("targets/sbsa-linux", "sbsa"),
    ("targets/aarch64-linux", "l4t"),
    ("/usr/lib/aarch64-linux-gnu/tegra", "l4t"),
    ("/usr/lib/aarch64-linux-gnu/nvidia", "l4t"),
)
# Decompressed for it, at most: 3 ms, and enough to see a toolkit that wrote a part of the code.
_SAMPLES_LIMIT = 1 << 22


def cudart(needed: Iterable[str], registers: str | None, toolkits: Sequence[str]) -> Cudart | None:
    """`registers` is who provides the registration function: "import", "own" or None for no device code."""
    for name in needed:
        if match := _CUDART.match(name):
            major, minor = _version(match["version"] or "", windows=bool(match["windows"]))
            return Cudart(linkage="dynamic", major=major, minor=minor, evidence=f"needs {name}")
    if registers == "import":
        return Cudart(linkage="dynamic", major=None, evidence=f"{_REGISTER} is undefined")
    if registers == "own":
        majors = {versions.major(each) for each in toolkits}
        return Cudart(
            linkage="static",
            major=majors.pop() if len(majors) == 1 else None,
            evidence=f"registers device code, and {_REGISTER} is defined",
        )
    return None


def _version(text: str, *, windows: bool) -> tuple[int | None, int | None]:
    """The major, and the minor of those releases that have it in their name: libcudart.so.11.0 is every 11.x.

    Windows writes both without a point (90, 101), all of CUDA 11 as 110, and later ones by their major (12).
    """
    if not text:
        return None, None
    if windows and int(text) >= _FIRST_WITHOUT_POINT:
        text = f"{text[:-1]}.{text[-1]}"
    major, _, minor = text.partition(".")
    minor_counts = bool(minor) and not toolkit_table.has_minor_compatibility(int(major))
    return int(major), int(minor) if minor_counts else None


def registration_of(elf: Elf, *, has_wrappers: bool) -> str | None:
    symbol = dynamic.lookup(elf, _REGISTER)
    if symbol and not symbol.defined:
        return "import"
    return "own" if has_wrappers else None


def host_compiler(elf: Elf) -> str | None:
    """What `.comment` says; several where objects came from several compilers."""
    comment = elf.named(".comment")
    if comment is None or comment.type == SHT_NOBITS:
        return None
    texts = dict.fromkeys(elf.start_of(comment, _COMMENT_LIMIT).split(b"\0"))
    seen = [text for each in texts if (text := each.decode("utf-8", "replace").strip())]
    if comment.size > _COMMENT_LIMIT or len(seen) > _MOST_COMPILERS:
        limits.met(f"{comment.size:,} bytes of .comment", "the rest of the host compilers are not listed")
    return "; ".join(seen[:_MOST_COMPILERS]) or None


def platform(machine: str, paths: Iterable[str]) -> Platform | None:
    if machine != "aarch64":
        return None
    for path in paths:
        for piece, name in _PLATFORMS:
            if piece in path:
                return Platform(name=name, evidence=f"search path {path}")  # type: ignore[arg-type]
    return None


def toolkits(walk: Walk, rows: Sequence[DeviceCode]) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """The versions that wrote the cubins, by the smallest cubin of each kind: all would take seconds."""
    smallest = _smallest(walk, {index for index, row in enumerate(rows) if row.kind == "cubin"})
    found: set[str] = set()
    findings: list[Finding] = []
    budget = _SAMPLES_LIMIT
    for entry in sorted(smallest, key=lambda each: each.real):
        if entry.real > budget < _SAMPLES_LIMIT:
            break
        budget -= entry.real
        try:
            data = fatbin.read_payload(
                walk.buffer, entry.payload_offset, entry.stored, entry.real, rows[entry.row].compression
            )
            version = cubin.toolkit(data)
        except MalformedError as error:
            findings.append(_unreadable(entry, error))
            continue
        found.update(() if version is None else (version,))
    return tuple(sorted(found, key=versions.key)), tuple(findings)


def is_relocatable(buffer: Buffer) -> bool:
    """Whether a bare fat binary is made for the device linker: its first cubin tells, no section does."""
    walk = Walk(buffer)
    walk.section("", 0, buffer.size, linked=True)
    rows = walk.device_code()
    for container in walk.containers[:1]:
        for entry in container.entries:
            if rows[entry.row].kind == "cubin":
                compression = rows[entry.row].compression
                try:
                    data = fatbin.read_payload(buffer, entry.payload_offset, entry.stored, entry.real, compression)
                    return not cubin.read(buffer.name, data).linked
                except MalformedError:  # told where the toolkits are read
                    return False
    return False


def _smallest(walk: Walk, wanted: set[int]) -> Iterable[RawEntry]:
    """Of each row of cubins and each ABI the entry that takes the least to read."""
    found: dict[tuple[int, int], RawEntry] = {}
    sizes: dict[tuple[int, int], int] = {}
    for container in walk.containers:
        for entry in container.entries:
            key = (entry.row, entry.minor)
            if entry.payload < sizes.get(key, entry.payload + 1) and entry.row in wanted:
                found[key], sizes[key] = entry, entry.payload
    return found.values()


def _unreadable(entry: RawEntry, error: MalformedError) -> Finding:
    return Finding(
        rule="cubin-damaged",
        severity="error",
        message=f"a cubin cannot be read: {error.problem}",
        evidence=(f"entry at offset {entry.offset:#x}",),
        fix="build or download the file again",
    )
