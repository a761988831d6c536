"""Which CUDA library a file name is, and which package brings it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache

from msgspec import Struct

from cuwheel_core.errors import FactsError, UnknownNameError
from cuwheel_core.facts.rows.cuda_libraries import Package
from cuwheel_core.facts.tables import DATA, tables
from cuwheel_core.support import host, wording
from cuwheel_core.support.patterns import lazy_pattern, matches_any

# What comes with the driver, on Linux and on Windows.
DRIVER_LIBRARY, DRIVER_DLL = "libcuda.so.1", "nvcuda.dll"
# `.alt` marks a second build of NVRTC: the same component.
_SONAME = lazy_pattern(r"(?:lib)?(.+?)(?:\.alt)?\.so(?:\..+)?", re.ASCII)
_DLL = lazy_pattern(r"(.+?)(?:64|32)?(?:_[\d_.*]+?)?(?:\.alt)?\.dll", re.ASCII | re.IGNORECASE)
# What auditwheel and delocate put into the name of a library that they took along.
_GRAFTED = lazy_pattern(r"[-.][0-9a-f]{8,64}(?=\.so)", re.ASCII)
_LONGEST_NAME = 255  # of a file, on all systems


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
def library_rows() -> tuple[Package, ...]:
    """The table's, and those that the program brings: of a CUDA that is newer than the table."""
    return (*tables().libraries.package, *host.more_cuda_libraries())


@cache
def all_libraries() -> tuple[Library, ...]:
    own = tables().libraries.chooses_kernels_itself
    return tuple(
        Library(
            pattern=name,
            component=(component := _component(name)),
            packages=tuple(packages),
            from_driver=_all_from_driver(packages),
            chooses_kernels_itself=matches_any(component, own),
        )
        for name, packages in _packages_by_name().items()
    )


@cache
def _packages_by_name() -> dict[str, list[Package]]:
    """Enough for names that are none of CUDA's, as most are: to make every library takes a millisecond."""
    packages: dict[str, list[Package]] = {}
    everyones = tables().libraries.everyones
    for package in library_rows():
        for name in (*package.sonames, *package.dlls):
            if name not in everyones:
                packages.setdefault(name, []).append(package)
    return packages


def _all_from_driver(packages: Iterable[Package]) -> bool:
    return all(package.cuda is None for package in packages)


def find_library(name: str) -> Library:
    """`libcusolver.so.11`, also with a longer version (`libcudart.so.12.4.127`) or a folder before it."""
    if found := known_library(name):
        return found
    known = {library.pattern for library in all_libraries()}
    raise UnknownNameError("CUDA library", name, wording.similar_names(_file_name(name), known))


@lru_cache(maxsize=4096)
def known_library(name: str) -> Library | None:
    """Finds as `find_library`, among names that are most often none of CUDA's: all of a package, or of /usr/lib."""
    wanted = _file_name(name)
    component = _component(wanted).lower()
    return _look_up(wanted) if _is_mentioned(component) and component in _components() else None


def _is_mentioned(component: str) -> bool:
    """Whether the table holds the word at all: most libraries are none of CUDA's, and looking for it in the text takes
    a tenth of the time that reading the table does.
    """
    return component in _text_of_table() or bool(host.more_cuda_libraries())


@cache
def _text_of_table() -> str:
    try:
        return (DATA / "libraries.json").read_text(encoding="utf-8").lower()
    except OSError as error:
        raise FactsError([f"libraries.json: {error}"]) from error


def library_majors(name: str) -> tuple[int, ...]:
    """The CUDA majors that it may belong to; none where it is not one of CUDA's."""
    found = known_library(name)
    return found.majors if found else ()


def _file_name(name: str) -> str:
    return re.split(r"[/\\]", name.strip())[-1]


@lru_cache(maxsize=4096)  # one survey asks for the same few names hundreds of times
def _look_up(wanted: str) -> Library | None:
    while len(wanted) <= _LONGEST_NAME:
        for library in all_libraries():
            if _same(wanted, library.pattern):
                return library
        shorter = re.sub(r"(\.so\..+)\.\d+$", r"\1", wanted)
        if shorter == wanted:
            return None
        wanted = shorter
    return None


def is_cuda_library(name: str) -> bool:
    return known_library(name) is not None


def plain_name(name: str) -> str:
    """Without what a repair put into it: `libcublas-1a2b3c4d.so.13`, `libcudart.45e7f3ed.so.12` (torchvision's)."""
    return _GRAFTED.sub("", name)


def is_driver_library(name: str) -> bool:
    """Whether the name is one of the driver's libraries, also as repairers copy it: `libcuda-45427247.so.535.154`."""
    wanted = plain_name(_file_name(name))
    component = _component(wanted).lower()
    if not (".so" in wanted or wanted.lower().endswith(".dll")) or not _is_mentioned(component):
        return False
    return component in _driver_components()


@cache
def _driver_components() -> frozenset[str]:
    return frozenset(_component(name).lower() for name, rows in _packages_by_name().items() if _all_from_driver(rows))


def is_for_tools(name: str) -> bool:
    """Whether what it holds runs in a profiler alone, as CUPTI's."""
    component = _component(plain_name(_file_name(name)))
    patterns = tables().libraries.only_for_tools
    return matches_any(component, patterns) and is_cuda_library(plain_name(_file_name(name)))


def component_of(name: str) -> str | None:
    """The component of a library by its name alone, of any version: `cublas` for libcublas.so.99; None if not CUDA's.

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
    return frozenset(_component(name).lower() for name in _packages_by_name())


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
    return matches_any(name, (pattern,))
