"""A toolchain, ready to build with: decided, fetched, completed by a host compiler, and proven to work."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from cuwheel.errors import UnavailableError, UsageError
from cuwheel.facts import toolchain_parts
from cuwheel.machine.profile import Attempt
from cuwheel.machine.world import World
from cuwheel.support import log, process, quoting
from cuwheel.toolchains import archives, cross, lock, providers, toolchain
from cuwheel.toolchains.archives import Supply
from cuwheel.toolchains.store import open_store
from cuwheel.toolchains.toolchain import (
    HostCompiler,
    Installed,
    Recipe,
    Toolchain,
    Wanted,
    apply_settings,
    command_where_toolkit_is,
    nvcc_of,
    variables_inside,
)
from cuwheel.toolchains.workplace import Surroundings, Workplace, compiler_of
from cuwheel_core.errors import CuwheelError, UnknownNameError
from cuwheel_core.facts import toolkits, versions
from cuwheel_core.facts.arch import Arch
from cuwheel_core.wheel.tags import OF_CUDA, processor_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cuwheel.facts.rows.toolchains import Component
    from cuwheel.toolchains.request import ToolchainRequest
    from cuwheel.toolchains.store import Store
    from cuwheel.toolchains.toolchain import ProviderName
    from cuwheel_core.facts.rows.common import OperatingSystem
    from cuwheel_core.facts.rows.toolkits import Toolkit


_PATCH = re.compile(r"(?:cuda)?[\s_-]*v?(\d+\.\d+\.\d+)", re.IGNORECASE | re.ASCII)
_SYSTEMS: dict[str, OperatingSystem] = {"linux": "linux", "win32": "windows"}


class Decision(Struct, frozen=True, kw_only=True):
    """What is going to be done: `chosen` is a recipe, or what is installed already."""

    wanted: Wanted
    chosen: Recipe | Installed
    around: Surroundings
    supply: Supply
    trail: tuple[Attempt, ...]


def provide(request: ToolchainRequest) -> Toolchain:
    """The toolchain of a request, installed if it is not there yet."""
    decision = decide(request)
    # Before anything is fetched: without one a toolkit is of no use.
    compiler = _compiler(request, decision.wanted, decision.chosen)
    toolkit = execute(decision)
    decision.around.store.touch(toolkit)
    if request.lock:
        lock.update(request.lock, lock.locked(toolkit))
    return _complete(decision.around.machine, toolkit, compiler, decision.trail)


def foresee(request: ToolchainRequest) -> Toolchain:
    """The toolchain that `provide` would give: nothing is fetched, and a toolkit that is not there yet has no size."""
    decision = decide(request)
    compiler = _compiler(request, decision.wanted, decision.chosen)
    return _complete(decision.around.machine, _expected(decision), compiler, decision.trail)


def _expected(decision: Decision) -> Installed:
    chosen = decision.chosen
    if isinstance(chosen, Installed):
        return chosen
    store = decision.around.store
    folder = store.place(chosen)
    conda = store.folder / "conda" / folder.name
    root = chosen.place or (conda if chosen.provider == "conda" else folder / "root")
    own = compiler_of(chosen, folder)
    return chosen.installed(folder=folder, root=root, version=chosen.release, size=0, host_compiler=own)


def _complete(
    machine: World, toolkit: Installed, compiler: HostCompiler | None, trail: tuple[Attempt, ...]
) -> Toolchain:
    compiler = compiler or toolkit.host_compiler
    chosen = toolchain.settings_for(toolkit, compiler)
    if compiler and compiler.kind == "msvc":
        chosen = (*chosen, *toolchain.msvc_settings(machine, compiler))
    return Toolchain(toolkit=toolkit, host_compiler=compiler, settings=chosen, trail=trail)


def decide(request: ToolchainRequest) -> Decision:
    store = open_store(request.cache)
    around = Surroundings.here(store)
    wanted = resolve(request, around)
    supply = Supply(store=store, offline=request.offline, base=request.fetched)
    if request.fetched or request.locked:
        recipe = lock.recipe_for(wanted, request.fetched, request.locked)
        if recipe.provider != "system":
            return _as_locked(request, wanted, recipe, around, supply)
        wanted = replace(wanted, providers=("system",), exact=recipe.release)

    def have(name: ProviderName) -> Installed | None:
        if name == "system":  # a system's toolkit may have gone or changed: it is looked at again
            return None
        fitting = [each for each in store.all() if each.provider == name and serves(each, wanted)]
        if wanted.target and not cross.find_compiler(around.machine, wanted, request.host_compiler, []):
            fitting = [each for each in fitting if each.host_compiler]
        return max(fitting, key=_closeness, default=None)

    chosen, trail = providers.decide(wanted, around, have)
    if wanted.target and isinstance(chosen, Recipe) and request.host_compiler != "":
        chosen = cross.complete(chosen, wanted, around, request.host_compiler)
    return Decision(wanted=wanted, chosen=chosen, around=around, supply=supply, trail=trail)


def _as_locked(
    request: ToolchainRequest, wanted: Wanted, recipe: Recipe, around: Surroundings, supply: Supply
) -> Decision:
    if not request.fetched:
        found = archives.with_addresses(recipe.archives, offline=request.offline, target=wanted.target)
        recipe = replace(recipe, archives=found)
    chosen = around.store.find(recipe.identity) or recipe
    return Decision(wanted=wanted, chosen=chosen, around=around, supply=supply, trail=())


def execute(decision: Decision) -> Installed:
    if isinstance(decision.chosen, Installed):
        return decision.chosen
    recipe = decision.chosen
    log.info("CUDA %s from %s: %s", recipe.release, recipe.provider, recipe.found_via)

    def fill(scratch: Path, final: Path) -> Installed:
        workplace = Workplace(scratch=scratch, final=final, supply=decision.supply)
        return providers.provider(recipe.provider).make(recipe, workplace)

    return decision.around.store.make(recipe, fill)


def resolve(request: ToolchainRequest, around: Surroundings) -> Wanted:
    """The rows that its words mean; all mistakes at once."""
    problems: list[str] = []
    row: Toolkit | None = None
    try:
        row = toolkits.find_toolkit(request.version)
    except UnknownNameError as error:
        if not (request.components or request.providers):
            raise
        problems.append(f"{error.message} ({error.hint})")
    for name in request.components:
        try:
            toolchain_parts.find_components(name)
        except UnknownNameError as error:
            problems.append(f"{error.message} ({error.hint})" if error.hint else error.message)
    unknown = [name for name in request.providers if name not in providers.ORDER]
    problems += [f"unknown provider {name!r}: choose from {', '.join(providers.ORDER)}" for name in unknown]
    if problems or row is None:
        raise UsageError("; ".join(problems), hint="cuwheel toolchain --help")
    match = _PATCH.fullmatch(request.version.strip())
    system, cpu = platform_here(around)
    target = request.cpu if request.cpu != cpu else None
    glibc = cross.reachable_glibc(system, cpu, target, request.glibc) if target else None
    return Wanted(
        toolkit=row,
        exact=match[1] if match else None,
        components=toolchain_parts.with_base(request.components),
        providers=providers.chosen(request.providers),
        cpu=cpu,
        target=target,
        glibc=glibc,
        l4t=request.l4t if target and not toolkits.one_arm64(row) else None,
        system=system,
        offline=request.offline,
        redist_url=request.redist_url,
        apt_sources=request.apt_sources,
        folder=request.toolkit,
        image=request.image,
    )


def serves(toolkit: Installed, wanted: Wanted) -> bool:
    """Whether what is installed is what is asked for, or more."""
    parts = {row.name for row in wanted.components}
    # `13.0.3.0`, as the index writes it, is 13.0.3.
    patch = wanted.exact is None or wanted.exact in (toolkit.version, ".".join(toolkit.release.split(".")[:3]))
    same = toolkit.l4t == bool(wanted.l4t) or (wanted.l4t is None and toolkit.provider == "system")
    fits = same and toolkit.target == wanted.target and (not wanted.target or cross.serves(toolkit, wanted))
    return toolkit.cuda == wanted.cuda and patch and parts <= set(toolkit.components) and fits


def _closeness(toolkit: Installed) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """What brings the least that was not asked for, and of those the newest; so of two compilers for another glibc."""
    compiler = toolkit.host_compiler
    return -len(toolkit.components), versions.key(toolkit.release), versions.key(compiler.version if compiler else "0")


def platform_here(around: Surroundings) -> tuple[OperatingSystem, str]:
    """The system and the processor, as toolkits name them."""
    machine = around.machine
    system = _SYSTEMS.get(machine.platform)
    cpu = processor_name(machine.cpu)
    if system is None or cpu not in OF_CUDA or (system == "windows" and cpu != "x86_64"):
        raise UnavailableError(
            f"toolkits can be installed on Linux, x86-64 and arm64, and on Windows, x86-64; not on {machine.platform} "
            f"{machine.cpu}"
        )
    return system, cpu


def _compiler(request: ToolchainRequest, wanted: Wanted, chosen: Recipe | Installed) -> HostCompiler | None:
    """The host compiler to use; None where the toolkit brings its own."""
    if request.host_compiler == "" or chosen.provider in ("conda", "container"):  # none is wanted, or they bring one
        return None
    if wanted.target:
        brought = any(each.kind == "compiler" for each in chosen.archives) and not request.host_compiler
        return None if brought else cross.choose_compiler(World.here(), wanted, request.host_compiler)
    return toolchain.choose_host_compiler(World.here(), toolkits.find_toolkit(chosen.cuda), request.host_compiler)


def installed_like(request: ToolchainRequest) -> tuple[Installed, ...]:
    """What the store has for a request, last used first; nothing is looked for elsewhere."""
    return _installed_like(request)[1]


def _installed_like(request: ToolchainRequest) -> tuple[Wanted, tuple[Installed, ...]]:
    store = open_store(request.cache)
    wanted = resolve(request, Surroundings.here(store))
    found = [each for each in store.all() if serves(each, wanted) and each.provider in wanted.providers]
    return wanted, tuple(sorted(found, key=store.last_used, reverse=True))


def find(request: ToolchainRequest) -> Toolchain:
    """A toolchain as `provide` gives it, but installed before: the last used of those that fit."""
    wanted, installed = _installed_like(request)
    if not installed:
        options = [f"--cpu {request.cpu}"] if wanted.target else []
        options += [f"--with {','.join(request.components)}"] if request.components else []
        options += [f"--provider {','.join(request.providers)}"] if request.providers else []
        words = " ".join(["cuwheel toolchain install", request.version, *options])
        raise UnavailableError(f"CUDA {request.version} is not installed", hint=words)
    return _complete(World.here(), installed[0], _compiler(request, wanted, installed[0]), ())


def remove(
    request: ToolchainRequest | None, store: Store, *, every: bool, downloads: bool
) -> tuple[tuple[Installed, ...], int]:
    """The toolkits that a request means, or `every` one, and all `downloads`: what went, and its bytes."""
    doomed = installed_like(request) if request else store.all() if every else ()
    for each in doomed:
        store.remove(each)
    return doomed, sum(each.size for each in doomed) + (store.remove_downloads() if downloads else 0)


# Archives into a folder, to be carried to a machine without a network.

# A toolkit of the system, of conda or in an image is not a set of archives.
_IN_ARCHIVES = ("index", "redist", "debian")


def fetch(request: ToolchainRequest, folder: Path) -> tuple[Recipe, tuple[Path, ...]]:
    chosen = tuple(name for name in request.providers or providers.ORDER if name in _IN_ARCHIVES)
    if not chosen:
        words = ("cuwheel", "toolchain", "fetch", request.version, "--provider", ",".join(_IN_ARCHIVES))
        raise UnavailableError(
            f"{', '.join(request.providers)} cannot be fetched into a folder",
            hint=quoting.here([*words, "--to", str(folder)]),
        )
    decision = decide(dataclasses.replace(request, providers=chosen))  # noqa: TID251 - a request
    recipe = _recipe_with_addresses(decision.chosen)
    if request.dry_run:
        return recipe, ()
    files = archives.copy_to(folder, recipe.archives, decision.supply)
    sized = zip(recipe.archives, files, strict=True)
    recipe = replace(recipe, archives=tuple(replace(each, size=path.stat().st_size) for each, path in sized))
    more = lock.all_requirements(recipe.cuda, recipe.platform, request.locked)
    for each in more:
        wanted = archives.with_addresses(each.archive, offline=request.offline)
        files += archives.copy_to(folder, wanted, decision.supply)
    lock.update(folder / lock.NAME, lock.locked(recipe), *more)
    return recipe, tuple(dict.fromkeys(files))


def _recipe_with_addresses(chosen: Recipe | Installed) -> Recipe:
    if isinstance(chosen, Recipe):
        return chosen
    return replace(lock.locked(chosen).recipe(), archives=chosen.archives)  # with addresses on this machine, too


# Proof that a toolchain works: a kernel compiled for every architecture it claims, linked, and inspected.

_COMPILE_S = 900.0
_KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "SYSTEMROOT", "COMSPEC", "TEMP", "TMP", "PATHEXT")
_KERNEL = """\
#include <cuda.h>
#include <cuda_runtime.h>
{headers}
__global__ void NAME(float *x) {{ x[threadIdx.x] *= 2.0f; }}
int NAME(float *x, int) {{
    if (cuInit(0) != CUDA_SUCCESS) return 1;
    NAME<<<1, 32>>>(x);
    return cudaGetLastError();
}}
"""


class Check(Struct, frozen=True, kw_only=True):
    name: str
    passed: bool
    outcome: str
    evidence: str = ""


class Verification(Struct, frozen=True, kw_only=True):
    """`architectures`: those that nvcc claims and the library has; `missing`: those that it has not."""

    architectures: tuple[Arch, ...]
    missing: tuple[Arch, ...]
    checks: tuple[Check, ...]
    seconds: float

    @property
    def succeeded(self) -> bool:
        return all(each.passed for each in self.checks)

    @property
    def words(self) -> str:
        failed = [each.name for each in self.checks if not each.passed]
        if failed:
            return f"It does not work: {', '.join(failed)}"
        return f"It works: {len(self.architectures)} architectures compiled, linked and found in the result"


def verify(toolchain: Toolchain) -> Verification:
    with tempfile.TemporaryDirectory(prefix="cuwheel-verify-") as name:
        return _Bench(toolchain, Path(name)).run()


class _Bench:
    """One folder to compile in, and what was found there."""

    def __init__(self, toolchain: Toolchain, folder: Path) -> None:
        self.toolchain, self.folder = toolchain, folder
        self.environ = apply_settings(toolchain.settings, _plain_environment())
        self.seconds = 0.0
        self.claimed: tuple[Arch, ...] = ()
        self.found: tuple[Arch, ...] = ()
        self.objects: list[str] = []

    def run(self) -> Verification:
        checks: list[Check] = []
        for name, check in CHECKS:
            try:
                checks += [Check(name=name, passed=True, outcome=each) for each in check(self)]
            except CuwheelError as error:
                lines = error.message.splitlines()
                evidence = "\n".join(line.strip() for line in lines[1:][-4:])
                checks.append(Check(name=name, passed=False, outcome=lines[0], evidence=evidence))
                break  # each check stands on the one before it
        missing = tuple(each for each in self.claimed if each not in self.found)
        if missing and checks[-1].passed:
            checks.append(Check(name="inspect", passed=False, outcome=f"not in the result: {' '.join(missing)}"))
        return Verification(
            architectures=tuple(each for each in self.claimed if each in self.found),
            missing=missing,
            checks=tuple(checks),
            seconds=round(self.seconds, 2),
        )

    def nvcc(self, *arguments: str) -> str:
        command = command_where_toolkit_is(
            self.toolchain.toolkit,
            [nvcc_of(self.toolchain.toolkit), *arguments],
            folders=[self.folder],
            cwd=self.folder,
            environ=variables_inside(self.toolchain.settings),
        )
        done = process.run(command, timeout=_COMPILE_S, env=self.environ, cwd=self.folder)
        self.seconds += done.seconds
        return done.stdout


def _plain_environment() -> dict[str, str]:
    """Nothing of the caller's that changes what a compiler does."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


def _ask(bench: _Bench) -> Iterator[str]:
    """nvcc does not list what has a suffix: the table does."""
    plain = [Arch.parse(word) for word in bench.nvcc("--list-gpu-code").split() if word.startswith("sm_")]
    row = toolkits.find_toolkit(bench.toolchain.toolkit.cuda)
    listed = row.archs
    bench.claimed = tuple(
        dict.fromkeys([*plain, *(each for each in listed if each.suffix and Arch(each.capability) in plain)])
    )
    yield f"{bench.toolchain.toolkit.version} claims {len(bench.claimed)} architectures"
    strange = sorted(set(plain) - set(listed)) + sorted({each for each in listed if not each.suffix} - set(plain))
    if strange:
        yield f"its list differs from the table in {' '.join(strange)}"


def _compile(bench: _Bench) -> Iterator[str]:
    headers = [row.header for row in _components(bench) if row.header and row.header != "cuda_runtime.h"]
    source = bench.folder / "kernel.cu"
    source.write_text(_KERNEL.format(headers="\n".join(f"#include <{each}>" for each in headers)), encoding="utf-8")
    for suffix, archs in _groups(bench.claimed).items():
        codes = [f"arch=compute_{each.number},code={each}" for each in archs]
        flags = [word for code in codes for word in ("-gencode", code)]
        parallel = ["--threads", str(os.cpu_count() or 1)]
        bench.nvcc(
            "-Xcompiler", "-fPIC", f"-DNAME=verify{suffix}", *parallel, *flags, "-c", "kernel.cu", "-o", f"k{suffix}.o"
        )
        bench.objects.append(f"k{suffix}.o")
    included = f" with {' '.join(headers)}" if headers else ""
    yield f"one kernel for all of them{included}"


def _groups(archs: tuple[Arch, ...]) -> dict[str, list[Arch]]:
    """Architectures by suffix: nvcc does not take sm_100 and sm_100f for one file."""
    found: dict[str, list[Arch]] = {}
    for each in archs:
        found.setdefault(each.suffix, []).append(each)
    return found


def _link(bench: _Bench) -> Iterator[str]:
    """Nothing may stay undefined: the stub of libcuda and the runtime must have it all."""
    libraries = ["cuda", *(row.library for row in _components(bench) if row.library and row.library != "cudart")]
    words = [f"-l{each}" for each in libraries]
    bench.nvcc("-shared", "-Xlinker", "--no-undefined", *bench.objects, "-o", "libkernel.so", *words)
    yield f"a shared library, with the static runtime and {' '.join(words)}"
    bench.nvcc("-shared", "-cudart", "shared", *bench.objects, "-o", "libshared.so", "-lcuda")
    yield "and one with the shared runtime"


def _inspect(bench: _Bench) -> Iterator[str]:
    from cuwheel.device_code.survey import survey  # noqa: PLC0415 - who provides a toolkit reads no library

    (library,) = survey(bench.folder / "libkernel.so").libraries
    bench.found = tuple(dict.fromkeys(each.arch for each in library.device_code if each.kind == "cubin"))
    yield f"found in the library: {' '.join(bench.found)}"
    yield f"it needs {' '.join(library.needed)}"


def _components(bench: _Bench) -> list[Component]:
    return [toolchain_parts.find_component(name) for name in bench.toolchain.toolkit.components]


CHECKS: tuple[tuple[str, Callable[[_Bench], Iterator[str]]], ...] = (
    ("ask", _ask),
    ("compile", _compile),
    ("link", _link),
    ("inspect", _inspect),
)
