"""What is in a wheel that its repair goes by: every ELF file that a loader would load, and the wheel's own words."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cuwheel.buffer import FileBuffer
from cuwheel.compat import drivers
from cuwheel.errors import CuwheelError, MalformedError, UsageError
from cuwheel.finding import Finding
from cuwheel.inspection import dynamic, elf, library, source
from cuwheel.inspection.survey import is_library
from cuwheel.inspection.values import DeviceCode
from cuwheel.wheel import member_hashes
from cuwheel.wheel.metadata import Distribution, recorded_files
from cuwheel.wheel.record import SIGNATURES
from cuwheel.wheel.zip_reader import ZipReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cuwheel.buffer import Buffer

_PARTS, _PARTS_WITH_BUILD = 5, 6
_LOADED = ("shared", "executable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """An ELF file: in the wheel, or one that was found for it. `undefined` is read where it is asked for alone."""

    path: str
    machine: str
    size: int
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: tuple[str, ...]
    glibc: str | None
    undefined: frozenset[str] = frozenset()
    cuda: int | None = None
    device_code: tuple[DeviceCode, ...] = ()

    @property
    def search_path(self) -> tuple[str, ...]:
        """What counts for the loader: RUNPATH hides RPATH."""
        return self.runpath or self.rpath


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """`info`: the dist-info folder with its slash. `recorded`: the paths that RECORD lists."""

    wheel: Path
    size: int
    unpacked: int
    parts: tuple[str, ...]
    info: str
    distribution: Distribution
    binaries: tuple[Binary, ...]
    recorded: frozenset[str]
    members: frozenset[str]
    findings: tuple[Finding, ...]

    @property
    def platforms(self) -> tuple[str, ...]:
        return tuple(self.parts[-1].split("."))


def read(wheel: Path) -> Contents:
    """Raises MalformedError where this is no sound wheel; a library that cannot be read is a finding."""
    if wheel.is_dir():
        raise UsageError(f"{wheel} is a folder", hint=f"name the wheels in it: {wheel}/*.whl")
    found = source.find(wheel)
    try:
        told = found.distribution
        parts = wheel.name.removesuffix(".whl").split("-")
        if found.kind != "wheel" or told is None or len(parts) not in (_PARTS, _PARTS_WITH_BUILD):
            raise MalformedError(
                wheel, "its file name is not that of a wheel", hint="name-version-python-abi-platform.whl"
            )
        bad = [each.message for each in found.findings if each.rule.startswith("zip-")]
        bad += [each.message for each in found.findings if each.rule == "wheel-incomplete"]
        if bad:
            raise MalformedError(wheel, "not repaired: " + "; ".join(bad[:3]), hint="build the wheel again")
        findings: list[Finding] = []
        binaries = _binaries(found, findings)
        return Contents(
            wheel=wheel,
            size=found.size,
            parts=tuple(parts),
            distribution=told,
            binaries=binaries,
            findings=tuple(findings),
            **_lists(wheel),  # type: ignore[arg-type]
        )
    finally:
        found.close()


def _lists(wheel: Path) -> dict[str, object]:
    """auditwheel goes by RECORD alone: what that does not list it does not see, what is not there it falls over."""
    reader = ZipReader(wheel)
    try:
        infos = [each for each in reader.members if each.count("/") == 1 and each.endswith(".dist-info/METADATA")]
        if len(infos) != 1 or (info := infos[0].removesuffix("METADATA")) + "WHEEL" not in reader.members:
            raise MalformedError(
                wheel, "it has not exactly one .dist-info with METADATA and WHEEL", hint="build it again"
            )
        listed = set(recorded_files(reader.text(info + "RECORD") or ""))
        members = set(reader.members)
        ignored = {info + each for each in ("RECORD", *SIGNATURES)}  # not every backend lists RECORD itself
        if odd := sorted((listed ^ members) - ignored):
            raise MalformedError(
                wheel,
                f"RECORD and the files do not agree: {', '.join(odd[:5])}",
                hint="build the wheel again with a standard build backend",
            )
        return {
            "info": info,
            "recorded": frozenset(listed),
            "members": frozenset(members),
            "unpacked": sum(each.size for each in reader.members.values()),
        }
    finally:
        reader.close()


def wrong_hashes(found: Contents) -> list[str]:
    """Files that are not what RECORD says of them."""
    return member_hashes.wrong(found.wheel, found.info)


def _binaries(found: source.Source, findings: list[Finding]) -> tuple[Binary, ...]:
    binaries = []
    for item in found.items:
        if not is_library(item, findings):
            continue
        try:
            buffer = item.open(lambda _: None)
            try:
                binary = _binary(buffer)
            finally:
                buffer.close()
        except CuwheelError as error:
            findings.append(source.unread(item.path, error))
            continue
        if binary:
            binaries.append(binary)
    return tuple(sorted(binaries, key=lambda each: each.path))


def _binary(buffer: Buffer) -> Binary | None:
    if library.recognise(buffer) != "elf":
        return None
    file = elf.read(buffer)
    if file.file_type not in _LOADED:
        return None
    told = library.read(buffer)
    undefined = frozenset(each.name for each in dynamic.symbols(file) if not each.defined and each.bind != _WEAK)
    return _of(buffer.name, file, undefined, drivers.cuda_major(told), told.device_code)


def outside(path: Path) -> Binary | None:
    """A library of this machine, without looking into its device code; None for what is none."""
    try:
        buffer = FileBuffer(path)
    except CuwheelError:
        return None
    try:
        file = elf.read(buffer)
        return _of(str(path), file) if file.file_type in _LOADED else None
    except CuwheelError:
        return None
    finally:
        buffer.close()


_WEAK = 2


def _of(
    path: str,
    file: elf.Elf,
    undefined: frozenset[str] = frozenset(),
    cuda: int | None = None,
    device_code: Sequence[DeviceCode] = (),
) -> Binary:
    told = dynamic.read(file)
    return Binary(
        path=path.replace("\\", "/"),
        machine=file.machine_name,
        size=file.buffer.size,
        soname=told.soname,
        needed=tuple(dict.fromkeys(told.needed)),
        rpath=told.rpath,
        runpath=told.runpath,
        versions=tuple(
            sorted({each for owner, wanted in told.versions for each in wanted if not owner.startswith("ld-")})
        ),
        glibc=told.ceiling("GLIBC"),
        undefined=undefined,
        cuda=cuda,
        device_code=tuple(device_code),
    )


def installed_path(path: str) -> str | None:
    """Where a member lies below site-packages; None for what is installed elsewhere (scripts, data)."""
    first, _, rest = path.partition("/")
    if not first.endswith(".data"):
        return path
    scheme, _, rest = rest.partition("/")
    return rest if scheme in ("platlib", "purelib") and rest else None


def folder_of(path: str) -> str:
    return posixpath.dirname(path)
