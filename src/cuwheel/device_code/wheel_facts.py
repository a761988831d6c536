"""`<wheel>.cuwheel.json`: what `check` needs to judge a wheel, without the wheel.

It is the survey of the wheel with what no verdict reads left out (`docs/reference/facts-file.md`): `survey` gives one
back from which every verdict is the same. The same wheel gives the same bytes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from cuwheel.device_code import description
from cuwheel.device_code.contents import PythonLoad, Survey
from cuwheel.device_code.description import Description
from cuwheel.support import codec, files
from cuwheel.wheel.variant import Variant
from cuwheel_core.device_code.libraries import (
    UNREAD,
    Absent,
    Compression,
    Container,
    Cudart,
    DeviceCode,
    FileType,
    Format,
    Kind,
    Library,
    Platform,
    Registration,
    Symbols,
    Wrapper,
)
from cuwheel_core.errors import MalformedError
from cuwheel_core.facts.arch import Arch
from cuwheel_core.support.finding import Finding
from cuwheel_core.wheel.metadata import Distribution, too_many

if TYPE_CHECKING:
    from cuwheel.device_code.survey import Sparing
    from cuwheel.wheel.file import WheelFile

SUFFIX: Final = f".{description.NAME}"
SCHEMA: Final = "cuwheel.facts/1"
_MOST_BYTES = 64 << 20
_MOST_CONTAINERS = 1 << 20  # of all libraries together, once counts are written out; real wheels have some thousands
_WHAT = "a facts file of a wheel"
_HINT = "write it again with: cuwheel publish"

Count: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 62)]
Number: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9}){0,9}$")]
T = TypeVar("T", bound=msgspec.Struct)
Sha256: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class CodeFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of device code, as `inspect` has it."""

    kind: Kind = "cubin"
    arch: Arch
    section: str = ".nv_fatbin"
    linked: bool = True
    compression: Compression = "none"
    ptx_isa: Number | None = None
    count: Count
    bytes: Count
    real_bytes: Count
    debug_count: Count = 0


class ContainerFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Containers that are alike, `count` of them. `code`: rows of the library, an index for each entry, in order.

    `wrappers`: the versions of those that name it; none where it is not registered. `symbols`: of relocatable objects,
    the names that decide whether those that fit a GPU can be linked without the others. `absent`: what the host
    registers and some of its entries have not. `managed`: it holds variables in managed memory alone.
    """

    code: tuple[Count, ...] = ()
    count: Annotated[int, Meta(ge=1, le=_MOST_CONTAINERS)] = 1
    section: str = ".nv_fatbin"
    wrappers: tuple[Count, ...] = (1,)
    without_kernels: bool = False
    symbols: Symbols | None = None
    absent: tuple[Absent, ...] = ()
    managed: bool = False


class LibraryFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A library, as `inspect` has it. `stray_wrappers`: how many name a container that was not found.

    `torch_symbols`: indices into those of the wheel.
    """

    path: str
    format: Format = "elf"
    type: FileType = "shared"
    machine: str
    size: Count
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    glibc: Number | None = None
    glibcxx: Number | None = None
    cxxabi: Number | None = None
    cxx11_abi: bool | None = None
    cudart: Cudart | None = None
    toolkits: tuple[Number, ...] = ()
    platform: Platform | None = None
    device_linked: bool = False
    device_code: tuple[CodeFacts, ...] = ()
    containers: tuple[ContainerFacts, ...] = ()
    stray_wrappers: Annotated[int, Meta(ge=0, le=_MOST_CONTAINERS)] = 0
    findings: tuple[Finding, ...] = ()
    torch_symbols: tuple[Count, ...] = ()


class WheelFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`description`: the `cuwheel.json` of a wheel that cuwheel built. `imported`, `python_loads`, `loads_as`: which
    libraries the package's Python loads. `torch_symbols`: mangled names that only torch can give them, in order.
    """

    schema: Literal["cuwheel.facts/1"]
    file: str
    sha256: Sha256
    size: Count
    name: str
    version: str
    tags: tuple[str, ...] = ()
    build: str | None = None
    requires_python: str | None = None
    requires_dist: tuple[str, ...] = ()
    description: Description | None = None
    libraries: tuple[LibraryFacts, ...] = ()
    imported: tuple[str, ...] = ()
    python_loads: tuple[PythonLoad, ...] = ()
    loads_as: Number | None = None
    findings: tuple[Finding, ...] = ()
    torch_symbols: tuple[str, ...] = ()
    variant: Variant | None = None


_SAME_IN_LIBRARY = frozenset(LibraryFacts.__struct_fields__) - {
    "device_code",
    "containers",
    "stray_wrappers",
    "torch_symbols",
}
_SAME_IN_CODE = CodeFacts.__struct_fields__


def of_wheel(wheel: WheelFile, *, sha256: str | None = None, sparing: Sparing | None = None) -> WheelFacts:
    """`sha256`: of the file, where it is known already. `sparing`: as little is read as `survey_wheel` says."""
    from cuwheel.device_code.survey import survey_wheel  # noqa: PLC0415 - who reads facts writes none

    found = survey_wheel(wheel, detail="containers", sparing=sparing)
    distribution = wheel.distribution
    symbols = tuple(sorted({name for each in found.libraries for name in each.torch_symbols}))
    places = {name: index for index, name in enumerate(symbols)}
    return WheelFacts(
        schema=SCHEMA,
        file=wheel.path.name,
        sha256=sha256 or files.sha256(wheel.path),
        size=wheel.size,
        name=distribution.name,
        version=distribution.version,
        tags=distribution.tags,
        build=distribution.build,
        requires_python=wheel.header("requires-python"),
        requires_dist=distribution.requires,
        description=found.description,
        libraries=tuple(_library_facts(each, places) for each in found.libraries),
        imported=found.imported,
        python_loads=found.python_loads,
        loads_as=found.loads_as,
        findings=found.findings,
        torch_symbols=symbols,
        variant=found.variant,
    )


def _library_facts(library: Library, symbols: Mapping[str, int]) -> LibraryFacts:
    """`symbols`: of torch, by their place in the wheel's list."""
    wrappers = library.registration.wrappers
    return _brief(
        LibraryFacts(
            **{name: getattr(library, name) for name in _SAME_IN_LIBRARY},
            device_code=tuple(
                _brief(CodeFacts(**{name: getattr(row, name) for name in _SAME_IN_CODE})) for row in library.device_code
            ),
            containers=tuple(_container_facts(library)),
            stray_wrappers=sum(each.container is None for each in wrappers),
            torch_symbols=tuple(symbols[each] for each in library.torch_symbols),
        )
    )


def _brief(facts: T) -> T:
    """The facts with the very objects that are defaults: the encoder leaves out those, and not all equal to them."""
    usual = {each.name: each.default for each in msgspec.structs.fields(facts) if not each.required}
    same = {name: value for name, value in usual.items() if getattr(facts, name) == value}
    return replace(facts, **same)


def _container_facts(library: Library) -> Iterator[ContainerFacts]:
    """In the order in which the first of each kind stands in the file: errors are met in that order."""
    naming: dict[int, list[int]] = {}
    for wrapper in library.registration.wrappers:
        if wrapper.container is not None:
            naming.setdefault(wrapper.container, []).append(wrapper.version)
    wanted = frozenset(name for each in library.containers if each.symbols for name in each.symbols.wanted)
    counts: Counter[ContainerFacts] = Counter(
        ContainerFacts(
            code=each.code,
            section=each.section,
            wrappers=tuple(sorted(naming.get(index, ()))),
            without_kernels=each.without_kernels,
            symbols=_deciding(each.symbols, wanted) if each.symbols else None,
            absent=each.absent,
            managed=each.managed,
        )
        for index, each in enumerate(library.containers)
    )
    return (_brief(replace(each, count=count)) for each, count in counts.items())


def _deciding(symbols: Symbols, wanted: frozenset[str]) -> Symbols:
    """Keeps of an object's symbols those that another one wants, and whether it has a kernel or a variable at all.

    Of libcudadevrt's objects one function more, by which they are known.
    """
    kernels = tuple(each for each in symbols.kernels if each in wanted) or symbols.kernels[:1]
    functions = tuple(each for each in symbols.functions if each in wanted)
    return Symbols(
        kernels=kernels,
        functions=functions or (symbols.functions[:1] if symbols.of_runtime else ()),
        wanted=symbols.wanted,
        variables=symbols.variables[:1],
    )


def encoded(facts: WheelFacts) -> bytes:
    try:
        data = codec.encode(facts)
        if sys.version_info < (3, 11):
            # An empty tuple that a generator made is another one there than the default, and would be written out:
            # the same facts, read again, would have another hash.
            data = codec.encode(codec.decode(data, WheelFacts))
        return data + b"\n"
    except UnicodeEncodeError as error:
        raise MalformedError(ascii(facts.file), "has a name that is not text", hint="rename it") from error


def parse(data: bytes, name: str) -> WheelFacts:
    """What somebody's file says. `name`: what the file is called in messages."""
    if len(data) > _MOST_BYTES:
        raise MalformedError(name, f"has more than {_MOST_BYTES:,} bytes: too large for facts of a wheel", _HINT)
    facts = codec.parse(data, WheelFacts, name, _WHAT, schema=SCHEMA, hint=_HINT)
    if problem := next(_problems(facts), None):
        raise MalformedError(name, f"is not {_WHAT}: {problem}", _HINT)
    return facts


def _problems(facts: WheelFacts) -> Iterator[str]:
    """What the types do not say."""
    if problem := too_many(facts.requires_dist):
        yield problem
    total = sum(each.count for library in facts.libraries for each in library.containers)
    total += sum(library.stray_wrappers for library in facts.libraries)
    if total > _MOST_CONTAINERS:
        yield f"{total:,} containers, of at most {_MOST_CONTAINERS:,}"
    paths = Counter(each.path for each in facts.libraries)
    yield from (f"several libraries are called {path!r}" for path, count in paths.items() if count > 1)
    for library in facts.libraries:
        rows = len(library.device_code)
        if any(index >= rows for each in library.containers for index in each.code):
            yield f"{library.path}: a container has code that is not listed"
        if any(index >= len(facts.torch_symbols) for index in library.torch_symbols):
            yield f"{library.path}: it takes a symbol from torch that is not listed"


def load(path: Path) -> WheelFacts:
    return parse(files.read_limited(path, _MOST_BYTES, "facts of a wheel", hint=_HINT), str(path))


def survey(facts: WheelFacts, *, target: str | None = None) -> Survey:
    """Makes the survey that reading the wheel would, for those who ask about verdicts. `target`: what it is called."""
    return Survey(
        target=target or facts.file,
        kind="wheel",
        size=facts.size,
        distribution=Distribution(
            name=facts.name, version=facts.version, tags=facts.tags, requires=facts.requires_dist, build=facts.build
        ),
        libraries=tuple(_library(each, facts.torch_symbols) for each in facts.libraries),
        findings=facts.findings,
        imported=facts.imported,
        python_loads=facts.python_loads,
        loads_as=facts.loads_as,
        variant=facts.variant,
        description=facts.description,
    )


def _library(facts: LibraryFacts, symbols: Sequence[str]) -> Library:
    return replace(
        UNREAD,
        **{name: getattr(facts, name) for name in _SAME_IN_LIBRARY},
        device_code=tuple(
            DeviceCode(**{name: getattr(row, name) for name in _SAME_IN_CODE}) for row in facts.device_code
        ),
        registration=_registration(facts.containers, facts.stray_wrappers),
        containers=tuple(container for each in facts.containers for container in (_container(each),) * each.count),
        torch_symbols=tuple(symbols[index] for index in facts.torch_symbols),
    )


def _container(facts: ContainerFacts) -> Container:
    return Container(
        section=facts.section,
        offset=0,
        size=0,
        code=facts.code,
        symbols=facts.symbols,
        without_kernels=facts.without_kernels,
        absent=facts.absent,
        managed=facts.managed,
    )


def _registration(groups: Sequence[ContainerFacts], stray: int) -> Registration:
    wrappers, unnamed, index = [], [], 0
    for each in groups:
        places = range(index, index + each.count)
        wrappers += [Wrapper(version=version, container=place) for place in places for version in each.wrappers]
        unnamed += [] if each.wrappers else list(places)
        index += each.count
    wrappers += [Wrapper(version=1, container=None)] * stray
    return Registration(wrappers=tuple(wrappers), module_ids=(), containers=index, unnamed=tuple(unnamed))
