"""Which kernels are in which cubin, what each needs, and where one that is asked for is missing."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import asdict

from cuwheel.device_code import source
from cuwheel.device_code.demangle import demangled
from cuwheel.device_code.survey import is_library
from cuwheel.support import log
from cuwheel.support.answer import Answer
from cuwheel_core.device_code import cubin, items, library
from cuwheel_core.device_code.kernels import names_in
from cuwheel_core.device_code.libraries import Entry, Kind
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.finding import Finding

if TYPE_CHECKING:
    from cuwheel_core.device_code.items import Item

_IDENTIFIER = re.compile(r"[\w$*?]+", re.ASCII)


class Kernel(Struct, frozen=True, kw_only=True):
    """None where the code does not record it. Spilled registers are part of the stack."""

    name: str
    demangled: str  # the name itself where it could not be read
    registers: int | None
    shared_bytes: int | None
    stack_bytes: int | None
    code_bytes: int | None


class CodeKernels(Struct, frozen=True, kw_only=True):
    """The kernels of one cubin or one PTX, as far as they were asked for."""

    library: str
    container: int | None
    section: str
    kind: Kind
    arch: Arch
    linked: bool
    offset: int
    kernels: tuple[Kernel, ...]


class Presence(Struct, frozen=True, kw_only=True):
    """One kernel in one library, by architecture.

    `missing`: its own fat binary has code for these, without it. `elsewhere`: the library has code for these,
    but in other fat binaries only. A GPU that needs either gets another of the `present`, or none.
    """

    library: str
    name: str
    demangled: str
    present: tuple[str, ...]
    missing: tuple[str, ...]
    elsewhere: tuple[str, ...]


class Kernels(Answer, frozen=True, kw_only=True):
    """The answer of `cuwheel kernels`."""

    schema: Literal["cuwheel.kernels/1"] = "cuwheel.kernels/1"
    target: str
    pattern: str | None
    code: tuple[CodeKernels, ...]  # without those that hold nothing asked for
    presence: tuple[Presence, ...]
    absent_from: tuple[str, ...]  # libraries with device code and none of the kernels asked for
    unread: int  # pieces of LTO-IR, whose kernels nobody but NVIDIA's linker can name
    findings: tuple[Finding, ...]

    @property
    def succeeded(self) -> bool:
        """False where what was asked for is nowhere, or something could not be read."""
        unreadable = any(finding.severity == "error" for finding in self.findings)
        return not unreadable and bool(self.presence or not self.pattern)


class _Found(Struct):
    library: str
    entry: Entry
    kernels: tuple[cubin.Kernel, ...]


def kernels(target: str | Path, pattern: str | None = None, *, env: Path | None = None) -> Kernels:
    """All kernels of `target`, or those whose name, mangled or plain, contains or matches `pattern` in any case."""
    found: list[_Found] = []
    with closing(source.find_source(target, env=env)) as where:
        findings = list(where.findings)
        items = where.items if where.kind == "file" else [each for each in where.items if is_library(each, findings)]
        with log.progress("reading kernels", sum(item.size for item in items)) as progress:
            for item in items:
                found += _of_item(item, progress.advance, findings, alone=where.kind == "file")
    every = {kernel.name for each in found for kernel in each.kernels}
    readable: Mapping[str, str] = {}
    if pattern is None:
        wanted = every
    elif _IDENTIFIER.fullmatch(pattern):  # identifiers stand in mangled names as they are
        wanted = {name for name in every if _matches(pattern, name)}
    else:
        readable = demangled(every)
        wanted = {name for name in every if _matches(pattern, name) or _matches(pattern, readable.get(name, name))}
    readable = readable or demangled(wanted)
    code = tuple(_code(each, wanted, readable) for each in found if not wanted.isdisjoint(k.name for k in each.kernels))
    libraries = dict.fromkeys(each.library for each in found)
    having = {each.library for each in code}
    return Kernels(
        target=where.target,
        pattern=pattern,
        code=code,
        presence=tuple(_presence(found, wanted, readable)),
        absent_from=tuple(each for each in libraries if each not in having),
        unread=sum(each.entry.kind not in ("cubin", "ptx") for each in found),
        findings=tuple(findings),
    )


def of_container(path: str | Path, index: int) -> tuple[str, ...]:
    """The names of the kernels in one container of a file, counted from 0 over the whole file."""
    where = source.find_source(path)
    with closing(where), closing(where.items[0].open(lambda _: None)) as buffer:
        entries = [each for each in library.read_library(buffer, detail="entries").entries if each.container == index]
        return tuple(dict.fromkeys(kernel.name for each in entries for kernel in names_in(buffer, each)))


def _of_item(item: Item, advance: Callable[[int], None], findings: list[Finding], *, alone: bool) -> Iterator[_Found]:
    try:
        buffer = item.open(advance)
    except CuwheelError as error:
        if alone:
            raise
        findings.append(items.unread(item.path, error))
        return
    try:
        entries = library.read_library(buffer, detail="entries").entries
    except CuwheelError as error:
        if alone:
            raise
        findings.append(items.unread(item.path, error))
        entries = ()
    for entry in entries:
        try:
            yield _Found(item.path, entry, names_in(buffer, entry))
        except MalformedError as error:
            findings.append(items.unread(item.path, error))
    buffer.close()


def _matches(pattern: str, name: str) -> bool:
    """In any case: who looks for `threefry` means `ThreeFry2x32Kernel`."""
    pattern, name = pattern.lower(), name.lower()
    if any(each in pattern for each in "*?"):
        return fnmatch.fnmatchcase(name, f"*{pattern}*")  # part of a name, as without wildcards
    return pattern in name


def _code(found: _Found, wanted: set[str], readable: Mapping[str, str]) -> CodeKernels:
    entry = found.entry
    kernels = [each for each in found.kernels if each.name in wanted]
    return CodeKernels(
        library=found.library,
        container=entry.container,
        section=entry.section,
        kind=entry.kind,
        arch=entry.arch,
        linked=entry.linked,
        offset=entry.offset,
        kernels=tuple(Kernel(**asdict(each), demangled=readable.get(each.name, each.name)) for each in kernels),
    )


def _presence(found: list[_Found], wanted: set[str], readable: Mapping[str, str]) -> Iterator[Presence]:
    archs: dict[str, dict[str, None]] = {}  # of a library
    own: dict[tuple[str, int], dict[str, None]] = {}  # of a container
    present: dict[tuple[str, str], dict[str, None]] = {}
    homes: dict[tuple[str, str], set[tuple[str, int]]] = {}
    for each in found:
        if not each.kernels:  # such as the empty code of a device link: it lacks nothing
            continue
        home = (each.library, each.entry.offset if each.entry.container is None else each.entry.container)
        archs.setdefault(each.library, {})[each.entry.arch] = None
        own.setdefault(home, {})[each.entry.arch] = None
        for kernel in each.kernels:
            if kernel.name in wanted:
                present.setdefault((each.library, kernel.name), {})[each.entry.arch] = None
                homes.setdefault((each.library, kernel.name), set()).add(home)
    for (path, name), where in present.items():
        beside = {arch for home in homes[path, name] for arch in own[home]}
        absent = [arch for arch in archs[path] if arch not in where]
        yield Presence(
            library=path,
            name=name,
            demangled=readable.get(name, name),
            present=tuple(where),
            missing=tuple(arch for arch in absent if arch in beside),
            elsewhere=tuple(arch for arch in absent if arch not in beside),
        )
