"""What is in a wheel that its repair goes by: every file that a loader would load, and the wheel's own words."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from cuwheel.device_code import dynamic, elf, library, pe, source
from cuwheel.device_code.libraries import DeviceCode
from cuwheel.device_code.survey import is_library
from cuwheel.errors import CuwheelError, MalformedError, UsageError
from cuwheel.support.buffer import FileBuffer
from cuwheel.support.finding import Finding
from cuwheel.support.wording import a_few, file_name
from cuwheel.verdicts import drivers
from cuwheel.wheel.file import WheelFile
from cuwheel.wheel.metadata import Distribution, WheelName

if TYPE_CHECKING:
    from collections.abc import Callable

    from cuwheel.support.buffer import Buffer

_LOADED = ("shared", "executable")
CALL_MODULE = "_cuwheel_dlls.py"


class Binary(Struct, frozen=True, kw_only=True):
    """A library: in the wheel, or one that was found for it. `undefined` is read where it is asked for alone.

    A Windows library is known by its file name, in small letters, as are those that it needs.
    """

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
    toolkits: tuple[str, ...] = ()
    device_code: tuple[DeviceCode, ...] = ()
    windows: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What others may ask for it by."""
        file = file_name(self.path)
        return tuple(dict.fromkeys(filter(None, (file.lower() if self.windows else file, self.soname))))

    @property
    def search_path(self) -> tuple[str, ...]:
        """What counts for the loader: RUNPATH hides RPATH."""
        return self.runpath or self.rpath


class Contents(Struct, frozen=True, kw_only=True):
    """`wrong`: files that are not what RECORD says of them, where that was asked for.

    `call_modules`: folder → what an earlier repair for Windows put there to add folders for DLLs.
    """

    wheel: Path
    name: WheelName
    size: int
    unpacked: int
    distribution: Distribution
    binaries: tuple[Binary, ...]
    members: frozenset[str]
    findings: tuple[Finding, ...]
    wrong: tuple[str, ...] = ()
    call_modules: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def platforms(self) -> tuple[str, ...]:
        return self.name.platforms

    @property
    def windows(self) -> bool:
        return is_windows(self.name)


def is_windows(name: WheelName) -> bool:
    return all(each.startswith("win") for each in name.platforms)


def read(path: Path, *, hashes: bool = False) -> Contents:
    """Raises MalformedError if the wheel is not sound; a library that cannot be read is a finding."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint=f"give the wheels in it: {path}/*.whl")
    if WheelName.parse(path.name) is None:
        raise MalformedError(path, "its file name is not that of a wheel", hint="name-version-python-abi-platform.whl")
    with WheelFile(path) as wheel:
        return of(wheel, hashes=hashes)


def of(wheel: WheelFile, *, hashes: bool = False) -> Contents:
    wheel.must_be_sound("repaired")
    # auditwheel goes by RECORD alone: what that does not list it does not see, what is not there it falls over.
    if wheel.unlisted:
        raise MalformedError(
            wheel.path,
            f"RECORD and the files do not match: {a_few(sorted(wheel.unlisted))}",
            hint="build the wheel again with a standard build backend",
        )
    assert wheel.name is not None  # noqa: S101 - it is sound
    findings: list[Finding] = []
    binaries = _binaries(source.source_of_wheel(wheel), findings, _pe if is_windows(wheel.name) else _elf)
    return Contents(
        wheel=wheel.path,
        name=wheel.name,
        size=wheel.size,
        unpacked=sum(wheel.sizes.values()),
        distribution=wheel.distribution,
        binaries=binaries,
        members=frozenset(wheel.members),
        findings=tuple(findings),
        wrong=tuple(wheel.wrong_hashes()) if hashes else (),
        call_modules={
            posixpath.dirname(each): wheel.read(each) for each in wheel.members if each.endswith(f"/{CALL_MODULE}")
        },
    )


def _binaries(
    found: source.Source, findings: list[Finding], read_one: Callable[[Buffer], Binary | None]
) -> tuple[Binary, ...]:
    """Of the wheel's own system: what is there for another (launchers, templates) is data."""
    binaries = []
    for item in found.items:
        if not is_library(item, findings):
            continue
        try:
            buffer = item.open(lambda _: None)
            try:
                binary = read_one(buffer)
            finally:
                buffer.close()
        except CuwheelError as error:
            findings.append(source.unread(item.path, error))
            continue
        if binary:
            binaries.append(binary)
    return tuple(sorted(binaries, key=lambda each: each.path))


def _elf(buffer: Buffer) -> Binary | None:
    if library.recognise(buffer) != "elf":
        return None
    file = elf.read_elf(buffer)
    if file.file_type not in _LOADED:
        return None
    facts = library.read(buffer)
    undefined = frozenset(each.name for each in dynamic.symbols(file) if not each.defined and each.bind != _WEAK)
    return replace(
        _of(buffer.name, file),
        undefined=undefined,
        cuda=drivers.cuda_major(facts),
        toolkits=facts.toolkits,
        device_code=facts.device_code,
    )


def _pe(buffer: Buffer, *, code: bool = True) -> Binary | None:
    """`code`: look into its device code. Programs are not repaired: nothing adds folders for them."""
    if library.recognise(buffer) != "pe":
        return None
    file = pe.read(buffer)
    if file.file_type != "shared":
        return None
    facts = library.read(buffer) if code else None
    return Binary(
        path=buffer.name.replace("\\", "/"),
        machine=file.machine,
        size=buffer.size,
        soname=None,
        needed=tuple(dict.fromkeys(each.lower() for each in file.needed)),
        rpath=(),
        runpath=(),
        versions=(),
        glibc=None,
        cuda=drivers.cuda_major(facts) if facts else None,
        toolkits=facts.toolkits if facts else (),
        device_code=facts.device_code if facts else (),
        windows=True,
    )


def outside(path: Path) -> Binary | None:
    """A library of this machine, without looking into its device code; None for what is none."""
    try:
        buffer = FileBuffer(path)
    except CuwheelError:
        return None
    try:
        if library.recognise(buffer) == "pe":
            return _pe(buffer, code=False)
        file = elf.read_elf(buffer)
        return _of(str(path), file) if file.file_type in _LOADED else None
    except CuwheelError:
        return None
    finally:
        buffer.close()


_WEAK = 2


def _of(path: str, file: elf.Elf) -> Binary:
    facts = dynamic.read_dynamic(file)
    return Binary(
        path=path.replace("\\", "/"),
        machine=file.machine_name,
        size=file.buffer.size,
        soname=facts.soname,
        needed=tuple(dict.fromkeys(facts.needed)),
        rpath=facts.rpath,
        runpath=facts.runpath,
        versions=tuple(
            sorted({each for owner, wanted in facts.versions for each in wanted if not owner.startswith("ld-")})
        ),
        glibc=facts.ceiling("GLIBC"),
    )
