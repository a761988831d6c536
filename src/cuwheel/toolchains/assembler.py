"""ptxas, which makes machine code of PTX: which release fits, and that one, found here or fetched by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cuwheel.errors import CuwheelError, MalformedError, UnavailableError
from cuwheel.facts import toolkits, versions
from cuwheel.facts.tables import tables
from cuwheel.support import log, process
from cuwheel.toolchains import archives, providers, workplace
from cuwheel.toolchains.archives import Supply
from cuwheel.toolchains.provide import platform_here
from cuwheel.toolchains.store import open_store
from cuwheel.toolchains.toolchain import Recipe, Wanted
from cuwheel.toolchains.workplace import Surroundings, Workplace
from cuwheel.verdicts import drivers
from cuwheel.verdicts.choice import capability_in_toolkit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cuwheel.facts.arch import Arch, Capability
    from cuwheel.facts.rows.toolkits import Toolkit
    from cuwheel.toolchains.toolchain import Installed

_PART = "ptxas"
_VERSION_S = 60.0
_FOLDERS = ("bin", "bin/x86_64")  # the second on Windows


class Assembler(Struct, frozen=True, kw_only=True):
    """`cuda`: the release that it is of. `version`: what it says of itself, 13.4.92."""

    cuda: str
    version: str
    program: str


def release_for(
    isa: str, device: Capability, suffix: str = "", driver: str | None = None, only: str | None = None
) -> Toolkit:
    """The release whose ptxas compiles PTX of this ISA for a device. `driver`: the CUDA that its driver came for.

    `only`: this release and no other.

    Drivers load machine code of their own major and of older ones. So without a driver it is the newest of the major
    that wrote the PTX or, where that does not know the device, of the next that does: every driver for such a GPU is at
    least of that one. With a driver it is the driver's own release, whose compiler would have been the driver's; for
    PTX that is too new for it, the first of its major that knows the PTX. Raises UnavailableError with the reason.
    """
    since = tables().toolchains.index.ptxas_since
    rows = [row for row in toolkits.all_toolkits() if versions.at_least(row.version, only or since)]
    rows = rows[:1] if only else rows
    knowing = [row for row in rows if any(_is_for(arch, row, device, suffix) for arch in row.archs)]
    if not knowing:
        which = f"the ptxas of CUDA {only} does not compile" if only else "no known ptxas compiles"
        raise UnavailableError(f"{which} for {device}{suffix}")
    fitting = [row for row in knowing if versions.at_least(row.ptx_isa, isa)]
    if not fitting:
        raise UnavailableError(
            f"the last CUDA that compiles for {device}{suffix} is {knowing[-1].version}, and PTX ISA {isa} is of CUDA "
            f"{drivers.cuda_of_isa(isa) or 'a later release'}"
        )
    if driver is None:
        return [row for row in fitting if row.major == fitting[0].major][-1]
    loaded = [row for row in fitting if row.major <= versions.major(driver)]
    if not loaded:
        raise UnavailableError(
            f"PTX ISA {isa} needs the ptxas of CUDA {fitting[0].version}, and a driver for CUDA {driver} does not load "
            "what that makes"
        )
    return next((row for row in reversed(loaded) if versions.at_least(driver, row.version)), loaded[0])


def _is_for(arch: Arch, toolkit: Toolkit, device: Capability, suffix: str) -> bool:
    return arch.capability == capability_in_toolkit(toolkit, device) and arch.suffix == suffix


def assembler_of(cuda: str) -> Assembler:
    """The ptxas of a release: of a toolkit in the cache or on this machine, else fetched from the index."""
    store = open_store()
    around = Surroundings.here(store)
    row = toolkits.find_toolkit(cuda)
    installed = [each for each in store.all() if each.cuda == row.version and not each.prefix]
    for each in sorted(installed, key=lambda each: versions.key(each.version), reverse=True):
        if program := _program(each.root):
            store.touch(each)
            return Assembler(cuda=row.version, version=_version(program), program=program)
    system, cpu = platform_here(around)
    wanted = Wanted(toolkit=row, components=(), providers=("system",), cpu=cpu, system=system)
    try:
        place = providers.provider("system").decide(wanted, around).place
    except CuwheelError as error:
        log.debug("no toolkit of this machine has ptxas %s: %s", row.version, error.message)
        place = ""
    if place and (program := _program(place)):
        return Assembler(cuda=row.version, version=_version(program), program=program)
    index = tables().toolchains.index
    package = index.compiler if toolkits.nvcc_on_index(row.version) else index.before.format(major=row.major)
    found = archives.resolve_wheels((f"{package}=={row.version}.*",), dependencies=False)
    recipe = Recipe(
        provider="index",
        cuda=row.version,
        release=found[0].version,
        platform=wanted.platform,
        components=(_PART,),
        archives=archives.in_order(found),
        found_via=f"the index has {package} {found[0].version}",
    )
    log.info("ptxas of CUDA %s from the index: %s", row.version, recipe.found_via)

    def fill(scratch: Path, final: Path) -> Installed:
        root = scratch.resolve() / "root"
        root.mkdir()
        supply = Supply(store=store)
        for archive, path in zip(recipe.archives, archives.obtain_archives(recipe.archives, supply), strict=True):
            archives.unpack(archive, path, root)
        workplace.let_run(root)
        if not (made := _program(root)):
            raise MalformedError(package, "it has no ptxas")
        place = Workplace(scratch=scratch, final=final, supply=supply)
        return place.note(recipe, root=final / "root", version=_version(made))

    made = store.make(recipe, fill)
    return Assembler(cuda=row.version, version=made.version, program=_program(made.root) or "")


def _program(root: str | Path) -> str | None:
    return next((str(path) for path in _places(Path(root)) if path.is_file()), None)


def _places(root: Path) -> Iterable[Path]:
    return (root / folder / name for folder in _FOLDERS for name in (_PART, f"{_PART}.exe"))


def _version(program: str) -> str:
    said = workplace.version_in(process.run([program, "--version"], timeout=_VERSION_S).stdout)
    if said is None:
        raise MalformedError(program, "does not say which version it is")
    return said
