"""Which CUDA library a file name is, and which package brings it."""

from __future__ import annotations

import os
import re
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from cuwheel.errors import ConfigurationError, UnknownNameError, UnreadableError
from cuwheel.facts.rows.libraries import Package
from cuwheel.facts.tables import tables
from cuwheel.support import decode, typos

# `.alt` marks a second build of NVRTC: the same component.
_SONAME = re.compile(r"(?:lib)?(.+?)(?:\.alt)?\.so(?:\..+)?", re.ASCII)
_DLL = re.compile(r"(.+?)(?:64|32)?(?:_[\d_.*]+?)?(?:\.alt)?\.dll", re.ASCII | re.IGNORECASE)
# What auditwheel and delocate put into the name of a library that they took along.
_GRAFTED = re.compile(r"-[0-9a-f]{8,64}(?=\.so)", re.ASCII)

_WILD = frozenset("*?[")

VARIABLE = "CUWHEEL_LIBRARIES"
_AS_IN = "[[package]] rows with name, cuda, folder and sonames, as in cuwheel's own libraries.toml"


class Library(Struct, frozen=True, kw_only=True):
    """A library by the name that a binary asks for: a soname or a DLL.

    `pattern` is the name in the table, where `*` stands for a minor version that varies. `packages` are those
    that bring it, for each CUDA major. `from_driver`: it comes with the driver and must never be shipped.
    """

    pattern: str
    component: str
    packages: tuple[Package, ...]
    from_driver: bool
    chooses_kernels_itself: bool

    @property
    def majors(self) -> tuple[int, ...]:
        """The CUDA majors it belongs to; the number in the soname does not tell."""
        return tuple(sorted({package.cuda for package in self.packages if package.cuda is not None}))

    def package_for(self, major: int | None) -> Package | None:
        """The package that brings it for a CUDA major, else for the newest; the table has the usual one first."""
        wanted = major if major in self.majors else max(self.majors, default=None)
        return next((each for each in self.packages if each.cuda is not None and each.cuda == wanted), None)


@cache
def rows() -> tuple[Package, ...]:
    """The table's, and those of the file that CUWHEEL_LIBRARIES names: a CUDA that is newer than this cuwheel."""
    own = tables().libraries.package
    named = os.environ.get(VARIABLE)
    return (*own, *_more(Path(named))) if named else own


def _more(path: Path) -> tuple[Package, ...]:
    try:
        data = decode.toml_file(path)
    except OSError as error:
        raise UnreadableError.from_os(error, path, hint=f"{VARIABLE} names it") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(path, [str(error)], hint=_AS_IN) from error
    problems = [f"unknown key '{key}'" for key in data if key != "package"]
    found = data.get("package")
    for row in found if isinstance(found, list) else ():
        if isinstance(row, dict):
            row.setdefault("source", [])
    made = decode.convert(found, tuple[Package, ...], "package", problems)
    problems += [
        f"{row.name}: it must give its CUDA and its folder" for row in made or () if not (row.cuda and row.folder)
    ]
    if problems or made is None:
        raise ConfigurationError(path, problems, hint=_AS_IN)
    return made


@cache
def all_libraries() -> tuple[Library, ...]:
    packages: dict[str, list[Package]] = {}
    everyones = tables().libraries.everyones
    for package in rows():
        for name in (*package.sonames, *package.dlls):
            if name not in everyones:
                packages.setdefault(name, []).append(package)
    return tuple(_library(name, tuple(rows)) for name, rows in packages.items())


def find_library(name: str) -> Library:
    """`libcusolver.so.11`, also with a longer version (`libcudart.so.12.4.127`) or a folder before it."""
    if found := known_library(name):
        return found
    known = {library.pattern for library in all_libraries()}
    raise UnknownNameError("CUDA library", name, typos.alike(_file_name(name), known))


def known_library(name: str) -> Library | None:
    """As `find_library`, of names that are most often none of CUDA's: every file of a package, or of /usr/lib."""
    wanted = _file_name(name)
    return _look_up(wanted) if _component(wanted).lower() in _components() else None


def majors(name: str) -> tuple[int, ...]:
    """The CUDA majors that it may belong to; none where it is not one of CUDA's."""
    found = known_library(name)
    return found.majors if found else ()


def _file_name(name: str) -> str:
    return re.split(r"[/\\]", name.strip())[-1]


@lru_cache(maxsize=4096)  # one survey asks for the same few names hundreds of times
def _look_up(wanted: str) -> Library | None:
    while True:
        for library in all_libraries():
            if _same(wanted, library.pattern):
                return library
        shorter = re.sub(r"(\.so\..+)\.\d+$", r"\1", wanted)
        if shorter == wanted:
            return None
        wanted = shorter


def is_cuda_library(name: str) -> bool:
    return known_library(name) is not None


def plain_name(name: str) -> str:
    """Without what a repair put into it: `libcublas-1a2b3c4d.so.13` is libcublas.so.13."""
    return _GRAFTED.sub("", name)


def is_driver_library(name: str) -> bool:
    """By its name, whatever its version, also as repairers name copies: `libcuda-45427247.so.535.154.05`."""
    wanted = plain_name(_file_name(name))
    return _component(wanted).lower() in _driver_components() and (".so" in wanted or wanted.lower().endswith(".dll"))


@cache
def _driver_components() -> frozenset[str]:
    return frozenset(library.component.lower() for library in all_libraries() if library.from_driver)


def is_for_tools(name: str) -> bool:
    """Whether what it holds runs in a profiler alone, as CUPTI's."""
    component = _component(plain_name(_file_name(name)))
    patterns = tables().libraries.only_for_tools
    return any(fnmatchcase(component, each) for each in patterns) and is_cuda_library(plain_name(_file_name(name)))


def component_of(name: str) -> str | None:
    """Of a library by its name alone, whatever its version: `cublas` for libcublas.so.99. None where it is not CUDA's.

    Libraries without a version in their names (libcheckpoint.so) are known by those names only.
    """
    wanted = _file_name(name)
    component = _component(wanted)
    if component in _versioned() and re.search(r"\.so(?:\.|$)", wanted):
        return component
    if component.lower() in _versioned_dlls() and re.search(r"64_\d+\.dll$", wanted.lower()):
        return component
    return component if is_cuda_library(wanted) else None


@cache
def _versioned() -> frozenset[str]:
    return frozenset(library.component for library in all_libraries() if ".so." in library.pattern)


@cache
def _versioned_dlls() -> frozenset[str]:
    return frozenset(each.component.lower() for each in all_libraries() if re.search(r"64_[\d*]", each.pattern))


@cache
def _components() -> frozenset[str]:
    return frozenset(library.component.lower() for library in all_libraries())


def _library(name: str, packages: tuple[Package, ...]) -> Library:
    component = _component(name)
    own = tables().libraries.chooses_kernels_itself
    return Library(
        pattern=name,
        component=component,
        packages=packages,
        from_driver=all(package.cuda is None for package in packages),
        chooses_kernels_itself=any(fnmatchcase(component, pattern) for pattern in own),
    )


def _component(name: str) -> str:
    """`libcublasLt.so.12` and `cublasLt64_12.dll` are both `cublasLt`."""
    match = _SONAME.fullmatch(name) or _DLL.fullmatch(name)
    return match[1] if match else name


def as_compared(name: str) -> str:
    """The name of a library as its loader compares it: Windows does not tell case apart."""
    lower = name.lower()
    return lower if lower.endswith((".dll", ".pyd")) else name


def _same(name: str, pattern: str) -> bool:
    if pattern.lower().endswith(".dll"):
        name, pattern = name.lower(), pattern.lower()
    # Most patterns are plain names: to make an expression of each takes longer than all else that is asked here.
    return name == pattern if _WILD.isdisjoint(pattern) else fnmatchcase(name, pattern)
