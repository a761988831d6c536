"""ptxas of a release, which makes machine code of PTX, found here or fetched by itself; and nvJitLink, which links
relocatable machine code and LTO-IR. Which release fits: verdicts/ahead_of_time.py.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.facts import toolchain_parts
from cuwheel.facts.tables import tables
from cuwheel.support import log
from cuwheel.toolchains import archives, providers, workplace
from cuwheel.toolchains.archives import Supply
from cuwheel.toolchains.provide import platform_here
from cuwheel.toolchains.store import open_store
from cuwheel.toolchains.toolchain import Recipe, Wanted
from cuwheel.toolchains.workplace import Surroundings, Workplace
from cuwheel_core.errors import CuwheelError, MalformedError
from cuwheel_core.facts import toolkits, versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cuwheel.toolchains.store import Store
    from cuwheel.toolchains.toolchain import Installed
    from cuwheel_core.facts.rows.toolkits import Toolkit

_PART, _LINKER = "ptxas", "nvjitlink"
_LIBRARY, _LIBRARIES = "libnvJitLink.so.", ("lib", "lib64", "targets/*/lib")
_FOLDERS = ("bin", "bin/x86_64")  # the second on Windows


class Assembler(Struct, frozen=True, kw_only=True):
    """`cuda`: the release that it is of. `version`: what it says of itself, 13.4.92."""

    cuda: str
    version: str
    program: str


def assembler_of(cuda: str) -> Assembler:
    """The ptxas of a release: of a toolkit in the cache or on this machine, else fetched from the index."""
    store = open_store()
    around = Surroundings.here(store)
    row = toolkits.find_toolkit(cuda)
    installed = [each for each in store.all() if each.cuda == row.version and not each.prefix]
    for each in sorted(installed, key=lambda each: versions.key(each.version), reverse=True):
        if program := _program(each.root):
            store.touch(each)
            return Assembler(cuda=row.version, version=workplace.nvcc_version(program), program=program)
    place = _toolkit_of_machine(row, around)
    if place and (program := _program(place)):
        return Assembler(cuda=row.version, version=workplace.nvcc_version(program), program=program)
    index = tables().toolchains.index
    package = index.compiler if toolchain_parts.nvcc_on_index(row.version) else index.before.format(major=row.major)
    made = _part(store, row, _PART, package, _program)
    return Assembler(cuda=row.version, version=made.version, program=_program(made.root) or "")


def has_linker(row: Toolkit) -> bool:
    """Whether there is an nvJitLink of the release."""
    return versions.at_least(row.version, tables().toolchains.index.linker_since)


def linker_of(cuda: str) -> Assembler:
    """nvJitLink of a release, found as ptxas is, or in this environment; `program` is the library."""
    store, row, index = open_store(), toolkits.find_toolkit(cuda), tables().toolchains.index
    known = [each for each in store.all() if each.cuda == row.version and each.components == (_LINKER,)]
    if known:
        store.touch(known[-1])
        return Assembler(cuda=cuda, version=known[-1].version, program=_library(known[-1].root) or "")
    package = (
        index.linker if toolchain_parts.nvcc_on_index(row.version) else index.linker_before.format(major=row.major)
    )
    place = _toolkit_of_machine(row, Surroundings.here(store))
    if place and (program := _library(place)):
        full = Path(program).resolve().name.partition(".so.")[2]  # libnvJitLink.so.13 is a link to .so.13.0.88
        return Assembler(cuda=cuda, version=full if full.startswith(f"{row.version}.") else cuda, program=program)
    if brought := _installed_linker(package, row):
        return brought
    made = _part(store, row, _LINKER, package, _library)
    return Assembler(cuda=cuda, version=made.version, program=_library(made.root) or "")


def _toolkit_of_machine(row: Toolkit, around: Surroundings) -> str | None:
    system, cpu = platform_here(around)
    wanted = Wanted(toolkit=row, components=(), providers=("system",), cpu=cpu, system=system)
    try:
        return providers.provider("system").decide(wanted, around).place
    except CuwheelError as error:
        log.debug("this machine has no toolkit %s: %s", row.version, error.message)
        return None


def _installed_linker(package: str, row: Toolkit) -> Assembler | None:
    """Finds nvJitLink in the environment that this runs in, where PyTorch brings one, if it is of that release."""
    from importlib import metadata  # noqa: PLC0415 - slow, and only here

    with suppress(metadata.PackageNotFoundError):
        found = metadata.distribution(package)
        places = (Path(str(each.locate())) for each in found.files or () if each.name.startswith(_LIBRARY))
        library = next((each for each in places if each.is_file()), None)
        if library and found.version.startswith(f"{row.version}."):
            return Assembler(cuda=row.version, version=found.version, program=str(library))
    return None


def _part(
    store: Store,
    row: Toolkit,
    name: str,
    package: str,
    find: Callable[[Path], str | None],
) -> Installed:
    """One package of the index, in a folder of the store. `find`: what is wanted of it."""
    system, cpu = platform_here(Surroundings.here(store))
    found = archives.resolve_wheels((f"{package}=={row.version}.*",), dependencies=False)
    recipe = Recipe(
        provider="index",
        cuda=row.version,
        release=found[0].version,
        platform=f"{system}-{cpu}",
        components=(name,),
        archives=archives.in_order(found),
        found_via=f"the index has {package} {found[0].version}",
    )
    log.info("%s of CUDA %s from the index: %s", name, row.version, recipe.found_via)

    def fill(scratch: Path, final: Path) -> Installed:
        root = scratch.resolve() / "root"
        root.mkdir()
        supply = Supply(store=store)
        for archive, path in zip(recipe.archives, archives.obtain_archives(recipe.archives, supply), strict=True):
            archives.unpack(archive, path, root)
        workplace.let_run(root)
        if not (made := find(root)):
            raise MalformedError(package, f"it has no {name}")
        place = Workplace(scratch=scratch, final=final, supply=supply)
        version = workplace.nvcc_version(made) if name == _PART else found[0].version
        return place.note(recipe, root=final / "root", version=version)

    return store.make(recipe, fill)


def _library(root: str | Path) -> str | None:
    return next((str(path) for each in _LIBRARIES for path in sorted(Path(root).glob(f"{each}/{_LIBRARY}*"))), None)


def _program(root: str | Path) -> str | None:
    return next((str(path) for path in _places(Path(root)) if path.is_file()), None)


def _places(root: Path) -> Iterable[Path]:
    return (root / folder / name for folder in _FOLDERS for name in (_PART, f"{_PART}.exe"))
