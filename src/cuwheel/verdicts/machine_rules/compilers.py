"""Does nvcc take the host compiler that it would find?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuwheel.facts import toolkits, versions
from cuwheel.verdicts.machine_rules import view
from cuwheel.verdicts.rule import Found, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cuwheel.facts.rows.toolkits import Toolkit
    from cuwheel.machine.profile import Compiler, MachineProfile

_NAMES = {"msvc": "MSVC"}
_BUILD_TOOLS = (
    'winget install Microsoft.VisualStudio.2022.BuildTools, then in its installer "Desktop development with C++"'
)


@rule(
    "host-compiler-too-new",
    severity="error",
    why="""nvcc stops with "unsupported GNU version" (or "unsupported Microsoft Visual Studio version") for a compiler
    later than it was tested with. With -allow-unsupported-compiler it goes on and often fails in the compiler's own
    headers (_Float32 and the like).""",
    source="crt/host_config.h of each toolkit",
)
def host_compiler_too_new(machine: MachineProfile) -> Iterator[Found]:
    yield from _refused(machine, "too new")


@rule(
    "host-compiler-too-old",
    severity="error",
    why="""nvcc stops with "unsupported Microsoft Visual Studio version" for a compiler of before the oldest that its
    headers are written for.""",
    source="crt/host_config.h of each toolkit",
)
def host_compiler_too_old(machine: MachineProfile) -> Iterator[Found]:
    yield from _refused(machine, "too old")


def _refused(machine: MachineProfile, how: str) -> Iterator[Found]:
    toolkit = view.toolkit_in_use(machine)
    known = view.row(toolkit.version) if toolkit else None
    chosen = view.host_compiler(machine, known.version) if known else None
    if not (toolkit and chosen and known):
        return
    compiler, way = chosen
    limits = known.host_compilers
    if limits.refusal(compiler.kind, compiler.version) != how:
        return
    fitting = [
        each for each in machine.compilers if each.kind == compiler.kind and not limits.refusal(each.kind, each.version)
    ]
    best = max(fitting, key=lambda each: versions.key(each.version), default=None)
    accepted = f"{_NAMES.get(compiler.kind, compiler.kind)} {limits.accepted(compiler.kind)}"
    yield Found(
        message=f"nvcc {versions.minor(toolkit.version)} accepts {accepted}, but would use {compiler.version}",
        evidence=(f"{compiler.path} ({way})", f"nvcc {toolkit.version} at {toolkit.root}"),
        fix=_msvc_fix(machine, known, best) if compiler.kind == "msvc" else _fix(machine, known, compiler, best),
    )


def _fix(machine: MachineProfile, known: Toolkit, compiler: Compiler, best: Compiler | None) -> str:
    if best:
        return view.setting(machine, **toolkits.ccbin_variable(known.version, best.path), CUDAHOSTCXX=best.path)
    _, limit = known.host_compilers.bounds(compiler.kind)
    name = f"g++-{limit}" if compiler.kind == "gcc" else f"clang-{limit}"
    install = f"apt install {name}" if view.prefers_apt(machine) else f"conda install -c conda-forge gxx={limit}"
    setting = view.setting(machine, **toolkits.ccbin_variable(known.version, name), CUDAHOSTCXX=name)
    return f"{install} && {setting}"


def _msvc_fix(machine: MachineProfile, known: Toolkit, best: Compiler | None) -> str:
    if best:
        return view.msvc_prompt(machine, best)
    accepted = known.host_compilers.accepted("msvc").replace("19.", "14.")
    return f'in the Visual Studio Installer, add the component "MSVC build tools" of a version from {accepted}'


@rule(
    "host-compiler-missing",
    severity="error",
    why="nvcc compiles the host half of every file with the system's C++ compiler and cannot work without one.",
    source="NVIDIA: CUDA compiler driver, supported host compilers",
)
def host_compiler_missing(machine: MachineProfile) -> Iterator[Found]:
    toolkit = view.toolkit_in_use(machine)
    windows = view.system(machine) == "windows"
    if toolkit is None:
        return
    known = view.row(toolkit.version)
    if known and not windows and machine.compilers and view.host_compiler(machine, known.version) is None:
        # conda's are on PATH under names that nvcc does not look for: x86_64-conda-linux-gnu-g++.
        fitting = [each for each in machine.compilers if not known.host_compilers.refusal(each.kind, each.version)]
        if best := max(fitting, key=lambda each: (each.kind == "gcc", versions.key(each.version)), default=None):
            yield Found(
                message=f"nvcc {versions.minor(toolkit.version)} looks for gcc on PATH, where there is none",
                evidence=(f"nvcc at {toolkit.root}", f"{best.path} ({best.kind} {best.version}) is there and fits"),
                fix=_fix(machine, known, best, best),
            )
            return
    if any(each.kind == "msvc" or not windows for each in machine.compilers):
        return
    fix = "apt install g++" if view.prefers_apt(machine) else "dnf install gcc-c++"
    seen = "no cl.exe on PATH, and no Visual Studio" if windows else "no g++ or clang++ on PATH"
    yield Found(
        message=f"nvcc {versions.minor(toolkit.version)} is installed, but no C++ compiler for it",
        evidence=(f"nvcc at {toolkit.root}", seen),
        fix=_BUILD_TOOLS if windows else fix,
    )


@rule(
    "host-compiler-not-on-path",
    severity="note",
    why="""nvcc for Windows takes the cl.exe that is on PATH, and stops with "Cannot find compiler 'cl.exe' in PATH"
    without one. setuptools and CMake's Visual Studio generator find it themselves; cargo's build scripts, ninja and
    a plain call do not.""",
    source="nvcc.exe 13.0 without cl.exe on PATH; NVIDIA: CUDA installation guide for Windows",
)
def host_compiler_not_on_path(machine: MachineProfile) -> Iterator[Found]:
    toolkit = view.toolkit_in_use(machine)
    chosen = view.host_compiler(machine, toolkit.version) if toolkit else None
    if not (toolkit and chosen) or view.system(machine) != "windows" or chosen[1] in view.WAYS_ON_WINDOWS:
        return
    compiler, way = chosen
    yield Found(
        message=f"cl.exe of {way} is not on PATH: nvcc alone does not find it",
        evidence=(compiler.path, f"nvcc {toolkit.version} at {toolkit.root}"),
        fix=view.msvc_prompt(machine, compiler),
    )


@rule(
    "visual-studio-without-cuda",
    severity="note",
    why="""CMake's Visual Studio generator and .vcxproj files need the toolkit's own files among MSBuild's
    BuildCustomizations. The installer puts them there for every Visual Studio that is there already; one that is
    installed later has none, and CMake says "No CUDA toolset found".""",
    source="NVIDIA: CUDA installation guide for Windows; CMake: CMAKE_GENERATOR_TOOLSET",
)
def visual_studio_without_cuda(machine: MachineProfile) -> Iterator[Found]:
    toolkit = view.toolkit_in_use(machine)
    wanted = versions.minor(toolkit.version) if toolkit else ""
    lacking = [each for each in machine.visual_studios if wanted not in each.cuda]
    if not toolkit or not lacking or len(lacking) < len(machine.visual_studios):
        return
    yield Found(
        message=f"no Visual Studio here has the integration of CUDA {wanted}: its own CMake generator finds no CUDA",
        evidence=tuple(f"{each.name}: {'CUDA ' + ', '.join(each.cuda) if each.cuda else 'none'}" for each in lacking),
        fix=f'copy "{toolkit.root}\\extras\\visual_studio_integration\\MSBuildExtensions\\*" '
        f'"{lacking[0].path}\\MSBuild\\Microsoft\\VC\\v170\\BuildCustomizations", or build with cmake -G Ninja',
    )


RULES = (
    host_compiler_too_new,
    host_compiler_too_old,
    host_compiler_missing,
    host_compiler_not_on_path,
    visual_studio_without_cuda,
)
