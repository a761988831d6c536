"""Which CUDA library a file name is, which package brings it, and which libraries a package loads."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from pathlib import Path

import msgspec
from msgspec import Struct

from cuwheel.errors import ConfigurationError, FactsError, UnknownNameError, UnreadableError
from cuwheel.facts import versions
from cuwheel.facts.rows.packages import FilesForGpus, Package, PackageNeeds, PackageProfile, SomeBring
from cuwheel.facts.tables import DATA, tables
from cuwheel.support import codec, wording
from cuwheel.support.patterns import lazy_pattern, matches_any

# Which CUDA library a file name is, and which package brings it.

# What comes with the driver, on Linux and on Windows.
DRIVER_LIBRARY, DRIVER_DLL = "libcuda.so.1", "nvcuda.dll"
# `.alt` marks a second build of NVRTC: the same component.
_SONAME = lazy_pattern(r"(?:lib)?(.+?)(?:\.alt)?\.so(?:\..+)?", re.ASCII)
_DLL = lazy_pattern(r"(.+?)(?:64|32)?(?:_[\d_.*]+?)?(?:\.alt)?\.dll", re.ASCII | re.IGNORECASE)
# What auditwheel and delocate put into the name of a library that they took along.
_GRAFTED = lazy_pattern(r"[-.][0-9a-f]{8,64}(?=\.so)", re.ASCII)
_LONGEST_NAME = 255  # of a file, on all systems

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
def library_rows() -> tuple[Package, ...]:
    """The table's, and those of the file that CUWHEEL_LIBRARIES names: a CUDA that is newer than this cuwheel."""
    own = tables().libraries.package
    named = os.environ.get(VARIABLE)
    return (*own, *_more(Path(named))) if named else own


def _more(path: Path) -> tuple[Package, ...]:
    try:
        data = codec.read_toml(path)
    except OSError as error:
        raise UnreadableError.from_os(error, path, hint=f"{VARIABLE} names it") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(path, [str(error)], hint=_AS_IN) from error
    problems = [f"unknown key '{key}'" for key in data if key != "package"]
    found = data.get("package")
    for row in found if isinstance(found, list) else ():
        if isinstance(row, dict):
            row.setdefault("source", [])
    made = codec.convert_or_list_problems(found, tuple[Package, ...], "package", problems)
    problems += [
        f"{row.name}: it must give its CUDA and its folder" for row in made or () if not (row.cuda and row.folder)
    ]
    if problems or made is None:
        raise ConfigurationError(path, problems, hint=_AS_IN)
    return made


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


def known_library(name: str) -> Library | None:
    """Finds as `find_library`, among names that are most often none of CUDA's: all of a package, or of /usr/lib."""
    wanted = _file_name(name)
    component = _component(wanted).lower()
    return _look_up(wanted) if _is_mentioned(component) and component in _components() else None


def _is_mentioned(component: str) -> bool:
    """Whether the table holds the word at all: most libraries are none of CUDA's, and looking for it in the text takes
    a tenth of the time that reading the table does.
    """
    return bool(os.environ.get(VARIABLE)) or component in _text_of_table()


@cache
def _text_of_table() -> str:
    try:
        return (DATA / "libraries.toml").read_text(encoding="utf-8").lower()
    except OSError as error:
        raise FactsError([f"libraries.toml: {error}"]) from error


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


def find_profile(name: str, release: str | None = None) -> PackageProfile | None:
    """The profile of a distribution, by any spelling of its name; None for one that nobody described.

    `release`: its version, or that of the rule which its files show (`shown_release`); without one, the newest.
    """
    rows = _profiles(name)
    if release is not None:
        rows = [row for row in rows if row.since is None or versions.at_least(release, row.since)] or rows[-1:]
    return rows[0] if rows else None


def shown_release(name: str, text_of: Callable[[str], str]) -> str | None:
    """The release by whose rules a package chooses, as its own files show; None where they show none.

    `text_of`: the text of a file beside its libraries, empty where there is none.
    """
    texts: dict[str, str] = {}
    for row in _profiles(name):
        if row.recognised_by is None or row.since is None:
            continue
        if row.recognised_by.file not in texts:
            texts[row.recognised_by.file] = text_of(row.recognised_by.file)
        text = texts[row.recognised_by.file]
        if all(each in text for each in row.recognised_by.words) and not any(
            each in text for each in row.recognised_by.without
        ):
            return row.since
    return None


def _profiles(name: str) -> list[PackageProfile]:
    """Those of the first names that fit it, the newest release first."""
    wanted = re.sub(r"[-_.]+", "-", name).lower()
    rows = [row for row in tables().packages.profile if matches_any(wanted, row.names)]
    return [row for row in rows if row.names == rows[0].names]


def files_for_gpus(path: str) -> list[FilesForGpus]:
    """What the table says of files with such a path, whatever package they are of."""
    name = path.replace("\\", "/")
    return [row for row in tables().packages.for_gpus if matches_any(name, row.files)]


def made_for(profile: PackageProfile, path: str) -> str | None:
    """The CUDA that a library of a package with one library a version was made for: `12.6`, or `12` alone."""
    match = re.search(profile.pattern, path.replace("\\", "/")) if profile.pattern else None
    return ".".join(match.groups()) if match else None


def best_version(profile: PackageProfile, there: Iterable[str], wanted: str) -> str | None:
    """The version that a package loads for `wanted`, of those that are there: see packages.toml."""
    if profile.picks == "exact":
        return next((each for each in there if each == versions.minor(wanted)), None)
    same = [each for each in there if versions.major(each) == versions.major(wanted)]
    key = versions.key
    lower = [each for each in same if key(each) <= key(wanted)]
    return max(lower, key=key) if lower else min(same, key=key, default=None)


def cpu_distribution(name: str) -> str | None:
    """What a package's makers publish for machines without a GPU, where that is a package of its own."""
    wanted = re.sub(r"[-_.]+", "-", name).lower()
    rows = tables().packages.cpu
    return next((row.distribution for row in rows if matches_any(wanted, row.names)), None)


def packages_with_needs() -> dict[str, tuple[str, ...]]:
    """Those of which `needs_of` knows something, and what people call them."""
    rows = tables().packages.needs
    return {
        each.name: (each.name, *(other for row in rows if row.name == each.name for other in row.called))
        for each in rows
    }


def needs_of(name: str, release: str) -> PackageNeeds | None:
    """What a release needs; None where the table does not reach back so far."""
    rows = (row for row in tables().packages.needs if row.name == name and versions.at_least(release, row.since))
    return max(rows, key=lambda row: versions.key(row.since), default=None)


def distribution_of_module(module: str) -> str | None:
    """What to ask an index for, so that `import module` works: `pyyaml` for `yaml`, or its own name where that is not
    known to differ. Empty where no distribution brings it; None where its name is not known either way.
    """
    top = module.partition(".")[0]
    row = next((row for row in tables().packages.imported if row.module == top), None)
    if row is not None:
        return row.distribution
    return "" if top in sys.stdlib_module_names else None


def choosing_variables() -> frozenset[str]:
    """The variables by which somebody chooses what a package loads."""
    return frozenset(row.override for row in tables().packages.profile if row.override)


def is_variant(profile: PackageProfile, path: str) -> bool:
    """Whether a library is the one for GPUs below the capability that the profile names."""
    stem = path.replace("\\", "/").rpartition("/")[2].partition(".")[0]
    return profile.variant is not None and stem.endswith(profile.variant.name)


@lru_cache(maxsize=4096)  # the same few names for every library and machine
def from_system(soname: str) -> bool:
    """Whether every Linux has it."""
    return matches_any(soname, tables().packages.system.libraries)


@lru_cache(maxsize=4096)
def framework_of(soname: str) -> str | None:
    """The framework whose own package brings a library: `torch` for libc10.so."""
    for row in tables().packages.framework:
        if matches_any(soname, row.libraries):
            return row.name
    return None


def is_framework(name: str) -> bool:
    return any(row.name == re.sub(r"[-_.]+", "-", name).lower() for row in tables().packages.framework)


def framework_brings(
    framework: str, component: str, *, release: str | None = None, cuda: int | None = None, bare: bool = False
) -> bool:
    """Whether a CUDA build of a framework comes with a component of CUDA: `cublas` with torch.

    `release`, `cuda`: of the framework; where one is not known, what comes with any build of it counts. `bare`: and an
    installer that is told its name alone brings such a build.
    """
    patterns = components_of_framework(framework, release=release, cuda=cuda, bare=bare)
    return matches_any(component, patterns)


def components_of_framework(
    framework: str, *, release: str | None = None, cuda: int | None = None, bare: bool = False
) -> tuple[str, ...]:
    """The patterns of all components that come with it, as `brings` asks for one."""
    for row in tables().packages.framework:
        if row.name == framework and not (bare and row.only_with_extra):
            some = (pattern for each in row.some if _is_of(each, release, cuda) for pattern in each.brings)
            return (*row.brings, *some)
    return ()


def _is_of(some: SomeBring, release: str | None, cuda: int | None) -> bool:
    if release and some.since and not versions.at_least(release, some.since):
        return False
    if release and some.below and versions.at_least(release, some.below):
        return False
    return cuda is None or some.cuda in (None, cuda)


def gcc_of_glibcxx(version: str) -> str | None:
    """The GCC whose libstdc++ first has the symbols `GLIBCXX_version`."""
    return next((row.gcc for row in tables().manylinux.libstdcxx if row.glibcxx == version), None)
